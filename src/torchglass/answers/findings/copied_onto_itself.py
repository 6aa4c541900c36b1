"""A state is restored from itself: `state_dict()` does not copy.

The tensors of a state dict are the parameters themselves. What was kept as "best" goes on changing with the model, and
loading it again changes nothing.

    best = model.state_dict()                            # wrong: copy.deepcopy(model.state_dict())
    …                                                    # training goes on
    model.load_state_dict(best)                          # copies each parameter onto itself
    for p in target.parameters(): p.data.copy_(0.99 * p.data + 0.01 * p.data)     # wrong: q.data of the online network
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion

_FIRST_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*(?!\w*\())*")
"""``model.fc.weight`` in ``model.fc.weight.mul_(2)``: a dotted name, without the method that is called."""
AVERAGES = ("add_", "lerp_", "sub_", "__iadd__")
SUMS = ("add", "__add__")
PRODUCTS = ("mul", "__mul__", "__rmul__")


def find(facts: Facts) -> Iterator[Suspicion]:
    by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name in ("copy_", *AVERAGES):
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                if _takes_itself(facts, event) and not _is_on_purpose(facts, name, event):
                    location = facts.location(event)
                    line = ("", 0)
                    if location is not None:
                        line = (location.file, location.line)
                    by_line[line].append(event)
    for events in by_line.values():
        yield Suspicion(
            severity=BUG,
            event=events[0],
            text="tensors are copied onto, or averaged with, themselves: what was kept is no copy, and changed along",
            fix="keep a copy: copy.deepcopy(model.state_dict()), or {k: v.clone() …}",
            times=len(events),
        )


def _takes_itself(facts: Facts, event: int) -> bool:
    """Return whether the first two tensors of a call are the same memory, seen in the same way.

    A copy may also be of ``0.99 * a + 0.01 * a``, where ``a`` is what is written.
    """
    taken = facts.takes[event]
    if len(taken) < 2:
        return False
    one, other = taken[:2]
    average = facts.maker(other)
    if facts.name(event) == "copy_" and average is not None and facts.name(average) in SUMS:
        parts = [_unscaled(facts, each) for each in facts.takes[average]]
        if len(parts) != 2 or None in parts:
            return False
        memory = {facts.storage(each) for each in parts if each is not None}
        return memory == {facts.storage(one)} and facts.storage(one) >= 0
    if facts.storage(one) < 0 or facts.numel(one) == 0:
        return False
    is_one_memory = facts.storage(one) == facts.storage(other)
    return (
        is_one_memory
        and facts.shape(one) == facts.shape(other)
        and _is_same_place(facts, one, other)
    )


def _unscaled(facts: Facts, value: int) -> int | None:
    """Return what is multiplied with a plain number, or None."""
    maker = facts.maker(value)
    if maker is None or facts.name(maker) not in PRODUCTS or len(facts.takes[maker]) != 1:
        return None
    return facts.takes[maker][0]


def _is_on_purpose(facts: Facts, name: str, event: int) -> bool:
    """Return whether torch itself does this inside, as its optimizers do, or the program writes ``x.add_(x)``."""
    if name not in AVERAGES:
        return False
    recorded = facts.program.flow.recorded_takes[event]
    is_one_value = recorded[0] == recorded[1]
    return not facts.is_written(event) or (is_one_value and _is_one_name(facts, event))


def _is_one_name(facts: Facts, event: int) -> bool:
    """Return whether both operands begin with the same name, or are not known: ``x.mul_(2).add_(x)``."""
    names = [_FIRST_NAME.match(each) for each in facts.event(event).operands[:2]]
    if len(names) < 2 or names[0] is None or names[1] is None:
        return True
    return names[0][0] == names[1][0]


def _is_same_place(facts: Facts, one: int, other: int) -> bool:
    """Return whether two values of one memory are the same numbers, rather than two parts of it."""
    tables = facts.tables
    strides = [tables.metas[tables.value_meta[each]].stride for each in (one, other)]
    if strides[0] != strides[1]:
        return False
    makers = [facts.maker(each) for each in (one, other)]
    parts = ("__getitem__", "chunk", "split", "narrow", "select", "unbind")
    return not any(maker is not None and facts.name(maker) in parts for maker in makers)
