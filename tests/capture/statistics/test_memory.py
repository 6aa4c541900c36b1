"""Statistics read from memory against numpy's of a copy: every dtype, every layout, numbers far from zero."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capture.statistics.oracle import differences, statistics_of
from torchglass.capture.statistics.memory import KINDS, PIECE, NoNumbers, tally_of
from torchglass.capture.statistics.odd import tally_of_odd
from torchglass.compiled import extension

REAL = [dtype for dtype in KINDS if not dtype.is_complex]
FP8 = [dtype for dtype in KINDS if "float8" in str(dtype)]


def measured(tensor: Any) -> Any:
    return tally_of(tensor, KINDS[tensor.dtype]).numbers()


def check(tensor: Any) -> None:
    assert differences(measured(tensor), statistics_of(tensor)) == []


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """Some numbers of some dtype, laid out in some way; a few of them not finite, or zero."""
    dtype = draw(st.sampled_from(list(KINDS)))
    shape = draw(st.lists(st.integers(0, 7), max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 20)))
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
    numbers = numbers * draw(st.sampled_from([0.0, 1e-3, 1.0, 100.0])) + draw(st.sampled_from([0.0, 1e4, -3.0]))
    for odd in draw(st.lists(st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.0, -0.0]), max_size=3)):
        chosen = torch.rand(shape, generator=generator) < 0.2
        numbers = torch.where(chosen, torch.tensor(odd, dtype=torch.float64), numbers)
    if dtype.is_complex:
        made = torch.complex(numbers, numbers.flip(0) if numbers.dim() else numbers).to(dtype)
    elif dtype.is_floating_point:
        made = numbers.to(dtype)
    else:
        made = numbers.nan_to_num(0, 7, -7).abs().clamp(max=100).to(dtype)
    return laid_out(draw, made)


def laid_out(draw: Any, made: Any) -> Any:
    way = draw(st.sampled_from(["plain", "transposed", "every second", "offset", "expanded", "reversed order"]))
    if not made.dim():
        return made.expand(3, 2) if way == "expanded" else made
    if way == "transposed":
        return made.transpose(0, -1)
    if way == "every second":
        return made[..., ::2]
    if way == "offset":
        return made[1:]
    if way == "expanded":
        return made.unsqueeze(0).expand(5, *made.shape)
    return made.permute(*reversed(range(made.dim()))) if way == "reversed order" else made


@settings(max_examples=1500, deadline=None)
@given(tensors())
def test_equals_numpy_for_every_dtype_and_layout(tensor: Any) -> None:
    check(tensor)


@pytest.mark.skipif(extension is None, reason="no compiled engine")
@pytest.mark.parametrize("processor", [0, 1])
def test_equals_numpy_on_lesser_processors(processor: int) -> None:
    try:
        if extension.use_processor(processor) != processor:
            pytest.skip("this is a lesser one itself")
        test_equals_numpy_for_every_dtype_and_layout()
        for dtype in (torch.float32, torch.float16):
            test_of_more_than_one_piece(dtype)
    finally:
        extension.use_processor(-1)


@pytest.mark.skipif(extension is None, reason="no compiled engine")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number_of_two_bytes(dtype: Any) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype)
    check(every)
    for first in range(0, 1 << 16, 1 << 10):
        check(every[first : first + (1 << 10)])


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 16_384, 16_385, 50_000])
def test_one_number_that_is_not_finite_is_found_at_every_place(odd: float, size: int) -> None:
    numbers = torch.randn(size, generator=torch.Generator().manual_seed(size)) + 5
    for at in {0, size // 2, size - 1}:
        changed = numbers.clone()
        changed[at] = odd
        check(changed)
    check(torch.full((size,), odd))


def test_a_first_number_far_from_the_others_costs_no_digits() -> None:
    numbers = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    numbers[0] = 1e9
    for dtype in (torch.float64, torch.float32):
        check(numbers.to(dtype))
    check(torch.cat([numbers[:1], torch.full((40_000,), 3.0, dtype=torch.float64)]).float())


def test_numbers_whose_squares_overflow() -> None:
    check(torch.tensor([1e200, -3e200, 2.0], dtype=torch.float64))
    check(torch.tensor([3e38, -3e38, 1e-40], dtype=torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_of_more_than_one_piece(dtype: Any) -> None:
    numbers = torch.randn(3 * PIECE + 17, generator=torch.Generator().manual_seed(0)) * 5
    check(numbers.to(dtype))
    check(numbers[1:].reshape(-1, 4).to(dtype)[:, ::3])


def test_is_sound_far_from_zero() -> None:
    numbers = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float() + 1e4
    check(numbers)
    mean, std = measured(numbers)[7:9]
    assert abs(mean - 1e4) < 0.01
    assert abs(std - 1) < 0.01


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_all_numbers_of_a_dtype_of_one_byte(dtype: Any) -> None:
    check(torch.arange(256, dtype=torch.uint8).view(dtype))


def test_an_expanded_tensor_is_read_once_and_counted_as_often_as_it_says() -> None:
    huge = torch.tensor([1.0, -3.0]).expand(1 << 39, 2)  # 4 TiB if it were written out
    count, *_, zeros, low, high, mean, std, norm = measured(huge)
    assert (count, zeros, low, high, mean, std) == (1 << 40, 0, -3.0, 1.0, -1.0, 2.0)
    assert norm == pytest.approx((10 * 2.0**39) ** 0.5)


def test_numbers_that_overlap_without_end_are_left_alone() -> None:
    with pytest.raises(NoNumbers, match="overlap"):
        measured(torch.zeros(1 << 16).as_strided((1 << 15, 1 << 15), (1, 1)))


def test_memory_that_was_given_back_is_not_read() -> None:
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(NoNumbers, match="given back"):
        measured(tensor)
    tensor.untyped_storage().resize_(16)
    with pytest.raises(NoNumbers, match="given back"):
        measured(tensor)


def test_an_empty_tensor_has_counts_and_nothing_else() -> None:
    counts, reals = measured(torch.empty(0, 3))[:5], measured(torch.empty(0, 3))[5:]
    assert counts == (0, 0, 0, 0, 0)
    assert all(map(isnan, reals))


def dense(tensor: Any) -> Any:
    return differences(tally_of_odd(tensor).numbers(), statistics_of(tensor.to_dense()))


def test_sparse_tensors_count_the_zeros_that_they_do_not_store() -> None:
    tensor = torch.tensor([[0.0, 2.0, 0.0], [-1.0, 0.0, float("nan")]])
    assert dense(tensor.to_sparse()) == []
    assert dense(tensor.to_sparse_csr()) == []
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1]]), torch.tensor([1.0, 2.0, 5.0]), (4,))
    assert not twice.is_coalesced()
    assert dense(twice) == []


def test_conjugated_and_negated_views() -> None:
    numbers = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.complex64) + 3j
    assert differences(tally_of_odd(numbers.conj()).numbers(), statistics_of(numbers.conj())) == []
    negative = numbers.conj().imag
    assert negative.is_neg()
    assert differences(tally_of_odd(negative).numbers(), statistics_of(negative)) == []


def test_quantised_tensors_are_measured_as_the_numbers_that_they_stand_for() -> None:
    quantised = torch.quantize_per_tensor(torch.linspace(-1, 1, 11), 0.1, 3, torch.quint8)
    assert differences(tally_of_odd(quantised).numbers(), statistics_of(quantised.dequantize())) == []


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_measured_as_all_that_is_in_them(layout: Any) -> None:
    pieces = [torch.tensor([1.0, 2.0]), torch.tensor([0.0, float("inf"), -4.0])]
    nested = torch.nested.nested_tensor(pieces, layout=layout)
    assert differences(tally_of_odd(nested).numbers(), statistics_of(torch.cat(pieces))) == []
