"""The fold: rounds merged by structure, equal siblings as one, every node in exactly one item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchglass.program.fold import REPEAT_NODE, Group, Item, depth_first, folded, groups
from torchglass.program.paths import range_label


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


@dataclass
class Sample:
    """A forest written down: (key, what is in it) for each node; loops are named."""

    kinds: list[tuple[Any, list[int]]]
    over: dict[int, bool] = field(default_factory=dict)
    runs: str = ""
    lines: str = ""
    """The letters in the order of the code."""

    def children_of(self, node: int) -> Sequence[int]:
        return self.kinds[node][1]

    def key(self, node: int) -> Any:
        return self.kinds[node][0]

    def merges_neighbours(self, node: int) -> bool:
        return self.kinds[node][0] in tuple(self.runs)

    def line(self, node: int) -> int:
        return self.lines.find(self.kinds[node][0]) + 1

    def may_merge_iterations(self, node: int) -> bool | None:
        return self.over.get(node)

    def own(self, item: Item) -> Any:
        return tuple(dict.fromkeys(self.kinds[node][0] for node in item.nodes))


def looped(*rounds: str, over: bool = True, runs: str = "", lines: str = "") -> tuple[Sample, list[Item]]:
    """A loop (node 0) whose rounds are written as texts, a letter a step; the items in it."""
    kinds: list[tuple[Any, list[int]]] = [("loop", [])]
    for text in rounds:
        kinds[0][1].append(len(kinds))
        inside = list(range(len(kinds) + 1, len(kinds) + 1 + len(text)))
        kinds.append(("round", inside))
        kinds += [(letter, []) for letter in text]
    sample = Sample(kinds, {0: over}, runs, lines)
    (loop,) = folded(sample, [0], sample.own)
    return sample, loop.children


def letters(sample: Sample, items: Sequence[Item]) -> str:
    return "".join(sample.key(item.nodes[0]) for item in items)


@pytest.mark.parametrize(
    ("rounds", "order"),
    [
        (["abc", "abc"], "abc"),
        (["ac", "abc", "ac"], "abc"),
        (["ac", "ab", "abc"], "abc"),
        (["bc", "abc"], "abc"),
        (["ab", "cd"], "abcd"),
        (["ab", "", "b"], "ab"),
    ],
)
def test_rounds_share_items_in_the_order_that_they_agree_on(rounds: list[str], order: str) -> None:
    sample, items = looped(*rounds)
    assert letters(sample, items) == order
    for item in items:
        present = [at for at, text in enumerate(rounds) if sample.key(item.nodes[0]) in text]
        assert item.slots == present
        assert [label for _, label in item.iterations] == present
        assert item.slot_count == len(item.nodes)


@pytest.mark.parametrize(
    "rounds",
    [["abe", "ace", "ad"], ["ad", "ace", "abe"], ["ace", "ad", "abe"], ["be", "ce", "d", "a"], ["abe", "c", "d"]],
)
def test_branches_that_never_came_together_stand_in_the_order_of_the_code(rounds: list[str]) -> None:
    sample, items = looped(*rounds, lines="abcde")
    assert letters(sample, items) == "abcde"


def test_the_last_round_that_was_stopped_comes_after_the_others() -> None:
    sample, items = looped("ab", "ab", "aB", lines="a")
    assert letters(sample, items) == "aBb"  # of lines that are not known nothing is said
    sample.lines = "abB"
    (loop,) = folded(sample, [0], sample.own)
    assert letters(sample, loop.children) == "abB"


def test_a_step_that_comes_again_in_a_round_is_another_item_unless_it_may_be_one() -> None:
    sample, items = looped("aba", "aba")
    assert letters(sample, items) == "aba"
    sample, items = looped("aab", "aaab", runs="a")
    assert letters(sample, items) == "ab"
    assert (items[0].slots, items[0].in_a_row) == ([0, 0, 1, 1, 1], 0)
    assert items[1].in_a_row == 1


def test_layers_are_folded_only_where_they_are_equal() -> None:
    sample, items = looped("ab", "ab", "ab", "ac", over=False)
    assert [(item.times, letters(sample, item.children)) for item in items] == [(3, "ab"), (1, "ac")]


def test_siblings_of_different_rounds_are_not_equal() -> None:
    """Four in each round and a fifth in some are not five in each."""
    sample, items = looped("aaaa", "aaaaaaaa")
    assert [(item.times, len(set(item.slots))) for item in items] == [(4, 2), (4, 1)]
    assert letters(sample, items) == "aa"


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text("abc", max_size=6), min_size=1, max_size=6), st.booleans(), st.sampled_from(["", "a", "abc"]))
def test_every_node_is_in_exactly_one_item(rounds: list[str], over: bool, runs: str) -> None:
    sample, items = looped(*rounds, over=over, runs=runs)
    nodes = [
        node for item in depth_first(items, lambda item: item.children) for node in item.nodes if node != REPEAT_NODE
    ]
    steps = [node for node in nodes if sample.key(node) in "abc"]
    assert sorted(steps) == [at for at, (key, _) in enumerate(sample.kinds) if key in "abc"]
    for item in depth_first(items, lambda item: item.children):
        assert len(item.nodes) == len(item.slots) == len(item.iterations)
        assert len({sample.key(node) for node in item.nodes if node != REPEAT_NODE}) <= 1
        for child in item.children:
            if not item.is_repeat:
                assert max(child.slots) < item.slot_count


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text("abc", max_size=6), min_size=1, max_size=6))
def test_unfolded_every_node_is_an_item_of_its_own(rounds: list[str]) -> None:
    sample, _ = looped(*rounds)
    nodes = [
        item.nodes for item in depth_first(folded(sample, [0], sample.own, fold=False), lambda item: item.children)
    ]
    assert nodes == [[at] for at in range(len(sample.kinds))]
