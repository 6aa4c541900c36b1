"""All changes of variables in program order, each under the call that it happened in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchglass.views.variables.changes import Call, Change
from torchglass.views.variables.lives import numberless
from torchglass.views.variables.patterns import Changes, Patterns, Repeat, fold_columns, rows_of


@dataclass(slots=True)
class CallRow:
    """A function was called: the rows below it happened inside."""

    depth: int
    calls: list[Call]
    times: int = 1


@dataclass(slots=True)
class ThreadRow:
    """What follows happened in another thread."""

    name: str
    depth: int = 0


@dataclass(slots=True)
class _Tree:
    """What is in each call that is shown, by the id of the call."""

    children: dict[int, list[Call | Change]]
    tops: dict[str, list[Call | Change]]
    calls: list[Call]
    """Callers before what they called."""


@dataclass(slots=True)
class _CallPatterns:
    pattern: dict[int, int]
    height: dict[int, int]
    changes: Patterns

    def pattern_of(self, node: Call | Change) -> int:
        return self.pattern[id(node)] if isinstance(node, Call) else self.changes.of(node)

    def height_of(self, node: Call | Change) -> int:
        return self.height[id(node)] if isinstance(node, Call) else 1


AnyRow = Changes | Repeat | CallRow | ThreadRow


def time_rows(changes: Sequence[Change], shown: set[int], patterns: Patterns, fold: bool) -> list[AnyRow]:
    """Rows in order, by thread; calls around everything that nothing happened in are left out."""
    tree = _tree([change for change in changes if change.id in shown])
    calls = _call_patterns(tree, patterns) if fold else None
    rows: list[AnyRow] = []
    for number, (thread, tops) in enumerate(tree.tops.items()):
        if number:
            rows.append(ThreadRow(thread))
        rows += _emit(_without_bare_callers(tops, tree), tree, calls, patterns)
    return rows


def _tree(changes: Sequence[Change]) -> _Tree:
    tree = _Tree({}, {}, [])
    several = len({change.event.process for change in changes}) > 1
    for change in changes:
        node: Call | Change = change
        call: Call | None = change.call
        while call is not None:
            known = tree.children.get(id(call))
            if known is not None:
                known.append(node)
                break
            tree.children[id(call)] = [node]
            node, call = call, call.caller
        else:
            event = change.event
            thread = f"{event.thread} of process {event.process}" if several else event.thread
            tree.tops.setdefault(thread, []).append(node)
    pending: list[Call | Change] = [node for tops in tree.tops.values() for node in reversed(tops)]
    while pending:
        node = pending.pop()
        if isinstance(node, Call):
            tree.calls.append(node)
            pending += tree.children[id(node)]
    return tree


def _without_bare_callers(tops: list[Call | Change], tree: _Tree) -> list[Call | Change]:
    """The test runner, and whatever else called the program."""
    while len(tops) == 1 and isinstance(tops[0], Call):
        inside = tree.children[id(tops[0])]
        if len(inside) > 1 or isinstance(inside[0], Change):
            break
        tops = inside
    return tops


def _call_patterns(tree: _Tree, patterns: Patterns) -> _CallPatterns:
    calls = _CallPatterns({}, {}, patterns)
    for call in reversed(tree.calls):
        inside = tree.children[id(call)]
        module = None if call.module is None else (call.module[0], numberless(call.module[1]))
        key = ("call", call.at.file, call.at.function, module, *map(calls.pattern_of, inside))
        calls.pattern[id(call)] = patterns.number(key)
        calls.height[id(call)] = 1 + sum(map(calls.height_of, inside))
    return calls


def _emit(tops: list[Call | Change], tree: _Tree, calls: _CallPatterns | None, patterns: Patterns) -> list[AnyRow]:
    """Depth first, with a stack of our own: calls nest deeper than Python may."""
    rows: list[AnyRow] = []
    pending = _siblings([[node] for node in tops], 0, calls, patterns)[::-1]
    while pending:
        row = pending.pop()
        rows.append(row)
        if isinstance(row, CallRow):
            inside = [tree.children[id(call)] for call in row.calls]
            columns = [list(nodes) for nodes in zip(*inside, strict=True)]
            pending += _siblings(columns, row.depth + 1, calls, patterns)[::-1]
    return rows


def _siblings(
    columns: list[list[Call | Change]], depth: int, calls: _CallPatterns | None, patterns: Patterns
) -> list[AnyRow]:
    if calls is None:
        return [_row(column, depth, 1, patterns) for column in columns]
    rows: list[AnyRow] = []
    for times, members in fold_columns(columns, calls.pattern_of, calls.height_of):
        if len(members) > 1:
            rows.append(Repeat(depth, times, len(members)))
            rows += _siblings(members, depth + 1, calls, patterns)
        else:
            rows.append(_row(members[0], depth, times, patterns))
    return rows


def _row(nodes: list[Call | Change], depth: int, times: int, patterns: Patterns) -> Changes | CallRow:
    calls = [node for node in nodes if isinstance(node, Call)]
    if calls:
        return CallRow(depth, calls, times)
    row = rows_of([[node for node in nodes if isinstance(node, Change)]], patterns, fold=False, depth=depth)[0]
    assert isinstance(row, Changes)
    row.times = times
    return row
