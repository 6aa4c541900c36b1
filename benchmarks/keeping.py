"""Measures keeping and looking: bundles, marks and their readers. `python benchmarks/keeping.py [FOLDER]`."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from pathlib import Path

import torch
import workloads

import torchglass as tg
from torchglass.compat.torchspy import CallTracer, spy_save

EVENTS = 100_000
MARKED = 2_000_000_000
EACH = 8_000_000


def main() -> None:
    """Print one line a figure; the bundles are made in the folder given, or where temporary files go."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        for name, figure, unit in (*bundles(folder), *looking(folder), *marking(folder), *calls(folder)):
            print(f"{figure:12,.2f}  {unit:<14} {name}", flush=True)
    finally:
        shutil.rmtree(folder)


def bundles(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Writing at once, and reading again, of a trace of a hundred thousand events."""
    model = workloads.tiny_ops()
    with tg.record(max_events=10 * EVENTS) as trace:
        while trace._source.progress() < EVENTS * 10 * 1.02:  # ten ints a record
            model.run()
    count, start = len(trace), time.process_time()
    tg.save(trace, folder / "big.trace")
    yield f"save of {count:,} events", (time.process_time() - start) / count * 1e6, "µs an event"
    size = sum(path.stat().st_size for path in (folder / "big.trace").rglob("*") if path.is_file())
    yield "size of it", size / count, "bytes an event"
    start = time.perf_counter()
    tg.load(folder / "big.trace")
    yield f"load of {count:,} events", time.perf_counter() - start, "s"


def looking(folder: Path) -> Iterator[tuple[str, float, str]]:
    """From the command to the first line and to the last, in a process of its own."""
    for view in ("tree", "code", "listing", "calls"):
        command = [sys.executable, "-m", "torchglass", "show", str(folder / "big.trace"), "--view", view]
        start = time.perf_counter()
        shown = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert shown.stdout is not None
        shown.stdout.readline()
        first = time.perf_counter() - start
        shown.stdout.read()
        shown.wait()
        yield f"torchglass show --view {view}: first line", first, "s"
        yield f"torchglass show --view {view}: all", time.perf_counter() - start, "s"


def marking(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Two gigabytes of marked tensors, streamed."""
    tensor = torch.ones(EACH // 4)
    start = time.perf_counter()
    for _ in range(MARKED // EACH):
        tensor.clone()
    cloning = time.perf_counter() - start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tg.record(to=folder / "marks.trace"):
        start = time.perf_counter()
        for _ in range(MARKED // EACH):
            tg.mark("x", tensor)
        marked = time.perf_counter() - start
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield "marking 2 GB, by the time of cloning it", marked / cloning, "×"
    yield "the same, by the disk", MARKED / marked / 1e6, "MB/s"
    yield "memory held meanwhile", held / 1e3, "MB"


def calls(folder: Path) -> Iterator[tuple[str, float, str]]:
    """What is left in a program when nothing records."""
    tensor, module = torch.ones(1), torch.nn.Identity()
    yield "mark, nothing recorded", best(lambda: tg.mark("q", tensor)), "ns"
    yield "spy_save, no context", best(lambda: spy_save("q", tensor)), "ns"
    yield "an empty lambda", best(lambda: None), "ns"
    plain = best(lambda: module(tensor))
    calls: list[str] = []
    handle = module.register_forward_hook(lambda *_: calls.append("x"))
    yield "a call of a module with a plain forward hook", best(lambda: module(tensor)) - plain, "ns more"
    handle.remove()
    tracer = CallTracer(folder / "calls")
    tracer.register_hooks(module)
    yield "a call of a module with CallTracer", best(lambda: module(tensor)) - plain, "ns more"


def best(act: object) -> float:
    """Nanoseconds of one call, by the fastest of many rounds."""
    return min(timeit.repeat(act, number=20_000, repeat=15)) / 20_000 * 1e9  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
