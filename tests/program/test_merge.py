"""What is merged holds each of what it was merged from, and nothing that none of them had."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchglass as tg
from torchglass.events.types import Stats
from torchglass.program.merge import by_form, count_not_finite, merge_shapes, merge_stats, merge_tensors


@given(st.integers(0, 4).flatmap(lambda rank: st.lists(st.tuples(*[st.integers(0, 9)] * rank), min_size=1)))
def test_every_shape_is_in_the_sizes_and_every_size_is_of_a_shape(shapes: list[tuple[int, ...]]) -> None:
    sizes = merge_shapes(shapes)
    assert len(sizes) == len(shapes[0])
    for at, several in enumerate(sizes):
        assert list(several) == sorted({shape[at] for shape in shapes})


def test_values_of_several_calls() -> None:
    with tg.record(values="stats") as trace:
        for size, dtype in ((2, torch.float32), (5, torch.float64), (3, torch.float32)):
            torch.arange(size, dtype=dtype)
        torch.ones(2, 2)
    *vectors, matrix = [value for event in trace.events() for value in event.outputs]
    assert [len(each) for each in by_form([*vectors, matrix], lambda value: value.kind)] == [3, 1]
    merged = merge_tensors(vectors, [each.device for each in vectors], [each.stats for each in vectors if each.stats])
    assert (merged.dtypes, merged.sizes) == (("float32", "float64"), ((2, 3, 5),))
    assert (merged.devices, len(merged.stats)) == (("cpu",), 3)
    ends = merge_stats(merged.stats)
    assert ends is not None
    assert (ends.values, ends.mean) == ((0.0, 4.0), (0.5, 2.0))
    assert ends.percent_nonzero == pytest.approx((50.0, 80.0))
    assert not ends.are_single


def test_what_is_not_finite_is_counted_and_has_no_part_in_the_ends() -> None:
    nan = float("nan")
    good = Stats(2, 0, 0, 0, 1, 0.0, 4.0, 2.0, 2.0, 4.0)
    bad = Stats(3, 2, 0, 1, 0, nan, nan, nan, nan, nan)
    merged = merge_stats([good, bad])
    assert merged is not None
    assert merged.values == (0.0, 4.0)
    assert merge_stats([bad]) is None
    assert count_not_finite([good, bad, bad]) == (4, 0, 2)
