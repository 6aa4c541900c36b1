"""An optimizer steps twice with the same gradient.

`optimizer.step()` is called again before a new backward: each gradient is used twice, as if the learning rate were
twice as high (with momentum, more).

    optimizer.step()
    scaler.step(optimizer)                               # wrong: this steps, too

Optimizers that step twice on purpose (SAM) run backward in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from torchglass.answers.findings.parameters import additions, between, groups
from torchglass.answers.findings.suspicion import LIKELY, Facts, OptimizerStep, Suspicion, seen_at


def find(facts: Facts) -> Iterator[Suspicion]:
    added = additions(facts)
    for steps in groups(facts).values():
        pairs: list[tuple[OptimizerStep, OptimizerStep]] = []
        for before, after in pairwise(steps):
            if not after.gradients or after.gradients != before.gradients:
                continue
            if not any(
                between(added.get(each, ()), before.event, after.event) for each in after.held
            ):
                pairs.append((before, after))
        if len(pairs) < max(1, len(steps) * 0.3):
            continue
        before, after = pairs[0]
        yield Suspicion(
            severity=LIKELY,
            event=after.event,
            text=f"{after.optimizer} steps a second time with the same gradients",
            evidence=(seen_at(facts, "the first time", before.event),),
            fix="step once for each backward",
            times=len(pairs),
        )
