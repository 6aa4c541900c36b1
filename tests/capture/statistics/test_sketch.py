"""Sketches against their plain definition, number by number: every dtype, layout and processor; what a hash tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import torchglass as tg
from tests.capture.statistics.sketching import by_numpy, check, check_any, plain, sketched
from tests.capture.statistics.test_memory import tensors
from torchglass.capture.statistics.memory import NoNumbers
from torchglass.compiled import extension
from torchglass.events.types import SKETCH


@settings(max_examples=600, deadline=None)
@given(tensors())
def test_equals_the_definition_for_every_dtype_and_layout(tensor: Any) -> None:
    found, also, absolute = sketched(tensor), by_numpy(tensor), plain(tensor, absolute=True)
    check_any(found, plain(tensor), absolute)
    check(also, plain(tensor))
    assert found.hash == also.hash


@pytest.mark.parametrize("number", [10005.5986328125, 9991.1787109375, 9990.0068359375, 1.1])
def test_a_thousand_equal_numbers_that_all_round_the_same_way(number: float) -> None:
    tensor = torch.full((5, 1024), number)
    check_any(sketched(tensor), plain(tensor), plain(tensor, absolute=True))


@contextmanager
def processor(number: int) -> Iterator[None]:
    try:
        if extension is None or extension.use_processor(number) != number:
            pytest.skip("not a processor of this machine, or no compiled engine")
        yield
    finally:
        if extension is not None:
            extension.use_processor(-1)


SHAPES = [(3, 1025), (1500, 3), (2, 3, 40, 17), (5000,), (1, 300, 1), (40, 2, 2, 2, 2, 2, 2), (1100, 1, 2), (33, 70)]
SHAPES += [(50, 45), (1200, 10), (3, 30, 64), (2, 1100, 16)]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32])
def test_shapes_beyond_a_block_on_every_processor(dtype: Any, number: int) -> None:
    torch.manual_seed(0)
    with processor(number):
        for shape in SHAPES:
            tensor = (torch.randn(shape) * 50).to(dtype)
            for each in (tensor, tensor.transpose(0, -1), tensor[::2]):
                found, expected = sketched(each), by_numpy(each)
                check(found, expected)
                assert found.hash == expected.hash


def test_it_is_two_hundred_bytes_and_a_hash() -> None:
    assert SKETCH.size == 200 + 8


def test_numbers_of_any_size_are_summed_and_larger_ones_counted() -> None:
    torch.manual_seed(0)
    for scale in (1e-38, 1e-20, 1e-7, 1e7, 1e20, 1e29, 1e33, 1e38):
        tensor = torch.randn(100) * scale
        check(sketched(tensor), plain(tensor))
    tensor = torch.tensor([1.0, 1e31, float("nan"), -float("inf"), 2.0])
    assert sketched(tensor).odd == 3
    assert sketched(tensor).orders[0] == 3.0


@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 1023, 1024, 1025, 5000])
def test_one_bit_anywhere_is_another_hash(size: int) -> None:
    tensor = torch.zeros(size, dtype=torch.uint8)
    known = {sketched(tensor).hash}
    for at in range(0, size, max(size // 50, 1)):
        for bit in range(8):
            tensor[at] = 1 << bit
            known.add(sketched(tensor).hash)
        tensor[at] = 0
    assert len(known) == 1 + 8 * len(range(0, size, max(size // 50, 1)))


def test_signs_that_change_in_pairs_and_rows_that_change_places_are_other_hashes() -> None:
    torch.manual_seed(0)
    tensor = torch.randn(64, 64)
    found = {sketched(tensor).hash}
    for other in range(1, 64):
        changed = tensor.clone()
        changed[[0, other]] *= -1
        swapped = tensor.clone()
        swapped[[0, other]] = tensor[[other, 0]]
        found |= {sketched(changed).hash, sketched(swapped).hash}
    assert len(found) == 1 + 2 * 63


def test_blocks_of_masks_that_change_places_are_other_hashes() -> None:
    """Of such numbers only few bits differ, and those at the upper end."""
    found: set[int] = set()
    for at in range(4096):
        tensor = torch.zeros(4096)
        tensor[at] = 1.0
        found.add(sketched(tensor).hash)
    for block in range(8):
        for other in range(block):
            tensor = torch.zeros(8, 512)
            tensor[block], tensor[other] = -torch.inf, 1.0
            found |= {sketched(tensor).hash, sketched(-tensor).hash}
            tensor[[block, other]] = tensor[[other, block]]
            found.add(sketched(tensor).hash)
    assert len(found) == 4096 + 28 * 3
    lower = {each & 0xFFFFFFFF for each in found}
    assert len(lower) > len(found) - 5  # all bits take part


def test_equal_bits_have_equal_hashes_however_they_lie() -> None:
    tensor = torch.arange(4000.0).view(40, 100)
    assert sketched(tensor).hash == sketched(tensor.t().contiguous().t()).hash
    assert sketched(tensor).hash == sketched(tensor.view(100, 40)).hash
    assert sketched(tensor.t()).hash == sketched(tensor.t().contiguous()).hash
    assert sketched(tensor).hash != sketched(tensor.t()).hash
    assert sketched(torch.zeros(3)).hash != sketched(torch.zeros(4)).hash


def test_an_expanded_tensor_is_its_numbers_in_their_order_and_a_vast_one_is_refused() -> None:
    row = torch.randn(6)
    expanded, repeated = sketched(row.expand(5, 6)), sketched(row.repeat(5, 1))
    check(expanded, repeated)
    assert expanded.hash == repeated.hash
    with pytest.raises(NoNumbers, match="too large"):
        sketched(row.expand(1 << 40, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_views_of_what_was_just_sketched_have_sketches_of_their_own(dtype: Any) -> None:
    x = torch.randn(12, 30, dtype=dtype)
    with tg.record(values="stats+sketch", ops=True) as trace:
        x.view(1, 12, 30)
        x.view(360)
        x.view(3, 4, 5, 6)
        x.t()
        x.view(12, 5, 6).transpose(0, 1)
        x[:6]
        x.view(2, 6, 30)
    values = [value for event in trace.events(kind="op") for value in (*event.inputs, *event.outputs)]
    assert len(values) == 16
    for value in values:
        expected = sketched(torch.as_strided(x, value.shape, value.stride))
        check(value.sketch, expected)
        assert value.sketch.hash == expected.hash


@pytest.mark.parametrize("odd", [None, float("nan"), 1e35, -1e-40])
@pytest.mark.parametrize("shape", [(300, 500), (150_000,), (3, 100, 501), (75_000, 2)])
def test_large_values_that_are_measured_and_sketched_in_passing(shape: tuple[int, ...], odd: float | None) -> None:
    x = torch.randn(shape) * torch.logspace(-6, 6, shape[0]).view(-1, *[1] * (len(shape) - 1))
    if odd is not None:
        x.view(-1)[-5] = odd
    with tg.record(values="stats+sketch") as trace:
        x.neg()
    for value, tensor in zip(trace.values(), (x, x.neg()), strict=True):
        expected = by_numpy(tensor)
        check(value.sketch, expected)
        assert value.sketch.hash == expected.hash
        assert value.stats.mean == pytest.approx(float(tensor.nan_to_num(0).double().mean()), rel=1e-4)


def test_denormals_are_as_before_when_it_is_done() -> None:
    sketched(torch.randn(5000))
    assert float(np.float32(1e-40) * np.float32(0.5)) > 0
    assert (torch.tensor(1e-40) * 0.5).item() > 0
