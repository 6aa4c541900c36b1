"""CPU time and memory of a diff of a model against a port of it: python benchmarks/diff/cost.py [--memory].

The model has as many equal blocks as its trace needs to hold 1,000, 10,000 and 100,000 values. The port computes
the same with other operations and holds twice as many. Time is the median of three diffs, without the recording;
the first one also decodes both traces.
``--memory`` also prints the peak during a diff as a multiple of what both traces hold (tracemalloc, which slows the
diff down).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg

WIDTH = 16
VALUES_OF_A_BLOCK = 37
SIZES = (1_000, 10_000, 100_000)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out((q @ k.mT / 4).softmax(-1) @ v)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def port(blocks: list[Block]) -> Callable[[Tensor], Tensor]:
    """The same as functions: projections one by one, einsum for products, the activation written out."""
    weights = [{name: value.detach().clone() for name, value in each.named_parameters()} for each in blocks]

    def run(x: Tensor) -> Tensor:
        for w in weights:
            y = F.layer_norm(x, (WIDTH,), w["norm1.weight"], w["norm1.bias"])
            projections = zip(w["qkv.weight"].chunk(3), w["qkv.bias"].chunk(3), strict=True)
            q, k, v = (y @ weight.T + bias for weight, bias in projections)
            scores = torch.einsum("td,sd->ts", q, k) * 0.25
            y = torch.einsum("ts,sd->td", scores.softmax(-1), v)
            x = x + (y @ w["out.weight"].T + w["out.bias"])
            y = F.layer_norm(x, (WIDTH,), w["norm2.weight"], w["norm2.bias"])
            y = y @ w["up.weight"].T + w["up.bias"]
            y = 0.5 * y * (1 + torch.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
            x = x + (y @ w["down.weight"].T + w["down.bias"])
        return x

    return run


def recorded(program: Callable[[Tensor], Tensor], x: Tensor) -> tg.Trace:
    with torch.no_grad(), tg.record(ops=True, values="stats+sketch", max_events=None) as trace:
        program(x)
    return trace


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true", help="measure the peak of memory, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for size in SIZES:
        blocks = [Block() for _ in range(size // VALUES_OF_A_BLOCK)]
        x = torch.randn(9, WIDTH)
        if options.memory:
            tracemalloc.start()
        a, b = recorded(nn.Sequential(*blocks), x), recorded(port(blocks), x)
        seconds = list[float]()
        for _ in range(3):
            gc.collect()
            began = time.process_time()
            found = a.diff(b)
            seconds.append(time.process_time() - began)
        line = f"{found.compared:>9,} values of A compared: {statistics.median(seconds):6.2f} s, {found.verdict}"
        if options.memory:
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            a.diff(b)
            _, peak = tracemalloc.get_traced_memory()
            line += f", {(peak - held) / held:.1f} x what the traces hold ({held / 1e6:.0f} MB)"
            tracemalloc.stop()
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
