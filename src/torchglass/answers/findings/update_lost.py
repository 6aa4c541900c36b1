"""A new value of a weight is computed and given a name; the weight itself stays as it is.

`p = p - lr * p.grad` makes another tensor and calls it p. In a loop over parameters nothing keeps it, and
`model.state_dict()[k] = …` writes into a dict that is thrown away.

    for p, average in zip(model.parameters(), ema.parameters()):
        average = 0.99 * average + 0.01 * p              # wrong: average.mul_(0.99).add_(p, alpha=0.01)
    for p in model.parameters():
        p = p - lr * p.grad                              # wrong: p.sub_(lr * p.grad), under torch.no_grad()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion

SUMS = ("add", "__add__", "__radd__", "sub", "__sub__", "lerp")
SCALES = ("mul", "__mul__", "__rmul__", "detach", "data", "clone")
ENOUGH = 2
"""Times that the same weight has to be treated like that."""


def find(facts: Facts) -> Iterator[Suspicion]:
    weights = _weights(facts)
    for name in SUMS:
        places: dict[int, list[int]] = {}
        for look, events in facts.by_name.get(name, {}).items():
            places.setdefault(look[0], []).extend(events)
        for events in places.values():
            events.sort()
            yield from _judged(facts, events, weights)


def _judged(facts: Facts, events: list[int], weights: set[int]) -> Iterator[Suspicion]:
    first = events[0]
    if len(events) < ENOUGH or not facts.is_written(first) or not facts.takes[first]:
        return
    treated: Counter[int] = Counter()
    for event in events:
        if any(facts.users.get(given) for given in facts.gives[event]):
            return
        source = _weight(facts, facts.takes[event][0], weights)
        if source is None or facts.shape(facts.gives[event][0]) != facts.shape(source):
            return
        treated[facts.storage(source)] += 1
    if min(treated.values()) < ENOUGH or not facts.event(first).target:
        return
    yield Suspicion(
        severity=BUG,
        event=first,
        text=f"{facts.code(first)} gives a new tensor that nothing uses: the weight stays as it is",
        fix="write into the weight, under torch.no_grad(): p.copy_(…), p.sub_(…), p.mul_(…).add_(…)",
        times=len(events),
    )


def _weights(facts: Facts) -> set[int]:
    """Return the memory of all parameters, and of what belongs to a state dict."""
    return {
        facts.storage(value)
        for events in facts.outer
        for value in facts.takes[events]
        if facts.is_parameter(value)
    } - {-1}


def _weight(facts: Facts, value: int, weights: set[int]) -> int | None:
    """Return the weight that a number is made of by scaling."""
    for _ in range(4):
        if facts.storage(value) in weights:
            return value
        maker = facts.maker(value)
        if maker is None or facts.name(maker) not in SCALES or not facts.takes[maker]:
            return None
        value = facts.takes[maker][0]
    return None
