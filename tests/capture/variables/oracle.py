"""A slow, obvious witness: a ``sys.settrace`` function that compares all locals with a deep copy after each line.

It knows nothing of instructions. What it tells differs from what the engine tells in these ways, and no others
(``explained`` takes exactly them away):

1. ``except … as e`` ends in a hidden ``del e``, which it tells and the engine does not.
2. A closure's variable that an inner function stores or changes is told in the inner function and again at the line
   of each outer function that sees it; the engine tells once, under the scope that owns the variable.
3. From Python 3.12 on the targets of a comprehension look like locals of the function around it, and the values that
   they hide come back afterwards; the engine tells them under ``<listcomp>``.
4. Of several changes of one variable on one line it sees the last; the engine may tell each (``differences``).
5. It looks into the namespace that is given to exec and finds what was there before; the engine tells stores.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torchglass.capture.variables.scope import scope_name
from torchglass.capture.variables.snapshots import same_atom

MISSING = object()


class Row(NamedTuple):
    scope: str
    line: int
    name: str
    how: str
    new: str


def frozen(value: Any, depth: int = 8) -> Any:
    """A deep copy that can be compared: containers by content, arrays by bytes, all else by identity."""
    kind = type(value)
    if depth and kind in (list, tuple, deque):
        return (kind.__name__, id(value), [frozen(each, depth - 1) for each in value])
    if depth and kind is dict:
        return ("dict", id(value), [(frozen(k, depth - 1), frozen(v, depth - 1)) for k, v in value.items()])
    if depth and kind in (set, frozenset):
        return (kind.__name__, id(value), sorted(map(repr, value)))
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return ("ndarray", id(value), value.shape, value.strides, str(value.dtype), value.tobytes())
    if kind in (int, float, str, bytes, bool, complex, type(None)):
        return (kind.__name__, repr(value))
    return id(value)


def shown(value: Any) -> str:
    """A value as text that is the same in two runs."""
    return _shown(value, 6)


def _shown(value: Any, depth: int) -> str:
    kind = type(value)
    if depth and kind in (list, tuple, deque, set, frozenset):
        return f"{kind.__name__}({', '.join(sorted(_shown(each, depth - 1) for each in value))})"
    if depth and kind is dict:
        return f"dict({', '.join(f'{k!r}: {_shown(v, depth - 1)}' for k, v in value.items())})"
    if kind.__name__ == "ndarray":
        return f"ndarray({value.tolist()})"
    return repr(value) if kind in (int, float, str, bytes, bool, complex, type(None)) else f"<{kind.__name__}>"


class Oracle:
    """Watches the frames whose code ``wanted`` accepts while ``run`` runs a function."""

    def __init__(self, wanted: Callable[[CodeType], bool]) -> None:
        self.wanted = wanted
        self.rows: list[Row] = []
        self._last: dict[FrameType, tuple[int, dict[str, tuple[Any, Any]]]] = {}

    def run(self, program: Callable[[], Any]) -> Any:
        before, before_threads = sys.gettrace(), threading.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return program()
        finally:
            sys.settrace(before)
            threading.settrace(before_threads)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.wanted(frame.f_code):
            return None
        if frame not in self._last:
            now = self._look(frame)
            self._last[frame] = (frame.f_code.co_firstlineno, now)
            if frame.f_code.co_flags & 1:
                given = [name for name in frame.f_code.co_varnames if name in now and name in _arguments(frame.f_code)]
                for name in given:
                    self._tell(frame, frame.f_code.co_firstlineno, name, "argument", now[name][0])
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            line, before = self._last[frame]
            now = self._look(frame)
            self._compare(frame, line, before, now)
            self._last[frame] = (frame.f_lineno, now)
        return self._line

    def _look(self, frame: FrameType) -> dict[str, tuple[Any, Any]]:
        return {
            name: (value, frozen(value))
            for name, value in dict(frame.f_locals).items()
            if name[0] != "." and name not in ("self", "cls") and not (name.startswith("__") and name.endswith("__"))
        }

    def _compare(self, frame: FrameType, line: int, before: dict[str, Any], now: dict[str, Any]) -> None:
        for name in {**before, **now}:
            old, old_copy = before.get(name, (MISSING, None))
            new, new_copy = now.get(name, (MISSING, None))
            if new is MISSING:
                self._tell(frame, line, name, "deleted", None)
            elif old is MISSING or (old is not new and not same_atom(old, new)):
                self._tell(frame, line, name, "assigned", new)
            elif old_copy != new_copy and old is new:
                self._tell(frame, line, name, "changed", new)

    def _tell(self, frame: FrameType, line: int, name: str, how: str, new: Any) -> None:
        self.rows.append(Row(scope_name(frame.f_code), line, name, how, shown(new)))


def _arguments(code: CodeType) -> tuple[str, ...]:
    extra = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


class Exceptions(ast.NodeVisitor):
    """Where the documented exceptions can be, read from the source."""

    def __init__(self, source: str) -> None:
        self.handlers: set[str] = set()
        self.targets: set[tuple[str, int]] = set()
        self.shared: set[str] = set()
        self.visit(ast.parse(source))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.handlers.add(node.name or "")
        self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.shared.update(node.names)

    def visit_Global(self, node: ast.Global) -> None:
        self.shared.update(node.names)

    def _comprehension(self, node: Any) -> None:
        for each in node.generators:
            for name in ast.walk(each.target):
                if isinstance(name, ast.Name):
                    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                    self.targets.update((name.id, line) for line in lines)
        self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = _comprehension


def explained(rows: Iterable[Row], source: str, cells: frozenset[str] = frozenset()) -> list[Row]:
    """The rows without those that the exceptions above explain; the same is taken from both sides."""
    known = Exceptions(source)
    return [
        row
        for row in rows
        if not (row.how == "deleted" and row.name in known.handlers)
        and not ((row.name, row.line) in known.targets and sys.version_info >= (3, 12))
        and row.name not in known.shared | cells
    ]


def differences(found: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    """Where two lists of rows differ, scope by scope; the order within a line is nobody's promise.

    What was found but not expected is no difference if the same line tells more of the same variable later.
    """
    ours, theirs = _in_runs(found), _in_runs(expected)
    problems = [f"{scope}: told by one only" for scope in ours.keys() ^ theirs.keys()]
    for scope in ours.keys() & theirs.keys():
        if [run[0].line for run in ours[scope]] != [run[0].line for run in theirs[scope]]:
            problems.append(f"{scope}: other lines: {ours[scope]} and not {theirs[scope]}")
            continue
        for run, wanted in zip(ours[scope], theirs[scope], strict=True):
            missing = Counter(wanted) - Counter(run)
            surplus = Counter(run) - Counter(wanted)
            final = {row.name: row for row in run}.values()
            problems += [f"missing {row}" for row in missing]
            problems += [f"too much {row}" for row in surplus if row in final]
    return problems


def _in_runs(rows: Iterable[Row]) -> dict[str, list[list[Row]]]:
    """By scope, rows in runs of one line."""
    scopes: dict[str, list[list[Row]]] = {}
    for row in rows:
        runs = scopes.setdefault(row.scope, [])
        if runs and runs[-1][0].line == row.line:
            runs[-1].append(row)
        else:
            runs.append([row])
    return scopes


def cells_of(code: CodeType) -> frozenset[str]:
    """All names that closures share, in this code and inside it."""
    inner = [cells_of(each) for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(code.co_cellvars).union(*inner)
