"""Loops whose executions are hard to tell apart: a count that is called exact is what the program counted itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import torchglass as tg
from torchglass.events.missing import is_gap
from torchglass.program.program import program_of
from torchglass.program.tree import LOOP, Count, LoopRun, ProgramTree
from torchglass.views.text.scopes import count_word

COUNTS: list[int] = []
"""How many iterations each execution of the loop over ``counted`` had, in order."""
X = torch.ones(2)


def repeat(x: torch.Tensor, times: int) -> torch.Tensor:
    COUNTS.append(times)
    for counted in range(times):
        x = x * 1.5 - counted
    return x


class Repeated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        (gradient,) = gradients
        return repeat(gradient, 15)


def in_backward() -> None:
    for step in range(12):
        w = torch.ones(2, requires_grad=True)
        y = Repeated.apply(w) + Repeated.apply(w * step)
        y.sum().backward()


def in_hooks() -> None:
    for step in range(12):
        w = torch.ones(2, requires_grad=True)
        (w * 2).register_hook(lambda gradient: repeat(gradient, 15))
        y = w * 2
        y.register_hook(lambda gradient, times=3 + step: repeat(gradient, times))
        y.register_hook(lambda gradient, times=3 + step: repeat(gradient, times))
        y.sum().backward()


def in_closures() -> None:
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        repeat(X, 9)
        loss = (w - 3).pow(4).sum()
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)


def in_checkpoints() -> None:
    for step in range(12):
        w = torch.ones(2, requires_grad=True)
        y = checkpoint(repeat, w, 4 + step, use_reentrant=False)
        y = checkpoint(repeat, y, 3 + step, use_reentrant=False)
        y.sum().backward()


def in_map() -> None:
    for step in range(30):
        X.mean()
        list(map(repeat, [X] * 3, [5 + step] * 3))


def in_sort() -> None:
    for _ in range(20):
        sorted([3, 1, 2], key=lambda times: float(repeat(X, times)[0]))


def in_threads() -> None:
    for _ in range(25):
        for times in (7, 3):
            thread = threading.Thread(target=repeat, args=(X, times))
            thread.start()
            thread.join()


def in_silent_epochs() -> None:
    for epoch in range(20):
        repeat(X, 7)
        if epoch % 5 == 0:
            X.mean()


def in_recursion() -> None:
    for _ in range(12):
        list(map(_visit, [2, 2]))


def _visit(depth: int) -> None:
    COUNTS.append(depth + 1)
    for counted in range(depth + 1):
        X.mul(counted)
        if depth:
            _visit(depth - 1)


class Rows:
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return repeat(X, 2 + index % 3)


def in_a_dataset() -> None:
    for batch in DataLoader(Rows(), batch_size=2):  # pyright: ignore[reportArgumentType]
        batch.sum()


def in_modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def hook(module: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        return repeat(output, 6)

    model.register_forward_hook(hook)
    for _ in range(20):
        model(X).sum()


PROGRAMS = [
    in_backward, in_hooks, in_closures, in_checkpoints, in_map, in_sort, in_threads, in_silent_epochs, in_recursion,
    in_a_dataset, in_modules,
]  # fmt: skip


def counts_of(program: Callable[[], None], most: int | None) -> tuple[tg.Trace, list[Count]]:
    """Return the counts of the executions of the loop over ``counted`` that were found."""
    COUNTS.clear()
    with tg.record(max_events=most or 100_000) as trace:
        program()
    if most is not None:
        assert any(map(is_gap, trace.events()))
    tree = program_of(trace).tree
    found: list[Count] = []
    for node in tree.loops:
        loop = tree.site(node).loop
        if loop is not None and loop.text.startswith("for counted in"):
            found.append(tree.count(node))
    return trace, found


@pytest.mark.parametrize("most", [None, 80, 120, 170])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_count_is_never_wrong(program: Callable[[], None], most: int | None) -> None:
    _, found = counts_of(program, most)
    assert found
    for each in found:
        if each.exact:
            assert each.number in COUNTS
        elif each.at_least:
            assert each.number <= max(COUNTS)
        elif each.at_most:
            assert each.number >= min(COUNTS)


@pytest.mark.parametrize("program", [in_backward, in_closures, in_checkpoints, in_threads, in_modules])
def test_a_count_is_exact_if_something_tells_the_executions_apart(program: Callable[[], None]) -> None:
    _, found = counts_of(program, None)
    assert sorted(each.number for each in found) == sorted(COUNTS)
    assert all(each.exact for each in found)


def test_iterations_that_may_be_of_several_calls_are_an_upper_bound() -> None:
    trace, found = counts_of(in_map, None)
    assert {(each.number, each.at_least, each.at_most) for each in found} == {
        (3 * (5 + step), False, True) for step in range(30)
    }
    assert "for counted in range(times):  × ≤ 102" in trace.render("tree")


@pytest.mark.parametrize("most", [60, 100])
def test_epochs_of_a_loader_are_named_where_events_were_dropped(most: int) -> None:
    with tg.record(max_events=most) as trace:
        _train_on_rows()
    assert "for _ in range(6):" in trace.render("tree", width=160)


def _train_on_rows() -> None:
    rows = DataLoader(torch.ones(90, 2), batch_size=2)  # pyright: ignore[reportArgumentType]
    for _ in range(6):
        for batch in rows:
            for _ in range(2):
                batch.sum()
        _evaluate(rows)


def _evaluate(rows: DataLoader[torch.Tensor]) -> None:
    for batch in rows:
        batch.exp()


def test_what_is_known_of_some_executions_is_said_beside_what_is_known_of_others() -> None:
    counts = Count(150, True, True), Count(28, True, False), Count(31, False, True), Count(7, False, False)
    tree = ProgramTree([])
    for count in counts:
        node = tree.add(LOOP, -1, 0)
        tree.loops[node] = LoopRun(count, count.number, is_over_layers=False, is_uncounted=False, outer=-1)
    words = [count_word(tree, loops) for loops in ([0], [1], [2], [3], [0, 1], [0, 1, 2, 3])]
    assert words == ["× 150", "× ≥ 28", "× ≤ 31", "× ?", "× 150 or ≥ 28", "× 150 or ≥ 28 or ≤ 31 or ?"]


@pytest.mark.parametrize("most", [300, 500, 700, 2_000])
def test_a_loop_in_a_backward_function_is_counted_where_events_were_dropped(most: int) -> None:
    trace, found = counts_of(in_long_backward, most)
    assert {each.number for each in found if each.exact} <= {150}
    assert any(each.exact for each in found)
    assert all(each.number <= 150 for each in found if each.at_least)
    assert not any(each.exact for each in found if each.number != 150)
    assert "× 150" in trace.render("tree")


class LongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        (gradient,) = gradients
        return repeat(gradient, 150)


def in_long_backward() -> None:
    w = torch.ones(2, requires_grad=True)
    for _ in range(20):
        LongBackward.apply(w).sum().backward()
