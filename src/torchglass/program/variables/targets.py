"""Reconstructs the changes of variables if none were followed (``record(variables=…)``).

Each event has the names that its result was assigned to. Most tensors are assigned once, so these changes are most of
what happens to them::

    out, (h, c) = lstm(x)       # changes of out, h and c, by one event
    a = b = out.relu()          # changes of a and b
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.types import Event, Location
from torchglass.program.calls import UNKNOWN_PLACE, PythonCalls
from torchglass.program.frames import is_own
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.program.variables.changes import NOT_KNOWN, Change, ChangesRead, side_of, values_in

_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)
"""A string literal, or any one character."""
SET_ITEM = "Tensor.__setitem__"
"""What ``x[mask] = 0`` calls. The tensor ``x`` changes; there is no variable ``x[mask]``."""
GIVES_RESULT_OF_CALL = frozenset(["CheckpointFunction.apply"])
"""Functions whose result torch returns from the function that the program calls, such as ``checkpoint(block, x)``."""
_ASSIGNED = re.compile(r"\s*([^=()]+?)\s*=\s*")


def assigned_to(event: Event) -> tuple[str, ...]:
    """Return the names that a result was assigned to.

    For a chained assignment, ``a = c = f(x)``, they are one text as written: ``("a = c",)``.
    """
    if event.location is None:
        return event.target
    if event.name in GIVES_RESULT_OF_CALL and not event.target:
        return _written_before(event.location.source, event.code.partition("\n")[0])
    if len(event.target) < 2:
        return event.target
    return _as_written(event.target, event.location.source, event.code.partition("\n")[0])


def _written_before(source: str, code: str) -> tuple[str, ...]:
    """Return what a line assigns the value of this code to: ``z`` of ``z = checkpoint(block, x)``."""
    if not code or not source.rstrip().endswith(code):
        return ()
    assigned = _ASSIGNED.fullmatch(source[: source.rfind(code)])
    if assigned is None:
        return ()
    return (assigned[1],)


@lru_cache(maxsize=4096)
def _as_written(target: tuple[str, ...], source: str, code: str) -> tuple[str, ...]:
    head = ""
    if code in source:
        head = source[: source.rfind(code)].rstrip()
    names = head.removesuffix("=").rstrip()
    chained = head.endswith("=") and " = " in names and all(name in names for name in target)
    if chained:
        return (names,)
    return target


def read_targets(trace: Recorded) -> ChangesRead:
    """Return the changes that the events of a trace show, in the program's own files."""
    program = program_of(trace)
    reading = ChangesRead(program, is_guessed=True)
    distinct = program.distinct
    calls = PythonCalls(distinct, program.tree)
    values_of = values_in(trace)
    known: dict[tuple[int, int], list[_TargetChange]] = {}
    stored = {_place(event) for event in distinct.samples if event.name == SET_ITEM}
    has_target = [
        bool(event.target) and (event.name == SET_ITEM or _place(event) not in stored)
        for event in distinct.samples
    ]
    for number, alike in enumerate(distinct.alike):
        if not has_target[alike]:
            continue
        parent = distinct.parents[number]
        key = (alike, distinct.alike[parent] if parent >= 0 else -1)
        changes = known.get(key)
        if changes is None:
            around = distinct.sample(parent) if parent >= 0 else None
            changes = known[key] = _target_changes(distinct.samples[alike], around)
        if changes and not is_own(changes[0].event.location or UNKNOWN_PLACE):
            reading.in_packages += 1
            continue
        for output, event in changes:
            if output is not None:
                new = side_of("", (values_of(number)[1][output],))
            else:
                new = side_of(event.result, ())
            call = calls.call_of(number, event)
            how = event.detail or "assigned"
            reading.changes.append(Change(number, event, how, NOT_KNOWN, new, call, parent))
    return reading


def _place(event: Event) -> tuple[str | None, int | None, tuple[str, ...]]:
    """Return the line of an assignment, and its targets."""
    return event.file, event.line, event.target


class _TargetChange(NamedTuple):
    """The change of one name that a result was assigned to."""

    output: int | None
    """The index of the output that the name holds; None if it holds no tensor, or several."""
    event: Event
    """An event of kind ``variable``, as if the variable had been followed."""


def _target_changes(event: Event, around: Event | None) -> list[_TargetChange]:
    """Return a change for each name that the result of an event was assigned to.

    ``around`` is the event around it.
    """
    if event.name == SET_ITEM and event.outputs:
        change = _as_change(event, event.code, around)
        name = _indexed(event.target[0])
        return [_TargetChange(0, change._replace(name=name, detail="changed"))]
    code = f"{', '.join(assigned_to(event))} = {event.code}"
    if event.operator is not None and event.operator in event.code and event.operator.endswith("="):
        code = event.code
    change = _as_change(event, code, around)
    return [
        _TargetChange(output, change._replace(name=name, result=text))
        for name, output, text in _assignments(event)
    ]


def _as_change(event: Event, code: str, around: Event | None) -> Event:
    """Return an event as that of a variable."""
    module = None
    root = None
    if around is not None:
        module = around.module
        root = around.root
    return event._replace(
        kind="variable",
        code=code,
        detail="assigned",
        module=module,
        root=root,
        stack=_up_to_program(event.stack),
    )


def _indexed(target: str) -> str:
    """Return what is indexed: ``x`` of ``x[x > 0]``."""
    depth = 0
    for at in range(len(target) - 1, -1, -1):
        depth += (target[at] == "]") - (target[at] == "[")
        if depth == 0:
            return target[:at]
    return target


def _up_to_program(stack: tuple[Location, ...]) -> tuple[Location, ...]:
    """Return a stack up to its innermost frame of the program, where the result is assigned."""
    length = len(stack)
    while length and stack[length - 1].origin != "user":
        length -= 1
    return stack[:length]


class _Assignment(NamedTuple):
    """What one name was assigned."""

    name: str
    output: int | None
    """The index of an output of the event; None if it is no single tensor."""
    text: str
    """What it is as text, for that case."""


def _assignments(event: Event) -> list[_Assignment]:
    """Return what each target of an event was assigned; [] if that is not clear."""
    targets = event.target
    outputs = event.outputs
    result = event.result
    only_output = None
    if len(outputs) == 1:
        only_output = 0
    if len(targets) == 1:
        is_none = not outputs and result in ("", "None")
        if is_none:
            return []
        return [_Assignment(targets[0], only_output, result)]
    if any(name.startswith("*") for name in targets):
        return []
    as_written = assigned_to(event)
    is_chained = len(as_written) == 1 and "," not in as_written[0]
    if is_chained:
        return [_Assignment(name, only_output, result) for name in targets]
    output_of_role = {value.role: index for index, value in enumerate(outputs)}
    unpacked = _unpacked(targets, result, "out", output_of_role)
    if not unpacked and len(outputs) == len(targets):
        return [_Assignment(name, index, result) for index, name in enumerate(targets)]
    return unpacked


def _unpacked(
    targets: Sequence[str], result: str, role: str, output_of_role: dict[str, int]
) -> list[_Assignment]:
    """Return what each target gets when a result is unpacked, also nested; [] if that is not clear.

    For ``out, (h, c) = lstm(x)`` the roles of the outputs are ``out[0]``, ``out[1][0]`` and ``out[1][1]``.
    """
    items = _items(result)
    if len(items) != len(targets):
        items = [""] * len(targets)
    unpacked: list[_Assignment] = []
    for index, (name, item) in enumerate(zip(targets, items, strict=True)):
        item_role = f"{role}[{index}]"
        output = output_of_role.get(item_role)
        if output is None and name[:1] in ("(", "["):
            nested = _unpacked(_items(name), item, item_role, output_of_role)
            if not nested:
                return []
            unpacked += nested
        elif output is not None or item:
            unpacked.append(_Assignment(name, output, item))
        else:
            return []
    return unpacked


def _items(text: str) -> list[str]:
    """Split ``(f32[5], (f32[1], f32[1]))`` into ``f32[5]`` and ``(f32[1], f32[1])``; [] if the text was cut."""
    if text[:1] not in ("(", "[") or "…" in text:
        return []
    items = [""]
    depth = 0
    for each in _TOKEN.findall(text[1:-1]):
        depth += (each in "([{") - (each in ")]}")
        if each == "," and depth == 0:
            items.append("")
        else:
            items[-1] += each
    return [item.strip() for item in items]
