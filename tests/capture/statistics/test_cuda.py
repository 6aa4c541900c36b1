"""Statistics and sketches on a GPU: one kernel a value, equal to numpy's, and nothing waits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import torchglass as tg
from tests.capture.statistics.sketching import by_numpy, check
from torchglass.journal.layout import BY_KERNEL, NONE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.complex64,
]  # fmt: skip


def expected(tensor: torch.Tensor) -> tuple[Any, ...]:
    """By numpy, in double precision."""
    cpu = tensor.detach().cpu()
    cpu = torch.view_as_real(cpu) if cpu.is_complex() else cpu
    all_ = cpu.double().numpy().ravel()
    kept = all_[np.isfinite(all_)]
    counts = (all_.size, np.isnan(all_).sum(), (all_ == math.inf).sum(), (all_ == -math.inf).sum(), (all_ == 0).sum())
    return (*map(int, counts), kept.min(), kept.max(), kept.mean(), kept.std(), np.linalg.norm(kept))


def made(dtype: torch.dtype, size: int) -> torch.Tensor:
    numbers = torch.randn(size, device="cuda") * 3 + (1e4 if dtype in (torch.float32, torch.float64) else 2)
    if dtype is torch.bool:
        return numbers > 2
    tensor = numbers.to(dtype)
    if dtype.is_floating_point and size > 10:
        tensor[3], tensor[5], tensor[6], tensor[8] = math.nan, math.inf, -math.inf, 0
    return tensor


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 7, 1000, 123_457, 5_000_003])
def test_the_numbers_are_numpys(dtype: torch.dtype, size: int) -> None:
    tensor = made(dtype, size + 3)[3:]  # not at the beginning of its memory
    with tg.record(values="stats") as trace:
        tensor.clone()
    (event,) = [each for each in trace.events() if each.name == "Tensor.clone"]
    found = event.outputs[0].stats
    assert found is not None
    assert tuple(found) == pytest.approx(expected(tensor), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.t(), lambda x: x[:, ::3], lambda x: x.permute(2, 0, 1) if x.dim() == 3 else x, lambda x: x[None],
        lambda x: x[0, 0], lambda x: x[:0], lambda x: x[:, :16], lambda x: x[:, 4:20], lambda x: x[:, 1:17],
        lambda x: x[::2, 8:24].t(), lambda x: x.expand(3, *x.shape), lambda x: x.flip(0),
    ],
)  # fmt: skip
def test_whatever_way_it_lies(layout: Any) -> None:
    base = torch.randn(40, 52, device="cuda")
    with tg.record(values="stats") as trace:
        shown = layout(base)
        shown.clone()
    (event,) = [each for each in trace.events() if each.name == "Tensor.clone"]
    for value in (*event.inputs, *event.outputs):
        if shown.numel():
            assert value.stats is not None
            assert tuple(value.stats) == pytest.approx(expected(shown), rel=2e-5, abs=1e-6)


def test_an_expanded_one_is_never_made() -> None:
    base = torch.randn(1024, device="cuda")
    with tg.record(values="stats") as trace:
        large = base.expand(1 << 30, 1024)
        large[0].clone()
    (event,) = [each for each in trace.events() if each.name == "Tensor.expand"]
    stats = event.outputs[0].stats
    assert stats is not None
    assert stats.count == 1 << 40
    assert stats.mean == pytest.approx(base.double().mean().item(), rel=1e-5, abs=1e-7)


def test_nothing_waits_in_the_block() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
    x = torch.randn(32, 64, device="cuda")
    net(x).sum().backward()
    with tg.record(values="stats", ops=True):
        net(x)  # the kernel is compiled
    torch.cuda.synchronize()
    with tg.record(values="stats", ops=True) as trace:
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(200):
                net(x).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    ops = [each for each in trace.events() if each.kind == "op" and each.outputs]
    assert len(ops) > 2000
    assert all(value.stats is not None for each in ops for value in each.outputs if math.prod(value.shape or ()))
    assert set(trace._tables.value_measured) <= {BY_KERNEL, NONE}
    assert "a kernel on their device" in str(trace)


def test_the_same_bits_and_random_numbers() -> None:
    def run() -> list[float]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1)).cuda()
        net(torch.randn(32, 64, device="cuda")).sum().backward()
        return [p.grad.double().sum().item() for p in net.parameters() if p.grad is not None]

    plain = run()
    with tg.record(values="stats", ops=True):
        recorded = run()
    assert plain == recorded


def test_several_streams_and_values_that_change() -> None:
    other = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    with tg.record(values="stats") as trace:
        for number in range(50):
            x.mul_(2) if number < 10 else x.clone()
            with torch.cuda.stream(other):
                torch.full((1000,), float(number), device="cuda")
    changed = [each.outputs[0].stats for each in trace.events() if each.name == "Tensor.mul_"]
    filled = [each.outputs[0].stats for each in trace.events() if each.name == "full"]
    assert [each.mean for each in changed if each] == [2.0**power for power in range(1, 11)]
    assert [each.mean for each in filled if each] == [float(number) for number in range(50)]


def test_first_bad_and_stop_on() -> None:
    def bad() -> None:
        x = torch.zeros(4, device="cuda")
        (x / x).sum()

    with tg.record(values="stats") as trace:
        bad()
    story = tg.first_bad(trace)
    assert story is not None
    assert "Tensor.div" in str(story)
    with pytest.raises(tg.BadValue), tg.record(stop_on="nonfinite"):
        bad()


def test_while_a_graph_is_captured_nothing_is_launched() -> None:
    x = torch.ones(100, device="cuda")
    with tg.record(values="stats") as trace:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2
        graph.replay()
        torch.cuda.synchronize()
    assert y.sum().item() == 200
    assert any("while a CUDA graph was captured" in note for note in trace.notes)


# ---------------------------------------------------------------- sketches

SHAPES = [(1,), (1000,), (123_457,), (3, 1025), (1500, 3), (2, 3, 40, 64), (50, 2048), (33, 70), (7, 50_257)]
LAYOUTS: list[Any] = [
    lambda x: x, lambda x: x.transpose(0, -1), lambda x: x[::2], lambda x: x[..., 1:], lambda x: x.flatten(),
    lambda x: x.expand(3, *x.shape), lambda x: x[None, ..., None],
]  # fmt: skip


def check_sketch(value: Any, tensor: torch.Tensor) -> None:
    expected_ = by_numpy(tensor.detach().cpu())
    assert value.sketch is not None
    assert value.sketch.hash == expected_.hash
    check(value.sketch, expected_)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sketches_are_those_of_the_cpu_for_every_dtype_and_layout(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape in SHAPES:
        base = made(dtype, math.prod(shape)).view(shape)
        shown = [layout(base) for layout in LAYOUTS]
        with tg.record(values="stats+sketch") as trace:
            for each in shown:
                each.clone()
        events = [each for each in trace.events() if each.name == "Tensor.clone"]
        assert not any("sketch" in note for note in trace.notes)
        for event, tensor in zip(events, shown, strict=True):
            for value in (*event.inputs, *event.outputs):
                check_sketch(value, tensor)
                if tensor.numel():
                    assert tuple(value.stats) == pytest.approx(expected(tensor), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_sketches_of_heads_and_of_parts_of_a_projection(dtype: torch.dtype) -> None:
    """Rows that are short, or have others between them: of what was seen in another order only the rest is found."""
    torch.manual_seed(0)
    base = made(dtype, 2 * 64 * 3 * 1024).view(2, 64, 3072)
    with tg.record(values="stats+sketch") as trace:
        heads = base.clone().view(2, 64, 3, 16, 64)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        together = key.transpose(1, 2).contiguous().view(2, 64, 1024)
        parts = base.split(1024, dim=-1)
    seen = [(each.shape, each.sketch) for event in trace.events() for each in event.outputs]
    for tensor in (base, heads, heads.permute(2, 0, 3, 1, 4), key.transpose(1, 2), query, key, value, together, *parts):
        true = by_numpy(tensor.cpu())
        found = [its for shape, its in seen if its is not None and its.hash == true.hash and shape == tensor.shape]
        assert found
        for each in found:
            check(each, true)


def test_numbers_of_any_size_are_in_the_sketch_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    for scale in (1e-38, 1e-20, 1e-7, 1e7, 1e20, 1e29, 1e33, 1e38):
        x = torch.randn(10_000, device="cuda") * scale
        x[::100], x[5] = 0.0, torch.finfo(torch.float32).min
        with tg.record(values="stats+sketch") as trace:
            x.clone()
        for value in trace.values():
            check_sketch(value, x)


def test_the_same_numbers_are_known_again_on_both_devices() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 256)
    with tg.record(values="stats+sketch") as here:
        (x.view(64, 4, 64).transpose(0, 1).contiguous(), x.bfloat16(), x.relu())
    on_gpu = x.cuda()
    with tg.record(values="stats+sketch", ops=True) as there:
        (on_gpu.view(64, 4, 64).transpose(0, 1).contiguous(), on_gpu.bfloat16(), on_gpu.relu())
    for one, other in zip(here.events(kind="function"), there.events(kind="function"), strict=True):
        assert str(tg.same(one.outputs[0], other.outputs[0])) == "equal bits"
    assert [str(each.likeness) for each in there.find(x.relu())][:1] == ["equal bits"]
    assert [str(each.likeness) for each in here.find(on_gpu.relu())] == ["equal bits"]


def test_nothing_waits_for_sketches() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
    x = torch.randn(32, 64, device="cuda")
    net(x).sum().backward()
    with tg.record(values="stats+sketch", ops=True):
        net(x).sum().backward()
    torch.cuda.synchronize()
    with tg.record(values="stats+sketch", ops=True) as trace:
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(100):
                net(x).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    outputs = [value for each in trace.events(kind="op") for value in each.outputs]
    assert len(outputs) > 1000
    assert all(value.sketch is not None for value in outputs)


def test_what_has_no_sketch_says_so() -> None:
    x = torch.randn(4, 4, device="cuda")
    with tg.record(values="stats+sketch") as trace:
        (x.to(torch.float8_e4m3fn), torch.complex(x, x).conj(), x[:0])
    assert any("no sketch" in note for note in trace.notes)
    event = list(trace.events())[-1]
    assert event.outputs[0].sketch is not None  # nothing is a known number of numbers
