"""The gradient at a step still contains that of the step before: `zero_grad()` is missing.

Backward adds to `.grad`. Without `optimizer.zero_grad()` each step goes along the sum of all gradients since the
beginning: training is unstable, or seems to have a momentum that nobody set.

    for x, y in data:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()                               # wrong: no optimizer.zero_grad() in the loop

Accumulating over several backward passes and then clearing is fine, however many there are, and so is any other way of
clearing (`p.grad = None`, `p.grad.zero_()`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from torchglass.answers.findings.parameters import Times, additions, between, clearings
from torchglass.answers.findings.suspicion import BUG, Facts, OptimizerStep, Suspicion, names_words


def find(facts: Facts) -> Iterator[Suspicion]:
    cleared = clearings(facts)
    added = additions(facts)
    by_holding: dict[frozenset[int], list[OptimizerStep]] = defaultdict(list)
    for step in facts.steps:
        by_holding[frozenset(step.held)].append(step)
    for steps in by_holding.values():
        kept: dict[int, str] = {}
        times = 0
        for before, after in pairwise(steps):
            names = _kept(facts, before, after, cleared, added)
            times += bool(names)
            kept.update(names)
        if times < max(1, (len(steps) - 1) * 0.5) or not kept:
            continue
        yield Suspicion(
            severity=BUG,
            event=steps[1].event,
            text=f"gradients pile up from step to step: zero_grad() is missing ({names_words(list(kept.values()))})",
            fix="call optimizer.zero_grad() once for each step, before backward()",
            times=times,
        )


def _kept(
    facts: Facts, before: OptimizerStep, after: OptimizerStep, cleared: Times, added: Times
) -> dict[int, str]:
    """Return the parameters whose gradient was added to between two steps, and not cleared."""
    found: dict[int, str] = {}
    for parameter, gradient in after.gradients.items():
        earlier = before.gradients.get(parameter)
        if earlier is None:
            continue
        memory = facts.storage(gradient)
        if memory < 0 or memory != facts.storage(earlier):
            continue
        if between(cleared.get(memory, ()), before.event, after.event):
            continue
        if between(added.get(parameter, ()), before.event, after.event):
            found[parameter] = after.held[parameter]
    return found
