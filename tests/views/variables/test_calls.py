"""Which call a change belongs to where calls take turns, and what repeats inside of repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import torch

import torchglass as tg
from tests.modules import module_of
from tests.views.variables.test_view import block_of, news, recorded, rows_in, view_of
from torchglass.views.row import CALL, EVENT, FOLD, LOOP
from torchglass.views.variables.rows import Changes


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
    (call,) = [row for row in view_of(trace, order="time").rows if row.kind == CALL and row.times == 3]
    assert call.text("expression").endswith("work:")


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


def test_a_life_is_in_one_call_as_the_recorder_numbers_them() -> None:
    """Generators that hold equal values and go on in turns, also from other places, and recursion."""

    def count(n: int) -> Iterator[int]:
        at = 0
        while at < n:
            yield at
            at = at + 1

    def deeper(levels: int) -> int:
        left = levels - 1
        return deeper(left) if left else 0

    def run() -> None:
        one, two, three = count(3), count(3), count(3)
        for _ in zip(one, two, strict=True):
            next(three, None)
        deeper(3)
        deeper(3)

    trace = recorded(run, ["at", "left"])
    view = view_of(trace)
    for name, scope, calls in (("at", "count", 3), ("left", "deeper", 6)):
        numbers = [
            {trace.event(change.id).python_call for change in life.changes}
            for life in block_of(view, name, scope).variable.lives
        ]
        assert all(len(each) == 1 for each in numbers)
        assert len(set.union(*numbers)) == len(numbers) == calls


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

    view = view_of(recorded(run, ["a", "y", "z"]), order="time")
    assert [row.kind for row in view.rows[-6:]] == [LOOP, EVENT, LOOP, CALL, EVENT, EVENT]
    assert not any(row.cell(FOLD) for row in view.rows[-6:])
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
    assert group.rows[0].kind == LOOP
    assert [row.text(FOLD) for row in group.rows if isinstance(row, Changes) and row.depth == 1] == ["", "× 6", ""]
    assert sum(len(row.changes) for row in group.rows if isinstance(row, Changes)) == 4 * 8


SHARED = """\
import torch

def inc(t):
    t.add_(1)

def main():
    x = torch.zeros(2)
    y = x
    for i in range(2):
        x.add_(1)
    for i in range(3):
        inc(x)
"""


def test_a_change_under_several_names_is_no_further_round(tmp_path: Path) -> None:
    module = module_of(tmp_path, SHARED)
    with tg.record(variables=True) as trace:
        module.main()
    text = tg.render(trace, "variables", order="time", width=120)
    assert "for i in range(2):  × 2 " in text
    assert "for i in range(3):  × 3 " in text
    assert "in rounds" not in text


CAUGHT = """\
import torch

def inner(xs):
    a = torch.ones(2)
    xs.append(1)
    raise ValueError

def middle(xs):
    try:
        b = inner(xs)
    except ValueError as error:
        b = None
    finally:
        c = 3

def numbers():
    k = 0
    yield k
    raise KeyError

def main():
    xs = []
    middle(xs)
    try:
        for each in numbers():
            d = each
    except KeyError:
        e = 5
"""


def test_a_function_that_an_exception_leaves_tells_what_it_did_on_every_python(tmp_path: Path) -> None:
    module = module_of(tmp_path, CAUGHT)
    with tg.record(variables=True) as trace:
        module.main()
    changes = [event for event in trace.events() if event.kind == "variable"]
    told = [(event.name, event.detail, event.result, event.line) for event in changes]
    assert told == [
        ("xs", "assigned", "[]", 22),
        ("xs", "argument", "[]", 8),
        ("xs", "argument", "[]", 3),
        ("a", "assigned", "f32[2]", 4),
        ("xs", "changed", "[1]", 5),
        ("xs", "changed", "[1]", 10),
        ("error", "assigned", "<ValueError>", 11),
        ("b", "assigned", "None", 12),
        ("c", "assigned", "3", 14),
        ("xs", "changed", "[1]", 23),
        ("k", "assigned", "0", 17),
        ("each", "assigned", "0", 25),
        ("d", "assigned", "0", 26),
        ("e", "assigned", "5", 28),
    ]
    calls = {event.function: event.python_call for event in changes}
    assert len(set(calls.values())) == len(calls) == 4


def test_the_module_level_is_one_call_also_where_functions_changed_something_first(tmp_path: Path) -> None:
    path = tmp_path / "alone.py"
    path.write_text("def double(x):\n    y = 2 * x\n    return y\na = double(1)\nb = double(a)\n")
    code = compile(path.read_text(), str(path), "exec")
    with tg.record(variables=True) as trace:
        exec(code, {})
    text = tg.render(trace, "variables", order="time", width=120)
    assert "2: module level:" not in text
    assert "of 2 calls" not in text
    assert "a = double(1)" in text


def test_a_call_whose_argument_is_changed_in_place_is_one_call() -> None:
    """What the caller holds changes, too, in the course of it."""

    def fill(x: torch.Tensor, n: int) -> int:
        total = 0
        for i in range(n):
            x[i] = total
            total += 1
        return total

    with tg.record(variables=True) as trace:
        t = torch.ones(4)
        r = fill(t, 3)
    text = tg.render(trace, "variables", order="time", width=120)
    assert "2: " not in text.replace("0, 1, 2: ", "")
    assert "of 2 calls" not in text
    assert "t: x[i] = total" in text
    assert r == 3
