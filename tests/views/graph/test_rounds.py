"""Loops in the data flow: one round for all, what it hands to the next is told, no edge is lost or made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs
from tests.modules import module_of
from tests.program.looping import Writer
from tests.views.graph.test_flow import RULED, record
from torchglass.views.graph.drawn import drawn_of
from torchglass.views.graph.edges import BORDER
from torchglass.views.graph.flow import Flow, flow_of
from torchglass.views.graph.labels import label_of
from torchglass.views.graph.outline import Box
from torchglass.views.graph.shapes import Shapes
from torchglass.views.graph.value_names import outside_word, port_word
from torchglass.views.options import GraphOptions


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


def training(sizes: tuple[int, ...]) -> tg.Trace:
    """A training loop over batches of these sizes; its first round has no gradients to clear."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    batches = [(torch.ones(size, 4), torch.ones(size, 2)) for size in sizes]
    with tg.record() as trace:
        total = torch.zeros(())
        for x, y in batches:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
        total.mean()
    return trace


def titles(flow: Flow, items: list[Box]) -> list[str]:
    return [label_of(flow, item).title for item in items]


def children(flow: Flow, number: int) -> list[Box]:
    return flow.outline.items[number].children if number >= 0 else flow.outline.top


def named_edges(flow: Flow, number: int) -> set[tuple[str, str, bool]]:
    """The edges of a level by the titles of their ends; ``|`` is the border."""
    names = [*titles(flow, children(flow, number)), "|"]
    outside = [f"({outside_word(flow, each)})" for each in flow.levels[number].outside]
    return {
        (outside[edge.outside] if edge.source < BORDER else names[edge.source], names[edge.target], edge.is_back)
        for edge in flow.levels[number].edges
    }


# ---------------------------------------------------------------- known loops


def test_a_training_loop_is_one_group_with_one_round_in_it() -> None:
    flow = flow_of(training((5, 5, 3)))
    assert titles(flow, flow.outline.top) == ["zeros", "for x, y in batches:", "mean"]
    loop = flow.outline.top[1]
    assert label_of(flow, loop).times == "× 3"
    assert titles(flow, loop.children) == [
        "Net", "F.mse_loss", "optimizer.zero_grad()", "backward", "SGD.step", "detach", "+",
    ]  # fmt: skip
    labels = [label_of(flow, child) for child in loop.children]
    assert [label.rounds for label in labels] == ["", "", "in rounds 2–3", "", "", "", ""]
    assert labels[0].gives == "f32[{3, 5}, 2]"
    assert [child.nodes for child in loop.children[0].children] == [
        sorted(each.nodes) for each in loop.children[0].children
    ]


def test_what_a_round_hands_to_the_next_is_an_edge_that_leads_back() -> None:
    flow = flow_of(training((5, 5, 3)))
    found = named_edges(flow, flow.outline.top[1].number)
    assert {("|", "+", False), ("+", "+", True), ("+", "|", False), ("detach", "+", False)} <= found
    assert {("(x)", "Net", False), ("(y)", "F.mse_loss", False)} <= found
    assert named_edges(flow, -1) == {("zeros", "for x, y in batches:", False), ("for x, y in batches:", "mean", False)}
    drawn = drawn_of(flow, None)
    numbers = {
        title: (item.number, -1)
        for item, title in zip(flow.outline.items, titles(flow, flow.outline.items), strict=True)
    }
    assert any(line.source == line.target == numbers["+"] and line.is_back for line in drawn.lines)


def test_a_batch_of_another_size_is_a_range_at_its_name() -> None:
    flow = flow_of(training((5, 5, 3)))
    outside = flow.levels[flow.outline.top[1].number].outside
    words = {outside_word(flow, each): Shapes(flow).outside(each) for each in outside}
    assert words == {"x": "f32[{3, 5}, 4]", "y": "f32[{3, 5}, 2]"}


def test_a_hidden_state_goes_in_comes_out_and_is_carried() -> None:
    cell = nn.Linear(3, 3)

    def program(xs: torch.Tensor) -> None:
        h = torch.zeros(3)
        seen = []
        for x in xs:
            h = torch.tanh(cell(h) + x)
            seen.append(h)
        torch.stack(seen)

    flow = flow_of(record(program, torch.ones(5, 3)))
    (loop,) = [item for item in flow.outline.top if item.loops]
    assert named_edges(flow, loop.number) == {
        ("|", "cell" if "cell" in titles(flow, loop.children) else "Linear", False),
        ("tanh", "Linear", True), ("Linear", "+", False), ("|", "+", False), ("+", "tanh", False), ("tanh", "|", False),
    }  # fmt: skip
    (carried,) = [edge for edge in flow.levels[loop.number].edges if edge.is_back]
    assert carried.times == 4
    assert [len(level) for level in (flow.levels[loop.number].takes, flow.levels[loop.number].gives)] == [2, 1]


def test_the_state_of_an_optimizer_goes_in_and_out_as_one() -> None:
    model, x = Net(), torch.ones(2, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with tg.record() as trace:
        for _ in range(2):
            torch.ones(2)
            for _ in range(3):
                model(x).sum().backward()
                optimizer.step()
    flow = flow_of(trace)
    outer, inner = (item for item in flow.outline.items if item.loops)
    level = flow.levels[inner.number]
    assert len(level.gives) == 1
    assert [port_word(flow, inner, port) for port in range(len(level.takes))] == ["x", ""]
    assert ("for _ in range(3):", "for _ in range(3):", True) in named_edges(flow, outer.number)


def test_loops_in_loops_count_both() -> None:
    def program(x: torch.Tensor) -> None:
        for _ in range(3):
            x = x + 1
            for _ in range(4):
                x = x * 2

    flow = flow_of(record(program, torch.ones(2)))
    (outer,) = flow.outline.top
    inner = outer.children[1]
    assert [label_of(flow, each).times for each in (outer, inner)] == ["× 3", "× 4"]
    assert len(inner.nodes) == len(inner.children[0].nodes) == 12
    assert named_edges(flow, inner.number) == {("|", "*", False), ("*", "*", True), ("*", "|", False)}
    back = [("for _ in range(4):", "+", True), ("+", "for _ in range(4):", False)]
    assert set(back) <= named_edges(flow, outer.number)


def test_calls_of_the_programs_functions_are_groups() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).exp()

    def program(x: torch.Tensor) -> None:
        y = scaled(x)
        y.sum()

    flow = flow_of(record(program, torch.ones(2)))
    assert named_edges(flow, -1) == {("(x)", "scaled", False), ("scaled", "sum", False)}
    assert named_edges(flow, 0) == {("|", "*", False), ("*", "exp", False), ("exp", "|", False)}
    with tg.record(calls="user") as trace:
        program(torch.ones(2))
    recorded = flow_of(trace)
    (scaled_call,) = [item for item in recorded.outline.items if label_of(recorded, item).title.endswith("scaled")]
    assert titles(recorded, scaled_call.children) == ["*", "exp"]
    assert named_edges(recorded, scaled_call.number) == named_edges(flow, 0)
    assert ("scaled", "sum", False) in named_edges(recorded, scaled_call.parent)


def test_a_recorded_call_that_returns_its_argument_hands_it_on() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        x.sum()
        return x

    def program(x: torch.Tensor) -> None:
        checked(x.exp()).sin()

    with tg.record(calls="user") as trace:
        program(torch.ones(2))
    flow = flow_of(trace)
    whole = flow.outline.top[-1]
    assert {("exp", "checked", False), ("checked", "sin", False)} <= named_edges(flow, whole.number)


def test_each_time_of_a_box_is_in_one_of_the_box_around_it() -> None:
    for name in ("training_step", "attention"):
        flow = flow_of(programs.recorded(name))
        for item in flow.outline.items:
            times = len(flow.outline.items[item.parent].nodes) if item.parent >= 0 else 1
            assert item.slots == sorted(item.slots)
            assert all(0 <= slot < times for slot in item.slots)
            assert len(item.nodes) == len(item.slots) == len(item.extents)


# ---------------------------------------------------------------- against the same trace without folding


def lines_of(flow: Flow) -> set[tuple[int, int]]:
    return {
        (line.source[0], line.target[0])
        for line in drawn_of(flow, None).lines
        if line.source[1] < 0 and line.target[1] < 0
    }


def differences(trace: Any) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Lines between innermost boxes that folding lost, and that it made up."""
    plain, folded = (flow_of(trace, GraphOptions(fold=fold, constructors=True)) for fold in (False, True))
    box = {event: item.number for item in folded.outline.items for event in folded.outline.events_of(item)}
    true = {tuple(box[plain.outline.items[end].nodes[0]] for end in ends) for ends in lines_of(plain)}
    drawn = lines_of(folded)
    title = titles(folded, folded.outline.items)
    lost, made_up = ({(title[a], title[b]) for a, b in pairs} for pairs in (true - drawn, drawn - true))
    return lost, made_up


@pytest.mark.parametrize("name", RULED)
def test_folding_neither_loses_nor_makes_up_an_edge(name: str) -> None:
    assert differences(programs.recorded(name)) == (set(), set())


@pytest.mark.parametrize("seed", range(40))
def test_nor_in_loops_made_at_random(seed: int, tmp_path: Path) -> None:
    module = module_of(tmp_path, Writer(seed).program())
    with tg.record() as trace:
        module.main()
    assert differences(trace) == (set(), set())


def test_every_event_with_a_box_is_in_exactly_one() -> None:
    flow = flow_of(training((5, 5, 3)))
    events = [event for item in flow.outline.items for event in flow.outline.events_of(item)]
    assert len(events) == len(set(events))
    assert set(events) == {anchor for anchor in flow.outline.anchors if anchor >= 0}
