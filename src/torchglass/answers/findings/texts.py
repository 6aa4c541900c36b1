"""Reads the user's source files, for what is wrong in the text and makes no event."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from re import Pattern
from typing import NamedTuple, cast

from torchglass.answers.findings.facts import Facts
from torchglass.events.tables import NONE
from torchglass.events.types import Location


class SourceFile(NamedTuple):
    """One source file of which code ran."""

    file: str
    text: str
    tree: ast.Module
    lines: dict[int, int]
    """The lines at which something happened, each with its first event."""

    def event_near(self, node: ast.stmt) -> int:
        """Return the first event at the last line before a statement, or of the file."""
        before = [line for line in self.lines if line <= node.lineno]
        if before:
            return self.lines[max(before)]
        return min(self.lines.values())

    def place(self, node: ast.stmt) -> Location:
        """Return the place of a statement."""
        return Location(
            file=self.file,
            line=node.lineno,
            end_line=node.end_lineno or node.lineno,
            col=node.col_offset,
            end_col=node.end_col_offset or node.col_offset,
            function="",
            source=self.text.split("\n")[node.lineno - 1].strip(),
            origin="user",
        )


def source_files(facts: Facts, pattern: Pattern[str]) -> Iterator[SourceFile]:
    """Yield the user's files whose text has a pattern. Others are not parsed."""
    for file, lines in _lines_run(facts).items():
        text = facts.program.text(file)
        if not pattern.search(text):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # a notebook's cell with magic commands
            continue
        yield SourceFile(file, text, tree, lines)


def statements_run(source: SourceFile) -> Iterator[ast.stmt]:
    """Yield the statements of a file, without those of functions that cannot have run.

    A function may have run if something happened in it, or if code that may have run names it.
    """
    waiting: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    named: set[str] = set()
    pending: list[ast.AST] = [source.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.append(node)
        else:
            if isinstance(node, ast.stmt):
                yield node
            if isinstance(node, ast.Name):
                named.add(node.id)
            elif isinstance(node, ast.Attribute):
                named.add(node.attr)
            pending.extend(ast.iter_child_nodes(node))
        if not pending:
            for each in [each for each in waiting if each.name in named or _has_run(source, each)]:
                waiting.remove(each)
                pending.extend(ast.iter_child_nodes(each))


def _has_run(source: SourceFile, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    last = function.end_lineno or function.lineno
    return any(function.lineno <= line <= last for line in source.lines)


def _lines_run(facts: Facts) -> dict[str, dict[int, int]]:
    """Return the lines of the user's files at which something happened, each with its first event."""
    known = facts.memory.get("lines run")
    if known is not None:
        return cast("dict[str, dict[int, int]]", known)
    found: dict[str, dict[int, int]] = {}
    stacks: set[int] = set()
    for event, stack in enumerate(facts.tables.stack.tolist()):
        if stack in stacks or stack == NONE:
            continue
        stacks.add(stack)
        for at in facts.tables.stack_locations(stack):
            if at.origin == "user":
                found.setdefault(at.file, {}).setdefault(at.line, event)
    facts.memory["lines run"] = found
    return found
