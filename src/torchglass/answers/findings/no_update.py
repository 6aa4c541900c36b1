"""Steps do not change weights, although these have gradients.

The learning rate is 0 (a schedule that starts at 0 and is never stepped), or so small that the sum is rounded to the
old number, as in half precision.

    optimizer = torch.optim.SGD(model.half().parameters(), lr=1e-6)     # too small for float16

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`. The first step of a
warm-up that starts at 0 is fine. Only weights count: the gradient of a bias before a batch norm is 0 but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.parameters import groups
from torchglass.answers.findings.suspicion import (
    LIKELY,
    Facts,
    OptimizerStep,
    Suspicion,
    names_words,
)

ENOUGH_STEPS = 6
"""RAdam leaves out its first five steps."""


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured:
        return
    for steps in groups(facts).values():
        still = [_unmoved(facts, step) for step in steps]
        if len(still) < ENOUGH_STEPS:
            continue
        never_moved = still[0].intersection(*still[1:]) & _weights(facts, steps[0])
        if not never_moved:
            continue
        names = [steps[0].held[each] for each in steps[0].held if each in never_moved]
        yield Suspicion(
            severity=LIKELY,
            event=steps[0].event,
            text=f"{len(steps)} steps of {steps[0].optimizer} do not change {names_words(names)}, which have gradients",
            fix="look at the learning rate, and at the precision of the weights",
            times=len(steps),
            about=frozenset(never_moved),
        )


def _weights(facts: Facts, step: OptimizerStep) -> set[int]:
    """Return the parameters of an optimizer that have more than one axis."""
    return {
        facts.parameter(value.id)
        for value in facts.event(step.event).inputs
        if len(value.shape or ()) > 1
    }


def _unmoved(facts: Facts, step: OptimizerStep) -> set[int]:
    """Return the parameters with a gradient other than 0 that a step left as they were."""
    given = facts.program.flow.recorded_gives[step.event]
    found: set[int] = set()
    for parameter, change in zip(step.held, given, strict=False):
        gradient = step.gradients.get(parameter)
        update = facts.stats(change)
        if gradient is None or update is None or not update.count:
            continue
        stats = facts.stats(gradient)
        has_gradient = (
            stats is not None and stats.count > 0 and stats.finite == stats.count and stats.norm > 0
        )
        if has_gradient and update.zeros == update.count:
            found.add(parameter)
    return found
