"""`argmax()` without an axis gives one place in the whole tensor, and that is compared with a label for each sample.

The place counts all entries, row after row: it has nothing to do with the classes. The comparison broadcasts, and the
accuracy is close to 0, or whatever chance gives.

    correct = (logits.argmax() == labels).sum()          # wrong: logits.argmax(dim=1)
    correct = (logits.argmax(0) == labels).sum()         # the same, where there are as many samples as classes

For a single sample, and for tensors with one axis, it is fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

COMPARES = ("eq", "__eq__", "ne", "__ne__")
LEAST = 2
PROBABILITIES = ("softmax", "log_softmax", "sigmoid", "detach", "data", "cpu")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("argmax", "argmin"):
        for event, times in facts.calls(name):
            if not facts.takes[event] or not facts.gives[event] or not facts.is_written(event):
                continue
            shape = facts.shape(facts.takes[event][0])
            sizes = [size for size in shape if size > 1]
            if len(sizes) < LEAST:
                continue
            if facts.shape(facts.gives[event][0]):
                yield from _over_batch(facts, event, times, shape)
                continue
            compared = _compared(facts, facts.gives[event][0], shape)
            if compared is None:
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{facts.code(event)} is one place among all {facts.numel(facts.takes[event][0])} numbers of "
                f"{facts.word(facts.takes[event][0])}, and is compared with a label for each of {shape[0]}",
                evidence=(seen_at(facts, facts.code(compared), compared),),
                fix="name the axis of the classes: argmax(dim=1)",
                times=times,
            )


def _over_batch(
    facts: Facts, event: int, times: int, shape: tuple[int, ...]
) -> Iterator[Suspicion]:
    """Find the place of the best sample for each class, where as many samples as classes hide the mistake."""
    _, maker = next(facts.sources(facts.takes[event][0], PROBABILITIES))
    is_scores = maker is not None and facts.name(maker) in ("linear", "addmm")
    if len(shape) != 2 or facts.argument(event, "dim", 1) not in (0, -2) or not is_scores:
        return
    compared = _compared(facts, facts.gives[event][0], shape)
    if compared is None:
        return
    yield Suspicion(
        severity=LIKELY,
        event=event,
        text=f"{facts.code(event)} is the best sample for each class, and is compared with a label for each sample",
        evidence=(seen_at(facts, facts.code(compared), compared),),
        fix="the classes are the last axis: argmax(dim=1)",
        times=times,
    )


def _compared(facts: Facts, place: int, shape: tuple[int, ...]) -> int | None:
    """Return the call that compares a place with one number for each sample."""
    for user in facts.users.get(place, ()):
        if facts.name(user) not in COMPARES:
            continue
        others = [each for each in facts.takes[user] if each != place]
        if any(facts.shape(each)[:1] == shape[:1] and facts.numel(each) > 1 for each in others):
            return user
    return None
