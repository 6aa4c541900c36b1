"""Gradients are computed and cleared before a step uses them: only the last batch before each step counts.

Accumulating needs `zero_grad()` after each *step*. Called for each batch it throws away what the earlier batches of the
same step have added.

    for i, (x, y) in enumerate(data):
        optimizer.zero_grad()                            # wrong: belongs below optimizer.step()
        (criterion(model(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()

It is fine where some batches are left out on purpose, as those whose loss is not finite.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from torchglass.answers.findings.facts import Accumulation
from torchglass.answers.findings.parameters import between, clearings, groups
from torchglass.answers.findings.suspicion import LIKELY, Facts, OptimizerStep, Suspicion, seen_at

ENOUGH = 2
"""Steps for which it has to happen in the same way."""


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.closures:
        return
    runs = [each.event for each in facts.accumulations]
    for steps in groups(facts).values():
        pairs = zip([None, *steps[:-1]], steps, strict=True)
        wasted = [
            found for before, after in pairs if (found := _wasted(facts, before, after, runs))
        ]
        counts = Counter(len(each) for each in wasted)
        if len(wasted) < max(ENOUGH, 0.9 * len(steps)) or len(counts) != 1:
            continue
        number = len(wasted[0])
        first = wasted[0][0]
        yield Suspicion(
            severity=LIKELY,
            event=first.run,
            text=f"{number} of {number + 1} backward passes are for nothing: their gradients are cleared "
            f"before {steps[0].optimizer} steps",
            evidence=(seen_at(facts, "the step", steps[0].event),),
            fix="call zero_grad() after each step, not for each batch",
            times=number * len(wasted),
        )


def _wasted(
    facts: Facts, before: OptimizerStep | None, after: OptimizerStep, runs: list[int]
) -> list[Accumulation]:
    """Return the backward passes between two steps whose gradients the second one does not see.

    They are made at the same line as the one that it sees: gradients that another loss leaves behind are none.
    """
    first = 0
    if before is not None:
        first = bisect_right(runs, before.event)
    last = bisect_left(runs, after.event)
    own = [
        each
        for each in facts.accumulations[first:last]
        if not after.held.keys().isdisjoint(each.gradients)
    ]
    if len(own) < 2:
        return []
    final = own[-1]
    place = facts.location(final.run)
    lost: list[Accumulation] = []
    for each in own[:-1]:
        shared = each.gradients.keys() & final.gradients.keys() & after.held.keys()
        if not shared or facts.location(each.run) != place:
            return []
        if not all(_is_cleared(facts, each, final, parameter) for parameter in shared):
            return []
        lost.append(each)
    return lost


def _is_cleared(facts: Facts, early: Accumulation, late: Accumulation, parameter: int) -> bool:
    memory = facts.storage(early.gradients[parameter])
    if memory < 0:
        return False
    if memory != facts.storage(late.gradients[parameter]):
        return True
    return between(clearings(facts).get(memory, ()), early.event, late.event)
