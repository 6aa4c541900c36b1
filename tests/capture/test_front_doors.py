"""The decorator, the environment switch, and processes that are not ours to record."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.capture.engine.log import LOGS

X = torch.ones(2, 3)


def names(trace: tg.Trace) -> list[str]:
    return [event.name for event in trace.events()]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert LOGS == {}


class TestDecorator:
    def test_statistics(self) -> None:
        @tg.record(values="stats")
        def double(x: Any) -> Any:
            return x * 2

        double(X)
        stats = next(double.trace.events()).outputs[0].stats  # type: ignore[attr-defined]
        assert (stats.count, stats.mean) == (6, 2.0)

    def test_a_function(self) -> None:
        @tg.record()
        def work(count: int, *, more: int = 0) -> int:
            """Does it."""
            for _ in range(count + more):
                torch.relu(X)
            return count

        assert work(2, more=1) == 2
        assert names(work.trace) == ["relu"] * 3
        assert (work.__name__, work.__doc__) == ("work", "Does it.")
        work(1)
        assert names(work.trace) == ["relu"]

    def test_a_method(self) -> None:
        class Has:
            @tg.record()
            def work(self) -> Any:
                return torch.relu(X), self

        one = Has()
        assert one.work()[1] is one
        assert names(Has.work.trace) == ["relu"]

    def test_an_exception(self) -> None:
        @tg.record()
        def fails() -> None:
            X @ X

        with pytest.raises(RuntimeError):
            fails()
        assert tg.last_trace() is fails.trace
        assert fails.trace.failure().name == "Tensor.matmul"

    def test_recursion(self) -> None:
        traces = []

        @tg.record()
        def down(depth: int) -> None:
            traces.append(down.trace)
            torch.relu(X)
            if depth:
                down(depth - 1)

        down(2)
        assert [len(trace) for trace in traces] == [3, 2, 1]

    def test_a_generator(self) -> None:
        @tg.record()
        def produces(count: int) -> Iterator[int]:
            for number in range(count):
                torch.relu(X)
                got = yield number
                assert got in (None, "sent")
            return "end"

        assert list(produces(3)) == [0, 1, 2]
        assert names(produces.trace) == ["relu"] * 3
        running = produces(2)
        next(running)
        assert running.send("sent") == 1
        with pytest.raises(StopIteration, match="end"):
            next(running)

    def test_an_async_generator_is_refused(self) -> None:
        async def produces() -> Any:
            yield 1

        with pytest.raises(tg.WrongType, match="async generator"):
            tg.record()(produces)

    def test_coroutines_that_overlap(self) -> None:
        traces: dict[int, tg.Trace] = {}

        @tg.record()
        async def work(count: int) -> int:
            traces[count] = work.trace
            for _ in range(count):
                await asyncio.sleep(0)
            torch.ones(count)
            return count

        async def main() -> list[int]:
            return await asyncio.gather(work(1), work(3), work(2))

        assert asyncio.run(main()) == [1, 3, 2]
        # One thread: who is still open when another one works has that too.
        assert [len(traces[count]) for count in (1, 2, 3)] == [1, 2, 3]
        assert not any(trace.running for trace in traces.values())

    def test_threads_that_overlap(self) -> None:
        barrier, traces = threading.Barrier(2), {}

        @tg.record()
        def work(count: int) -> None:
            barrier.wait(10)
            for _ in range(count):
                torch.relu(X)
            barrier.wait(10)

        def run(count: int) -> None:
            recorded = tg.record()(lambda: (barrier.wait(10), [torch.relu(X) for _ in range(count)], barrier.wait(10)))
            recorded()
            work(count)
            traces[count] = recorded.trace

        threads = [threading.Thread(target=run, args=(count,)) for count in (1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(traces[count]) for count in (1, 5)] == [1, 5]
        assert len(work.trace) in (1, 5)


def run_python(text: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_switched_off_by_the_environment() -> None:
    printed = run_python(
        "import torch, torchglass as tg\n"
        "call = torch.nn.Module.__call__\n"
        "with tg.record() as trace:\n"
        "    torch.ones(2).relu()\n"
        "    print(torch._C._len_torch_function_stack(), torch.nn.Module.__call__ is call)\n"
        "print(len(trace), trace.notes)\n"
        "print(trace)\n"
        "tg.show(trace)\n",
        TORCHGLASS="0",
    )
    assert printed.startswith("0 True\n0 (")
    assert "TORCHGLASS=0" in printed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_disturbs_nobody_and_may_record_for_itself() -> None:
    reader, writer = os.pipe()
    with tg.record() as trace:
        torch.relu(X)
        child = os.fork()
        if child == 0:  # the child: whatever happens, it must end here
            try:
                torch.set_num_threads(1)  # the parent's pool of threads is not there
                nn.Linear(3, 1)(X)
                with tg.record() as own:
                    torch.nn.functional.gumbel_softmax(X)
                    torch.exp(X)
                os.write(writer, ",".join(names(own)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        torch.tanh(X)
    told = os.read(reader, 10_000).decode().split(",")
    os.close(reader)
    assert names(trace) == ["relu", "tanh"]
    assert (told[0], told[-1]) == ("F.gumbel_softmax", "exp")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_leaves_the_block() -> None:
    with tg.record() as trace:
        torch.relu(X)
        child = os.fork()
    if child == 0:
        os._exit(0 if torch._C._len_torch_function_stack() == 0 and LOGS == {} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert names(trace) == ["relu"]


def test_a_process_pool_computes_as_ever() -> None:
    printed = run_python(
        "import torch, torchglass as tg, multiprocessing\n"
        "def work(n): return float(torch.ones(n).relu().sum())\n"
        "if __name__ == '__main__':\n"
        "    with tg.record() as trace:\n"
        "        with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "            print(pool.map(work, [1, 2, 3]))\n"
        "    print(len(trace))\n"
    )
    assert printed.split("\n")[0] == "[1.0, 2.0, 3.0]"
