"""Which threads computed what? Workers started inside the block are recorded and told apart."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import torch

import torchglass as tg


def whiten(x):
    """Zero mean, unit deviation."""
    return (x - x.mean()) / x.std()


batches = [torch.arange(4.0) + i for i in range(6)]

with tg.record() as trace:
    with ThreadPoolExecutor(max_workers=1) as pool:
        worker = list(pool.map(whiten, batches))
    here = whiten(batches[0])

for thread, count in sorted(Counter(event.thread for event in trace.events()).items()):
    print(f"thread {thread}: {count} events")
