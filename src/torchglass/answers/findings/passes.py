"""Finds the passes of a model: each outermost call of a module, what it was for, and in which mode
its layers ran.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from torchglass.answers.findings.facts import Facts

NORMS = ("batch_norm",)
LOSSES = frozenset(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div ctc_loss".split()
)
# Calls that compare the output of a model with something: how an evaluation ends.
JUDGES = LOSSES | frozenset("eq __eq__ argmax ne __ne__ topk max allclose".split())
MOST_SEEN = 150
"""How many values are followed from the output of a pass, to limit the time."""
REPEATED = 3
"""From this many passes in a row over one input on, dropout in training mode is taken for Monte
Carlo dropout.
"""


@dataclass(slots=True)
class Switch:
    """One call of dropout or batch norm, the layers that training mode switches."""

    event: int
    is_on: bool
    """Whether the layer was in training mode."""
    is_dropout: bool
    stray: int | None = None
    """The call of the layer's module, if that module is not part of the model, so that ``eval()``
    does not reach it.
    """


@dataclass(slots=True)
class Pass:
    """One outermost call of a module."""

    event: int
    root: str
    is_trained: bool
    """Whether backward was called on something computed from the outputs."""
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    switches: list[Switch] = field(default_factory=list[Switch])


def passes_of(facts: Facts) -> list[Pass]:
    """Return the passes in which dropout or batch norm ran."""
    known = facts.memory.get("passes")
    if known is not None:
        return known
    found: dict[int, Pass] = {}
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", *NORMS):
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                switch = _switch(facts, event, name not in NORMS)
                modules = [each for each in facts.around(event) if facts.kind(each) == "module"]
                if switch is None or not modules:
                    continue
                root = modules[-1]
                if root not in found:
                    found[root] = _pass(facts, root)
                if len(modules) > 1 and _root(facts, modules[0]) != found[root].root:
                    switch.stray = modules[0]
                found[root].switches.append(switch)
    facts.memory["passes"] = passes = [found[each] for each in sorted(found)]
    return passes


def _switch(facts: Facts, event: int, is_dropout: bool) -> Switch | None:
    if is_dropout and not facts.argument(event, "p", 1, 0.5):
        return None
    is_on = facts.argument(event, "training", 2 if is_dropout else 5)
    return Switch(event, is_on is not False, is_dropout)


def _root(facts: Facts, event: int) -> str:
    return facts.tables.modules[facts.tables.module[event]].root


def _pass(facts: Facts, event: int) -> Pass:
    given = facts.gives[event]
    root = _root(facts, event)
    is_trained = any(value in facts.in_loss and facts.requires_grad(value) for value in given)
    return Pass(event, root, is_trained, given, facts.takes[event])


def is_judged(facts: Facts, one: Pass) -> bool:
    """Return whether the output of a pass is compared with something or goes into a loss, as in an
    evaluation.
    """
    pending = list(one.outputs)
    seen = set(one.outputs)
    while pending and len(seen) < MOST_SEEN:
        value = pending.pop()
        for user in facts.users.get(value, ()):
            if (
                facts.name(user) in JUDGES
                and not _is_of_all(facts, user)
                and not _is_forgotten(facts, user)
            ):
                return True
            for given in facts.gives[user]:
                if given not in seen:
                    seen.add(given)
                    pending.append(given)
    return False


def _is_of_all(facts: Facts, event: int) -> bool:
    """Return whether a call takes the maximum over all elements, as for scaling an image, rather
    than over classes.
    """
    if facts.name(event) != "max":
        return False
    return len(facts.takes[event]) == 1 and facts.argument(event, "dim", 1) is None


def _is_forgotten(facts: Facts, event: int) -> bool:
    """Return whether a call gives a loss with a gradient that nothing uses. The detector
    loss-unused reports that.
    """
    given = facts.gives[event]
    return bool(given) and facts.requires_grad(given[0]) and not facts.users.get(given[0])


def stepped_roots(facts: Facts) -> set[str]:
    """Return the names of the models whose parameters an optimizer updates with gradients."""
    return {
        step.held[parameter].partition(".")[0].partition("#")[0]
        for step in facts.steps
        for parameter in step.gradients
    }


def by_root(passes: list[Pass]) -> dict[str, list[Pass]]:
    found: dict[str, list[Pass]] = defaultdict(list)
    for each in passes:
        found[each.root].append(each)
    return found


def repeated_passes(passes: list[Pass]) -> set[int]:
    """Return the passes that run over the same input several times in a row, with no training in between."""
    found: set[int] = set()
    row: list[Pass] = []
    for each in passes:
        if each.is_trained or (row and row[-1].inputs != each.inputs):
            row = []
        if not each.is_trained:
            row.append(each)
        if len(row) >= REPEATED:
            found.update(one.event for one in row)
    return found
