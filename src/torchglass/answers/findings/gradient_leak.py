"""A step uses gradients that were computed for another optimizer.

With several optimizers a backward pass also gives gradients to the parameters of the others. If these are not cleared
before their own backward, their step follows both losses.

    d_loss.backward(); opt_d.step()                      # G got gradients, too: fake was not detached
    g_loss.backward(); opt_g.step()                      # wrong: opt_g.zero_grad() is missing before g_loss.backward()

Losses that are summed up on purpose, with no step in between, are fine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from torchglass.answers.findings.facts import Accumulation, OptimizerStep
from torchglass.answers.findings.parameters import between, clearings, groups
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, names_words, seen_at


def find(facts: Facts) -> Iterator[Suspicion]:
    by_optimizer = groups(facts)
    if len(by_optimizer) < 2:
        return
    runs = [each.event for each in facts.accumulations]
    at = [step.event for step in facts.steps]
    for steps in by_optimizer.values():
        leaks = [
            found for step in steps for found in [_leak(facts, step, at, runs)] if found is not None
        ]
        if len(leaks) < max(1, 0.5 * len(steps)):
            continue
        step, earlier, other, names = leaks[0]
        yield Suspicion(
            severity=LIKELY,
            event=step.event,
            text=f"{step.optimizer} also follows gradients that were computed for another optimizer "
            f"({names_words(names)})",
            evidence=(
                seen_at(facts, "computed here", earlier.event),
                seen_at(facts, "for this step", other.event),
            ),
            fix="clear them before the backward pass of their own loss, or detach what goes into the other one",
            times=len(leaks),
        )


Leak = tuple[OptimizerStep, Accumulation, OptimizerStep, list[str]]


def _leak(facts: Facts, step: OptimizerStep, steps: list[int], runs: list[int]) -> Leak | None:
    """Return the run of backward, and the step that it was for, whose gradients a later step uses, too."""
    last = bisect_left(runs, step.event) - 1
    before = last - 1
    if before < 0 or not _gives(facts.accumulations[last], step):
        return None
    now = facts.accumulations[last]
    earlier = facts.accumulations[before]
    in_between = facts.steps[bisect_left(steps, earlier.event) : bisect_left(steps, now.event)]
    if any(each.held == step.held for each in in_between):
        return None
    others = [
        each
        for each in in_between
        if step.held.keys().isdisjoint(each.held) and _gives(earlier, each)
    ]
    if not others:
        return None
    served = others[0]
    names: list[str] = []
    for parameter, gradient in now.gradients.items():
        memory = facts.storage(gradient)
        given = earlier.gradients.get(parameter)
        if (
            parameter not in step.held
            or given is None
            or memory < 0
            or facts.storage(given) != memory
        ):
            continue
        if not between(clearings(facts).get(memory, ()), earlier.event, now.event):
            names.append(step.held[parameter])
    if names:
        return (step, earlier, served, names)
    return None


def _gives(run: Accumulation, step: OptimizerStep) -> bool:
    return not step.held.keys().isdisjoint(run.gradients)
