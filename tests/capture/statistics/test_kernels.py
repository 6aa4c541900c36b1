"""The kernels for a GPU, run on this machine: of every dtype, shape and layout they find what the CPU finds."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capture.statistics.emulated import join, row_of
from tests.capture.statistics.sketching import by_numpy, check
from tests.capture.statistics.test_memory import tensors
from torchglass.capture.statistics.axes import MOST_AXES, SIZE, kernel_of, packed_order
from torchglass.capture.statistics.device import _numbers
from torchglass.capture.statistics.kernels import DTYPES, SKETCH_ROW, SKETCH_WIDTH
from torchglass.capture.statistics.memory import KINDS, tally_of
from torchglass.events.types import Sketch


def check_row(tensor: Any, blocks: int) -> None:
    row, sketch = row_of(tensor, blocks)
    found, expected = Sketch.of(sketch), by_numpy(tensor)
    assert found.hash == expected.hash
    check(found, expected)
    kind = KINDS[tensor.dtype]
    assert _numbers(row) == pytest.approx(tally_of(tensor, kind).numbers(), rel=2e-5, abs=1e-6, nan_ok=True)


@settings(max_examples=150, deadline=None)
@given(tensors(), st.integers(1, 3))
def test_equals_the_cpu_for_every_dtype_and_layout(tensor: Any, blocks: int) -> None:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if str(tensor.dtype).removeprefix("torch.") in DTYPES and tensor.numel() and packed_order(tensor) is not None:
        check_row(tensor, blocks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize(
    "shape", [(5000,), (3, 1025), (1500, 3), (2, 3, 40, 64), (5, 2048), (2, 3000), (2,) * 9, (300, 1048)], ids=str
)
def test_shapes_beyond_a_block_of_weights(dtype: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    tensor = (torch.randn(shape) * 50).to(dtype)
    for each in (tensor, tensor.transpose(0, -1), tensor[::2], tensor[..., 1:]):
        check_row(each, 2)
        in_any_order = row_of(each, 2, "sketch")
        assert row_of(each, 2, "large_sketch") == in_any_order  # for more than 2**31 numbers
        check(Sketch.of(in_any_order[1]), by_numpy(each))


def bad_ones(tensor: Any) -> Any:
    """Some that are not summed, in the middle of others."""
    if tensor.is_floating_point():
        tensor.view(-1)[1000], tensor.view(-1)[1301] = torch.nan, -torch.inf
    return tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("row", [16, 32, 64, 128, 256, 512])
def test_short_rows(dtype: Any, row: int) -> None:
    """A warp reads several of them at once, whatever lies between them."""
    torch.manual_seed(0)
    base = bad_ones((torch.randn(7, 3, 5, row) * 50).to(dtype))
    large = (torch.randn(5, 70, 3, 2, row) * 50).to(dtype)
    for each in (base, base[:, 1], base.permute(1, 2, 0, 3), large.permute(2, 0, 3, 1, 4)[1], large):
        check_row(each, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_rows_of_whole_blocks_with_others_between(dtype: Any) -> None:
    torch.manual_seed(0)
    base = bad_ones((torch.randn(4, 19, 3072) * 50).to(dtype))
    for each in (base[..., 1024:2048], base[:, 2], base[:, ::3, :2048], base.transpose(0, 1)):
        assert kernel_of(packed_order(each) or b"") == "even_sketch"
        check_row(each, 1)


SHOWN = [
    ((9, 11, 64), (1, 0, 2)), ((40, 3, 128), (1, 0, 2)), ((30, 1048), (0, 1)), ((9, 700), (1, 0)), ((30, 100), (1, 0)),
    ((5, 3, 2048), (1, 0, 2)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize(("shape", "order"), SHOWN, ids=str)
def test_only_what_is_not_known(dtype: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    """Only the sums by axes are made, or only hash and flat sums: the rest comes from a row that was made before."""
    torch.manual_seed(0)
    tensor = bad_ones((torch.randn(shape) * 50).to(dtype))
    for shown, wanted, lost in ((tensor, 1, slice(76, 144)), (tensor.permute(order), 2, slice(0, 76))):
        numbers, sketch = row_of(shown, 1)
        known = bytearray(struct.pack("9d", *numbers) + sketch)
        known[72 + lost.start : 72 + lost.stop] = b"\x55" * (lost.stop - lost.start)
        again, found = row_of(shown, 1, wanted=wanted, known=bytes(known))
        assert again == pytest.approx(numbers, nan_ok=True)
        assert Sketch.of(found).hash == by_numpy(shown).hash
        check(Sketch.of(found), by_numpy(shown))


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-7, 1e7, 1e20, 1e29, 1e33, 1e38])
def test_numbers_of_any_size(scale: float) -> None:
    torch.manual_seed(0)
    tensor = torch.randn(3000) * scale
    tensor[::100], tensor[5], tensor[77] = 0.0, torch.finfo(torch.float32).min, torch.nan
    check_row(tensor, 1)
    check_row(torch.cat([tensor * 1e-5, tensor]).view(2, -1), 2)


def test_what_the_others_are_summed_about_may_lie_anywhere() -> None:
    """Sums of threads and blocks are joined about one number: far away, missing, or near, the spread is the same."""
    torch.manual_seed(0)
    near = torch.randn(300, 1048, dtype=torch.float64)
    apart, empty = near.clone(), near + 1e9
    apart[0, 0], empty[:150] = 1e12, torch.nan
    for tensor in (near + 1e9, apart, empty, torch.cat([torch.zeros(20, 1048), near + 1e9])):
        found = _numbers(row_of(tensor, 1)[0])
        true = tensor[tensor.isfinite()]
        assert found[-3:-1] == pytest.approx((true.mean().item(), true.std(correction=0).item()), rel=1e-6)


def test_zeros_come_first() -> None:
    """The first number is the one that others are summed about: it must not change when another one comes."""
    for dtype in (torch.float32, torch.int64):
        tensor = torch.zeros(40_000, dtype=dtype)
        tensor[20_000:] = 7
        check_row(tensor, 1)


def test_a_row_is_the_same_each_time() -> None:
    torch.manual_seed(0)
    tensor = torch.randn(70, 900).t()
    assert row_of(tensor, 3) == row_of(tensor, 3)


def test_rows_without_a_sketch_stay_as_they_are() -> None:
    table = np.arange(2.0 * SKETCH_WIDTH).reshape(2, -1)
    table[:, SKETCH_ROW:] = 0  # no launch has left anything
    before = table.copy()
    join(0, 0, table.ctypes.data, 2)
    assert (table == before).all()


def test_how_an_order_is_packed() -> None:
    assert len(packed_order(torch.ones(())) or b"") == SIZE
    assert packed_order(torch.ones((2,) * (MOST_AXES + 1))) is None
    assert packed_order(torch.ones(3, 0)) is None
    assert packed_order(torch.ones(3, 1, 5)) == packed_order(torch.ones(3, 5))
    assert packed_order(torch.ones(3, 5)) != packed_order(torch.ones(5, 3).t())


@given(st.integers(1, (1 << 31) - 1), st.data())
def test_the_numbers_by_which_the_kernel_divides(size: int, data: Any) -> None:
    from torchglass.capture.statistics.axes import _AXIS, _packed

    _, magic, shift, _ = _AXIS.unpack(_packed(size, 1, True))
    assert 0 <= magic < 1 << 32
    for near in (0, data.draw(st.integers(0, (1 << 31) // size)) * size):
        for number in {max(near - 1, 0), near, near + 1}:
            if number < 1 << 31:
                assert ((number * magic >> 32) + number) >> shift == number // size
