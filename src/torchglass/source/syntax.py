"""The syntax tree of one source text, searched by the ranges that instructions carry."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_right
from collections.abc import Container, Sequence
from functools import cache
from typing import TypeAlias, cast

from torchglass.source.codes import Range, char_column

Located: TypeAlias = ast.expr | ast.stmt | ast.pattern | ast.excepthandler
_Block: TypeAlias = ast.stmt | ast.excepthandler | ast.match_case
_Point: TypeAlias = tuple[int, int]

_Key: TypeAlias = tuple[int | None, int | None, int | None, int | None]

_LOCATED = (ast.expr, ast.stmt, ast.pattern, ast.excepthandler)
_OPERATORS = frozenset({"ctx", "op", "ops"})
_BLOCK_FIELDS = ("body", "orelse", "handlers", "finalbody", "cases")
_FSTRINGS_KEEP_THEIR_PLACES = sys.version_info >= (3, 12)


def excerpt(lines: Sequence[str], first: Located, last: Located) -> str:
    """The text from the start of one node to the end of another, with its newlines."""
    line, end_line = first.lineno, last.end_lineno or last.lineno
    if not 0 < line <= end_line <= len(lines):
        return ""
    top, bottom = lines[line - 1], lines[end_line - 1]
    start, end = char_column(top, first.col_offset), char_column(bottom, last.end_col_offset or 0)
    if line == end_line:
        return top[start:end]
    return "\n".join((top[start:], *lines[line : end_line - 1], bottom[:end]))


class Syntax:
    """Finds nodes by their range, their parents and their exact text.

    Only the statements that are asked for are indexed: a trace touches few of a large file's.
    """

    def __init__(self, tree: ast.Module, lines: Sequence[str]) -> None:
        self._tree = tree
        self._lines = lines
        self._indexes: dict[int, dict[_Key, list[Located]]] = {}
        self._parents: dict[int, ast.AST] = {}
        self._formatted: set[int] = set()

    def nodes_at(self, where: Range) -> list[Located]:
        """The nodes an instruction of this range can come from, the outermost first."""
        line, end_line, col, end_col = where
        if line is None or end_line is None or col is None or end_col is None:
            return []
        owner = self._statement_at((line, col), (end_line, end_col))
        if owner is None:
            return []
        index = self._indexes.get(id(owner))
        if index is None:
            index = self._indexes[id(owner)] = self._index(owner)
        return index.get(where, [])

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What holds the node; None for the statement that it was found in."""
        return self._parents.get(id(node))

    def text(self, node: ast.AST) -> str:
        """The text of the node exactly as written, with its newlines."""
        assert isinstance(node, _LOCATED)
        return self.between(node, node)

    def between(self, first: Located, last: Located) -> str:
        """The text from the start of one node to the end of another."""
        return excerpt(self._lines, first, last)

    def is_exact(self, node: ast.AST) -> bool:
        """Whether the node's range can be relied on: before 3.12 those inside f-strings are guesses."""
        if _FSTRINGS_KEEP_THEIR_PLACES or id(node) not in self._formatted:
            return True
        try:
            again = ast.parse(f"({self.text(node)})", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(again) == ast.dump(node)

    def _statement_at(self, start: _Point, end: _Point) -> _Block | None:
        found: _Block | None = None
        inner: _Block | None = _child_at(self._tree, start, end)
        while inner is not None:
            found, inner = inner, _child_at(inner, start, end)
        return found

    def _index(self, owner: _Block) -> dict[_Key, list[Located]]:
        index: dict[_Key, list[Located]] = {}
        waiting: list[ast.AST] = [owner]
        while waiting:
            node = waiting.pop()
            if isinstance(node, _LOCATED):
                for where in _ranges_of(node):
                    index.setdefault(where, []).append(node)
            children = _children(node, _blocks(type(owner)) if node is owner else _OPERATORS)
            for child in children:
                self._parents[id(child)] = node
            if isinstance(node, ast.JoinedStr) or id(node) in self._formatted:
                self._formatted.update(map(id, children))
            waiting.extend(reversed(children))
        return index


def _children(node: ast.AST, left_out: Container[str]) -> list[ast.AST]:
    """What the fields of a node hold; faster than ``ast.iter_child_nodes``, and without statements inside."""
    children: list[ast.AST] = []
    for name in node._fields:
        if name in left_out:
            continue
        value: object = getattr(node, name, None)
        if isinstance(value, ast.AST):
            children.append(value)
        elif isinstance(value, list):
            children.extend(each for each in cast("list[object]", value) if isinstance(each, ast.AST))
    return children


@cache
def _blocks(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in _BLOCK_FIELDS if name in kind._fields)


def _ranges_of(node: Located) -> tuple[_Key, ...]:
    """The ranges that the compiler gives to the instructions of a node."""
    end_line, end_col = node.end_lineno, node.end_col_offset
    own = (node.lineno, end_line, node.col_offset, end_col)
    if end_line == node.lineno:
        return (own,)
    method = node.func if isinstance(node, ast.Call) else node
    if not isinstance(method, ast.Attribute) or method.end_lineno == node.lineno:
        return (own,)
    # Chained over several lines: the start is moved to the attribute's name, measured in characters.
    moved = (method.end_col_offset or 0) - len(method.attr)
    return (own, (method.end_lineno, end_line, moved, end_col))


def _child_at(owner: ast.Module | _Block, start: _Point, end: _Point) -> _Block | None:
    for field in _blocks(type(owner)):
        block: list[_Block] = getattr(owner, field)
        before = bisect_right(block, start, key=_start)
        if before and _end(block[before - 1]) >= end:
            return block[before - 1]
    return None


def _start(block: _Block) -> _Point:
    decorators: list[ast.expr] = getattr(block, "decorator_list", [])
    first = decorators[0] if decorators else block
    if isinstance(first, ast.match_case):
        first = first.pattern
    return (first.lineno, first.col_offset)


def _end(block: _Block) -> _Point:
    last = block.body[-1] if isinstance(block, ast.match_case) else block
    return (last.end_lineno or last.lineno, last.end_col_offset or 0)


# ---------------------------------------------------------------- targets

# Which names the result of an expression is assigned to, as written.

Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete
_Path = tuple[tuple[int, int], ...]
"""Through written-out tuples: (index, length) of each, the outermost first."""


def targets_of(syntax: Syntax, node: ast.expr) -> tuple[str, ...]:
    """The names that the value of this expression itself goes to; ``()`` for what is only a part of it."""
    names: list[str] = []
    path: _Path = ()
    child: ast.AST = node
    parent = syntax.parent(child)
    while parent is not None:
        if isinstance(parent, ast.NamedExpr) and child is parent.value:
            names += () if path else (syntax.text(parent.target),)
        elif isinstance(parent, ast.Tuple | ast.List) and isinstance(parent.ctx, ast.Load):
            if any(isinstance(each, ast.Starred) for each in parent.elts):
                break
            path = ((_index(parent.elts, child), len(parent.elts)), *path)
        elif not _passes_on(parent, child):
            break
        child, parent = parent, syntax.parent(parent)
    for target in _assigned_targets(parent, child):
        names += _along(syntax, target, path)
    return tuple(names)


def target_names(syntax: Syntax, target: ast.expr) -> tuple[str, ...]:
    """``a, *rest`` is two names, anything else one; as written."""
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(_text(syntax, each) for each in target.elts)
    return (_text(syntax, target),)


def assignment_to(syntax: Syntax, target: ast.expr) -> Assignment | None:
    """The statement that assigns to (or deletes) this target, also inside a tuple of targets."""
    child, parent = _out_of_tuples(syntax, target)
    if isinstance(parent, ast.Assign | ast.Delete):
        return parent if child in parent.targets else None
    if isinstance(parent, ast.AnnAssign | ast.AugAssign):
        return parent if child is parent.target else None
    return None


def assigned_value(syntax: Syntax, target: ast.expr) -> ast.expr | None:
    """The expression whose value this very target gets; None where that comes out of unpacking."""
    statement = assignment_to(syntax, target)
    value = None if statement is None or isinstance(statement, ast.Delete) else statement.value
    if syntax.parent(target) is statement:
        return value
    outer = syntax.parent(target)
    holder = assigned_value(syntax, outer) if isinstance(outer, ast.Tuple | ast.List) else None
    if not isinstance(outer, ast.Tuple | ast.List) or not isinstance(holder, ast.Tuple | ast.List):
        return None
    starred = any(isinstance(each, ast.Starred) for each in (*outer.elts, *holder.elts))
    return None if starred else holder.elts[_index(outer.elts, target)]


def _passes_on(parent: ast.AST, child: ast.AST) -> bool:
    """Whether the parent's value is the child's."""
    if isinstance(parent, ast.IfExp):
        return child is not parent.test
    if isinstance(parent, ast.BoolOp):
        return child is parent.values[-1]
    return isinstance(parent, ast.Await)


def _assigned_targets(statement: ast.AST | None, value: ast.AST) -> list[ast.expr]:
    if isinstance(statement, ast.Assign) and value is statement.value:
        return statement.targets
    if isinstance(statement, ast.AnnAssign) and value is statement.value:
        return [statement.target]
    return []


def _along(syntax: Syntax, target: ast.expr, path: _Path) -> tuple[str, ...]:
    """The names of the part of a target that a part of a written-out tuple goes to."""
    if not path:
        return target_names(syntax, target)
    if not isinstance(target, ast.Tuple | ast.List):
        return ()
    (index, length), *rest = path
    stars = [place for place, each in enumerate(target.elts) if isinstance(each, ast.Starred)]
    surplus = length - len(target.elts)
    if stars and index > stars[0] + surplus:
        index -= surplus
    elif stars and index >= stars[0]:
        return () if rest else (_text(syntax, target.elts[stars[0]]),)
    return _along(syntax, target.elts[index], tuple(rest)) if index < len(target.elts) else ()


def _out_of_tuples(syntax: Syntax, target: ast.expr) -> tuple[ast.AST, ast.AST | None]:
    child: ast.AST = target
    parent = syntax.parent(child)
    while isinstance(parent, ast.Tuple | ast.List | ast.Starred):
        child, parent = parent, syntax.parent(parent)
    return child, parent


def _index(elements: list[ast.expr], node: ast.AST) -> int:
    return next(place for place, each in enumerate(elements) if each is node)


def _text(syntax: Syntax, target: ast.expr) -> str:
    return f"*{syntax.text(target.value)}" if isinstance(target, ast.Starred) else syntax.text(target)
