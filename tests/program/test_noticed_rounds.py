"""Rounds of an outer loop that no stack shows: the recorder notices them by the names that its head assigns."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchglass as tg
from tests.modules import module_of
from torchglass import Trace
from torchglass.program import program_of
from torchglass.program.tree import LOOP

HEAD = """
import torch
x = torch.ones(3)
batches = [torch.ones(2) * each for each in range(4)]

def main():
"""
PLAIN = """
for epoch in range(3):
    for batch in batches:
        batch.exp()
        batch.sin()
"""


def recorded(folder: Path, body: str, head: str = HEAD) -> Trace:
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    module = module_of(folder, head + indented)
    with tg.record() as trace:
        module.main()
    return trace


def rounds(trace: Trace) -> list[tuple[str, int]]:
    """The head of each execution of a loop, and how many iterations it is said to have had."""
    tree = program_of(trace).tree
    found: list[tuple[str, int]] = []
    for node in range(len(tree)):
        site = tree.site(node)
        loop = site.loop
        # Those of pytest are around all.
        if tree.kind(node) == LOOP and loop is not None and site.at is not None and site.at.file.endswith("sample.py"):
            found.append((loop.text, tree.count(node).number))
    return found


EPOCHS = ("for epoch in range(3):", 3)
BATCHES = ("for batch in batches:", 4)


def test_two_loops_with_nothing_recorded_between_them(tmp_path: Path) -> None:
    trace = recorded(tmp_path, PLAIN)
    assert rounds(trace) == [EPOCHS, *[BATCHES] * 3]
    tree = program_of(trace).tree
    assert [[tree.number(each) for each in tree.iterations(event)[-2:]] for event in range(24)] == [
        [epoch, batch] for epoch in range(3) for batch in range(4) for _ in range(2)
    ]


def test_a_loop_whose_body_is_a_call_of_a_function_with_a_loop(tmp_path: Path) -> None:
    head = """
import torch
batches = [torch.ones(2) * each for each in range(4)]

def train():
    for batch in batches:
        batch.exp()

def main():
"""
    assert rounds(recorded(tmp_path, "for epoch in range(3):\n    train()", head)) == [EPOCHS, *[BATCHES] * 3]


def test_a_program_without_functions(tmp_path: Path) -> None:
    with tg.record() as trace:
        module_of(tmp_path, "import torch\nbatches = [torch.ones(2)] * 4\n" + PLAIN)
    assert rounds(trace) == [EPOCHS, *[BATCHES] * 3]


def test_three_loops(tmp_path: Path) -> None:
    body = """
for run in range(2):
    for epoch in range(3):
        for batch in batches:
            batch.exp()
"""
    assert sorted(rounds(recorded(tmp_path, body))) == [*[BATCHES] * 6, *[EPOCHS] * 2, ("for run in range(2):", 2)]


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("for i, (a, b) in enumerate(zip('abc', 'abc')):", "for i, (a, b) in enumerate(zip('abc', 'abc')):"),
        ("for _ in range(1000, 1003):", "for _ in range(1000, 1003):"),
        ("for each in [[], [], []]:", "for each in [[], [], []]:"),
    ],
)
def test_what_the_head_assigns(head: str, text: str, tmp_path: Path) -> None:
    body = f"{head}\n    for batch in batches:\n        batch.exp()"
    assert rounds(recorded(tmp_path, body)) == [(text, 3), *[BATCHES] * 3]


def test_an_event_in_the_outer_loop_tells_its_rounds_already(tmp_path: Path) -> None:
    body = """
for epoch in range(3):
    x.cos()
    for batch in batches:
        batch.exp()
"""
    assert rounds(recorded(tmp_path, body)) == [EPOCHS, *[BATCHES] * 3]


@pytest.mark.parametrize(
    "last",
    [
        "epoch = 7",  # the name is assigned in the loop, too
        "del epoch",
        "epoch += 1",
    ],
)
def test_a_name_that_changes_inside_the_loop_tells_no_rounds(last: str, tmp_path: Path) -> None:
    body = f"""
for epoch in range(3):
    for batch in batches:
        batch.exp()
        if batch is batches[2]:
            {last}
        batch.sin()
        {"epoch = 0" if last == "del epoch" else "pass"}
"""
    assert rounds(recorded(tmp_path, body)) == [(EPOCHS[0], 1), (BATCHES[0], 12)]


def test_one_object_for_all_rounds_is_not_noticed(tmp_path: Path) -> None:
    body = "for _ in [None] * 3:\n    for batch in batches:\n        batch.exp()"
    assert rounds(recorded(tmp_path, body)) == [("for _ in [None] * 3:", 1), (BATCHES[0], 12)]


def test_it_is_kept_in_a_bundle_that_was_recorded_or_saved(tmp_path: Path) -> None:
    trace = recorded(tmp_path, PLAIN)
    trace.save(tmp_path / "saved.trace")
    assert rounds(tg.load(tmp_path / "saved.trace")) == rounds(trace)
    module = module_of(tmp_path, HEAD + "".join(f"    {line}\n" for line in PLAIN.strip().splitlines()))
    with tg.record(to=tmp_path / "run.trace"):
        module.main()
    assert rounds(tg.load(tmp_path / "run.trace")) == rounds(trace)


def test_a_trace_with_only_some_events(tmp_path: Path) -> None:
    """The first event of a round may be one that is left out."""
    body = """
for epoch in range(3):
    for batch in batches:
        batch.dim()
        batch.exp()
"""
    assert rounds(recorded(tmp_path, body)) == [EPOCHS, *[BATCHES] * 3]
    module = module_of(tmp_path, HEAD + "".join(f"    {line}\n" for line in PLAIN.strip().splitlines()))
    with tg.record(only=tg.select(function="Tensor.sin")) as trace:
        module.main()
    assert rounds(trace) == [EPOCHS, *[BATCHES] * 3]


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    """What a head assigns is compared by its id: the program's objects die when they would."""
    body = """
import weakref
class Item: ...
alive = []
for item in map(lambda _: Item(), range(3)):
    alive.append(weakref.ref(item))
    for batch in batches:
        batch.exp()
    assert sum(each() is not None for each in alive) == 1
"""
    assert rounds(recorded(tmp_path, body))[0][1] == 3


def exact_counts(trace: Trace) -> dict[str, bool]:
    """By the head of a loop, whether the counts of all its executions are exact."""
    tree = program_of(trace).tree
    exact: dict[str, bool] = {}
    for node in range(len(tree)):
        site = tree.site(node)
        if tree.kind(node) == LOOP and site.loop is not None:
            exact[site.loop.text] = exact.get(site.loop.text, True) and tree.count(node).exact
    return exact


@pytest.mark.parametrize("head", ["range(3)", "enumerate('abc')"])
def test_what_runs_once_in_a_numbered_round_is_counted_exactly(tmp_path: Path, head: str) -> None:
    trace = recorded(tmp_path, PLAIN.replace("range(3)", head))
    assert exact_counts(trace)["for batch in batches:"]


def test_rounds_that_may_have_been_missed_leave_an_upper_bound(tmp_path: Path) -> None:
    # Two rounds get the same object, so the inner loop of both looks like one.
    trace = recorded(tmp_path, PLAIN.replace("range(3)", "[7, 7, 8]"))
    assert ("for batch in batches:", 8) in rounds(trace)
    assert not exact_counts(trace)["for batch in batches:"]


def test_loops_that_go_over_the_same_objects_are_not_mixed_up(tmp_path: Path) -> None:
    # The last object of ``i`` is the first one of ``j``.
    body = """
for i in range(2):
    for batch in batches:
        batch.exp()
for j in range(1, 4):
    for batch in batches:
        batch.sin()
"""
    assert rounds(recorded(tmp_path, body)) == [
        ("for i in range(2):", 2), BATCHES, BATCHES, ("for j in range(1, 4):", 3), BATCHES, BATCHES, BATCHES
    ]  # fmt: skip
