"""Statistics in a few words, and where rows of the tree and the table have them."""

from __future__ import annotations

import re
from math import nan

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.events.types import Stats
from torchglass.views.text.tensors import alarm_word, number_word, range_word, stats_word

NORMAL = Stats(512, 0, 0, 0, 3, -3.14159, 2.9, 0.0123, 0.99, 22.4)


@pytest.mark.parametrize(
    ("number", "word"),
    [(0.0, "0"), (-3.14, "−3.1"), (1e-9, "1e−9"), (42.4, "42"), (107.3, "107"), (123456.5, "1.2e5"), (-1e7, "−1e7")],
)
def test_numbers_have_two_digits_that_count_or_all_before_the_point(number: float, word: str) -> None:
    assert number_word(number) == word


def test_an_index_or_a_count_is_never_rounded() -> None:
    assert [number_word(number) for number in (100, 2975, 3703, 50304, 1234567)] == [
        "100", "2975", "3703", "50304", "1234567",
    ]  # fmt: skip


def test_what_is_shown_of_one_value() -> None:
    assert stats_word(NORMAL) == "μ 0.012 σ 0.99 [−3.1, 2.9]"
    assert stats_word(NORMAL._replace(nan=4, neginf=1200)) == "μ 0.012 σ 0.99 [−3.1, 2.9] 4 NaN, 1,200 −Inf"
    assert stats_word(Stats(1, 0, 0, 0, 0, 2.5, 2.5, 2.5, 0, 2.5)) == "= 2.5"
    assert stats_word(Stats(9, 0, 0, 0, 9, 0, 0, 0, 0, 0)) == "all 0"
    assert stats_word(Stats(4, 0, 0, 0, 1, 0, 1, 0.75, 0.4, 1.7), "bool") == "75 % True"
    shares = [stats_word(Stats(1000, 0, 0, 0, 1000 - true, 0, 1, 0.5, 0.5, 1), "bool") for true in (0, 3, 5, 998, 1000)]
    assert shares == ["0 % True", "<1 % True", "<1 % True", ">99 % True", "100 % True"]
    assert stats_word(Stats(3, 3, 0, 0, 0, nan, nan, nan, nan, nan)) == "3 NaN"
    assert stats_word(Stats(0, 0, 0, 0, 0, nan, nan, nan, nan, nan)) == ""


def test_several_values_are_ranges_and_numbers_that_are_not_finite_are_added_up() -> None:
    other = NORMAL._replace(mean=0.5, std=2.0, max=7.0, nan=2)
    assert range_word([NORMAL, other]) == "μ 0.012 … 0.5 σ 0.99 … 2 [−3.1, 7]"
    assert alarm_word([NORMAL, other, other]) == "4 NaN"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x * 2)
        low, high = x.split(2)
        return (low - high).log()


def test_the_tree_and_the_table_have_them_after_the_shapes() -> None:
    with tg.record(values="stats") as trace:
        Net()(torch.tensor([4.0, 0.0, 1.0, 1.0]))
    tree = tg.render(trace, width=140)
    assert "→ f32[4] μ 3 … 12 σ 3 … 12 [0, 32]" in tree  # three rounds, folded
    assert "→ f32[2] μ 16 σ 16 [0, 32], f32[2] all 8" in tree
    assert "→ f32[2] 1 NaN all 3.2" in tree
    table = tg.render(trace, "table", width=140)
    assert "Output values" in table
    assert "1 NaN all 3.2" in table
    red = tg.render(trace, width=140, color=True)
    assert "\x1b[1;31m1 NaN\x1b[0m" in red


def test_what_was_cut_off_is_not_painted_as_an_alarm() -> None:
    with tg.record(values="stats") as trace:
        torch.full((2, 3, 4, 5, 6, 1, 1, 1), nan).exp()
    for width in range(40, 100):
        assert not re.search("\x1b\\[1;31m[^\x1b]*…", tg.render(trace, width=width, color=True))


def test_code_and_calls_have_them_too() -> None:
    with tg.record(values="stats") as trace:
        Net()(torch.tensor([4.0, 0.0, 1.0, 1.0]))
    code = tg.render(trace, "code", width=160)
    assert "-> f32[4] μ 3 … 12 σ 3 … 12 [0, 32];" in code
    assert "-> f32[2] 1 NaN all 3.2;" in code
    calls = tg.render(trace, "calls", shapes=True, width=120)
    assert "→ f32[2] 1 NaN all 3.2" in calls
    assert "NaN" not in tg.render(trace, "calls", width=120)


def test_the_story_of_a_failure_says_what_was_in_its_inputs() -> None:
    def multiply() -> torch.Tensor:
        x = torch.ones(4, 3) / torch.zeros(4, 3)
        return x @ torch.ones(4, 5)

    with pytest.raises(RuntimeError), tg.record(values="stats") as trace:
        multiply()
    story = tg.render(trace, "failure")
    assert "f32[4, 3] @ cpu 12 +Inf" in story
    assert "f32[4, 5] @ cpu all 1" in story


def test_without_statistics_nothing_is_said_of_them() -> None:
    with tg.record() as trace:
        Net()(torch.ones(4))
    assert "μ" not in tg.render(trace)
    assert "Output values" not in tg.render(trace, "table")
