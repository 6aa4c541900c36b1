"""What values cost in memory: measuring needs pieces of tensors, never a second one of them all."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

MEGABYTE = 1 << 20
PROGRAM = """
import resource
import torch
import torchglass as tg

def work():
    x = torch.randn(2048, 2048)
    for _ in range(2):
        x = x * 1.0001
        (x.t() + 1).sum()
        x[:, ::3].mean()
        x[:1].expand(100_000, 2048)[0].sum()
        x.to(torch.float16).softmax(-1)
    model = torch.nn.Linear(2048, 2048)
    model(x).sum().backward()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

torch.set_num_threads(1)
with tg.record({options}):
    torch.ones(3) + 1
{block}
    work()
print(peak())
"""


@cache
def peak(options: str | None) -> int:
    """The most memory that a process has when the program runs in it."""
    block = "if True:" if options is None else f"with tg.record({options}):"
    program = PROGRAM.replace("{options}", options or "").replace("{block}", block)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_statistics_and_sketches_take_no_more_than_a_tensor_and_64_mib() -> None:
    """A tensor has 16 MiB here."""
    assert peak("ops=True, values='stats+sketch'") - peak(None) < (16 + 64) * MEGABYTE


def test_kept_values_cost_their_bytes_once() -> None:
    """Two rounds of x, x.t() + 1, float16 and softmax, views of them for nothing; then the layer, and its gradients."""
    rounds, layer = 2 * (16 + 16 + 8 + 8), 16 * 5
    grown = peak("values='all', max_bytes=1 << 33") - peak(None)
    assert (rounds // 2) * MEGABYTE < grown < (rounds + layer + 16 + 64) * MEGABYTE
