"""The words of single rows: whose they are, how calls and lengths are counted, and where a thread's rows happened."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.views.variables.test_text import lines_of
from tests.views.variables.test_view import recorded


def labels(trace: Any) -> list[str]:
    """What stands before the values in the rows of changes, in program order."""
    rows = (line.lstrip("│ ") for line in lines_of(trace, 100, order="time", fold=False) if "→" in line)
    return [row.partition("  ")[0].partition(" →")[0] for row in rows]


def test_each_of_several_targets_says_which() -> None:
    def run() -> None:
        q, k = torch.ones(2, 3).unbind(0)
        a = b = q
        for i, j in [(1, 2)]:  # noqa: B007
            pass
        with nullcontext(k) as c:
            pass
        try:
            raise ValueError
        except ValueError as error:
            d = error
        torch.add(a, b, out=c)
        del d

    told = labels(recorded(run, ["q", "k", "a", "b", "c", "d", "i", "j", "error"]))
    assert told[:4] == ["q: q, k = torch.ones(2, 3).unbind(0)", "k: q, k = torch.ones(2, 3).unbind(0)",
                        "a = b = q", "b: a = b = q"]  # fmt: skip
    assert told[4:9] == ["i: for i, j in [(1, 2)]", "j: for i, j in [(1, 2)]", "nullcontext(k) as c",
                         "except ValueError as error:", "d = error"]  # fmt: skip
    assert told[9:] == ["k: torch.add(a, b, out=c)", "c: torch.add(a, b, out=c)", "del d"]


def test_calls_that_differ_say_in_how_many_each_change_was() -> None:
    def load(n: int) -> None:
        x: Any = 1
        if n % 2:
            x = torch.ones(3)
            x = x.sum()

    def run(turns: int) -> None:
        for n in range(turns):
            load(n)

    lines = lines_of(recorded(lambda: run(6), ["n", "x"]), 100, names="x")
    assert lines[0].endswith("load · 6 calls")
    assert [line.split("  ")[1] for line in lines[1:4]] == ["x: Any = 1", "x = torch.ones(3)", "x = x.sum()"]
    assert all("in 3 of 6 calls" in line for line in lines[2:4])
    assert len(lines) == len(lines_of(recorded(lambda: run(60), ["n", "x"]), 100, names="x"))


@pytest.mark.parametrize(("lengths", "word"), [((2, 2, 2), "→ 2 items"), ((2, 3, 4), "→ 2 items … 4 items")])
def test_equal_lengths_are_shown_once(lengths: tuple[int, ...], word: str) -> None:
    def run() -> None:
        for number, length in enumerate(lengths):
            x = [number] * length
            del x

    text = "\n".join(lines_of(recorded(run, ["x"]), 100))
    assert word in text
    assert "2 items … 2 items" not in text


def test_the_rows_of_another_thread_name_their_file() -> None:
    def work() -> None:
        x = 1
        x = x + 1

    def run() -> None:
        x = 0
        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        x = 5
        del x

    lines = lines_of(recorded(run, ["x"]), 100, order="time")
    headings = [number for number, line in enumerate(lines) if line.startswith("── thread")]
    assert len(headings) == 2
    for number in headings:
        placed = next(line for line in lines[number + 1 :] if line[-1:].isdecimal())
        assert f"{Path(__file__).name}:" in placed, lines


def test_shapes_that_alternate_are_shown_as_pairs() -> None:
    layers = [torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)] * 2

    def run(h: torch.Tensor) -> None:
        for layer in layers:
            h = layer(h)

    shown = "\n".join(lines_of(recorded(lambda: run(torch.randn(2, 4)), ["h"]), 140))
    assert "f32[2, 4] | f32[2, 8] → f32[2, 8] | f32[2, 4]" in shown
    assert "same shape" not in shown


def test_a_call_in_which_a_variable_begins_is_no_change_of_shape() -> None:
    lines = tg.render(programs.recorded("asynchronous"), "variables").splitlines()
    row = next(line for line in lines if "x = x.tanh()" in line)
    assert "f32[2, 3] → same shape, another tensor" in row
