"""Measures keeping and looking: bundles, marks and their readers. `python benchmarks/keeping.py [FOLDER]`."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import workloads

import torchglass as tg
from torchglass.compat.torchspy import CallTracer, spy_save

EVENTS = 100_000
MARKED = 2_000_000_000
EACH = 8_000_000
STREAMED = 9
LOOP = 5_000
RING = 100_000


def main() -> None:
    """Print one line a figure; the bundles are made in the folder given, or where temporary files go."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        for name, figure, unit in (
            *bundles(folder),
            *streaming(folder),
            *looking(folder),
            *marking(folder),
            *sizes(folder),
            *ring(folder),
            *calls(folder),
            *log_lines(folder),
        ):
            print(f"{figure:12,.2f}  {unit:<14} {name}", flush=True)
    finally:
        shutil.rmtree(folder)


def bundles(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Closing a bundle of a hundred thousand events, and reading it again; keeping a trace of so many at once."""
    model = workloads.tiny_ops()
    with tg.record(max_events=10 * EVENTS, to=folder / "big.trace") as trace:
        while trace._source.progress() < EVENTS * 1.02:
            model.run()
        start = time.process_time()
    closing = time.process_time() - start
    count = len(trace)
    yield f"closing a bundle of {count:,} events", closing / count * 1e6, "µs an event"
    size = sum(path.stat().st_size for path in (folder / "big.trace").rglob("*") if path.is_file())
    yield "size of it", size / count, "bytes an event"
    start = time.process_time()
    tg.load(folder / "big.trace")
    yield f"load of {count:,} events", time.process_time() - start, "s"
    start = time.process_time()
    tg.save(trace, folder / "again.trace")
    yield f"save of {count:,} events", (time.process_time() - start) / count * 1e6, "µs an event"


def streaming(folder: Path) -> Iterator[tuple[str, float, str]]:
    """One forward of GPT-2 into memory and into a bundle, and a hot loop; CPU time, medians; then the closing."""
    model, x = workloads.gpt2_forward(), torch.ones(4)

    def loop() -> None:
        for _ in range(LOOP):
            torch.relu(x)

    for name, program in (("one forward of GPT-2", model.once), (f"{LOOP:,} small functions", loop)):
        inside: dict[str, list[float]] = {"plain": [], "memory": [], "bundle": []}
        closing: list[float] = []
        for turn in range(STREAMED):
            for kind, spent in inside.items():
                options = {"to": folder / f"run{turn}.trace"} if kind == "bundle" else {}
                with contextlib.nullcontext() if kind == "plain" else tg.record(**options) as trace:
                    start = time.process_time()
                    program()
                    ended = time.process_time()
                spent.append(ended - start)
                if kind == "bundle":
                    closing.append((time.process_time() - ended) / len(trace))
                    count = len(trace)
                    shutil.rmtree(folder / f"run{turn}.trace")
        plain, memory, bundle = (statistics.median(spent) for spent in inside.values())
        yield f"{name} into memory, to plain", memory / plain, "×"
        yield "the same into a bundle, to that into memory", bundle / memory, "×"
        yield "the bundle over the memory", (bundle - memory) / count * 1e6, "µs an event"
        yield "closing the bundle, places new (the first time)", closing[0] * 1e6, "µs an event"
        yield "closing the bundle, places known", statistics.median(closing[1:]) * 1e6, "µs an event"


def sizes(folder: Path) -> Iterator[tuple[str, float, str]]:
    """A million events as a journal, and sealed."""
    x = torch.ones(4)
    with tg.record(to=folder / "million.trace", max_events=None) as trace:
        for _ in range(1_000_000):
            torch.relu(x)
        yield "a million events as a journal", _bytes(folder / "million.trace") / 1e6, "MB"
    yield "the same, sealed", _bytes(folder / "million.trace") / 1e6, "MB"
    assert len(trace) == 1_000_000
    shutil.rmtree(folder / "million.trace")


def ring(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Ten million events through ``max_events=100_000``: what an event costs, and what is held, stays the same."""
    x = torch.ones(4)
    with tg.record(to=folder / "ring.trace", max_events=RING):
        _relu(x, RING)
        at_first = _bytes(folder / "ring.trace")
        early = _timed(lambda: _relu(x, RING)) / RING
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _relu(x, 98 * RING - RING)
        late = _timed(lambda: _relu(x, RING)) / RING
        yield "an event, the second 100,000", early * 1e6, "µs"
        yield "an event, the tenth million", late * 1e6, "µs"
        yield "the journal's file, after 10,000,000 to after 100,000", _bytes(folder / "ring.trace") / at_first, "×"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
        yield "memory that was added meanwhile", grown / 1e3, "MB"


def _relu(x: torch.Tensor, times: int) -> None:
    for _ in range(times):
        torch.relu(x)


def _timed(act: Callable[[], object]) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def looking(folder: Path) -> Iterator[tuple[str, float, str]]:
    """From the command to the first line and to the last, in a process of its own."""
    for view in ("tree", "code", "listing", "calls"):
        command = [sys.executable, "-m", "torchglass", "show", str(folder / "big.trace"), view]
        start = time.perf_counter()
        shown = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert shown.stdout is not None
        shown.stdout.readline()
        first = time.perf_counter() - start
        shown.stdout.read()
        shown.wait()
        yield f"torchglass show {view}: first line", first, "s"
        yield f"torchglass show {view}: all", time.perf_counter() - start, "s"


def marking(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Two gigabytes of marked tensors, against writing the same bytes."""
    tensor = torch.ones(EACH // 4)
    with (folder / "plain.bin").open("wb", buffering=0) as file:
        content = memoryview(tensor.numpy()).cast("B")
        start = time.perf_counter()
        for _ in range(MARKED // EACH):
            file.write(content)
        writing = time.perf_counter() - start
    (folder / "plain.bin").unlink()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tg.record(to=folder / "marks.trace"):
        start = time.perf_counter()
        for _ in range(MARKED // EACH):
            tg.mark("x", tensor)
        marked = time.perf_counter() - start
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield "marking 2 GB in tensors of 8 MB, to os.write of the same", marked / writing, "×"
    yield "the same, by the disk", MARKED / marked / 1e6, "MB/s"
    yield "memory held meanwhile", held / 1e3, "MB"
    shutil.rmtree(folder / "marks.trace")


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


def log_lines(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Tensor Tracker's decorator on an empty function, with its log file, not printing."""
    code = (
        "import timeit; from torchglass.compat.ttracker import auto_diff, h4logger, logger;"
        "logger.addHandler(h4logger()); f = auto_diff(lambda: None); f();"
        "print(min(timeit.repeat(f, number=300, repeat=80)) / 300 * 1e6)"
    )
    environment = os.environ | {"TORCHGLASS_CONSOLE": "0"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, check=True)
    yield "@auto_diff on an empty function, with its file", float(done.stdout), "µs"


def best(act: object) -> float:
    """Nanoseconds of one call, by the fastest of many rounds."""
    return min(timeit.repeat(act, number=20_000, repeat=15)) / 20_000 * 1e9  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
