"""What recording costs on a GPU, a fresh block each time, as ratios to plain.

A transformer of 24 × 1024 with 16 × 1024 tokens in bfloat16, which keeps the GPU busy, and one of 12 × 768 with 1 × 128
tokens, which waits for the host.

python benchmarks/gpu.py                             # the compiled engine
python benchmarks/gpu.py stats sketch                # only some of the ways
TORCHGLASS_ENGINE=python python benchmarks/gpu.py    # the other
"""

from __future__ import annotations

import statistics
import sys
import tempfile
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
    """Blocks between an embedding and a head."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


MODES: dict[str, dict[str, Any] | None] = {
    "plain": None, "default": {}, "bundle": {"to": ""}, "calls": {"calls": "user"}, "ops": {"ops": True},
    "ops bundle": {"ops": True, "to": ""},
    "stats": {"values": "stats"}, "ops and stats": {"ops": True, "values": "stats"},
    "sketch": {"values": "stats+sketch"}, "ops and sketch": {"ops": True, "values": "stats+sketch"},
}  # fmt: skip


def timed(work: Callable[[], None], options: dict[str, Any] | None, folder: str) -> float:
    """Seconds until the GPU is done, and the block has ended."""
    if options and "to" in options:
        options = {**options, "to": tempfile.mktemp(dir=folder)}
    torch.cuda.synchronize()
    began = time.perf_counter()
    if options is None:
        work()
    else:
        with tg.record(**options):
            work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def measure(name: str, work: Callable[[], None]) -> None:
    """Interleaved; medians."""
    chosen = {mode: each for mode, each in MODES.items() if mode == "plain" or not sys.argv[1:] or mode in sys.argv[1:]}
    found: dict[str, list[float]] = {mode: [] for mode in chosen}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(ROUNDS + WARM):
            for mode, options in chosen.items():
                seconds = timed(work, options, folder)
                if round_ >= WARM:
                    found[mode].append(seconds)
    plain = statistics.median(found["plain"])
    ratios = ", ".join(f"{mode} {statistics.median(each) / plain:.2f}" for mode, each in found.items())
    print(f"{name}: {plain * 1e3:.1f} ms; {ratios}", flush=True)


def main() -> None:
    """Print the figures."""
    with tg.record() as trace:
        torch.ones(2)
    print(torch.__version__, torch.cuda.get_device_name(), trace.engine)
    model = Net(24, 1024).to("cuda", torch.bfloat16)
    ids = torch.randint(0, TOKENS, (16, 1024), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def forward() -> None:
        with torch.no_grad():
            model(ids)

    def step() -> None:
        loss = F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    measure("forward", forward)
    measure("training step", step)
    small, few = Net(12, 768).to("cuda", torch.bfloat16), ids[:1, :128]

    def launches() -> None:
        with torch.no_grad():
            small(few)

    measure("forward that waits for the host", launches)


if __name__ == "__main__":
    main()
