"""Compiles and launches the kernels that measure values on an NVIDIA GPU.

NVRTC, which comes with torch, compiles the kernels on first use: statistics.cu for all dtypes at once, and sketch.cu
for one dtype at a time if sketches are wanted. The kernels are launched with libcuda directly, because launching a
kernel through torch takes ten times as long.
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
"""The number of threads in a block; the kernels rely on this number."""
A_THREAD = 32
"""The least number of elements for one thread, without a sketch."""
A_SKETCH = 16384
"""The number of bytes that the warps of a block read in one turn, with a sketch."""
BLOCKS_A_PROCESSOR = 3
WITH_SKETCH = 2
"""The most blocks to launch for each multiprocessor, without and with a sketch."""
ROW = 9
"""The number of doubles in a row of statistics.

They are the counts of all numbers, NaN, +Inf, -Inf and zeros, then the minimum, the maximum, the sum, and the sum of
squared distances from the mean.
"""
PRIME = 17
"""The number of sums in a sketch by the flat order, and also by the axes (sketch.py)."""
PART = 10
SKETCH_PART = 58
"""The number of doubles in the partial result of one block, without and with a sketch."""
SKETCH_ROW = ROW + 26
"""The number of doubles in a row of statistics followed by a sketch."""
SKETCH_WIDTH = SKETCH_ROW + 4
"""The number of doubles in a row on the device: `SKETCH_ROW`, and four that a launch leaves for the joining kernels."""
JOINING = ["join_sketches", "fill_sketches"]
"""The kernels that complete the rows with sketches, in the order in which they run."""
DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
]


class DeviceRun(NamedTuple):
    """The memory that one launch of a kernel measures."""

    dtype: Any
    address: int
    numbers: int
    runs: tuple[int, int] = (0, 0)
    """The length of the contiguous runs of elements, and the distance between the beginnings of two runs."""
    order: bytes | None = None
    """The logical order of the elements if a sketch is wanted, else None. With an order, `runs` is not used."""


class Kernels:
    """The kernels for each dtype on one device.

    Creating this object raises an exception if the kernels are not available.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._functions = dict(
            zip(
                _dtypes(),
                self._compiled(["statistics.cu"], "STATISTICS", "of", DTYPES),
                strict=True,
            )
        )
        self._sketches: dict[Any, Any] = {}
        self._joining: list[Any] = []
        """The kernels that complete rows with sketches; each compilation of sketch.cu yields them again."""
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
        """Return whether there is a kernel for this dtype."""
        return dtype in self._functions

    def function(self, dtype: Any, order: bytes | None) -> Any:
        """Return libcuda's handle of the kernel for a dtype, and for an order if a sketch is wanted."""
        if order is None:
            return self._functions[dtype]
        kernel = kernel_of(order)
        with self._lock:
            if (dtype, kernel) not in self._sketches:
                files = ["statistics.cu", "sketch.cu"]
                name = str(dtype).removeprefix("torch.")
                self._sketches[dtype, kernel], *self._joining = self._compiled(
                    files, kernel.upper(), kernel, [name]
                )
            return self._sketches[dtype, kernel]

    def most_blocks(self, order: bytes | None) -> int:
        """Return how many blocks run at once; any order, even an empty one, means "with a sketch"."""
        return (BLOCKS_A_PROCESSOR if order is None else WITH_SKETCH) * self._processors

    def slot(self) -> int:
        """Return how many doubles a launch with a sketch needs for the partial results of its blocks."""
        return SKETCH_PART * PRIME * max(1, self.most_blocks(b"") // PRIME)

    def launch(self, run: DeviceRun, stream: Any, batch: Any, row: int) -> None:
        """Enqueue the kernel on a stream; it writes the statistics of a tensor into a row of a batch.

        A row with a sketch is incomplete until ``join``.
        """
        function = self.function(run.dtype, run.order)
        data = ctypes.c_void_p(run.address)
        if run.order is None:
            blocks = min(self.most_blocks(None), -(-run.numbers // (THREADS * A_THREAD)))
            what = [
                *(ctypes.c_ulonglong(each) for each in (run.numbers, *run.runs)),
                ctypes.c_void_p(stream.parts),
            ]
            # The counter of finished blocks lies just before the parts.
            what.append(ctypes.c_void_p(stream.parts - 8))
        else:
            blocks = sketch_blocks(
                run.numbers, sketch_share(run.dtype), self.most_blocks(run.order)
            )
            order = ctypes.create_string_buffer(run.order, len(run.order))
            parts = ctypes.c_void_p(batch.slots + row * batch.slot * 8)
            # 0 and a null pointer: measure everything, because nothing is known of these numbers.
            what = [
                order,
                ctypes.c_uint(0),
                ctypes.c_void_p(),
                parts,
            ]
        to = ctypes.c_void_p(batch.address + row * batch.width * 8)
        self._run(function, blocks, stream, [data, *what, to])

    def join(self, stream: Any, batch: Any) -> None:
        """Enqueue the kernels that complete the rows of a batch, if its rows have sketches."""
        if batch.used and batch.slots and self._joining:
            table = ctypes.c_void_p(batch.address)
            width = ctypes.c_ulonglong(batch.width)
            slots = [ctypes.c_void_p(batch.slots), ctypes.c_ulonglong(batch.slot)]
            for function, fields in zip(
                self._joining, ([*slots, table, width], [table, width]), strict=True
            ):
                self._run(function, batch.used, stream, fields)

    def _run(self, function: Any, blocks: int, stream: Any, fields: list[Any]) -> None:
        arguments = (ctypes.c_void_p * len(fields))(*(ctypes.addressof(each) for each in fields))
        handle = ctypes.c_void_p(stream.handle)
        problem = self._launch(function, blocks, 1, 1, THREADS, 1, 1, 0, handle, arguments, None)
        if problem:
            raise RuntimeError(f"cuLaunchKernel gave {problem}")


def sketch_share(dtype: Any) -> int:
    """Return how many numbers of a dtype a block reads in one turn."""
    return A_SKETCH // dtype.itemsize


def sketch_blocks(numbers: int, share: int, most: int) -> int:
    """Return how many blocks to launch for a sketch of so many numbers.

    Up to 17 blocks, each block takes one turn. Otherwise it is a multiple of 17, because the kernel relies on that, and
    about ``most`` (how many blocks run at once) at the most.
    """
    once = -(-numbers // share)
    if once <= PRIME:
        return once
    return PRIME * max(1, min(-(-once // PRIME), most // PRIME))


def _dtypes() -> list[Any]:
    return [getattr(torch, name) for name in DTYPES]


_kernels: dict[int, Kernels] = {}
"""The kernels of each device. They stay until the process ends, because compiling them takes a second."""


def kernels_of(device: int) -> Kernels:
    """Return the kernels of a device, and raise an exception if NVRTC or libcuda is missing."""
    found = _kernels.get(device)
    if found is None:
        found = _kernels[device] = Kernels(device)
    return found
