"""Search the syntax tree of one source text by the ranges that instructions have."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_right
from collections.abc import Container, Sequence
from functools import cache
from typing import TypeAlias, cast

from torchglass.source.location_table import Range, char_column

Located: TypeAlias = ast.expr | ast.stmt | ast.pattern | ast.excepthandler
_Block: TypeAlias = ast.stmt | ast.excepthandler | ast.match_case
_Point: TypeAlias = tuple[int, int]

_Key: TypeAlias = tuple[int | None, int | None, int | None, int | None]

_LOCATED = (ast.expr, ast.stmt, ast.pattern, ast.excepthandler)
_OPERATORS = frozenset({"ctx", "op", "ops"})
_BLOCK_FIELDS = ("body", "orelse", "handlers", "finalbody", "cases")
_FSTRINGS_HAVE_RANGES = sys.version_info >= (3, 12)


def excerpt(lines: Sequence[str], first: Located, last: Located) -> str:
    """Return the text from the start of one node to the end of another, with its newlines."""
    line = first.lineno
    end_line = last.end_lineno or last.lineno
    if not 0 < line <= end_line <= len(lines):
        return ""
    top = lines[line - 1]
    bottom = lines[end_line - 1]
    start = char_column(top, first.col_offset)
    end = char_column(bottom, last.end_col_offset or 0)
    if line == end_line:
        return top[start:end]
    return "\n".join((top[start:], *lines[line : end_line - 1], bottom[:end]))


class Syntax:
    """Finds nodes by their range, and returns their parents and their exact text.

    Each statement is indexed when it is first needed, because a trace uses only some statements of a large file.
    """

    def __init__(self, tree: ast.Module, lines: Sequence[str]) -> None:
        self._tree = tree
        self._lines = lines
        self._indexes: dict[int, dict[_Key, list[Located]]] = {}
        """The nodes of each indexed statement by their range, keyed by the id of the statement."""
        self._parents: dict[int, ast.AST] = {}
        """The parent of each indexed node, keyed by the id of the node."""
        self._in_fstrings: set[int] = set()
        """The ids of nodes in f-strings."""

    def nodes_at(self, where: Range) -> list[Located]:
        """Return the nodes that an instruction of this range can come from, outermost first."""
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
        """Return the node that contains this one, or None for an indexed statement itself."""
        return self._parents.get(id(node))

    def text(self, node: ast.AST) -> str:
        """Return the text of the node exactly as written, with its newlines."""
        assert isinstance(node, _LOCATED)
        return self.between(node, node)

    def between(self, first: Located, last: Located) -> str:
        """Return the text from the start of one node to the end of another."""
        return excerpt(self._lines, first, last)

    def is_exact(self, node: ast.AST) -> bool:
        """Return whether the node's range is right. Before Python 3.12, ranges in f-strings may be wrong."""
        if _FSTRINGS_HAVE_RANGES or id(node) not in self._in_fstrings:
            return True
        try:
            again = ast.parse(f"({self.text(node)})", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(again) == ast.dump(node)

    def _statement_at(self, start: _Point, end: _Point) -> _Block | None:
        """Return the innermost statement that contains a range."""
        innermost: _Block | None = None
        child: _Block | None = _child_at(self._tree, start, end)
        while child is not None:
            innermost = child
            child = _child_at(child, start, end)
        return innermost

    def _index(self, owner: _Block) -> dict[_Key, list[Located]]:
        """Index the nodes of a statement's head by their ranges, and note their parents."""
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
            if isinstance(node, ast.JoinedStr) or id(node) in self._in_fstrings:
                self._in_fstrings.update(map(id, children))
            waiting.extend(reversed(children))
        return index


def _children(node: ast.AST, left_out: Container[str]) -> list[ast.AST]:
    """Return the child nodes in all fields but some. This is faster than ``ast.iter_child_nodes``."""
    children: list[ast.AST] = []
    for name in node._fields:
        if name in left_out:
            continue
        value: object = getattr(node, name, None)
        if isinstance(value, ast.AST):
            children.append(value)
        elif isinstance(value, list):
            children.extend(
                item for item in cast("list[object]", value) if isinstance(item, ast.AST)
            )
    return children


@cache
def _blocks(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in _BLOCK_FIELDS if name in kind._fields)


def _ranges_of(node: Located) -> tuple[_Key, ...]:
    """Return the ranges that the compiler gives to the instructions of a node."""
    end_line = node.end_lineno
    end_col = node.end_col_offset
    own = (node.lineno, end_line, node.col_offset, end_col)
    if end_line == node.lineno:
        return (own,)
    if isinstance(node, ast.Call):
        method = node.func
    else:
        method = node
    if not isinstance(method, ast.Attribute) or method.end_lineno == node.lineno:
        return (own,)
    # In a chain of calls over several lines, Python moves the start to the name of the attribute. It counts the
    # length of the name in characters.
    name_col = (method.end_col_offset or 0) - len(method.attr)
    return (own, (method.end_lineno, end_line, name_col, end_col))


def _child_at(owner: ast.Module | _Block, start: _Point, end: _Point) -> _Block | None:
    """Return the statement directly in a block of ``owner`` that contains a range."""
    for field in _blocks(type(owner)):
        block: list[_Block] = getattr(owner, field)
        before = bisect_right(block, start, key=_start)
        if before and _end(block[before - 1]) >= end:
            return block[before - 1]
    return None


def _start(block: _Block) -> _Point:
    decorators: list[ast.expr] = getattr(block, "decorator_list", [])
    first = block
    if decorators:
        first = decorators[0]
    if isinstance(first, ast.match_case):
        first = first.pattern
    return (first.lineno, first.col_offset)


def _end(block: _Block) -> _Point:
    if isinstance(block, ast.match_case):
        last = block.body[-1]
    else:
        last = block
    return (last.end_lineno or last.lineno, last.end_col_offset or 0)
