"""How long the kernels for values on a GPU take, one tensor at a time: microseconds, and bytes read a second.

What joins the parts of many sketches at once is not in it.

python benchmarks/kernels.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

from torchglass.capture.statistics.axes import packed_order
from torchglass.capture.statistics.cuda import _Batch, _runs, _Stream
from torchglass.capture.statistics.kernels import DeviceRun, kernels_of

ROUNDS = 20


def tensors() -> dict[str, Any]:
    """As a transformer of 24 × 1024 with 16 × 1024 tokens has them."""
    qkv = torch.randn(16, 1024, 3, 16, 64, device="cuda", dtype=torch.bfloat16)
    logits = torch.randn(8192, 50257, device="cuda", dtype=torch.bfloat16)
    return {
        "bf16 [16384, 1024]": torch.randn(16384, 1024, device="cuda", dtype=torch.bfloat16),
        "bf16 [16384, 4096]": torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16),
        "bf16 [16, 1024, 3, 16, 64]": qkv,
        "bf16 one of q, k, v": qkv.permute(2, 0, 3, 1, 4)[1],
        "bf16 k, transposed": qkv.permute(2, 0, 3, 1, 4)[1].transpose(-1, -2),
        "bf16 [8192, 50257]": logits,
        "f32 [16384, 4096]": torch.randn(16384, 4096, device="cuda"),
        "f32 [1000]": torch.randn(1000, device="cuda"),
    }


def timed(work: Callable[[], None]) -> float:
    """Seconds on the GPU."""
    work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(ROUNDS):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / ROUNDS / 1e3


def main() -> None:
    """Print a line for each tensor."""
    kernels = kernels_of(torch.cuda.current_device())
    stream = _Stream(
        torch.device("cuda", torch.cuda.current_device()), torch.cuda.current_stream().cuda_stream, kernels
    )
    batch = _Batch(torch.device("cuda"), kernels.slot())
    print(torch.__version__, torch.cuda.get_device_name())
    for name, tensor in tensors().items():
        runs, size = _runs(tensor), tensor.numel() * tensor.element_size()
        plain = DeviceRun(tensor.dtype, tensor.data_ptr(), tensor.numel(), runs or (0, 0))
        found = [] if runs is None else [("statistics", timed(lambda run=plain: kernels.launch(run, stream, batch, 0)))]
        sketch = plain._replace(order=packed_order(tensor))
        found.append(("with sketch", timed(lambda run=sketch: kernels.launch(run, stream, batch, 0))))
        texts = (f"{what} {seconds * 1e6:8.1f} µs {size / seconds / 1e12:5.2f} TB/s" for what, seconds in found)
        print(f"{name:>28}", *texts)


if __name__ == "__main__":
    main()
