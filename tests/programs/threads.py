"""Worker threads that compute tensors: a pool, a plain thread, and one started by a worker."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    batches = [torch.randn(2, 4) for _ in range(4)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        pooled = list(pool.map(layer, batches))
    results = {}

    def inner():
        results["inner"] = batches[0].softmax(-1)

    def outer():
        results["outer"] = layer(batches[1]) * 2
        worker = threading.Thread(target=inner)
        worker.start()
        worker.join()

    thread = threading.Thread(target=outer, name="outer")
    thread.start()
    thread.join()
    return pooled, results["outer"], results["inner"]
