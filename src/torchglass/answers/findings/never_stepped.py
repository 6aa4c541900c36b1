"""Backward runs again and again, gradients are cleared, and nothing updates the parameters.

`optimizer.step()` is missing (or stands there without its parentheses), or an update by hand makes a new tensor
instead of writing into the parameter.

    for x, y in data:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step                                   # wrong: a method that nobody calls

That is right where only gradients are looked at: in measurements, and in attacks (which ask for the gradient of their
input, and are not reported).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import Accumulation
from torchglass.answers.findings.parameters import between, clearings, parameters_of
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, names_words

ENOUGH = 3


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial or facts.steps or len(facts.accumulations) < ENOUGH:
        return
    parameters = parameters_of(facts)
    leaves = [each for each in parameters.got if each in parameters.used]
    if not leaves or not all(facts.is_parameter(parameters.values[each]) for each in leaves):
        return
    if len(leaves) < len(parameters.got) or any(each in parameters.written for each in leaves):
        return
    pairs = zip(facts.accumulations, facts.accumulations[1:], strict=False)
    cleared = [after for before, after in pairs if _is_cleared(facts, before, after)]
    if len(cleared) < ENOUGH - 1 or not _have_stayed(facts, leaves):
        return
    yield Suspicion(
        severity=LIKELY,
        event=facts.accumulations[0].event,
        text=f"backward runs {len(facts.accumulations)} times, and nothing updates "
        f"{names_words([parameters.got[each] for each in leaves])}",
        fix="call optimizer.step() after backward()",
        times=len(facts.accumulations),
    )


def _is_cleared(facts: Facts, before: Accumulation, after: Accumulation) -> bool:
    """Return whether gradients were cleared between two runs of backward."""
    for parameter, gradient in after.gradients.items():
        earlier = before.gradients.get(parameter)
        if earlier is None:
            continue
        memory = facts.storage(gradient)
        if memory >= 0 and memory != facts.storage(earlier):
            return True
        return between(clearings(facts).get(memory, ()), before.event, after.event)
    return False


def _have_stayed(facts: Facts, leaves: list[int]) -> bool:
    """Return whether the same parameters, unchanged, got a gradient in several runs."""
    counts = [sum(leaf in each.gradients for each in facts.accumulations) for leaf in leaves]
    return min(counts) >= ENOUGH
