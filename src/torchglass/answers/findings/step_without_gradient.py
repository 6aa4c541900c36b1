"""An optimizer steps, and none of its parameters has a gradient: nothing is updated.

Either `zero_grad()` stands between `backward()` and `step()`, or backward is never called for these parameters.

    loss.backward()
    optimizer.zero_grad()                                # wrong: clears what backward has just computed
    optimizer.step()

A single such step among others (where a batch was skipped) is fine, and so are steps before the first backward.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from torchglass.answers.findings.parameters import Times, additions, between, clearings, groups
from torchglass.answers.findings.suspicion import (
    BUG,
    LIKELY,
    Facts,
    OptimizerStep,
    Suspicion,
    seen_at,
)


def find(facts: Facts) -> Iterator[Suspicion]:
    added = additions(facts)
    cleared = clearings(facts)
    yield from _holding_nothing(facts)
    for steps in groups(facts).values():
        empty = [step for step in steps if not step.gradients and step.held]
        zeroed = [
            step for step in steps if step.gradients and _is_zeroed(facts, step, added, cleared)
        ]
        if any(step.event in facts.closures for step in steps):
            continue  # its gradients come from its closure
        bad = zeroed
        if len(empty) >= len(zeroed):
            bad = empty
        if not bad or len(bad) < max(1, 0.6 * len(steps)):
            continue
        step = next((each for each in bad if _last_addition(each, added) is not None), bad[0])
        addition = _last_addition(step, added)
        had = addition is not None
        evidence = ()
        if had:
            evidence = (seen_at(facts, "backward had given them one", addition),)
        elif facts.is_partial or any(each in added for each in step.held):
            continue  # backward came after the steps, or may have been missed
        yield Suspicion(
            severity=BUG if had or len(steps) > 1 else LIKELY,
            event=step.event,
            text=f"{step.optimizer}.step() finds no gradient in any of its {len(step.held)} parameters"
            + (
                ": they are cleared between backward() and step()"
                if had
                else ": backward never gave them one"
            ),
            evidence=evidence,
            fix="call zero_grad() before backward(), or after step()"
            if had
            else "call backward() on their loss first",
            times=len(bad),
            about=frozenset(step.held),
        )


def _last_addition(step: OptimizerStep, added: Times) -> int | None:
    """Return the last event before a step that added to a gradient of its parameters."""
    before = (
        events[bisect_left(events, step.event) - 1]
        for parameter in step.held
        if (events := added.get(parameter)) and events[0] < step.event
    )
    return max(before, default=None)


def _holding_nothing(facts: Facts) -> Iterator[Suspicion]:
    """Find optimizers of which no parameter requires a gradient."""
    steps = [step for step in facts.steps if not step.held]
    if steps and facts.accumulations:
        yield Suspicion(
            severity=BUG,
            event=steps[0].event,
            text=f"{steps[0].optimizer} updates nothing: none of its parameters requires a gradient",
            fix="give it the parameters that are to be trained",
            times=len(steps),
        )


def _is_zeroed(facts: Facts, step: OptimizerStep, added: Times, cleared: Times) -> bool:
    """Return whether all gradients of a step were set to zero after backward had added to them."""
    for parameter, gradient in step.gradients.items():
        last = [event for event in added.get(parameter, ()) if event < step.event][-1:]
        if not last or not between(cleared.get(facts.storage(gradient), ()), last[0], step.event):
            return False
    return True
