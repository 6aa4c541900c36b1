"""The bars of kept tensors, against numpy's own histogram."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchglass as tg
from torchglass.views.page.columns import BARS, HIGHEST, MOST_NUMBERS, spread
from torchglass.views.page.html import page_data
from torchglass.views.page.preview import preview


def _expected(numbers: Any, bars: int = BARS) -> str:
    bars = np.histogram(numbers, bars)[0]
    return "".join(str(int(np.ceil(HIGHEST * bar / bars.max()))) for bar in bars)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_bars_are_those_of_numpy(dtype: torch.dtype) -> None:
    numbers = (
        (torch.randn(40, 25, generator=torch.Generator().manual_seed(0)) * 3)
        .abs()
        .round(decimals=1 if dtype.is_floating_point else 0)
        .to(dtype)
    )
    plain = numbers.float().numpy().astype("float64").reshape(-1)
    told = spread(numbers)
    # Of whole numbers that lie close together each has a bar of its own.
    bars = BARS if dtype.is_floating_point else int(plain.max() - plain.min()) + 1
    assert told["histogram"] == _expected(plain, bars)
    assert told["min"] == pytest.approx(plain.min(), rel=1e-3)
    assert told["max"] == pytest.approx(plain.max(), rel=1e-3)
    if dtype != torch.bfloat16:
        assert spread(numbers.numpy()) == told


def test_what_is_not_finite_has_no_bar() -> None:
    numbers = torch.tensor([0.0, 1.0, 2.0, float("nan"), float("inf"), -float("inf")])
    assert spread(numbers) == spread(numbers[:3])
    assert spread(numbers.numpy()) == spread(numbers[:3])


@pytest.mark.parametrize(
    "content",
    [
        torch.zeros(3), torch.ones(0), torch.tensor(1.0), torch.full((2,), float("nan")),
        torch.ones(3, dtype=torch.complex64), torch.eye(3).to_sparse(), np.array(["a", "b"]), np.ones(2, dtype=complex),
    ],
    ids=lambda content: str(content.dtype),
)  # fmt: skip
def test_an_empty_trace_draws_nothing(content: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spread(content) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ends_as_far_apart_as_numbers_go_are_no_fault(dtype: torch.dtype) -> None:
    """Of memory that nothing was written to, as torch.empty gives it, anything may be kept."""
    most = torch.finfo(dtype).max
    content = torch.tensor([-most, 0.0, most], dtype=dtype)
    assert spread(content)["max"] == pytest.approx(most, rel=1e-3)
    preview(content.repeat(4, 2), True)


@pytest.mark.parametrize("values", ["stats", "all"])
def test_a_mask_of_the_lowest_double_has_a_page(values: str, tmp_path: Path) -> None:
    """Rounded to four digits it would be infinite, which no JSON holds."""
    with tg.record(values=values) as trace:
        torch.full((3, 20), torch.finfo(torch.float64).min, dtype=torch.float64).exp()
    trace.export(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_of_a_large_tensor_a_part_is_counted() -> None:
    large = torch.linspace(0, 1, 3 * MOST_NUMBERS + 5)
    assert set(spread(large)["histogram"]) <= {"8", "9"}
    assert spread(large.expand(100, -1))["histogram"]


def test_a_page_has_bars_of_what_was_kept_and_of_nothing_else() -> None:
    with tg.record(values="stats") as measured:
        torch.linspace(0, 1, 50).exp()
    with tg.record(values="all") as kept:
        torch.linspace(0, 1, 50).exp()
    with tg.record() as marked:
        tg.mark("curve", torch.linspace(0, 1, 50).exp())
    found = [page_data(trace)["values"]["stats"].values() for trace in (measured, kept, marked)]
    assert [sum("histogram" in each for each in told) for told in found] == [0, 2, 1]


def test_a_page_that_is_made_inside_of_the_block_leaves_nothing_in_the_trace(tmp_path: Path) -> None:
    with tg.record(values="all", ops=True) as trace:
        torch.linspace(0, 1, 50).exp()
        before = len(trace)
        tg.export(trace, tmp_path / "page.html")
        assert trace._repr_mimebundle_()
        assert len(trace) == before
        torch.ones(1)
        assert len(trace) > before
