"""`mean`, `sum` or `max` along an axis of a single number: it was already reduced before.

A reduction without `dim` adds up everything, the batch included. A second one after it does nothing, and the first one
did too much: the loss grows with the batch, or with the size of the data.

    kl = torch.sum(1 + logvar - mu ** 2 - logvar.exp())  # wrong: .sum(dim=1)
    kl = torch.mean(kl, dim=0)                           # nothing is left to average

Calls without `dim`, as in code that works for numbers and tensors alike, are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

REDUCES = ("mean", "sum", "logsumexp", "std", "var", "prod", "nanmean", "nansum")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in REDUCES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if not taken or not facts.is_written(event) or facts.shape(taken[0]):
                continue
            if type(facts.argument(event, "dim", 1)) is not int:
                continue
            maker = facts.maker(taken[0])
            if maker is None or facts.numel(_largest(facts, maker)) < 2:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} reduces a single number: everything was added up before it",
                evidence=(seen_at(facts, facts.code(maker), maker),),
                fix=f"give {facts.name(maker)} the axis that it is to reduce, such as dim=1",
                times=times,
            )


def _largest(facts: Facts, maker: int) -> int:
    """Return the largest tensor that went into a number, looking back over factors and signs."""
    for _ in range(4):
        if not facts.takes[maker]:
            break
        value = max(facts.takes[maker], key=facts.numel)
        before = facts.maker(value)
        if facts.numel(value) > 1 or before is None:
            return value
        maker = before
    return facts.takes[maker][0] if facts.takes[maker] else facts.gives[maker][0]
