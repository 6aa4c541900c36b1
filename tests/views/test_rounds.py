"""A fold never hides a difference: lines do not grow with rounds, ranges are those of events, unfolding is exact."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs
from tests.modules import module_of
from tests.program.looping import Writer
from torchglass.views.render import options_for
from torchglass.views.row import EVENT

VIEWS = ("tree", "code", "calls", "variables")

TRAINING = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x).relu()
        return x.mean(dim=(1, 2))

class Loader:
    def __init__(self, rounds):
        self.rounds = rounds

    def __iter__(self):
        for at in range(self.rounds):
            yield torch.ones(3 if at < self.rounds - 1 else 2, 1 + at % 5, 4)

def main(rounds):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    history = []
    for step, x in enumerate(Loader(rounds)):
        if step == 0:
            scale = x.abs().max()
        loss = (net(x) / scale).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            history.append(loss.item())
    token = torch.zeros(1, dtype=torch.long)
    while len(token) < rounds:
        token = torch.cat([token, token[-1:] + 1])
    return history
"""


def recorded(folder: Path, rounds: int, **options: Any) -> tg.Trace:
    module = module_of(folder, TRAINING)
    with tg.record(**options) as trace:
        module.main(rounds)
    return trace


@pytest.mark.parametrize("variables", [False, True], ids=["names for nothing", "followed"])
def test_ten_rounds_and_a_thousand_have_as_many_lines(tmp_path: Path, variables: bool) -> None:
    (tmp_path / "few").mkdir()
    few = recorded(tmp_path / "few", 20, variables=variables)
    many = recorded(tmp_path, 1_000 if not variables else 300, variables=variables)
    for view in VIEWS:
        short, long = (tg.render(trace, view, width=120).splitlines() for trace in (few, many))
        assert len(short) == len(long), view
        assert len(long) <= 80, view


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("seed", range(25))
def test_folding_is_the_same_after_unfolding(view: str, seed: int, tmp_path: Path) -> None:
    """Nothing is kept of how a trace was shown before; unfolded, every event of the view has a row of its own."""
    module = module_of(tmp_path, Writer(seed).program())
    with tg.record(variables=view == "variables") as trace:
        module.main()
    folded, whole = tg.render(trace, view), tg.render(trace, view, fold=False)
    assert tg.render(trace, view) == folded
    assert tg.render(trace, view, fold=False) == whole
    assert len(folded.splitlines()) <= len(whole.splitlines())


def sheet_of(trace: tg.Trace, view: str, **options: Any) -> Any:
    import importlib

    return importlib.import_module(f"torchglass.views.{view}").sheet(trace, options_for(view, options))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("view", ["tree", "code"])
def test_unfolded_and_folded_rows_stand_for_the_same_events(view: str, seed: int, tmp_path: Path) -> None:
    """By the place that each row leads to: what is shown once is counted as often as it stands there unfolded."""
    module = module_of(tmp_path, Writer(seed).program())
    with tg.record() as trace:
        module.main()
    counted: list[dict[tuple[str, object], int]] = []
    for fold in (True, False):
        found: dict[tuple[str, object], int] = {}
        for row in sheet_of(trace, view, fold=fold).rows:
            if row.kind == EVENT:
                event = trace.event(row.event)
                key = (event.name, event.location)
                found[key] = found.get(key, 0) + row.each
        counted.append(found)
    assert counted[0] == counted[1]


SHAPE = re.compile(r"(?:f32|i64)\[([^\]]*)\]")


@pytest.mark.parametrize("name", ["generation", "padded_sequences"])
def test_ranges_are_from_the_least_to_the_greatest_of_the_events(name: str) -> None:
    with tg.record() as trace:
        for _ in range(3):
            programs.load(name).main()
    assert check_ranges(trace) > 3


def test_ranges_of_a_training_loop(tmp_path: Path) -> None:
    trace = recorded(tmp_path, 30)
    assert check_ranges(trace) > 10
    losses = [float(event.result) for event in trace.events(function="item")]
    (row,) = [line for line in tg.render(trace, width=160).splitlines() if "loss.item()" in line]
    first, last = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", row.rpartition("→")[2])
    assert float(first) == pytest.approx(losses[0], rel=1e-3)
    assert float(last) == pytest.approx(losses[-1], rel=1e-3)


def check_ranges(trace: tg.Trace) -> int:
    """Hold what each row says it gave to the events at its place; returns how many rows were held."""
    held = 0
    by_place: dict[tuple[object, str], list[tuple[int, ...]]] = {}
    for event in trace.events():
        if len(event.outputs) == 1 and event.outputs[0].shape is not None:
            by_place.setdefault((event.location, event.name), []).append(event.outputs[0].shape)
    for row in sheet_of(trace, "tree").rows:
        event = trace.event(row.event) if row.kind == EVENT else None
        shapes = by_place.get((event.location, event.name), []) if event is not None else []
        if event is None or row.each != len(shapes) or len({len(shape) for shape in shapes}) != 1:
            continue  # another row has some of them
        found = SHAPE.fullmatch(row.text("gives"))
        if found is None or not shapes[0]:
            continue
        for word, sizes in zip(found[1].split(", "), zip(*shapes, strict=True), strict=False):
            if word.startswith("{"):
                break  # a set may hold commas
            least, _, most = word.partition("–")
            assert (int(least), int(most or least)) == (min(sizes), max(sizes)), (row.cells, sizes)
        held += 1
    return held


def test_branches_stand_in_the_order_of_the_code() -> None:
    def branching() -> None:
        x = torch.ones(3)
        for i in range(6):
            y = x.exp()
            if i % 3 == 0:
                z = y.sin()
            elif i % 3 == 1:
                z = y.cos()
            else:
                x = x + 1
                continue
            x = z + y

    with tg.record() as trace:
        branching()
    for view in ("tree", "code"):
        text = tg.render(trace, view, width=120)
        found = [text.index(part) for part in ("y = x.exp()", "z = y.sin()", "z = y.cos()", "x = x + 1", "x = z + y")]
        assert found == sorted(found), view


@pytest.mark.parametrize("ops", [False, True])
def test_a_training_loop_has_as_many_rounds_with_ops_as_without(ops: bool) -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(torch.ones(1, 4)).sum()
            loss.backward()
            optimizer.step()

    def steps_alone() -> None:
        for _ in range(4):
            optimizer.step()

    with tg.record(ops=ops) as trace:
        train()
        steps_alone()
    for view in ("tree", "code"):
        text = tg.render(trace, view, width=120)
        assert "for _ in range(3):  × 3 " in text, view
        assert "× 4 " in text, view
        assert "≥" not in text


def test_rounds_that_nothing_tells_apart_are_counted_under_all_of_their_loops() -> None:
    def nested(x: torch.Tensor) -> None:
        for _ in range(3):
            for _ in range(4):
                x * 2

    def apart(x: torch.Tensor) -> None:
        for _ in range(3):
            x + 1
            for _ in range(4):
                x * 2

    with tg.record() as trace:
        nested(torch.ones(2))
        apart(torch.ones(2))
    for view in ("tree", "code", "graph"):
        text = tg.render(trace, view, width=140)
        assert "for _ in range(3): for _ in range(4):  × 12 " in text, view
        assert "for _ in range(3):  × 3 " in text, view
        assert "│ for _ in range(4):  × 4 " in text, view


CALLED_IN_A_LOOP = """\
import torch

def train(data):
    for x in data:
        y = x * 2
        z = y + 1

def set_up(data):
    torch.zeros(())
    train(data)

def main():
    data = torch.ones(3, 2).unbind()
    for _ in [None] * 2:  # the same object in each round: nothing shows when one begins
        train(data)
    for _ in range(4):
        set_up(data)
"""


def test_rounds_of_a_function_s_loop_are_counted_under_the_loop_that_calls_it(tmp_path: Path) -> None:
    module = module_of(tmp_path, CALLED_IN_A_LOOP)
    with tg.record() as trace:
        module.main()
    for view in ("tree", "code"):
        text = tg.render(trace, view, width=140)
        assert "for _ in [None] * 2: for x in data:  × 6 " in text, view
        assert "for _ in range(4):  × 4 " in text, view
        assert "│ for x in data:  × 3 " in text, view


ENDS = """\
import torch

class Loader:
    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        self.at += 1
        torch.zeros(1)
        if self.at == 5:
            torch.ones(2)
            raise StopIteration
        return torch.ones(3)

def main():
    for x in Loader():
        y = x * 2
    while y.norm() > 1:
        y = y / 2
"""


@pytest.mark.parametrize("view", ["tree", "code"])
def test_the_step_that_finds_no_further_round_does_not_count(tmp_path: Path, view: str) -> None:
    module = module_of(tmp_path, ENDS)
    with tg.record() as trace:
        module.main()
    text = tg.render(trace, view, width=140)
    assert "for x in Loader():  × 4 " in text
    assert "while y.norm() > 1:  × 2 " in text
    assert "round 5" not in text
    assert "in rounds" not in text
    (end,) = [line for line in text.splitlines() if "after the last round" in line]
    assert "ones(2" in end
