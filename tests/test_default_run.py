"""What the default run leaves out is named by its present name, and is left out."""

from __future__ import annotations

import pytest

from tests import default_run
from tests.default_run import is_usual, outdated


def test_each_entry_leaves_something_out_and_keeps_what_it_names(all_tests: list[str]) -> None:
    assert outdated(all_tests) == []


@pytest.mark.parametrize(
    ("kept", "node", "expected"),
    [
        ({"gpt2"}, "a.py::test_it[gpt2]", True),
        ({"gpt2"}, "a.py::test_it[forward-gpt2]", True),
        ({"gpt2"}, "a.py::test_it[gpt2_moe]", False),
        ({"a-b"}, "a.py::test_it[x-a-b]", True),
        ({"a-b"}, "a.py::test_it[a-x-b]", False),
        ({""}, "a.py::test_it[]", True),
        ({""}, "a.py::test_it[-P]", False),
        (set(), "a.py::test_it", False),
        (set(), "a.py::test_another", True),
    ],
)
def test_parameters_are_kept_by_a_part_of_their_name(
    kept: set[str], node: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_run, "KEPT", {"a.py::test_it": frozenset(kept)})
    assert is_usual(node) == expected


def test_an_entry_that_does_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"a.py::test_gone": {"x"}, "a.py::test_all": {"x"}, "a.py::test_none": {"y"}, "a.py::test_good": {"x"}}
    monkeypatch.setattr(default_run, "KEPT", {name: frozenset(kept) for name, kept in entries.items()})
    nodes = ["a.py::test_all[x]", "a.py::test_none[x]", "a.py::test_good[x]", "a.py::test_good[y]"]
    assert outdated(nodes) == [
        "there is no a.py::test_gone",
        "nothing of a.py::test_all is left out",
        "nothing of a.py::test_none is kept",
    ]
