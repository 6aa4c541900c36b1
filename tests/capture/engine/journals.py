"""Runs programs under one engine and writes down what stands in their journals, times and addresses aside.

`python -m tests.capture.engine.journals GROUP FILE`: one JSON document, by the name of each case.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg
from tests import programs, programs_plain
from torchglass.journal.layout import MEASURED, NONE, RECORD_WORDS, RECORDS, SKETCHED, VALUE_WORDS, VALUES
from torchglass.settle.journal_rows import JournalRows
from torchglass.source.origins import origin_of

Program = Callable[[], Any]
ENTRY = struct.Struct("=5q5dq")
SKETCH_ENTRY = struct.Struct("=Q17f17f7dqq")
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "ops": {"ops": True},
    "variables": {"variables": ["*"]},
    "calls": {"calls": "user"},
    "statistics": {"values": "stats"},
    "statistics of ops": {"values": "stats", "ops": True},
    "sketches": {"values": "stats+sketch", "ops": True},
}
FOR_ZOO = ("default", "ops", "statistics of ops")
"""All would take as long as all the rest."""
FOR_PROGRAMS = ("default", "variables", "calls", "sketches")
"""What the default run records the programs with; the group `programs in more ways` has the others."""
VARIABLES: dict[str, dict[str, Any]] = {
    "all": {"variables": ["*"]},
    "without functions": {"variables": ["*"], "functions": False, "modules": False},
    "named": {"variables": ["x", "n", "self.out", "items", "a*", "y['n']"]},
    "with ops and calls": {"variables": ["*"], "ops": True, "calls": "user"},
    "the last ones": {"variables": ["*"], "max_events": 60},
}


def journal_of(program: Program, **options: Any) -> dict[str, Any]:
    """What the journal of one recording says, in an order of its own."""
    # What `empty` gives would be measured as it happens to be; so it is NaN.
    torch.use_deterministic_algorithms("values" in options, warn_only=True)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with tg.record(sources=False, **options) as trace:
                program()
        except BaseException as error:
            left = f"{type(error).__name__}: {error}"
            trace = tg.last_trace()
        else:
            left = ""
    session = trace._source._recorder.session  # type: ignore[attr-defined]
    streams, journal_rows = session.journal.streams, JournalRows(session.journal.streams)
    journal_rows.update()
    stacks = Stacks(journal_rows)
    threads = [list(_records(streams, journal_rows, number, stacks)) for number in sorted(journal_rows.threads)]
    return {
        "left": left,
        "stacks": stacks.met,
        "threads": threads,
        "values": list(_values(streams, journal_rows)),
        "measured": dict(_measured(streams)),
        "sketched": dict(_sketched(streams)),
        "modules": [
            [
                journal_rows.classes[row.cls].name,
                row.root,
                row.path,
                row.settings,
                [list(each) for each in row.parameters],
            ]
            for _, row in sorted(journal_rows.modules.items())
        ],
        "notes": sorted(journal_rows.notes),
        "faults": sorted(journal_rows.faults),
    }


def _records(streams: Any, journal_rows: JournalRows, thread: int, stacks: Stacks) -> Iterator[list[Any]]:
    for chunk in streams.of(RECORDS, thread):
        for at in range(chunk.first, chunk.written()):
            yield _record(streams, journal_rows, thread, chunk.words(at, at + 1).tolist(), stacks)


def _record(streams: Any, journal_rows: JournalRows, thread: int, words: list[int], stacks: Stacks) -> list[Any]:
    what, parent, stack, args, inputs, call, result, outputs, error, nodes, *_ = words
    assert len(words) == RECORD_WORDS
    name = ["module", -2 - what] if what < 0 else list(journal_rows.callees[what][:4])
    held = [_held(streams, journal_rows, thread, *each) for each in ((args, inputs), (result, outputs))]
    left_by = journal_rows.errors.get(error) if error != NONE else None
    return [name, parent, stacks.number(stack), *held, call, nodes, left_by]


class Stacks:
    """The stacks of a journal, each once and in the order in which records have them."""

    def __init__(self, journal_rows: JournalRows) -> None:
        self.met: list[tuple[Any, ...]] = []
        self._journal_rows = journal_rows
        self._by_id: dict[int, int] = {}
        self._by_frames: dict[tuple[Any, ...], int] = {}

    def number(self, stack: int) -> int:
        """Which of those met a stack is, by its frames: an engine may have several that differ in our own."""
        if stack not in self._by_id:
            frames = _frames(self._journal_rows, stack)
            self._by_id[stack] = self._by_frames.setdefault(frames, len(self.met))
            if self._by_id[stack] == len(self.met):
                self.met.append(frames)
        return self._by_id[stack]


def _held(streams: Any, journal_rows: JournalRows, thread: int, form: int, first: int) -> Any:
    if form == NONE:
        return None
    found = journal_rows.forms[form]
    count = _tensors_in(found)
    ids = streams.ids(thread, first, count) if count else []
    assert len(ids) == count
    return [found, ids]


def _tensors_in(form: Any) -> int:
    return sum(map(_tensors_in, form)) if isinstance(form, tuple) else int(form is None)


def _frames(journal_rows: JournalRows, stack: int) -> tuple[Any, ...]:
    """The program's frames and torch's, innermost first; ours are none of them, and one engine has none."""
    if stack == NONE:
        return ()
    base, *pairs = journal_rows.stacks[stack]
    own = []
    for code, offset in zip(pairs[::2], pairs[1::2], strict=True):
        row = journal_rows.code_rows[code]
        if origin_of(row.file) != "ours":
            # Not the offset: while it calls, a frame is said to be at the call, or at the end of its cache.
            position = journal_rows.code(code).ranges[offset // 2] if offset >= 0 else None
            own.append((row.file.rpartition("/")[2], row.qualname, position))
    return (*own, *_frames(journal_rows, base))


def _values(streams: Any, journal_rows: JournalRows) -> Iterator[list[Any]]:
    for chunk in streams.of(VALUES):
        words = chunk.words(chunk.first, chunk.last).tolist()
        for at in range(0, len(words), VALUE_WORDS):
            version, _, before, meta = words[at : at + VALUE_WORDS]
            if meta:
                yield [version, before, list(journal_rows.metas[meta - 1])]


def _measured(streams: Any) -> Iterator[tuple[str, list[float]]]:
    """By value: the five counts and five numbers that were found in it, without how."""
    for chunk in streams.of(MEASURED):
        for number in range(chunk.first, chunk.last):
            *found, how = ENTRY.unpack_from(chunk.buffer, chunk.start + (number - chunk.first) * ENTRY.size)
            if how:
                yield str(number), found


def _sketched(streams: Any) -> Iterator[tuple[str, list[float]]]:
    """By value: its hash and the sums by which it is known again."""
    for chunk in streams.of(SKETCHED):
        for number in range(chunk.first, chunk.last):
            *found, is_there = SKETCH_ENTRY.unpack_from(
                chunk.buffer, chunk.start + (number - chunk.first) * SKETCH_ENTRY.size
            )
            if is_there:
                yield str(number), found


# ---------------------------------------------------------------- what is recorded


class Net(nn.Module):
    """A little of everything that layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm, self.drop, self.out = nn.LayerNorm(16), nn.Dropout(0.1), nn.Linear(16, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.out(self.drop(F.gelu(self.norm(x))))


def train(optimizer: str, rounds: int = 3) -> None:
    """Some steps of a training loop, with a failing one in between."""
    torch.manual_seed(0)
    net = Net()
    optimize = getattr(torch.optim, optimizer)(net.parameters(), lr=0.1)
    for turn in range(rounds):
        ids = torch.randint(0, 20, (2, 5))
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        optimize.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimize.step()
        if turn == 1:
            try:
                net(torch.full((1, 2), 99))
            except IndexError:
                pass


def in_threads() -> None:
    """Threads one after the other: so all numbers are given in one order."""
    net = Net().eval()
    for _ in range(3):
        worker = threading.Thread(target=lambda: net(torch.arange(6).view(1, 6)).sum().backward())
        worker.start()
        worker.join()


def fails(error: type[BaseException], deep: int) -> None:
    """An exception leaves functions, modules, and the block."""

    class Falls(nn.Module):
        def forward(self, x: Tensor, left: int) -> Tensor:
            if left:
                return self(x.relu(), left - 1)
            raise error("as it should")

    Falls()(torch.ones(2), deep)


def attends() -> None:
    """One module reads the parameters of another without calling it, calls it later; and the model goes each time."""
    for names in (("0", "1"), ("1", "0")):
        net = nn.ModuleDict({"0": nn.MultiheadAttention(4, 2), "1": nn.LazyLinear(4)})
        net.forward = lambda x, name, net=net: net[name](*[x] * (3 - 2 * int(name)))  # type: ignore[method-assign]
        for name in names:
            net(torch.ones(2, 3, 4), name)


STEPS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * 2.5,
    lambda a, b: 3 - a,
    lambda a, b: a.t().contiguous(),
    lambda a, b: a @ b.t(),
    lambda a, b: F.softmax(a, dim=-1),
    lambda a, b: torch.cat([a, b], 0)[:4],
    lambda a, b: a.add_(1),
    lambda a, b: a.mul_(b),
    lambda a, b: a.detach(),
    lambda a, b: a.clone(),
    lambda a, b: a[1:, ::2].sum(),
    lambda a, b: a.__setitem__((0, slice(None)), 1.0),
    lambda a, b: a.view(-1).view(4, 4),
    lambda a, b: torch.stack((a, b)).mean(0),
    lambda a, b: a.max(dim=1),
    lambda a, b: torch.add(a, b, out=torch.empty(4, 4)),
    lambda a, b: F.layer_norm(a, (4,)),
    lambda a, b: F.gelu(a, approximate="tanh"),
    lambda a, b: a.to(torch.float64),
    lambda a, b: a.split(2),
    lambda a, b: torch.einsum("ij,jk->ik", a, b),
    lambda a, b: a.tolist(),
    lambda a, b: bool(a.sum() > 0),
    lambda a, b: torch.zeros(4, 4, device="cpu", dtype=torch.float32),
    lambda a, b: a.requires_grad_(False),
    lambda a, b: torch.where(a > 0, a, b),
    lambda a, b: a.matmul(torch.ones(3, 3)),
    lambda a, b: F.embedding(a.long().abs() % 4, b),
    lambda a, b: torch._foreach_add([a.float(), b.float()], 1),
    lambda a, b: nn.Linear(4, 4)(a),
    lambda a, b: a.numpy(),
    lambda a, b: F.multi_head_attention_forward,
    lambda a, b: a.unbind(0),
    lambda a, b: torch.linalg.svdvals(a.float()),
)


def generated(seed: int) -> None:
    """Forty steps of some sixteen tensors, chosen by a seed; some are refused, which is an event too."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    pool = [torch.randn(4, 4) for _ in range(4)]
    leaf = torch.randn(4, 4, requires_grad=True)
    for _ in range(40):
        try:
            with torch.set_grad_enabled(choose.random() < 0.7):
                made = choose.choice(STEPS)(choose.choice(pool), choose.choice([*pool, leaf]))
        except (RuntimeError, TypeError, IndexError):
            continue
        if type(made) is Tensor and made.shape == (4, 4):
            pool[choose.randrange(4)] = made
    total = sum((each.sum() for each in pool if each.is_floating_point()), (leaf * 2).sum())
    total.backward()


def kinds_of_tensors() -> None:
    """Tensors of many kinds and layouts as arguments and results of modules and functions."""
    dense = torch.arange(24.0).reshape(4, 6)
    with torch.inference_mode():
        inference = dense + 1
    tensors: list[Any] = [
        torch.tensor(2.0), torch.empty(0, 3), dense.t(), dense[1:, ::2], dense.expand(2, 4, 6), dense.to(torch.int64),
        dense.bool(), dense.half(), dense.to(torch.complex64).conj(), dense.clone().requires_grad_(),
        nn.Parameter(dense),
        torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d), torch.zeros((1, 2) * 4), inference,
        torch.empty(3, 4, device="meta"), dense.to_sparse(), torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), dense.detach(),
    ]  # fmt: skip
    model = nn.Sequential(nn.Identity(), nn.Identity())
    for _ in range(2):
        for tensor in tensors:
            torch.clone(model(tensor))
    torch.vmap(lambda each: model(each).sin())(dense)
    torch.func.grad(lambda each: model(each).sin().sum())(dense)
    changing = torch.zeros(3)
    for change in (lambda: changing.add_(1), lambda: changing.resize_(2, 5), lambda: changing.requires_grad_()):
        change()
        model(changing)
    changing.data = torch.zeros(7)
    model(changing)


def families() -> dict[str, Callable[[], tuple[nn.Module, dict[str, Tensor]]]]:
    """The transformers, for the process that runs them: to import that library takes as long as many a program."""
    from tests import zoo

    return zoo.FAMILIES


def run_zoo(build: Callable[[], tuple[nn.Module, dict[str, Tensor]]]) -> None:
    model, inputs = build()
    model(**inputs)


NOT_COMPARED = frozenset({"collectives", "compiled", "compiled_with_break", "threads"})
"""Compiling takes half a minute; the threads of the others give their values numbers, and write, as they come."""


class Base:
    """Assigns while it goes, whenever that is."""

    made = 0

    def __del__(self) -> None:
        Base.made = later = Base.made + 1
        size = torch.ones(later % 3 + 1).sum()
        del size


class Plain(Base):
    """Nothing is known of it but its class."""


class Strange(dict[str, Any]):
    """Neither compared nor hashed as others are."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("asked")


def all_kinds() -> None:
    """Every kind of value under one name, and back: what each one held before is told with it."""
    tensor, weight = torch.ones(2), nn.Parameter(torch.zeros(2))
    values: list[Any] = [
        1, 1, 1.0, True, None, 0.0, -0.0, float("nan"), 10**30, "text", "text" * 100, b"bytes", 1j, tensor, tensor,
        weight, [tensor, 1], (tensor, [weight]), {"a": tensor, "b": 2}, {1: 2}, {"x" * 2: {"deep": [1]}}, [], (), set(),
        {1}, Plain(), Strange(a=1), tensor.shape, torch.float32, tensor.device, slice(1, None, 2), ...,
        nn.Linear(2, 2), len, all_kinds, Plain,
        range(3), iter([1]), torch.Size([]), [0] * 100, dict.fromkeys(range(100)), [[[[[[[[[[1]]]]]]]]]],
    ]  # fmt: skip
    for value in (*values, *reversed(values)):
        x = value
        n = len(values)
        x = n
        y = {"x": x, "value": value}
        y["n"] = n
        a = b = Plain()
        b = a
        del x, a, b


def unusual_calls() -> None:
    """Generators that are left, methods of classes made on the way, deep recursion, exceptions on each way out."""

    def counts(n: int, *args: Any, k: int = 2, **named: Any) -> Iterator[int]:
        for i in range(n):
            x = i * k
            try:
                yield x
            finally:
                last = x, args, named  # noqa: F841 (told, that is what it is for)

    def deep(n: int, t: Tensor) -> Tensor:
        here = t + n
        return here if n == 0 else deep(n - 1, here)

    def fails(n: int) -> int:
        items = [n]
        try:
            items.append(1 // n)
        except ZeroDivisionError as error:
            text = str(error)
            raise ValueError(text) from error
        finally:
            items.clear()
        return n

    running = counts(5, torch.ones(1), extra={"a": 1})
    total = sum(next(running) for _ in range(2))
    running.close()
    result = deep(60, torch.zeros(1))
    for n in (1, 0):
        try:
            total += fails(n)
        except ValueError as error:
            kept = repr(error)
    grown = [each for each in counts(3) if each]
    items = {each: [each] for each in grown}
    exec(compile("x = 1\ny = [x]\ny.append(total)", "<given>", "exec"), {"total": total, "items": items})
    del result, kept


def small_programs() -> dict[str, Program]:
    """The programs of tests/programs, but for those that cannot be compared."""
    return {name: programs.load(name).main for name in programs.names() if name not in NOT_COMPARED}


def ways(group: str) -> dict[str, dict[str, Any]]:
    """The options with which the programs of a group are recorded."""
    if group == "variables":
        return VARIABLES
    if group == "zoo":
        return {name: OPTIONS[name] for name in FOR_ZOO}
    if group == "programs":
        return {name: OPTIONS[name] for name in FOR_PROGRAMS}
    if group == "programs in more ways":
        return {name: OPTIONS[name] for name in OPTIONS if name not in FOR_PROGRAMS}
    return OPTIONS


NOT_MEASURED = frozenset({"copies"})
"""It reads a file into storages, which are what they happen to be at first."""
GROUPS: dict[str, Callable[[], dict[str, Program]]] = {
    "programs": small_programs,
    "programs in more ways": small_programs,
    "zoo": lambda: {name: partial(run_zoo, build) for name, build in families().items()},
    "small": lambda: {
        **{name: partial(train, name) for name in ("SGD", "AdamW", "Adagrad", "RMSprop")},
        **{
            f"{error.__name__}-{deep}": partial(fails, error, deep)
            for error in (ValueError, KeyboardInterrupt, SystemExit)
            for deep in (0, 5, 40)
        },
        "in turn": in_threads,
        "attends": attends,
        "kinds of tensors": kinds_of_tensors,
        **{f"seed {seed}": partial(generated, seed) for seed in range(60)},
    },
    "variables": lambda: {
        **{name: programs_plain.load(name).main for name in programs_plain.names() if name != "threads"},
        "all kinds": all_kinds,
        "unusual calls": unusual_calls,
        "in turn": in_threads,
        "training": partial(train, "AdamW", 2),
    },
}
"""Each is two processes, of which most of the time is their start unless they have much to do."""


def main() -> None:
    group, file = sys.argv[1:]
    cases, found = GROUPS[group](), {}
    for name, program in cases.items():
        for options, chosen in ways(group).items():
            if "values" in chosen and name in NOT_MEASURED:
                continue
            found[f"{name}, {options}"] = journal_of(program, **chosen)
    Path(file).write_text(json.dumps(found, default=repr), encoding="utf-8")


if __name__ == "__main__":
    main()
