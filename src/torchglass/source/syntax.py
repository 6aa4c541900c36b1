"""The syntax tree of one source text, searched by the ranges that instructions carry."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_right
from collections.abc import Container, Sequence
from functools import cache
from typing import TypeAlias, cast

from torchglass.source.codes import Range

Located: TypeAlias = ast.expr | ast.stmt | ast.pattern | ast.excepthandler
_Block: TypeAlias = ast.stmt | ast.excepthandler | ast.match_case
_Point: TypeAlias = tuple[int, int]

_Key: TypeAlias = tuple[int | None, int | None, int | None, int | None]

_LOCATED = (ast.expr, ast.stmt, ast.pattern, ast.excepthandler)
_OPERATORS = frozenset({"ctx", "op", "ops"})
_BLOCK_FIELDS = ("body", "orelse", "handlers", "finalbody", "cases")
_FSTRINGS_KEEP_THEIR_PLACES = sys.version_info >= (3, 12)


def char_column(line: str, byte: int) -> int:
    """The column in characters of a column that was counted in UTF-8 bytes."""
    if line.isascii():
        return byte
    return len(line.encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "ignore"))


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
        line, end_line = first.lineno, last.end_lineno or last.lineno
        if not 0 < line <= end_line <= len(self._lines):
            return ""
        top, bottom = self._lines[line - 1], self._lines[end_line - 1]
        start, end = char_column(top, first.col_offset), char_column(bottom, last.end_col_offset or 0)
        if line == end_line:
            return top[start:end]
        return "\n".join((top[start:], *self._lines[line : end_line - 1], bottom[:end]))

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
            children = _children(node, _blocks(owner) if node is owner else _OPERATORS)
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
def _block_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in _BLOCK_FIELDS if name in kind._fields)


def _blocks(owner: ast.Module | _Block) -> tuple[str, ...]:
    return _block_fields(type(owner))


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
    for field in _blocks(owner):
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
