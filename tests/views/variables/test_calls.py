"""Which call a change belongs to where calls take turns, and what repeats inside of repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import torch

from tests.views.variables.test_view import block_of, news, recorded, rows_in, view_of
from torchglass.views.variables.patterns import CallRow, Changes, LoopRow


def test_coroutines_that_take_turns() -> None:
    async def work(n: int) -> None:
        x = n * 10
        await asyncio.sleep(0)
        x = x + 1
        await asyncio.sleep(0)
        x = x + 1

    async def main() -> None:
        await asyncio.gather(*[work(n) for n in (1, 2, 3)])

    trace = recorded(lambda: asyncio.run(main()), ["x"])
    view = view_of(trace)
    assert news(block_of(view, "x", "work")) == [["10", "11", "12"], ["20", "21", "22"], ["30", "31", "32"]]
    (call,) = [row for row in view_of(trace, by="time").rows if isinstance(row, CallRow) and len(row.calls) == 3]
    assert call.calls[0].at.function.endswith("work")


def test_generators_that_take_turns() -> None:
    def count(n: int) -> Iterator[torch.Tensor]:
        x = torch.ones(n)
        while True:
            yield x
            x = x + 1

    def run() -> None:
        for first, second in zip(count(2), count(2), strict=True):
            if first[0] + second[0] == 6:
                break

    block = block_of(view_of(recorded(run, ["x"])), "x", "count")
    assert [len(life.changes) for life in block.variable.lives] == [3, 3]
    for life in block.variable.lives:
        for before, after in zip(life.changes, life.changes[1:], strict=False):
            assert before.new.value is not None
            assert after.old.value is not None
            assert before.new.value.id == after.old.value.id


def test_what_they_call_belongs_to_the_one_that_called() -> None:
    def helper(n: int) -> int:
        y = n + 1
        return y  # noqa: RET504 (a variable to follow)

    def steps(n: int) -> Iterator[int]:
        x = n
        yield x
        x = x + 1
        yield helper(x)

    def run() -> None:
        for _ in zip(steps(10), steps(20), strict=True):
            pass

    view = view_of(recorded(run, ["x", "y"]))
    calls = {change.call.caller for life in block_of(view, "y", "helper").variable.lives for change in life.changes}
    assert len(calls) == 2


def test_repeats_inside_of_a_repeat() -> None:
    def inner(k: int) -> int:
        y = k + 1
        z = y * 2
        return z  # noqa: RET504 (a variable to follow)

    def run() -> None:
        for turn in range(5):
            a = turn
            for k in range(a, a + 4):
                inner(k)

    view = view_of(recorded(run, ["a", "y", "z"]), by="time")
    assert [(type(row), getattr(row, "often", "")) for row in view.rows[-6:]] == [
        (LoopRow, ""), (Changes, ""), (LoopRow, ""), (CallRow, ""), (Changes, ""), (Changes, "")
    ]  # fmt: skip
    told = [row for row in rows_in(view) if row.first.event.name == "y"]
    (row,) = told
    assert [change.new.text for change in row.changes] == [str(a + k + 1) for a in range(5) for k in range(4)]
    assert [change.id for change in row.changes] == sorted(change.id for change in row.changes)


def test_repeats_in_the_life_of_one_variable() -> None:
    def run() -> None:
        for _ in range(4):
            x = torch.zeros(3)
            for _ in range(6):
                x = x + 1
            x = x.sum()

    (group,) = block_of(view_of(recorded(run, ["x"])), "x", "run").groups
    assert isinstance(group.rows[0], LoopRow)
    assert [row.often for row in group.rows if isinstance(row, Changes) and row.depth == 1] == ["", "× 6", ""]
    assert sum(len(row.changes) for row in group.rows if isinstance(row, Changes)) == 4 * 8
