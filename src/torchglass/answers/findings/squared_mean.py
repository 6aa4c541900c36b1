"""The mean of the differences is squared, or is the loss itself: errors of both signs cancel each other out.

A mean squared error is the mean of the squares. The square of the mean is 0 as soon as predictions are right on
average, and a mean without a square or `abs` gets smaller and smaller without end.

    loss = (prediction - y).mean() ** 2                  # wrong: ((prediction - y) ** 2).mean()
    loss = (prediction - y).mean()                       # wrong: .abs().mean()

It is only reported where that is the whole loss, and where the other side is data. Differences of two predictions, as
for critics, are fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

MEANS = ("mean", "sum")
POWERS = ("pow", "__pow__", "square", "abs", "sqrt")
SCALES = ("mul", "__mul__", "__rmul__", "div", "__truediv__")
DIFFERENCES = ("sub", "__sub__", "rsub", "__rsub__")
MOST_SEEN = 300


def find(facts: Facts) -> Iterator[Suspicion]:
    judged: set[str] = set()
    for root in facts.roots:
        power: int | None = None
        value = root
        maker = facts.maker(value)
        while maker is not None and facts.name(maker) in (*POWERS, *SCALES) and facts.takes[maker]:
            if facts.name(maker) in POWERS:
                power = maker
            value = facts.takes[maker][0]
            if facts.numel(value) > 1:
                break
            maker = facts.maker(value)
        if (
            maker is None
            or facts.name(maker) not in MEANS
            or facts.numel(facts.takes[maker][0]) < 2
        ):
            continue
        difference = facts.maker(facts.takes[maker][0])
        if difference is None or not _is_of_data(facts, difference):
            continue
        shown = maker if power is None else power
        if facts.code(shown) in judged or not facts.is_written(shown):
            continue
        judged.add(facts.code(shown))
        yield Suspicion(
            severity=LIKELY,
            event=shown,
            text=f"{facts.code(shown)}: errors of both signs cancel out in the {facts.name(maker)} of "
            f"{facts.code(difference)}",
            evidence=(seen_at(facts, facts.code(difference), difference),),
            fix="square (or abs) each difference, then take the mean",
            times=len(facts.roots),
        )


def _is_of_data(facts: Facts, event: int) -> bool:
    """Return whether a call is the difference of a prediction and of something that no parameter made."""
    taken = facts.takes[event]
    if facts.name(event) not in DIFFERENCES or len(taken) != 2:
        return False
    graded = [each for each in taken if facts.requires_grad(each)]
    if len(graded) != 1 or facts.numel(taken[0]) != facts.numel(taken[1]):
        return False
    pending = [each for each in taken if each != graded[0]]
    seen = set(pending)
    while pending and len(seen) < MOST_SEEN:
        maker = facts.maker(pending.pop())
        if maker is None:
            continue
        for each in facts.takes[maker]:
            if facts.is_parameter(each) or facts.requires_grad(each):
                return False
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return True
