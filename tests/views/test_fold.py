"""Repeats among siblings: every sibling in exactly one group, and the group that saves most lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchglass.views.fold import Group, groups, merge_alike, range_label


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ("", []),
        ("a", [(0, 1, 1)]),
        ("aa", [(0, 1, 1), (1, 1, 1)]),
        ("aaa", [(0, 1, 3)]),
        ("baaab", [(0, 1, 1), (1, 1, 3), (4, 1, 1)]),
        ("ababab", [(0, 2, 3)]),
        ("aabaab", [(0, 3, 2)]),
        ("xabcabcabcy", [(0, 1, 1), (1, 3, 3), (10, 1, 1)]),
    ],
)
def test_groups_of_single_lines(marks: str, found: list[tuple[int, int, int]]) -> None:
    assert groups([ord(mark) for mark in marks], [1] * len(marks)) == [Group(*each) for each in found]


def test_two_high_ones_are_worth_a_fold() -> None:
    assert groups([7, 7], [3, 3]) == [Group(0, 1, 2)]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_every_sibling_is_in_one_group_of_equal_units(marks: list[int]) -> None:
    at = 0
    for start, unit, times in groups(marks, [1] * len(marks)):
        assert start == at
        members = marks[start : start + unit * times]
        assert members == members[:unit] * times
        at += unit * times
    assert at == len(marks)


def test_long_runs_do_not_take_long() -> None:
    assert groups([1] * 200_000, [1] * 200_000) == [Group(0, 1, 200_000)]
    assert len(groups(list(range(200_000)), [1] * 200_000)) == 200_000


@pytest.mark.parametrize(
    ("paths", "label"),
    [
        (["blocks.0", "blocks.1", "blocks.2"], "blocks.0–2"),
        (["4", "5"], "4–5"),
        (["h.0", "h.0"], "h.0"),
        (["0", "2", "4"], "0, 2, 4"),
        (["0", "2", "4", "6", "8"], "0, 2, …, 8"),
        (["a", "b"], "a, b"),
        (["a", "b", "c", "d"], "a, b, …, d"),
        (["x.0", "y.1"], "x.0, y.1"),
    ],
)
def test_labels_of_ranges(paths: list[str], label: str) -> None:
    assert range_label(paths) == label


def test_what_is_alike_is_added_level_by_level() -> None:
    added: list[tuple[int, ...]] = []
    children = {0: [1, 2], 10: [11, 12], 20: [21, 22], 1: [3], 11: [13], 21: [23]}
    merge_alike([0, 10, 20], children, lambda first, others: added.append((first, *others)))
    assert sorted(added) == [(0, 10, 20), (1, 11, 21), (2, 12, 22), (3, 13, 23)]
    added.clear()
    merge_alike([0], children, lambda first, others: added.append((first, *others)))
    assert added == []
