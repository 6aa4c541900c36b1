"""Computes, says so, and waits to be stopped."""

import time

import torch

total = torch.ones(3) * 2
print("ready", flush=True)
while True:
    total = total + 1
    time.sleep(0.01)
