"""Kills a program that keeps a trace, at random moments, and looks whether everything it was told is kept is there.

    python benchmarks/kills.py [N]        N kills, 1,000 unless told

A child process streams events and tensors and says after each commit what is kept. It is killed (SIGKILL) somewhere
between its first line and its end. Then the bundle must load as it is, and again after `repair`, with every row and
every tensor that was acknowledged; the shards must open with the safetensors library.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from torchglass.events.tables import NONE, Form, Meta, SiteNames, Tables, What
from torchglass.events.types import Location
from torchglass.store import load, open_writer, repair
from torchglass.store.layout import part_paths, shard_paths

EVENTS_A_ROUND = 40
TENSOR_BYTES = 24_000
ROUNDS = 200
LONGEST_LIFE = 0.3
"""Seconds; a child that is not killed takes about as long."""


def main() -> int:
    """Kill again and again; 1 when something was lost."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    random.seed(count)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        results = [one_kill(Path(folder) / f"{number}.trace") for number in range(count)]
    lost = [result.trouble for result in results if result.trouble]
    ended = sum(result.ended for result in results)
    events, tensors = sum(result.events for result in results), sum(result.tensors for result in results)
    print(
        f"{count:,} kills in {time.perf_counter() - begun:.0f} s ({ended:,} came after the end): "
        f"{events:,} events and {tensors:,} tensors were acknowledged, {len(lost):,} bundles lost something"
    )
    for trouble in lost[:10]:
        print(f"  {trouble}")
    return 1 if lost else 0


@dataclass(frozen=True)
class Result:
    """What one kill did."""

    events: int
    tensors: int
    ended: bool
    trouble: str = ""


def one_kill(path: Path) -> Result:
    """Start a child, kill it, and look."""
    seed = random.randrange(1 << 30)
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.dup2(writing, 1)
        os._exit(child(path, seed))
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = [said.readline()]
        time.sleep(random.random() * LONGEST_LIFE)
        os.kill(process, signal.SIGKILL)
        lines += said.readlines()
    os.waitpid(process, 0)
    whole = [line.split() for line in lines if line.endswith("\n")]
    events, tensors = (int(word) for word in whole[-1][1:])
    trouble = missing(path, events, tensors, seed)
    shutil.rmtree(path, ignore_errors=True)
    return Result(events, tensors, whole[-1][0] == "finished", f"seed {seed}: {trouble}" if trouble else "")


def missing(path: Path, events: int, tensors: int, seed: int) -> str:
    """What was acknowledged and is not there; '' when all is."""
    try:
        found = look(path, events, tensors, seed)
        if found:
            return found
        repair(path)
        found = look(path, events, tensors, seed) or not_safetensors(path)
        if found:
            return f"after repair: {found}"
        again = repair(path)
        return f"a second repair did {again}" if again else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def look(path: Path, events: int, tensors: int, seed: int) -> str:
    """Load, and compare with what the child had acknowledged."""
    bundle = load(path)
    tables = bundle.tables()
    if len(tables) < events:
        return f"{len(tables)} events of {events}"
    for number in range(len(tables)):
        if tables.event(number).name != f"step {number % 7}" or tables.start_ns[number] != 10 * number:
            return f"event {number} is another"
    saved = bundle.saved_tensors()
    if [each.id for each in saved][:tensors] != list(range(tensors)):
        return f"{len(saved)} tensors of {tensors}"
    for row in saved:
        if bytes(bundle.open_tensor(row).data) != content(seed, row.id):
            return f"tensor {row.id} has other bytes"
    return ""


def not_safetensors(path: Path) -> str:
    """What the safetensors library says of the shards."""
    from safetensors import safe_open

    for part in part_paths(path):
        for shard in shard_paths(part).values():
            with safe_open(shard, framework="numpy") as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no dict
                    opened.get_tensor(name)
    return ""


# The child


def child(path: Path, seed: int) -> int:
    """Keep events and tensors, and say after each commit how many there are."""
    chance = random.Random(seed)
    writer = open_writer(path)
    say("started", 0, 0)
    tables = first_tables()
    tensors = 0
    for _ in range(ROUNDS):
        for _ in range(chance.randrange(EVENTS_A_ROUND)):
            add_event(tables, chance)
        for _ in range(chance.randrange(4)):
            writer.shards.submit("x", content(seed, tensors), "float32", (len(content(seed, tensors)) // 4,))
            tensors += 1
        if chance.random() < 0.5:
            writer.shards.drain()
            known = tensors
        else:
            known = None
        writer.write(tables)
        if known is not None:
            say("kept", len(tables), known)
    tables.complete = True
    writer.finish(tables)
    say("finished", len(tables), tensors)
    return 0


def say(word: str, events: int, tensors: int) -> None:
    """One line, at once."""
    os.write(1, f"{word} {events} {tensors}\n".encode())


def content(seed: int, number: int) -> bytes:
    """The bytes of the n-th tensor."""
    return random.Random(seed * 1000 + number).randbytes(4 * (1 + (seed + number * 997) % (TENSOR_BYTES // 4)))


def first_tables() -> Tables:
    """Tables with seven kinds of steps and no event yet."""
    tables = Tables(process=os.getpid(), name="to be killed", complete=False)
    tables.whats = [What("function", f"step {number}") for number in range(7)]
    tables.forms = [Form(("x",), ("", "")), Form((), ("nothing",))]
    tables.metas = [Meta.of((2, 3), "float32", "cpu", (3, 1), "strided", False, "Tensor")]
    tables.threads = ["MainThread"]
    tables.operand_texts = [()]
    tables.sites = [SiteNames(Location("x.py", 1, 1, 0, 4, "f", "step()", "user"), "step()", ("x",), None, None)]
    tables.stack_base, tables.stack_user, tables.stack_sites = array("q", [NONE]), array("q", [0]), [(0,)]
    return tables


def add_event(tables: Tables, chance: random.Random) -> None:
    """One more event; some stay open for a while, some raise."""
    number = len(tables)
    for column, value in {
        "what": number % 7, "parent": number - 1 if chance.random() < 0.3 else NONE, "thread": 0, "backward": 0,
        "start_ns": 10 * number, "end_ns": NONE, "module": NONE, "call": NONE, "stack": 0, "owner": NONE,
        "operands": 0, "direct": 1, "args": 0, "result": NONE, "occurrence": number, "error": NONE,
        "first_io": len(tables.io),
    }.items():  # fmt: skip
        getattr(tables, column).append(value)
    tables.io.append(len(tables.value_meta))
    for column, value in {
        "meta": 0,
        "version": 0,
        "storage": NONE,
        "producer": NONE,
        "address": number,
        "before": NONE,
    }.items():
        getattr(tables, f"value_{column}").append(value)
    closing = number - chance.randrange(3)
    if closing >= 0 and tables.end_ns[closing] == NONE:
        tables.end_ns[closing] = 10 * number + 5
        tables.result[closing] = 1


if __name__ == "__main__":
    sys.exit(main())
