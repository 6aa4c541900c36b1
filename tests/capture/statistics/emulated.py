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
    parts, ended = np.full(blocks * kernels.SKETCH_PART, np.nan), ctypes.c_uint32()
    row = np.full(kernels.SKETCH_ROW, np.nan)
    places = [ctypes.c_void_p(parts.ctypes.data), ctypes.byref(ended), ctypes.c_void_p(row.ctypes.data)]
    call = getattr(library(), f"{kernel or kernel_of(order)}_of_{name}")
    call(blocks, ctypes.c_void_p(tensor.data_ptr()), order, wanted, known, *places)
    assert ended.value == 0
    return row[: kernels.ROW].tolist(), row[kernels.ROW :].tobytes()
