"""Async code: two coroutines take turns, each with a module call and an op on either side of an await."""

import asyncio

import torch
from torch import nn


async def worker(layer, x, turns):
    for _ in range(turns):
        x = layer(x)
        await asyncio.sleep(0)
        x = x.tanh()
    return x


class Waiting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.later(x)

    async def later(self, x):
        await asyncio.sleep(0)
        return self.layer(x)


async def together():
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    return await asyncio.gather(worker(layer, x, 2), worker(layer, -x, 3), Waiting()(x))


def main():
    torch.manual_seed(0)
    return asyncio.run(together())
