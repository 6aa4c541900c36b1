"""What recording costs on a GPU: a transformer of 24 × 1024 in bfloat16, a fresh block each time, ratios to plain.

python benchmarks/gpu.py                             # the compiled engine
TORCHGLASS_ENGINE=python python benchmarks/gpu.py    # the other
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg

ROUNDS, WARM = 12, 3
TOKENS = 50257


class Block(nn.Module):
    """Attention and a feed-forward part, as GPT-2 has them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Net(nn.Module):
    """Twenty-four blocks between an embedding and a head."""

    def __init__(self, layers: int = 24, width: int = 1024) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(Block(width, 16) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def timed(work: Callable[[], None], options: dict[str, Any] | None) -> float:
    """Seconds until the GPU is done."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    if options is None:
        work()
    else:
        with tg.record(**options):
            work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    """Measure, interleaved; medians."""
    model = Net().to("cuda", torch.bfloat16)
    ids = torch.randint(0, TOKENS, (8, 1024), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def forward() -> None:
        with torch.no_grad():
            model(ids)

    def step() -> None:
        loss = F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    with tg.record() as trace:
        torch.ones(2)
    print(torch.__version__, torch.cuda.get_device_name(), trace.engine)
    modes: dict[str, dict[str, Any] | None] = {"plain": None, "default": {}, "ops": {"ops": True}}
    for name, work in {"forward": forward, "training step": step}.items():
        found: dict[str, list[float]] = {mode: [] for mode in modes}
        for round_ in range(ROUNDS):
            for mode, options in modes.items():
                seconds = timed(work, options)
                if round_ >= WARM:
                    found[mode].append(seconds)
        plain = statistics.median(found["plain"])
        ratios = ", ".join(f"{mode} {statistics.median(each) / plain:.2f}" for mode, each in found.items())
        print(f"{name}: {plain * 1e3:.1f} ms; {ratios}")


if __name__ == "__main__":
    main()
