"""A new optimizer is made for each step: what it remembers is lost every time.

Adam keeps averages of gradients, and momentum a running sum. A new one starts from nothing: the first step of Adam is
about as large as the learning rate, whatever the gradient, and momentum has no effect.

    for x, y in loader:
        optimizer = torch.optim.Adam(model.parameters()) # wrong: once, before the loop
        ...
        optimizer.step()

The memory of an optimizer is made in its first step, so this is reported where nearly every step makes it. Optimizers
that are made again for each task or epoch take several steps, and plain SGD remembers nothing: these are fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.parameters import groups
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion

ENOUGH_STEPS = 5
MAKES = ("zeros_like", "clone")
"""Calls by which optimizers make their memory: averages start at 0, momentum with the gradient."""


def find(facts: Facts) -> Iterator[Suspicion]:
    starting = _starting_steps(facts)
    if len(starting) < ENOUGH_STEPS:
        return
    for steps in groups(facts).values():
        with_gradients = [step for step in steps if step.gradients]
        again = [step for step in with_gradients if step.event in starting]
        if len(again) < ENOUGH_STEPS or len(again) < len(with_gradients):
            continue
        yield Suspicion(
            severity=LIKELY,
            event=again[0].event,
            text=f"each of {len(again)} steps of {again[0].optimizer} is the first one of a new optimizer: "
            "averages and momentum are lost",
            fix="make the optimizer once, before the loop",
            times=len(again),
        )


def _starting_steps(facts: Facts) -> set[int]:
    """Return the optimizer steps that make memory of the shape of each parameter with a gradient."""
    made: dict[int, int] = {step.event: 0 for step in facts.steps}
    names = {
        row
        for row, callee in enumerate(facts.tables.callees)
        if callee.name.rpartition(".")[2] in MAKES
    }
    callees = facts.tables.callee.tolist()
    parents = facts.tables.parent.tolist()
    for event, callee in enumerate(callees):
        if callee in names and parents[event] in made:
            made[parents[event]] += 1
    return {
        step.event
        for step in facts.steps
        if step.gradients and made[step.event] >= len(step.gradients)
    }
