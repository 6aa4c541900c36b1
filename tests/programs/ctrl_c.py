"""Ctrl-C in the middle of forward."""

import signal

import torch
from torch import nn


class Interrupted(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.Linear(3, 3)
        self.after = nn.Linear(3, 3)

    def forward(self, x):
        h = self.before(x)
        signal.raise_signal(signal.SIGINT)
        return self.after(h)


def main():
    torch.manual_seed(0)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return Interrupted()(torch.randn(2, 3))
    finally:
        signal.signal(signal.SIGINT, old)
