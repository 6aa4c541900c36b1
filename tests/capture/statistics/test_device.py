"""The compiled engine's way to a GPU, with a launch of our own in the place of libcuda's: it needs no GPU."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torchglass as tg
from tests.capture.statistics.emulated import join, library
from tests.capture.statistics.sketching import by_numpy, check
from torchglass.capture.statistics import cuda, kernels
from torchglass.capture.statistics.axes import kernel_of, packed_order
from torchglass.capture.statistics.kernels import DTYPES
from torchglass.capture.statistics.measurer import Measurer
from torchglass.capture.statistics.memory import KINDS, layout_of
from torchglass.capture.statistics.sketch import order_of
from torchglass.compiled import COMPILED, engine
from torchglass.events.types import Sketch
from torchglass.journal.layout import BY_KERNEL, NONE

pytestmark = pytest.mark.skipif(engine() != COMPILED, reason="there is no compiled engine")
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
HANDLE, FUNCTION, ROOM = 77, 4711, 15
ONLY_AXES, ONLY_FLAT = 1, 2


class Driver:
    """What libcuda does: measures float32, at once."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, ...]] = []
        self.problem = 0
        self.call = LAUNCH(self._launch)

    def _launch(self, function: int, *rest: Any) -> int:
        *grid, stream, arguments, _ = rest
        address, count, run, _, _, _, row = (ctypes.c_uint64.from_address(arguments[at]).value for at in range(7))
        assert run == count
        self.launched.append((function, stream, *grid, count))
        if not self.problem:
            numbers = np.ctypeslib.as_array((ctypes.c_float * count).from_address(address)).astype(float)
            found = (
                count,
                0,
                0,
                0,
                (numbers == 0).sum(),
                numbers.min(),
                numbers.max(),
                numbers.sum(),
                numbers.var() * count,
            )
            np.ctypeslib.as_array((ctypes.c_double * kernels.ROW).from_address(row))[:] = found
        return self.problem


class SketchDriver(Driver):
    """Runs the kernel itself, compiled for this machine."""

    def _launch(self, function: int, *rest: Any) -> int:
        blocks, arguments = rest[0], rest[-2]
        address, known, parts, row = (ctypes.c_uint64.from_address(arguments[at]).value for at in (0, 3, 4, 5))
        wanted = ctypes.c_uint32.from_address(arguments[2]).value
        self.launched.append((wanted, blocks))
        places = [ctypes.c_void_p(each) for each in (known, parts, row)]
        kernel = getattr(library(), f"sketch_of_{DTYPES[function - 1]}")
        kernel(blocks, ctypes.c_void_p(address), ctypes.c_void_p(arguments[1]), wanted, *places)
        return 0


class Batch(cuda.BatchFields):
    def __init__(self, room: int, width: int) -> None:
        self.here = torch.zeros(room, width, dtype=torch.float64)
        self.address, self.room, self.values, self.width = self.here.data_ptr(), room, [], width
        self.slot = kernels.PRIME * kernels.SKETCH_PART if width > kernels.ROW else 0
        self.left = np.zeros(room * self.slot)
        self.slots = self.left.ctypes.data if self.slot else 0

    def join(self) -> None:
        if self.slot:
            join(self.slots, self.slot, self.address, self.used)


class Stream(cuda.StreamFields):
    def __init__(self, driver: Driver, width: int) -> None:
        self.scratch = np.zeros(kernels.PRIME * kernels.SKETCH_PART + 1)
        self.index, self.handle, self.parts = 0, HANDLE, self.scratch.ctypes.data + 8
        self.launch = ctypes.cast(driver.call, ctypes.c_void_p).value or 0
        self.batch = Batch(ROOM, width)


def take_place(monkeypatch: pytest.MonkeyPatch, driver: Driver, width: int) -> None:
    """From now on CPU tensors are taken for a GPU's."""
    begin = Measurer.__init__

    def __init__(self: Any, session: Any) -> None:
        begin(self, session)
        stream = Stream(driver, width)

        def send(full: Stream) -> None:
            batch, full.batch = full.batch, Batch(ROOM, width)
            batch.join()
            batch.has_arrived = True
            session.engine.take_rows(batch.values, batch.address, width, session.journal.sketched)

        self.finish_batch = lambda: send(stream)
        session.engine.ask({
            "device_streams": [stream], "send_batch": send, "is_capturing": lambda: False, "current_device": lambda: 0,
            "current_raw_stream": lambda device: HANDLE,
        })  # fmt: skip

    def plan(self: Any, tensor: Any) -> Any:
        layout = layout_of(tensor)
        if layout is None:
            return None
        is_sketch, name = width > kernels.ROW, str(tensor.dtype).removeprefix("torch.")
        function = DTYPES.index(name) + 1 if is_sketch else FUNCTION
        order = packed_order(tensor) if is_sketch else b""
        both = layout, order_of(tensor, KINDS[tensor.dtype])
        return tensor.element_size(), *both, 0, function, tensor.numel(), 0, 8192, 3, order

    monkeypatch.setattr(Measurer, "__init__", __init__)
    monkeypatch.setattr(Measurer, "plan", plan)
    finish = Measurer.finish
    monkeypatch.setattr(Measurer, "finish", lambda self: (self.finish_batch(), finish(self))[1])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    take_place(monkeypatch, driver, kernels.ROW)
    return driver


def test_each_value_is_launched_once_and_comes_back(driver: Driver) -> None:
    x = torch.arange(20_000.0)
    with tg.record(values="stats") as trace:
        for _ in range(10):
            y = x + 1
            y.view(100, 200).t()  # the same numbers in another order
            y.mul_(2)
    assert BY_KERNEL in trace._tables.value_measured
    assert set(trace._tables.value_measured) <= {BY_KERNEL, NONE}
    assert len(driver.launched) == 1 + 10 + 10  # x, each sum, each product
    assert set(driver.launched) == {(FUNCTION, HANDLE, 3, 1, 1, kernels.THREADS, 1, 1, 0, 20_000)}
    values = [(event.name, event.outputs[0].stats) for event in trace.events()]
    for name, stats in values:
        expected = (x + 1) * (2 if name == "Tensor.mul_" else 1)
        assert stats is not None
        assert stats[:5] == (20_000, 0, 0, 0, 0)
        assert stats[5:] == pytest.approx(
            [expected.min().item(), expected.max().item(), expected.double().mean().item(),
             expected.double().std(correction=0).item(), expected.double().norm().item()]
        )  # fmt: skip


def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.relu()
    z = y.view(30, 4, 25).transpose(0, 1)
    y.mul_(2)
    return z.contiguous(), x.bfloat16(), x.flip(0), (x > 0), x.double()


def test_sketches_of_both_devices_are_those_of_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    torch.manual_seed(0)
    x = torch.randn(30, 100)
    with tg.record(values="stats+sketch") as here:
        program(x)
    driver = SketchDriver()
    with monkeypatch.context() as patched:
        take_place(patched, driver, kernels.SKETCH_WIDTH)
        with tg.record(values="stats+sketch") as there:
            program(x)
    events = list(zip(here.events(), there.events(), strict=True))
    assert len(events) == 9
    for one, other in events:
        for value, its in zip((*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True):
            assert str(tg.same(value, its)) == "equal bits"
            assert its.stats == pytest.approx(value.stats, rel=1e-5, abs=1e-9)
    assert set(there._tables.value_measured) <= {BY_KERNEL, NONE}
    # Each view has an order of its own, and both have other numbers later: x, relu, view, transposed, changed,
    # transposed and changed, contiguous, bfloat16, flipped, > 0, double.
    assert [wanted for wanted, _ in driver.launched] == [0, 0, ONLY_AXES, ONLY_FLAT, 0, 0, 0, 0, 0, 0, 0]
    found = {str(each.event.code): str(each.likeness) for each in there.find(x.flip(0))}
    assert found["x.flip(0)"] == "equal bits"
    assert found["x.double()"] == "the same numbers in another order"
    assert tg.same(there.find(x)[0].value, here.find(x)[0].value).how == "bits"


def test_a_launch_that_fails_leaves_the_value_to_python(driver: Driver) -> None:
    driver.problem = 700
    with tg.record(values="stats") as trace:
        torch.ones(10) + 1
    (event,) = [each for each in trace.events() if each.name == "Tensor.add"]
    assert event.outputs[0].stats is not None
    assert event.outputs[0].stats.mean == 2
    assert driver.launched
    assert BY_KERNEL not in trace._tables.value_measured


class Kernels:
    """Those that Python launches, run on this machine."""

    launch_address = 0

    def has(self, dtype: Any) -> bool:
        return str(dtype).removeprefix("torch.") in DTYPES

    def slot(self) -> int:
        return kernels.PRIME * kernels.SKETCH_PART

    def join(self, stream: Any, batch: Any) -> None:
        join(batch.slots, batch.slot, batch.address, batch.used)

    def launch(self, run: kernels.DeviceRun, stream: Any, batch: Any, row: int) -> None:
        blocks = kernels.sketch_blocks(run.numbers, kernels.sketch_share(run.dtype), 2)
        to = batch.address + row * batch.width * 8, batch.slots + row * batch.slot * 8
        places = [ctypes.c_void_p(each) for each in reversed(to)]
        kernel = getattr(library(), f"{kernel_of(run.order)}_of_{str(run.dtype).removeprefix('torch.')}")
        kernel(blocks, ctypes.c_void_p(run.address), run.order, 0, None, *places)


@pytest.fixture
def tallies(monkeypatch: pytest.MonkeyPatch) -> tuple[cuda.CudaTallies, dict[int, tuple[list[float], bytes]]]:
    """What Python does without the compiled engine, and what comes back of it, by value."""
    found: dict[int, tuple[list[float], bytes]] = {}
    tallies = cuda.CudaTallies(
        lambda number, row, sketch: found.update({number: (row, sketch)}), lambda: None, None, lambda: None
    )
    tallies.sketches, of_all = True, Kernels()
    stream: Any = Stream(Driver(), kernels.ROW)
    stream.device, stream.kernels = torch.device("cpu"), of_all
    arrived = type("Arrived", (), {"record": lambda self, stream: None, "query": lambda self: True})
    plain = torch.empty
    monkeypatch.setattr(cuda, "kernels_of", lambda device: of_all)
    monkeypatch.setattr(cuda.CudaTallies, "_unseen", staticmethod(lambda device: nullcontext()))
    monkeypatch.setattr(tallies, "_stream", lambda device, kernels: stream)
    monkeypatch.setattr(cuda.private, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", arrived)
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **rest: plain(*size, **rest))
    stream.stream = None
    tallies._streams.append(stream)
    return tallies, found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool], ids=str)
def test_what_python_launches_finds_the_same(dtype: Any, tallies: Any) -> None:
    measuring, found = tallies
    base = (torch.randn(6, 1, 200) * 5).to(dtype)
    shown = [
        base, base.transpose(0, 2), base[::2], base[..., 1:], base.expand(3, *base.shape), base.view(-1), base[..., :0],
    ]  # fmt: skip
    expected = [by_numpy(each) for each in shown]
    for number, each in enumerate(shown):
        assert measuring.measure(each, number, False) == ((True, True) if each.numel() else (False, False))
    measuring.finish()
    assert list(found) == list(range(6))  # nothing is launched of nothing
    for number, (_, sketch) in found.items():
        assert Sketch.of(sketch).hash == expected[number].hash
        check(Sketch.of(sketch), expected[number])


def test_memory_that_was_given_back_is_not_read(driver: Driver) -> None:
    x = torch.ones(1000)
    with tg.record(values="stats"):
        x.untyped_storage().resize_(0)
        x.view(10, 100)
    assert not driver.launched


def test_numbers_in_runs() -> None:
    qkv = torch.randn(2, 5, 3, 4, 16)
    assert cuda._runs(qkv) == (qkv.numel(), 0)
    assert cuda._runs(qkv.permute(4, 1, 0, 3, 2)) == (qkv.numel(), 0)
    query = qkv.permute(2, 0, 3, 1, 4)[1]
    assert cuda._runs(query) == (64, 192)
    assert cuda._span(query) == 9 * 192 + 64
    assert cuda._runs(query[:, :, ::2]) is None  # of two distances
    assert cuda._runs(torch.randn(4, 10)[:, :3]) is None  # no whole loads
    assert cuda._runs(torch.ones(1)) == (1, 0)


def test_dispatch_modes_work_after_what_is_done_out_of_their_sight() -> None:
    """A guard of torch's that was left too late kept every mode of the thread off, for ever."""
    seen: list[Any] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        with cuda.CudaTallies._unseen(-1):
            torch.ones(2) + 1
        assert not seen
        torch.ones(2) + 1
    assert len(seen) == 2
