"""The kernels that look at values on an NVIDIA GPU: compiled when first wanted, and launched by libcuda itself.

NVRTC, which torch brings, compiles them (statistics.cu; with sketch.cu behind it where sketches are wanted, a dtype at
a time). Torch's own way to launch a kernel takes ten times as long.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch

from torchglass.capture.statistics.axes import kernel_of
from torchglass.capture.torch import private

THREADS = 256
"""Of a block; the kernels rely on it."""
A_THREAD = 32
"""Elements that a thread is given at least …"""
A_SKETCH = 16384
"""… and bytes that the warps of a block take in one turn where there is a sketch."""
BLOCKS_A_PROCESSOR, WITH_SKETCH = 3, 2
ROW = 9
"""Doubles: all, NaN, +Inf, -Inf, zeros, minimum, maximum, sum, sum of squares about the mean."""
PRIME = 17
"""Sums by place of each kind, in a sketch."""
PART, SKETCH_PART = 10, 58
"""Doubles of a block's part, without and with a sketch."""
SKETCH_ROW = ROW + 26
SKETCH_WIDTH = SKETCH_ROW + 4
"""Doubles of a row with a sketch, and of that with what a launch leaves for those that make it whole."""
JOINING = ["join_sketches", "fill_sketches"]
DTYPES = ["float32", "float64", "float16", "bfloat16", "bool", "uint8", "int8", "int16", "int32", "int64"]


class DeviceRun(NamedTuple):
    """What one launch looks at."""

    dtype: Any
    address: int
    numbers: int
    runs: tuple[int, int] = (0, 0)
    """How long the runs of its memory are, and how far apart."""
    order: bytes | None = None
    """Its logical order, where a sketch is wanted: the runs do not matter then."""


class Kernels:
    """The kernels for each dtype, on one device; raises where they cannot be had."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._functions = dict(
            zip(_dtypes(), self._compiled(["statistics.cu"], "STATISTICS", "of", DTYPES), strict=True)
        )
        self._sketches: dict[Any, Any] = {}
        self._joining: list[Any] = []
        """What makes rows whole; it comes with each of those."""
        self._launch = private.cuda_library().cuLaunchKernel
        self.launch_address = ctypes.cast(self._launch, ctypes.c_void_p).value or 0
        self._processors: int = torch.cuda.get_device_properties(device).multi_processor_count
        self._lock = Lock()

    def _compiled(self, files: list[str], macro: str, prefix: str, dtypes: list[str]) -> list[Any]:
        source = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in files)
        source += "".join(f"{macro}({name})\n" for name in dtypes)
        names = [f"{prefix}_{name}" for name in dtypes] + (JOINING if len(files) > 1 else [])
        with torch.cuda.device(self._device):
            program, _ = private.nvrtc_compile(source, names[0])
            found = private.load_cuda_module(program, names)
        return [found[name].func for name in names]

    def has(self, dtype: Any) -> bool:
        """Whether there is a kernel for this dtype."""
        return dtype in self._functions

    def function(self, dtype: Any, order: bytes | None) -> Any:
        """The kernel for a dtype, and for an order where there is a sketch, as libcuda knows it."""
        if order is None:
            return self._functions[dtype]
        kernel = kernel_of(order)
        with self._lock:
            if (dtype, kernel) not in self._sketches:
                files, name = ["statistics.cu", "sketch.cu"], str(dtype).removeprefix("torch.")
                self._sketches[dtype, kernel], *self._joining = self._compiled(files, kernel.upper(), kernel, [name])
            return self._sketches[dtype, kernel]

    def most_blocks(self, order: bytes | None) -> int:
        """How many blocks run at once."""
        return (BLOCKS_A_PROCESSOR if order is None else WITH_SKETCH) * self._processors

    def slot(self) -> int:
        """Doubles for the parts of a launch with a sketch."""
        return SKETCH_PART * PRIME * max(1, self.most_blocks(b"") // PRIME)

    def launch(self, run: DeviceRun, stream: Any, batch: Any, row: int) -> None:
        """Look at a tensor behind what the stream is doing now, for a row of a batch; ``join`` makes it whole."""
        function, data = self.function(run.dtype, run.order), ctypes.c_void_p(run.address)
        if run.order is None:
            blocks = min(self.most_blocks(None), -(-run.numbers // (THREADS * A_THREAD)))
            what = [*(ctypes.c_ulonglong(each) for each in (run.numbers, *run.runs)), ctypes.c_void_p(stream.parts)]
            what.append(ctypes.c_void_p(stream.parts - 8))
        else:
            blocks = sketch_blocks(run.numbers, sketch_share(run.dtype), self.most_blocks(run.order))
            order = ctypes.create_string_buffer(run.order, len(run.order))
            parts = ctypes.c_void_p(batch.slots + row * batch.slot * 8)
            what = [order, ctypes.c_uint(0), ctypes.c_void_p(), parts]  # all of it: nothing is known of these numbers
        to = ctypes.c_void_p(batch.address + row * batch.width * 8)
        self._run(function, blocks, stream, [data, *what, to])

    def join(self, stream: Any, batch: Any) -> None:
        """Make the rows of a batch whole that have sketches."""
        if batch.used and batch.slots and self._joining:
            table, width = ctypes.c_void_p(batch.address), ctypes.c_ulonglong(batch.width)
            slots = [ctypes.c_void_p(batch.slots), ctypes.c_ulonglong(batch.slot)]
            for function, fields in zip(self._joining, ([*slots, table, width], [table, width]), strict=True):
                self._run(function, batch.used, stream, fields)

    def _run(self, function: Any, blocks: int, stream: Any, fields: list[Any]) -> None:
        arguments = (ctypes.c_void_p * len(fields))(*(ctypes.addressof(each) for each in fields))
        handle = ctypes.c_void_p(stream.handle)
        problem = self._launch(function, blocks, 1, 1, THREADS, 1, 1, 0, handle, arguments, None)
        if problem:
            raise RuntimeError(f"cuLaunchKernel gave {problem}")


def sketch_share(dtype: Any) -> int:
    """Numbers of a dtype that a block takes in one turn."""
    return A_SKETCH // dtype.itemsize


def sketch_blocks(numbers: int, share: int, most: int) -> int:
    """How many blocks there are: as many as run at once, or fewer with one turn.

    With more than one turn it is a multiple of 17: the kernel relies on it.
    """
    once = -(-numbers // share)
    return once if once <= PRIME else PRIME * max(1, min(-(-once // PRIME), most // PRIME))


def _dtypes() -> list[Any]:
    return [getattr(torch, name) for name in DTYPES]


_kernels: dict[int, Kernels] = {}
"""By device: they take a second to compile, and stay for the process."""


def kernels_of(device: int) -> Kernels:
    """Those of a device; raises where there is no compiler or no library."""
    found = _kernels.get(device)
    if found is None:
        found = _kernels[device] = Kernels(device)
    return found
