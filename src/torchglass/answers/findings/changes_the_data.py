"""A tensor of data is normalised, scaled or made noisy in place, again in each iteration.

`x -= x.mean(0)`, `x /= 255`, `x += noise` change the data set itself. In the second epoch they work on what the first
one left.

    for epoch in range(10):
        images /= 255                                    # wrong: images = images / 255, before the loop
        loss = criterion(model(images), labels)

States that a model computes step by step, and what is written from the output of a model, are not reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

WRITES = (
    "sub_",
    "div_",
    "mul_",
    "add_",
    "__isub__",
    "__itruediv__",
    "__imul__",
    "__iadd__",
    "true_divide_",
)
FROM_ITSELF = frozenset(
    "mean std amax amin max min norm var abs sum add mul div sub clamp sqrt".split()
)
NOISE = frozenset("randn randn_like rand rand_like normal".split())
LAYERS = ("linear", "conv1d", "conv2d", "conv3d", "lstm", "gru", "matmul", "__matmul__")
LOSSES = (
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "cross_entropy",
    "binary_cross_entropy",
)
ENOUGH = 3


def find(facts: Facts) -> Iterator[Suspicion]:
    by_storage: dict[int, list[int]] = defaultdict(list)
    for name in WRITES:
        for event in (event for events in facts.by_name.get(name, {}).values() for event in events):
            taken = facts.takes[event]
            if (
                taken
                and facts.is_written(event)
                and facts.storage(taken[0]) >= 0
                and facts.is_float(taken[0])
            ):
                by_storage[facts.storage(taken[0])].append(event)
    if by_storage:
        fed = _fed(facts)
    else:
        fed = {}
    for storage, events in by_storage.items():
        events.sort()
        at_line: dict[int, list[int]] = defaultdict(list)
        for event in events:
            location = facts.location(event)
            at_line[0 if location is None else location.line].append(event)
        first = next(iter(at_line.values()))
        users = [event for event in fed.get(storage, ()) if event > first[0]]
        if (
            len(first) < ENOUGH
            or len(users) < ENOUGH
            or not all(_is_plain(facts, event) for event in events)
        ):
            continue
        yield Suspicion(
            severity=LIKELY,
            event=first[0],
            text=f"{facts.code(first[0])} changes the data in place, again in each of {facts.times(first)} iterations",
            evidence=(seen_at(facts, f"used by {facts.code(users[0])}", users[0]),),
            fix="make a new tensor, or do it once before the loop",
            times=len(first),
        )


def _fed(facts: Facts) -> dict[int, list[int]]:
    """Return the calls of layers, and of losses, by the memory of their input, or target."""
    found: dict[int, list[int]] = defaultdict(list)
    for name in LAYERS:
        for event in (event for events in facts.by_name.get(name, {}).values() for event in events):
            if facts.takes[event]:
                found[facts.storage(facts.takes[event][0])].append(event)
    for name in LOSSES:
        for event in (event for events in facts.by_name.get(name, {}).values() for event in events):
            for target in facts.takes[event][1:2]:
                found[facts.storage(target)].append(event)
    return found


def _is_plain(facts: Facts, event: int) -> bool:
    """Return whether what is written is a number, noise, or computed from the tensor itself."""
    own, *others = facts.takes[event]
    if facts.requires_grad(own) or facts.is_parameter(own):
        return False
    for value in others:
        for source, maker in facts.sources(value, FROM_ITSELF):
            is_same = facts.storage(source) == facts.storage(own)
            if not is_same and (maker is None or facts.name(maker) not in NOISE):
                return False
    return True
