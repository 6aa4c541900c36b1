"""Programs with planted bugs, and correct ones: what the findings of each are to be, and what they are.

Each function of a file in ``planted/`` is a program. A comment ``# finds: NAME`` says which finding belongs to a line;
``# finds: NAME [tag]`` belongs to the functions whose first line has ``# [tag]``. Functions without any are fixed twins
and look-alikes: nothing is to be found in them. The programs of
``numbers.py`` are recorded with statistics. Each function of a file in ``correct/`` is a correct program.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import torchglass as tg
from torchglass.answers.finding import HINT, Finding

HERE = Path(__file__).parent
_FINDS = re.compile(r"# finds: ([\w-]+)(?:\s+\[(\w+)\])?")
_TAG = re.compile(r"# \[(\w+)\]")


@dataclass(frozen=True)
class Program:
    """One function, and what is to be found in it: names and lines."""

    name: str
    file: Path
    run: Callable[[], Any]
    expected: frozenset[tuple[str, int]]


@cache
def planted() -> list[Program]:
    return [each for file in sorted((HERE / "planted").glob("*.py")) for each in _programs(file)]


@cache
def correct() -> list[Program]:
    return [each for file in sorted((HERE / "correct").glob("*.py")) for each in _programs(file)]


def _programs(file: Path) -> Iterator[Program]:
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    marks = [(number, found) for number, line in enumerate(lines, 1) if (found := _FINDS.search(line))]
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and not node.args.args]
    module = _load(file)
    for node in functions:
        tag = _TAG.search(lines[node.lineno - 1])
        if node.name.startswith("_"):
            continue
        lines_of = range(node.lineno, (node.end_lineno or 0) + 1)
        expected = set[tuple[str, int]]()
        for number, found in marks:
            if (found[2] is None and number in lines_of) or (tag is not None and found[2] == tag[1]):
                expected.add((found[1], number))
        yield Program(f"{file.stem}.{node.name}", file, getattr(module, node.name), frozenset(expected))


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"corpus_{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def findings_of(program: Program) -> list[Finding]:
    """Run a program while it is recorded; once in a process."""
    torch.manual_seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with tg.record(values="stats" if program.file.stem == "numbers" else None) as trace:
            program.run()
    return list(trace.findings())


def loud(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.severity != HINT]


def places(findings: list[Finding]) -> frozenset[tuple[str, int]]:
    return frozenset((each.kind, each.location.line if each.location else 0) for each in findings)
