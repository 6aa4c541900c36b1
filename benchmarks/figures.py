"""Single figures of the recorder: settling, memory, flatness, rendering, import."""

from __future__ import annotations

import contextlib
import gc
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import torch
import workloads
from subjects import Floor, OpFloor

import torchglass as tg

Figure = tuple[str, float, str]
MANY = 4_000_000  # more events than any of these makes
EVENTS_A_FORWARD = 730  # about; of the first workload


def settling(runs: int) -> list[Figure]:
    """The first look at a recording: of one forward, and of each further one whose places are known."""
    forward = workloads.gpt2_forward().once
    first, first_events = _settle(forward, 1)
    many, many_events = _settle(forward, 1 + runs)
    known = (many - first) / (many_events - first_events)
    return [
        ("settling, first forward", first / first_events * 1e6, "µs an event"),
        ("settling, places known", known * 1e6, "µs an event"),
    ]


def _settle(forward: Callable[[], Any], runs: int) -> tuple[float, int]:
    with tg.record(max_events=MANY) as trace:
        for _ in range(runs):
            forward()
    gc.collect()
    start = process_time()
    events = len(trace)
    return process_time() - start, events


def memory(events: int) -> list[Figure]:
    """Bytes that a recording of a transformer holds, before and after the first look."""
    forward = workloads.gpt2_forward().once
    runs = max(1, events // EVENTS_A_FORWARD)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with tg.record(max_events=MANY) as trace:
            for _ in range(runs):
                forward()
        gc.collect()
        raw = tracemalloc.get_traced_memory()[0] - before
        seen = len(trace)
        gc.collect()
        settled = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return [
        (f"memory, raw ({seen:,} events)", raw / seen, "bytes an event"),
        ("memory, settled", settled / seen, "bytes an event"),
    ]


def flatness_in_events(sizes: list[int]) -> list[Figure]:
    """The cost of an event, with so many of them in one recording."""
    return [(f"recording {size:,} events", _cost(size) * 1e6, "µs an event over the floor") for size in sizes]


def ops_in_a_loop(size: int) -> list[Figure]:
    """One small function over and over with `ops=True`: a function and an op each time, over two empty modes."""
    x = torch.ones(4)
    with Floor(), OpFloor():
        floor = min(_bare_loop(x, size) for _ in range(5))
    with tg.record(ops=True, max_events=20 * size):
        recorded = min(_bare_loop(x, size) for _ in range(5))
    return [("a function and its op, in a loop", (recorded - floor) / size * 1e6, "µs over two empty modes")]


def cold_caches(megabytes: list[int]) -> list[Figure]:
    """One small function, with so much memory written between two calls, as a model's own work does."""
    found: list[Figure] = []
    for size in megabytes:
        plain, floor, recorded = (_swept(size, context) for context in (contextlib.nullcontext(), Floor(), tg.record()))
        found.append((f"{size} MB written between calls: an empty mode", (floor - plain) * 1e6, "µs a call"))
        found.append((f"{size} MB written between calls: recording", (recorded - floor) * 1e6, "µs over the floor"))
    return found


def _swept(megabytes: int, context: Any) -> float:
    """The median time of one call."""
    memory = torch.zeros(megabytes * 2**18 + 1)
    x, relu, took = torch.ones(4), torch.relu, list[float]()
    with context:
        for _ in range(400):
            with torch._C.DisableTorchFunction():
                memory.add_(1)
            start = perf_counter()
            relu(x)
            took.append(perf_counter() - start)
    return statistics.median(took)


def _cost(size: int) -> float:
    x = torch.ones(4)
    gc.collect()
    bare = _loop(x, size, Floor())
    with_record = _loop(x, size, tg.record(max_events=MANY))
    return (with_record - bare) / size


def _loop(x: torch.Tensor, size: int, context: Any) -> float:
    relu = torch.relu
    with context:
        start = process_time()
        for _ in range(size):
            relu(x)
        return process_time() - start


def flatness_in_frames(depths: list[int], size: int) -> list[Figure]:
    """The cost of an event under so many frames: around the block, and between the block and the call."""
    found: list[Figure] = []
    for depth in depths:
        around = _at_depth(depth, lambda: _cost(size))
        found.append((f"{depth} frames around the block", around * 1e6, "µs an event over the floor"))
    for depth in depths:
        found.append((f"{depth} frames inside the block", _inside(depth, size) * 1e6, "µs an event over the floor"))
    return found


def _at_depth(depth: int, act: Callable[[], float]) -> float:
    return act() if depth <= 0 else _at_depth(depth - 1, act)


def _inside(depth: int, size: int) -> float:
    x = torch.ones(4)
    took: list[float] = []
    for context in (Floor(), tg.record(max_events=MANY)):
        gc.collect()
        with context:
            took.append(_at_depth(depth, lambda: _bare_loop(x, size)))
    return (took[1] - took[0]) / size


def _bare_loop(x: torch.Tensor, size: int) -> float:
    start = process_time()
    for _ in range(size):
        torch.relu(x)
    return process_time() - start


def rendering(events: int) -> list[Figure]:
    """The tree of a large trace, every line of it."""
    forward = workloads.gpt2_forward().once
    with tg.record(max_events=MANY) as trace:
        for _ in range(max(1, events // EVENTS_A_FORWARD)):
            forward()
    seen = len(trace)
    gc.collect()
    start = process_time()
    lines = tg.render(trace, "tree", fold=False).count("\n") + 1
    took = process_time() - start
    return [(f"tree of {seen:,} events, {lines:,} lines", took / lines * 1e6, "µs a line")]


def fixed_cost(rounds: int) -> list[Figure]:
    """An empty block: to start and to stop."""
    took: list[float] = []
    for _ in range(rounds):
        start = process_time()
        with tg.record():
            pass
        took.append(process_time() - start)
    return [("an empty block", statistics.median(took) * 1e6, "µs")]


def forwards(rounds: int) -> list[Figure]:
    """A block splits into what it costs once (places seen for the first time) and what each event costs."""
    forward = workloads.gpt2_forward().once
    one = statistics.median(_forwards(forward, 1) for _ in range(rounds))
    ten = statistics.median(_forwards(forward, 10) for _ in range(rounds))
    with tg.record() as trace:
        forward()
    further = (ten - one) / 9
    return [
        ("GPT-2, once a block", (one - further) * 1e3, "ms"),
        ("GPT-2, each further forward", further / len(trace) * 1e6, "µs an event over the floor"),
    ]


def _forwards(forward: Callable[[], Any], runs: int) -> float:
    """CPU seconds that recording adds to so many forwards in one block, over the floor."""
    took: list[float] = []
    for context in (Floor(), tg.record()):
        gc.collect()
        start = process_time()
        with context:
            for _ in range(runs):
                forward()
        took.append(process_time() - start)
    return took[1] - took[0]


def importing(rounds: int) -> list[Figure]:
    """`import torchglass` in a fresh interpreter."""
    code = "import time; s = time.perf_counter(); import torchglass; print(time.perf_counter() - s)"
    took = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
        for _ in range(rounds)
    ]
    return [("import torchglass", statistics.median(took) * 1e3, "ms")]
