"""Data flow, against small programs whose edges are known, and against rules that hold for every program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, tensor
from torchglass.views.graph.drawn import drawn_of
from torchglass.views.graph.edges import BORDER
from torchglass.views.graph.flow import Flow, flow_of
from torchglass.views.graph.labels import label_of
from torchglass.views.graph.value_names import outside_word
from torchglass.views.options import GraphOptions

Pairs = set[tuple[str, str]]


def record(function: Callable[..., Any], *args: Any) -> tg.Trace:
    with tg.record() as trace:
        function(*args)
    return trace


def pairs(trace: Any, **options: Any) -> Pairs:
    """The edges between the innermost boxes, by their titles; values from outside in brackets."""
    flow = flow_of(trace, GraphOptions(**options))
    drawn = drawn_of(flow, options.get("depth"))
    titles = {(item.number, -1): label_of(flow, item).title for item in flow.outline.items}
    titles.update({end: f"({word})" for ends in drawn.outside.values() for end, word in ends})
    return {(titles[line.source], titles[line.target]) for line in drawn.lines}


# ---------------------------------------------------------------- known programs


def test_a_chain_with_a_residual() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        return y.exp() + y

    assert pairs(record(program, torch.ones(3))) == {("(x)", "relu"), ("relu", "exp"), ("exp", "+"), ("relu", "+")}


def test_values_in_containers_keep_their_sources() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        parts = {"a": [x.sin()], "b": (x.cos(),)}
        return torch.cat([*parts["a"], *parts["b"]])

    assert pairs(record(program, torch.ones(3))) == {("(x)", "sin"), ("(x)", "cos"), ("sin", "cat"), ("cos", "cat")}


def test_each_of_several_outputs_has_edges_of_its_own() -> None:
    def program(x: torch.Tensor) -> None:
        largest, where = x.max(dim=0)
        largest.exp()
        where.float()

    flow = flow_of(record(program, torch.ones(3, 2)))
    edges = [(edge.source, edge.out, edge.target) for edge in flow.levels[-1].edges if edge.source >= 0]
    assert edges == [(0, 0, 1), (0, 1, 2)]


def test_a_write_through_a_view_reaches_the_readers_of_its_base() -> None:
    def program(x: torch.Tensor) -> None:
        base = x.clone()
        row = base[0]
        row.add_(1)
        base.sum()

    found = pairs(record(program, torch.ones(3, 2)))
    assert ("add_", "sum") in found
    assert ("clone", "sum") not in found


def test_a_write_to_the_base_reaches_the_readers_of_a_view_made_before() -> None:
    def program(x: torch.Tensor) -> None:
        base = x.clone()
        row = base[0]
        base.mul_(2)
        row.sum()

    found = pairs(record(program, torch.ones(3, 2)))
    assert ("mul_", "sum") in found
    assert ("[0]", "sum") not in found


def test_a_write_that_no_version_tells_of_is_followed_by_memory() -> None:
    def program(x: torch.Tensor) -> None:
        y = x.clone()
        y.data.mul_(3)
        y.sum()

    found = pairs(record(program, torch.ones(3)))
    assert ("mul_", "sum") in found
    assert ("clone", "sum") not in found


def test_a_view_made_after_a_write_comes_from_its_own_step() -> None:
    def program(x: torch.Tensor) -> None:
        y = x.clone()
        y.add_(1)
        y.view(-1).sum()

    found = pairs(record(program, torch.ones(3)))
    assert {("clone", "add_"), ("add_", "view"), ("view", "sum")} <= found
    assert ("add_", "sum") not in found


def test_assignment_to_a_part_and_results_written_to_out() -> None:
    def program(x: torch.Tensor) -> None:
        y = torch.zeros(3)
        y[0] = x[1]
        torch.add(y, 1, out=y)
        y.sum()

    found = pairs(record(program, torch.ones(3)))
    assert {("[1]", "__setitem__"), ("zeros", "__setitem__"), ("__setitem__", "add"), ("add", "sum")} <= found
    assert ("zeros", "sum") not in found


def test_a_number_used_again_makes_no_false_edge() -> None:
    """Tensors that die at once: the next one may have the same id and the same address."""

    def program() -> None:
        for _ in range(50):
            torch.ones(16).neg()

    flow = flow_of(record(program), GraphOptions(fold=False))
    assert [(edge.source, edge.target) for edge in flow.levels[-1].edges] == [(at, at + 1) for at in range(0, 100, 2)]


class Identity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.first(x)))


def test_edges_go_through_a_module_that_hands_its_argument_on() -> None:
    model, x = Identity().eval(), torch.ones(2, 4)
    assert pairs(record(model, x)) == {("(x)", "first"), ("first", "drop"), ("drop", "last")}


def test_closures_and_caches_cross_borders_unlisted() -> None:
    class Stores(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            cache["k"] = x.exp()
            return x.sin()

    class Uses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + cache["k"]

    cache: dict[str, torch.Tensor] = {}
    stores, uses, x = Stores(), Uses(), torch.ones(3)
    trace = record(lambda: uses(stores(x)))
    assert pairs(trace, depth=0) == {("(x)", "Stores"), ("Stores", "Uses")}
    assert {("exp", "+"), ("sin", "+")} <= pairs(trace)
    flow = flow_of(trace)
    between = [(edge.out, edge.into) for edge in flow.levels[-1].edges if edge.source == 0]
    assert between == [(0, 0), (1, 1)]


def test_what_another_thread_made_has_its_edge() -> None:
    made: dict[str, torch.Tensor] = {}

    def worker() -> None:
        made["y"] = torch.ones(3).exp()

    def program() -> None:
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
        made["y"].sum()

    assert ("exp", "sum") in pairs(record(program))


def test_without_functions_modules_are_joined_through_them() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x).relu() * 2)

    assert ("one", "two") in pairs(record(Net(), torch.ones(2, 4)), functions=False)


def test_parameters_are_not_drawn() -> None:
    assert pairs(record(nn.Linear(3, 3), torch.ones(2, 3)), inner=True) == {("(input)", "F.linear")}


def test_equal_layers_are_one_box_with_an_edge_to_itself() -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    flow = flow_of(record(model, torch.ones(2, 4)))
    (layers,) = flow.outline.top[0].children
    assert (layers.in_a_row(), len(layers.nodes)) == ((5, 5), 5)
    ends = {(edge.source, edge.target) for edge in flow.levels[0].edges}
    assert ends == {(BORDER, 0), (0, 0), (0, BORDER)}


def test_steps_that_repeat_together_are_a_box_of_their_own() -> None:
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.ReLU())])
    flow = flow_of(record(model, torch.ones(2, 4)))
    (repeat,) = flow.outline.top[0].children
    assert (repeat.in_a_row(), len(repeat.children)) == ((6, 6), 2)
    assert flow.outline.events_of(repeat) == []
    inside = flow.levels[repeat.number]
    found = {(edge.source, edge.target, edge.times, edge.is_back) for edge in inside.edges}
    assert found == {(BORDER, 0, 1, False), (0, 1, 6, False), (1, 0, 5, True), (1, BORDER, 1, False)}
    around = {(edge.source, edge.target) for edge in flow.levels[0].edges}
    assert around == {(BORDER, 0), (0, BORDER)}


def test_a_later_round_may_take_and_give_more_than_the_first() -> None:
    class Step(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if kept:
                kept[0] * 1
            kept[:1] = [x.exp()]
            return x.sin()

    kept: list[torch.Tensor] = []
    step, x = Step(), torch.ones(3)

    def program() -> None:
        y = x
        for _ in range(4):
            y = step(y)

    for fold in (True, False):
        flow = flow_of(record(program), GraphOptions(fold=fold))
        for level in flow.levels.values():
            assert all(edge.out < len(level.takes) for edge in level.edges if edge.source == BORDER)
            assert all(edge.into < len(level.gives) for edge in level.edges if edge.target == BORDER)


def test_two_training_steps_have_ports_for_all_their_edges() -> None:
    flow = flow_of(programs.recorded("training_step"))
    for level in flow.levels.values():
        assert all(edge.out < len(level.takes) for edge in level.edges if edge.source == BORDER)
        assert all(edge.into < len(level.gives) for edge in level.edges if edge.target == BORDER)


def test_what_backward_saved_is_drawn_only_where_its_steps_are() -> None:
    x = torch.ones(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        x.exp().sum().backward()
    assert {("exp", "sum"), ("sum", "backward")} <= pairs(trace)
    assert ("exp", "backward") not in pairs(trace)
    assert ("detach", "mul.Tensor") in pairs(trace, inner=True)  # as torch saved it


def test_many_values_from_outside_are_shown_by_their_number() -> None:
    given = [torch.ones(2) for _ in range(400)]
    flow = flow_of(record(lambda: torch.stack(given)))
    (outside,) = flow.levels[-1].outside
    assert outside_word(flow, outside) == "400 tensors"


def test_after_a_gap_the_source_is_not_known() -> None:
    make = Maker(root=None)
    make.add("function", "exp", None, "x.exp()", outputs=[tensor((3,), id=0)])
    make.add("unseen", "gap", None, "")
    make.add("function", "sin", None, "y.sin()", inputs=[tensor((3,), id=1)], outputs=[tensor((3,), id=2, producer=2)])
    flow = flow_of(HandmadeTrace(make.made))
    assert outside_word(flow, flow.levels[-1].outside[0]).endswith(" ?")


def test_an_empty_trace_and_one_that_failed() -> None:
    assert flow_of(record(lambda: None)).outline.top == []
    with pytest.raises(RuntimeError), tg.record() as trace:
        torch.ones(2, 3).exp() @ torch.ones(2, 3)
    assert ("exp", "@") in pairs(trace)


def test_a_recursion_five_hundred_deep() -> None:
    make = Maker()
    parent, same = None, [tensor((4,), id=0)]
    for _ in range(500):
        parent = make.layer("Net", parent, "", "self(x)", (4,), inputs=same, outputs=same)
    flow = flow_of(HandmadeTrace(make.made))
    assert len(drawn_of(flow, None).open) == 499


# ---------------------------------------------------------------- rules

RULED = [name for name in programs.names() if name not in programs.SLOW]


def read_in(flow: Flow) -> dict[int, set[int]]:
    """For each event with a box the values that are read in it, itself included."""
    found: dict[int, set[int]] = {}
    around = flow.outline.around
    for event, takes in enumerate(flow.values.takes):
        at = flow.outline.anchors[event]
        while at >= 0:
            found.setdefault(at, set()).update(takes)
            at = around[at]
    return found


@pytest.mark.parametrize("name", RULED)
def test_every_edge_carries_what_its_source_gives_and_its_target_takes(name: str) -> None:
    flow = flow_of(programs.recorded(name), GraphOptions(fold=False))
    reads = read_in(flow)
    for number, level in flow.levels.items():
        children = flow.outline.items[number].children if number >= 0 else flow.outline.top
        for edge in level.edges:
            if edge.target >= 0:
                assert edge.value in reads[children[edge.target].nodes[0]]
                assert flow.crossing.takes(children[edge.target].nodes[0])[edge.into] == edge.value
            # What a step without a box made comes from those whose values it took.
            is_passed_on = flow.outline.anchors[flow.values.producers[edge.value]] != flow.values.producers[edge.value]
            if edge.source >= 0 and not is_passed_on:
                assert flow.crossing.gives(children[edge.source].nodes[0])[edge.out] == edge.value


@pytest.mark.parametrize("name", RULED)
def test_every_value_read_in_a_box_and_made_outside_has_an_edge_into_it(name: str) -> None:
    """Recall at every level: by the producers of values alone, without the walk that makes the edges."""
    flow = flow_of(programs.recorded(name), GraphOptions(fold=False))
    values, anchors = flow.values, flow.outline.anchors
    around = flow.outline.around
    number = {item.nodes[0]: item.number for item in flow.outline.items}
    # Where backward is one box, what it saved or computed again is its own affair.
    is_one_box = not any(values.backward[at] for at in range(len(values)) if anchors[at] == at)
    for event, takes in enumerate(values.takes):
        if is_one_box and values.backward[event]:
            continue
        for value in takes:
            producer = values.producers[value]
            if producer < 0 or value in values.parameters or min(anchors[producer], anchors[event]) < 0:
                continue
            at = anchors[event]
            while at >= 0 and not flow.crossing.holds(at, anchors[producer]):
                level = flow.levels[number.get(around[at], -1)]
                children = flow.outline.items[number[around[at]]].children if around[at] >= 0 else flow.outline.top
                child = [each.nodes[0] for each in children].index(at)
                assert any(edge.target == child and edge.value == value for edge in level.edges)
                at = around[at]


def test_a_view_of_a_parameter_is_no_maker_of_it() -> None:
    """A linear layer makes ``weight.t()``: what later takes the weight does not take it from that layer."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with tg.record(ops=True) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
    found = pairs(trace)
    assert ("backward", "SGD.step") in found
    assert ("Sequential", "SGD.step") not in found


def test_what_a_layer_keeps_from_round_to_round_has_its_own_name_not_that_of_the_result() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with tg.record() as trace:
        for _ in range(3):
            logits = model(torch.randn(5, 4))
    del logits
    text = tg.render(trace, "graph")
    assert "BatchNorm1d state before" in text
    assert "logits before" not in text
