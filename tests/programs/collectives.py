"""torch.distributed with one process: collectives in place and functional."""

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional


def main():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = torch.arange(4.0)
        dist.all_reduce(x)
        gathered = [torch.empty(4)]
        dist.all_gather(gathered, x)
        reduced = functional.all_reduce(x, "sum", [0])
        return x, gathered, reduced + 1
    finally:
        dist.destroy_process_group()
