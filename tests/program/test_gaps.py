"""Loops and calls of which not all events were kept: what is counted is what the program counted itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.events.missing import Missing, is_gap, missing_of
from torchglass.program.program import program_of


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.first(x)))


def one_epoch(steps: int) -> int:
    model, x, calls = _Net(), torch.randn(2, 4), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        y = model(x)
        calls += 1
        if step % 3 == 0:
            y.exp()
        optimizer.zero_grad()
        y.pow(2).sum().backward()
        optimizer.step()
    return calls


def with_epochs(steps: int, epochs: int = 4) -> int:
    model, x, calls = _Net(), torch.randn(2, 4), 0
    for _ in range(epochs):
        for _ in range(steps):
            model(x)
            calls += 1
        x.mean()
    return calls


def while_true(steps: int) -> int:
    model, x, calls = _Net(), torch.randn(2, 4), 0
    while True:
        model(x)
        calls += 1
        if calls == steps:
            break
    return calls


def recorded(program: Callable[[int], int], steps: int, most: int) -> tuple[tg.Trace, int]:
    with tg.record(max_events=most) as trace:
        calls = program(steps)
    assert any(map(is_gap, trace.events()))
    return trace, calls


def counts_of(trace: tg.Trace) -> list[tuple[str, int, bool]]:
    tree = program_of(trace).tree
    sites = {node: tree.site(node) for node in tree.loops}
    return [
        (site.loop.text, tree.loops[node].count.number, tree.loops[node].count.exact)
        for node, site in sites.items()
        if site.loop is not None and site.at is not None and site.at.file == __file__
    ]


@pytest.mark.parametrize("most", [600, 1_000, 1_500, 1_537])
@pytest.mark.parametrize("program", [one_epoch, while_true])
def test_iterations_are_those_that_the_program_counted(program: Callable[[int], int], most: int) -> None:
    trace, calls = recorded(program, 303, most)
    ((_, number, exact),) = counts_of(trace)
    assert (number, exact) == (calls, True)
    assert f"× {calls}" in trace.render("tree")


@pytest.mark.parametrize("most", [600, 1_000])
def test_epochs_are_counted_and_of_the_steps_in_them_no_more_than_there_were(most: int) -> None:
    trace, _ = recorded(with_epochs, 100, most)
    outer, *inner = counts_of(trace)
    assert outer[1:] == (4, True)
    assert inner
    for _, number, exact in inner:
        assert number == 100 if exact else number <= 100


@pytest.mark.parametrize("program", [one_epoch, with_epochs, while_true])
def test_calls_of_modules_are_those_that_the_program_made(program: Callable[[int], int]) -> None:
    trace, calls = recorded(program, 150, 700)
    rows = trace.render("table").splitlines()
    for name in ("_Net", "first", "second"):
        row = next(row for row in rows if name in row)
        assert row.split()[-1] == f"{calls:,}"
    last = [event for event in trace.events() if event.kind == "module" and event.module == ""][-1]
    assert last.call == calls - 1


def _train_and_return_loss(x: torch.Tensor, steps: int) -> float:
    for _ in range(steps):
        y = x.exp() + 1
        y.sum()
    return y.mean().item()


def _train_after_noise(x: torch.Tensor, steps: int) -> None:
    x = x + torch.rand(4)
    for _ in range(steps):
        y = x.exp() + 1
        y.sum()


def _train_by_twos(x: torch.Tensor, steps: int) -> None:
    """Call what counts the calls twice."""
    _train_and_return_loss(x, steps // 2)
    _train_and_return_loss(x, steps // 2)


def _train_or_leave(x: torch.Tensor, steps: int) -> float:
    for _ in range(steps):
        y = x.exp() + 1
        if steps % 2:
            return 0.0
        y.sum()
    return y.mean().item()


def _train_in_two_loops(x: torch.Tensor, steps: int) -> float:
    for _ in range(2):
        for _ in range(steps // 2):
            y = x.exp() + 1
            y.sum()
    return y.mean().item()


@pytest.mark.parametrize("most", [300, 500, 700, 900, 1_234])
@pytest.mark.parametrize(
    "train",
    [_train_and_return_loss, _train_after_noise, _train_by_twos, _train_or_leave, _train_in_two_loops],
)
def test_calls_of_a_function_in_a_loop_are_counted(train: Callable[[torch.Tensor, int], object], most: int) -> None:
    x = torch.rand(4)
    with tg.record(max_events=most) as trace:
        for epoch in range(14):  # the outer loop
            train(x, 100 + epoch)
    assert any(map(is_gap, trace.events()))
    steps = sum(100 + epoch for epoch in range(14))
    outer = [count for count in counts_of(trace) if "epoch" in count[0]]
    ((_, number, exact),) = outer
    assert number == 14 if exact else number <= 14
    if train in (_train_and_return_loss, _train_after_noise, _train_in_two_loops):
        assert (number, exact) == (14, True)
        assert "× 14" in trace.render("tree")
        assert trace.render("code").count("y = x.exp() + 1") == 1
    for text, inner, is_exact in counts_of(trace):
        if "epoch" not in text:
            assert inner <= steps
            if is_exact:
                assert inner in {1, 2, *range(50, 57), *range(100, 114)}


def test_calls_of_a_function_from_two_loops_are_not_mixed_up() -> None:
    x = torch.rand(4)
    with tg.record(max_events=600) as trace:
        for epoch in range(5):
            _train_and_return_loss(x, 60 + epoch)
        for epoch in range(9):
            _train_and_return_loss(x, 60 + epoch)
    counts = [count for count in counts_of(trace) if "epoch" in count[0]]
    for (_, number, exact), most in zip(counts, (5, 9), strict=True):
        assert number == most if exact else number <= most


def test_rounds_that_are_named_are_the_true_ones() -> None:
    def program(steps: int) -> int:
        x = torch.ones(2)
        for step in range(steps):
            x = x + 1
            if step == steps - 2:
                x.exp()
        return steps

    trace, steps = recorded(program, 2_000, 500)
    (row,) = [row for row in trace.render("tree").splitlines() if row.lstrip("│├└─ ").startswith("x.exp()")]
    assert f"in round {steps - 1:,}" in row


def test_a_saved_and_a_written_trace_say_the_same(tmp_path: pytest.TempPathFactory) -> None:
    with tg.record(max_events=600, to=f"{tmp_path}/written.trace") as trace:
        calls = one_epoch(200)
    trace.save(f"{tmp_path}/saved.trace")
    for each in (trace, tg.load(f"{tmp_path}/written.trace"), tg.load(f"{tmp_path}/saved.trace")):
        assert counts_of(each)[0][1:] == (calls, True)
        assert f" {calls}" in each.render("table")


def test_what_is_said_of_a_gap_may_be_damaged() -> None:
    trace, _ = recorded(one_epoch, 100, 600)
    gap = next(filter(is_gap, trace.events()))
    assert missing_of(gap).is_complete
    for text in ("", "[]", "{", '{"modules": 3, "places": [[1]]}', '{"whole": true, "modules": [["a", "b", "c"]]}'):
        assert not missing_of(gap._replace(detail=text)).module_calls
    assert missing_of(gap._replace(detail=Missing().text())) == Missing()


def training(steps: int) -> dict[str, int]:
    """Train with something in every third step, and something in every five hundredth; return how often what ran."""
    model, data = _Net(), torch.randn(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts = {"steps": 0, "noise": 0, "evals": 0}
    for step in range(steps):
        x = data[step % 8 : step % 8 + 4]
        if step % 3 == 0:
            x = noisy(x)
            counts["noise"] += 1
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts["steps"] += 1
        if step % 500 == 0:
            evaluate(model, data)
            counts["evals"] += 1
    return counts


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn_like(x)


def evaluate(model: nn.Module, data: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(data).argmax(1)


class TestEveryCountOfALongRun:
    """Most events of this training are not kept; what is printed is what the program itself counted."""

    @pytest.fixture(scope="class", name="recorded")
    @staticmethod
    def _recorded() -> tuple[tg.Trace, dict[str, int]]:
        with tg.record(max_events=8_000) as trace:
            counts = training(1_600)
        assert len(list(filter(is_gap, trace.events()))) > 1
        return trace, counts

    @staticmethod
    def rows(trace: tg.Trace, view: str, text: str) -> list[str]:
        found = [row for row in trace.render(view, width=160).splitlines() if text in row]
        assert found
        return found

    def test_the_listing_counts_each_line(self, recorded: tuple[tg.Trace, dict[str, int]]) -> None:
        trace, counts = recorded
        lines = {
            "x = data[step": counts["steps"],
            "x = noisy(x)": counts["noise"],
            "return x + torch.randn_like(x)": counts["noise"],
            "loss = model(x)": counts["steps"],
            "loss.backward()": counts["steps"],
            "optimizer.step()": counts["steps"],
            "return model(data).argmax(1)": counts["evals"],
            "return self.second(": counts["steps"] + counts["evals"],
        }
        for text, times in lines.items():
            rows = [row for row in self.rows(trace, "listing", text) if "×" in row]
            assert {row.split("×")[0].strip().split()[-1] for row in rows} >= {f"{times:,}"}, text

    @pytest.mark.parametrize("view", ["tree", "code"])
    def test_a_view_says_in_how_many_rounds(self, recorded: tuple[tg.Trace, dict[str, int]], view: str) -> None:
        trace, counts = recorded
        (loop,) = self.rows(trace, view, "for step in range(steps)")
        assert f"× {counts['steps']:,}" in loop
        assert f"in {counts['noise']} of {counts['steps']:,} rounds" in self.rows(trace, view, "x = noisy(x)")[0]
        assert f"in {counts['evals']} of {counts['steps']:,} rounds" in self.rows(trace, view, "evaluate(model")[0]
        for text in ("x = data[", "loss = model(x)", "loss.backward()", "optimizer.step()"):
            for row in self.rows(trace, view, text):
                assert "rounds" not in row

    @pytest.mark.parametrize("view", ["tree", "code", "listing", "table", "calls"])
    def test_no_shape_is_unknown_and_the_loop_is_shown_once(
        self, recorded: tuple[tg.Trace, dict[str, int]], view: str
    ) -> None:
        text = recorded[0].render(view)
        assert "?[?]" not in text
        assert text.count("for step in range(steps)") <= 1
        assert "not kept" in text

    def test_the_table_counts_calls(self, recorded: tuple[tg.Trace, dict[str, int]]) -> None:
        trace, counts = recorded
        for name in ("_Net", "first", "second"):
            row = self.rows(trace, "table", name)[0]
            assert row.split()[-1] == f"{counts['steps'] + counts['evals']:,}"

    def test_totals_are_those_of_the_whole_run(self, recorded: tuple[tg.Trace, dict[str, int]]) -> None:
        trace, counts = recorded
        totals = program_of(trace).totals
        runs = [event.id for event in trace.events(function="Tensor.backward")]
        assert totals.times(runs[0], len(runs)) == counts["steps"]
        assert totals.which(runs[0]) == 1
        assert totals.which(runs[-1]) == counts["steps"]


def test_the_time_of_a_table_is_that_of_the_calls_that_were_kept() -> None:
    trace, _ = recorded(while_true, 400, 400)
    (line,) = [line for line in tg.render(trace, "table").splitlines() if line.startswith("Forward time")]
    assert line.endswith("(of the calls that were kept)")
    with tg.record() as short:
        while_true(3)
    assert "were kept" not in tg.render(short, "table")
