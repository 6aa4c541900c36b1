"""The programs that other tests record must run by themselves, and do the same every time."""

from __future__ import annotations

import ast
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests import programs
from tests.conformance.compare import Case, observe


@pytest.mark.parametrize("name", programs.names())
def test_a_program_does_the_same_twice(name: str) -> None:
    case = Case(name, lambda: None, lambda _: programs.load(name).main(), raises=BaseException)
    # Compiling warns once a process; all else must be equal, or a comparison with a recording proves little.
    first, second = ({**observe(case, nullcontext), "warnings": None} for _ in range(2))
    assert first == second
    expected = programs.RAISES.get(name)
    assert first.get("error.type") == (expected.__name__ if expected else None)


@pytest.mark.parametrize("name", programs.names())
def test_a_program_says_its_idea_in_one_sentence(name: str) -> None:
    source = Path(programs.load(name).__file__ or "").read_text(encoding="utf-8")
    sentence = ast.get_docstring(ast.parse(source)) or ""
    assert sentence.endswith(".")
    assert "\n" not in sentence
