"""A model is evaluated in train mode: dropout drops numbers, batch norm uses (and changes) its statistics.

Results are worse than they should be, differ from run to run, and depend on the batch.

    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y)             # wrong: model.eval() is missing

`torch.no_grad()` does not switch modes. Monte Carlo dropout, which runs the model several times over the same input on
purpose, is not reported, nor passes whose result is used for training (a generator, a teacher that moves along).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.passes import Pass, is_judged, passes_of, repeated_passes
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion


def find(facts: Facts) -> Iterator[Suspicion]:
    passes = passes_of(facts)
    repeated = repeated_passes(passes)
    found: dict[tuple[str, int], list[int]] = {}
    about: dict[tuple[str, int], str] = {}
    last_backward = max(facts.backwards, default=-1)
    trained_lines = {_line(facts, each) for each in passes if each.is_trained}
    for each in passes:
        on = [
            switch
            for switch in each.switches
            if switch.is_on and switch.stray is None and _has_a_mode(facts, switch.event)
        ]
        if each.is_trained or not on or each.event in repeated:
            continue
        is_off = not any(facts.requires_grad(value) for value in each.outputs)
        if not is_off and (facts.has_gaps or not facts.steps):
            continue  # its backward may be what is missing
        if not is_off and each.event > last_backward and _line(facts, each) in trained_lines:
            continue  # the program ended before the next backward, as in the middle of an episode
        if not is_judged(facts, each) or (_teaches(facts, each) and not _stands_still(facts, each)):
            continue
        key = (each.root, _line(facts, each))
        found.setdefault(key, []).append(each.event)
        around = facts.module_around(on[0].event)
        about.setdefault(
            key, each.root if around is None else facts.event(around).module or each.root
        )
    for (root, _), events in found.items():
        yield Suspicion(
            severity=LIKELY,
            event=events[0],
            text=f"{root} is in train mode ({about[root, _]}) while it is evaluated: model.eval() is missing",
            fix="call model.eval() before evaluating, and model.train() before training goes on",
            times=len(events),
        )


def _line(facts: Facts, one: Pass) -> int:
    location = facts.location(one.event)
    if location is None:
        return 0
    return location.line


def _has_a_mode(facts: Facts, event: int) -> bool:
    """Return whether a dropout or batch norm belongs to a layer, so that eval() would have switched it."""
    parent = facts.tables.parent[event]
    return parent >= 0 and facts.kind(parent) == "module" and not facts.is_written(event)


def _teaches(facts: Facts, one: Pass) -> bool:
    """Return whether what a pass gave goes into a loss without a gradient: it is a target."""
    return any(value in facts.in_loss for value in one.outputs)


def _stands_still(facts: Facts, one: Pass) -> bool:
    """Return whether a model drops numbers and nothing writes into its weights: a teacher that was trained before."""
    if not any(switch.is_on and switch.is_dropout for switch in one.switches):
        return False
    memory: set[int] = set()
    parents = facts.tables.parent
    for event in range(one.event + 1, len(facts.takes)):
        if parents[event] < one.event:
            break
        taken = facts.program.flow.recorded_takes[event]
        memory.update(map(facts.parameter, filter(facts.is_parameter, taken)))
    writes = [name for name in facts.by_name if name.endswith("_") or name == "__setitem__"]
    return not any(
        event > one.event
        and facts.takes[event]
        and facts.parameter(facts.takes[event][0]) in memory
        for name in writes
        for events in facts.by_name[name].values()
        for event in events
    )
