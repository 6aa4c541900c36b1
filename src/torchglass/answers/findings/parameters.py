"""Finds out what happened to parameters: use, gradients, optimizers, and when gradients were
cleared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torchglass.answers.findings.facts import Facts, OptimizerStep

Times = dict[int, list[int]]
"""Events in order, keyed by parameter or by memory."""
# Calls that overwrite a gradient's memory, and calls that do so if they multiply by zero.
CLEARS = ("zero_", "fill_", "_foreach_zero_", "copy_", "_foreach_copy_")
NO_USES = ("grad", "data", "detach", "clone", "__setitem__", "to", "norm", "backward")
"""Calls that take a parameter without computing anything for the model."""
SCALES = ("mul_", "__imul__", "_foreach_mul_")


@dataclass(slots=True)
class Parameters:
    """The parameters of a program, each identified by its memory."""

    held: dict[int, str]
    """The names of the parameters that some optimizer updates."""
    got: dict[int, str]
    """The names of the parameters that got a gradient."""
    used: dict[int, int]
    """The first call that used each parameter."""
    values: dict[int, int]
    """One value of each parameter: the first one that was used."""
    written: set[int]
    """The parameters into which the user's code wrote."""
    numbers: dict[int, int]
    """Tensors with one element that got a gradient, whether or not they are parameters, with the
    first call that took them.
    """


def parameters_of(facts: Facts) -> Parameters:
    """Return the parameters of a trace. They are computed once."""
    known = facts.memory.get("parameters")
    if isinstance(known, Parameters):
        return known
    held: dict[int, str] = {}
    got: dict[int, str] = {}
    used: dict[int, int] = {}
    values: dict[int, int] = {}
    numbers_used: dict[int, int] = {}
    for step in facts.steps:
        held.update(step.held)
    for each in facts.accumulations:
        got.update(each.names)
    metas = {row for row, meta in enumerate(facts.tables.metas) if meta.type.endswith("Parameter")}
    numbers = {
        row
        for row, meta in enumerate(facts.tables.metas)
        if meta.requires_grad and prod(meta.shape or ()) == 1
    }
    value_meta = facts.tables.value_meta
    for event in facts.outer:
        for value in facts.takes[event]:
            meta = value_meta[value]
            if meta in numbers and facts.parameter(value) in got:
                numbers_used.setdefault(facts.parameter(value), event)
            if meta in metas:
                parameter = facts.parameter(value)
                values.setdefault(parameter, value)
                name = facts.name(event)
                if parameter not in used and not name.endswith("_") and name not in NO_USES:
                    used[parameter] = event
                    values[parameter] = value
    found = Parameters(held, got, used, values, _written(facts), numbers_used)
    facts.memory["parameters"] = found
    return found


def _written(facts: Facts) -> set[int]:
    """Return what the user's code changed in place, or took ``.data`` of."""
    found: set[int] = set()
    names = [
        name
        for name in facts.by_name
        if name.endswith("_") or name in ("__isub__", "__iadd__", "__setitem__")
    ]
    for name in (*names, "data"):
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                if facts.takes[event] and facts.is_written(event):
                    found.add(facts.parameter(facts.takes[event][0]))
    return found


def groups(facts: Facts) -> dict[frozenset[int], list[OptimizerStep]]:
    """Return the optimizer steps, grouped by the set of parameters that they update."""
    found: dict[frozenset[int], list[OptimizerStep]] = defaultdict(list)
    for step in facts.steps:
        found[frozenset(step.held)].append(step)
    return found


def between(events: Sequence[int], after: int, before: int) -> bool:
    """Return whether one of the sorted events lies strictly between two others."""
    return bisect_right(events, after) < bisect_left(events, before)


def clearings(facts: Facts) -> Times:
    """Return the calls that overwrite memory or multiply it by zero, keyed by the memory."""
    known = facts.memory.get("clearings")
    if known is not None:
        return known
    found: Times = defaultdict(list)
    for name in CLEARS:
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                overwritten = facts.takes[event]
                if name in ("copy_", "_foreach_copy_"):
                    # The second half is what is copied.
                    overwritten = overwritten[: len(overwritten) // 2]
                for value in overwritten:
                    found[facts.storage(value)].append(event)
    for name in SCALES:
        for events in facts.by_name.get(name, {}).values():
            if 0 in facts.arguments(events[0]).positional:
                for event in events:
                    found[facts.storage(facts.takes[event][0])].append(event)
    for events in found.values():
        events.sort()
    facts.memory["clearings"] = found
    return found


def additions(facts: Facts) -> Times:
    """Return the events in which backward added to a gradient, keyed by parameter."""
    known = facts.memory.get("additions")
    if known is not None:
        return known
    found: Times = defaultdict(list)
    for each in facts.accumulations:
        for parameter in each.gradients:
            found[parameter].append(each.event)
    facts.memory["additions"] = found
    return found
