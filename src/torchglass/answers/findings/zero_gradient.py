"""Weights get a gradient that is exactly 0 in every step: they do not learn.

Something between them and the loss stops the gradient without ending the graph: a ReLU that is always 0, a clamp that
always clips, a factor of 0, weights of zero on both sides, or a loss that does not depend on them.

    loss = criterion(model(x).clamp(0, 0.001), y)        # always clipped: no gradient

Where fewer than half of the weights are concerned it is only a hint: a part of a result may be left out on purpose, as
where attention is used at its first position only.

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`. Biases are left out:
that of a critic, and those before a batch norm, have no gradient by their nature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings import dead_units, saturated
from torchglass.answers.findings.parameters import parameters_of
from torchglass.answers.findings.suspicion import (
    HINT,
    LIKELY,
    Facts,
    Suspicion,
    names_words,
    seen_at,
)
from torchglass.events.types import Stats

ENOUGH_STEPS = 2


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured or facts.is_partial:
        return
    seen: dict[int, list[Stats]] = defaultdict(list)
    for step in facts.steps:
        for parameter, gradient in step.gradients.items():
            stats = facts.stats(gradient)
            if stats is not None:
                seen[parameter].append(stats)
    zero = {each for each, stats in seen.items() if _is_always_zero(stats)}
    parameters = parameters_of(facts)
    weights = [
        each
        for each in zero
        if each in parameters.used and _is_weight(facts, parameters.values[each])
    ]
    if not weights or any(
        True for detector in (dead_units, saturated) for _ in detector.find(facts)
    ):
        return  # dead units are the cause, and are reported
    weights.sort(key=parameters.used.__getitem__)
    names = [parameters.held[each] for each in weights]
    first = parameters.used[weights[0]]
    first_step = next(step.event for step in facts.steps if weights[0] in step.gradients)
    all_weights = [
        each
        for each in seen
        if each in parameters.used and _is_weight(facts, parameters.values[each])
    ]
    severity = LIKELY
    if 2 * len(weights) < len(all_weights):
        severity = HINT
    yield Suspicion(
        severity=severity,
        event=first,
        text=f"the gradient of {names_words(names)} is exactly 0 in all {len(seen[weights[0]])} steps",
        evidence=(seen_at(facts, "the first step", first_step),),
        fix="look for what is always clipped, always negative before a ReLU, or multiplied by 0 behind them",
        about=frozenset(weights),
    )


def _is_always_zero(stats: list[Stats]) -> bool:
    return len(stats) >= ENOUGH_STEPS and all(
        each.count > 0 and each.zeros == each.count for each in stats
    )


def _is_weight(facts: Facts, value: int) -> bool:
    return len(facts.shape(value)) >= 2
