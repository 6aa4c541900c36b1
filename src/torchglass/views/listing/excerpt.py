"""Which lines of a file are shown: the functions that ran, the classes around them, and what is left out between."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchglass.source.flow import ControlFlow
from torchglass.source.statements import Function, Statement, is_text
from torchglass.views.listing.runs import Runs


@dataclass(slots=True)
class Gap:
    """Lines that are left out, and the functions in them that no step was seen in."""

    lines: int
    functions: tuple[str, ...] = ()


def excerpt(file: str, runs: Runs, source: ControlFlow) -> list[int | Gap]:
    """The functions that ran, the classes around them, and, where it ran, the module's own code."""
    active = {function for where, function in runs.callers if where == file}
    idle = [each for each in source.functions() if each.number not in active]
    keep = bytearray(len(source.lines) + 2)
    if runs.callers.get((file, -1)):
        keep[1:-1] = b"\1" * len(source.lines)
    for statement in source.all:
        node = statement.node
        if isinstance(node, Function):
            _set(keep, statement, statement.number in active or _holds(source, statement, active))
        elif isinstance(node, ast.ClassDef):
            holds = _holds(source, statement, active)
            _set(keep, statement, False)
            if holds:
                first, last = statement.start[0], statement.last_line
                keep[first : last + 1] = b"\1" * (last + 1 - first)
        elif is_text(node) and statement.end[0] - statement.start[0] > 2:
            keep[statement.start[0] + 1 : statement.end[0] + 1] = bytes(statement.end[0] - statement.start[0])
    for _, where, number in runs.below:
        if where == file:
            statement = source.all[number]
            for line in range(statement.start[0], statement.last_line + 1):
                keep[line] = 1
    return _with_gaps(source, keep, idle)


def _set(keep: bytearray, statement: Statement, value: bool) -> None:
    first, last = statement.start[0], statement.end[0]
    keep[first : last + 1] = bytes([value]) * (last + 1 - first)


def _holds(source: ControlFlow, outer: Statement, active: set[int]) -> bool:
    return any(number > outer.number and source.all[number].start <= outer.end for number in active if number >= 0)


def _with_gaps(source: ControlFlow, keep: bytearray, idle: list[Statement]) -> list[int | Gap]:
    shown: list[int | Gap] = []
    first = 0
    for line in range(1, len(source.lines) + 2):
        if line <= len(source.lines) and not keep[line]:
            first = first or line
            continue
        if first:
            names = tuple(_name(source, each) for each in idle if first <= each.start[0] < line)
            hidden = source.lines[first - 1 : line - 1]
            if names or any(text.strip() for text in hidden):
                shown.append(Gap(line - first, names))
            elif line <= len(source.lines):
                shown.append(line - 1)  # of blank lines one
            first = 0
        if line <= len(source.lines):
            shown.append(line)
    return shown


def _name(source: ControlFlow, statement: Statement) -> str:
    """``Class.method``."""
    names: list[str] = []
    number = statement.number
    while number >= 0:
        names.append(getattr(source.all[number].node, "name", ""))
        number = source.all[number].parent
    return ".".join(filter(None, reversed(names)))
