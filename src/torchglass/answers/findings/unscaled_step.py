"""An optimizer steps with gradients that a GradScaler made 65,536 times too large.

After `scaler.scale(loss).backward()` gradients are scaled. `scaler.step(optimizer)` divides them before it steps;
`optimizer.step()` does not.

    scaler.scale(loss).backward()
    optimizer.step()                                     # wrong: scaler.step(optimizer); scaler.update()

Adam hardly notices a constant factor, but its epsilon, clipping, and weight decay are off all the same. It is fine
after `scaler.unscale_(optimizer)`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at
from torchglass.events.gradients import OVERFLOW_CHECK

SCALER = "GradScaler.scale"


def find(facts: Facts) -> Iterator[Suspicion]:
    scaled = sorted(
        run for value, runs in facts.roots.items() if _is_scaled(facts, value) for run in runs
    )
    if not scaled:
        return
    runs = sorted(facts.backwards)
    name = OVERFLOW_CHECK.rpartition(".")[2]
    unscalings = sorted(
        event for events in facts.by_name.get(name, {}).values() for event in events
    )
    wrong: list[int] = []
    for step in facts.steps:
        last = bisect_left(runs, step.event) - 1
        if last < 0 or runs[last] not in scaled:
            continue
        after = bisect_left(unscalings, runs[last])
        is_unscaled = after < len(unscalings) and unscalings[after] < step.event
        if not is_unscaled and step.gradients:
            wrong.append(step.event)
    if wrong:
        yield Suspicion(
            severity=BUG,
            event=wrong[0],
            text="the optimizer steps with gradients that are still scaled by the GradScaler",
            evidence=(seen_at(facts, "backward of the scaled loss", scaled[0]),),
            fix="use scaler.step(optimizer), and scaler.update() after it",
            times=len(wrong),
        )


def _is_scaled(facts: Facts, value: int) -> bool:
    maker = facts.maker(value)
    if maker is None or facts.name(maker) not in ("mul", "__mul__"):
        return False
    stack = facts.tables.stack[maker]
    locations = ()
    if stack >= 0:
        locations = facts.tables.stack_locations(stack)
    return any(
        each.function.startswith(SCALER) and each.origin == "torch" for each in locations[-3:]
    )
