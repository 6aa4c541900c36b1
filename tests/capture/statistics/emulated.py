"""The kernels for a GPU, compiled for this machine (``cuda_on_cpu.h``): so they can be held to their definition."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torchglass.capture.statistics import kernels
from torchglass.capture.statistics.axes import kernel_of, packed_order

SOURCES = Path(kernels.__file__).parent
SHIM = Path(__file__).with_name("cuda_on_cpu.h")


@cache
def library() -> Any:
    """The kernels for all dtypes; the test is skipped where there is no compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    source = SHIM.read_text() + "".join((SOURCES / name).read_text() for name in ("statistics.cu", "sketch.cu"))
    source += "".join(
        f"STATISTICS({name})\nSKETCH({name})\nEVEN_SKETCH({name})\nSHORT_SKETCH({name})\nLARGE_SKETCH({name})\nON_CPU({name})\n"
        for name in kernels.DTYPES
    )
    source += "JOINING_ON_CPU\n"
    folder = Path(tempfile.gettempdir()) / f"torchglass-kernels-{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    made = folder / "kernels.so"
    if not made.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            (Path(inside) / "kernels.cpp").write_text(source)
            options = [
                "-std=c++17",
                "-O1",
                "-w",
                "-shared",
                "-fPIC",
                "-U_FORTIFY_SOURCE",
                "kernels.cpp",
                "-o",
                "kernels.so",
            ]
            subprocess.run([compiler, *options], cwd=inside, check=True)
            (Path(inside) / "kernels.so").replace(made)
    return ctypes.CDLL(str(made))


def row_of(
    tensor: Any, blocks: int, kernel: str = "", wanted: int = 0, known: bytes | None = None
) -> tuple[list[float], bytes]:
    """The row that the kernel makes of a CPU tensor: nine numbers of the statistics, and the sketch.

    So many blocks times 17, where it has several turns. Where only some is wanted, the rest is known: a row.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    blocks = kernels.sketch_blocks(tensor.numel(), kernels.sketch_share(tensor.dtype), kernels.PRIME * blocks)
    order = packed_order(tensor)
    assert order is not None
    slot, table = blocks * kernels.SKETCH_PART, np.full((2, kernels.SKETCH_WIDTH), np.nan)
    table[:, kernels.SKETCH_ROW :] = 0
    if known is not None:
        table[0, : kernels.SKETCH_ROW] = np.frombuffer(known)
    slots = np.full((2, slot), np.nan)
    call = getattr(library(), f"{kernel or kernel_of(order)}_of_{name}")
    data, parts, row = (
        ctypes.c_void_p(each) for each in (tensor.data_ptr(), slots[1].ctypes.data, table[1].ctypes.data)
    )
    call(blocks, data, order, wanted, None if known is None else ctypes.c_void_p(table.ctypes.data), parts, row)
    join(slots.ctypes.data, slot, table.ctypes.data, 2)
    return table[1, : kernels.ROW].tolist(), table[1, kernels.ROW : kernels.SKETCH_ROW].tobytes()


def join(slots: int, slot: int, table: int, rows: int) -> None:
    """Make rows whole that kernels have left."""
    places = ctypes.c_void_p(slots), ctypes.c_ulonglong(slot), ctypes.c_void_p(table)
    library().join_on_cpu(rows, *places, ctypes.c_ulonglong(kernels.SKETCH_WIDTH))
