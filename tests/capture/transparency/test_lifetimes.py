"""Tensors die at the same moment of the program whether it is recorded or not."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchglass as tg

Record = Callable[..., Any]


@pytest.fixture(params=[{}, {"ops": True}, {"ops": True, "values": "stats"}], ids=["functions", "ops", "statistics"])
def record(request: pytest.FixtureRequest) -> Record:
    """`tg.record` with fewer and with more probes."""
    return partial(tg.record, **request.param)


class Diary:
    """What happened in which order: lines that the program reached and tensors that died."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def watch(self, name: str, tensor: Tensor) -> Tensor:
        weakref.finalize(tensor, self.entries.append, f"{name} died").atexit = False
        return tensor

    def reached(self, place: str) -> None:
        self.entries.append(place)


def straight_line(diary: Diary) -> None:
    a = diary.watch("a", torch.ones(3) * 2)
    b = diary.watch("b", a + 1)
    diary.reached("made b")
    del a
    diary.reached("deleted a")
    b = diary.watch("b again", b.relu())
    diary.reached("rebound b")
    diary.watch("unnamed", b.exp())
    diary.reached("after the unnamed one")


def nested_functions(diary: Diary) -> None:
    x = diary.watch("x", torch.randn(2, 4))
    y = diary.watch("y", F.gelu(F.layer_norm(x, (4,))))
    del x
    diary.reached("x is gone")
    y = F.gumbel_softmax(y)
    diary.reached("y is another")


class Inner(nn.Module):
    def __init__(self, diary: Diary) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.diary = diary

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.diary.watch("hidden", self.linear(x))
        self.diary.reached("in forward")
        return self.diary.watch("result", hidden.tanh())


def modules_without_grad(diary: Diary) -> None:
    module = Inner(diary)
    with torch.no_grad():
        for index in range(3):
            module(diary.watch(f"input {index}", torch.randn(2, 3)))
            diary.reached(f"round {index}")


def graph_and_backward(diary: Diary) -> None:
    module = Inner(diary)
    loss = diary.watch("loss", module(torch.randn(2, 3)).sum())
    diary.reached("forward done")
    loss.backward()
    diary.reached("backward done")
    diary.watch("gradient", module.linear.weight.grad)
    module.zero_grad()
    diary.reached("gradients dropped")
    del loss
    diary.reached("loss dropped")


def views_and_in_place(diary: Diary) -> None:
    base = diary.watch("base", torch.zeros(4, 4))
    view = diary.watch("view", base[1:])
    view += 1
    del base
    diary.reached("base has no name left")
    view[0, 0] = 5.0
    del view
    diary.reached("view has no name left")


def caught_exception(diary: Diary) -> None:
    def fails() -> None:
        local = diary.watch("local of the failing function", torch.ones(2, 3))
        local @ local

    try:
        fails()
    except RuntimeError as error:
        diary.reached("caught")
        kept = error
    diary.reached("still kept")
    del kept
    diary.reached("dropped")


def exception_through_modules(diary: Diary) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    try:
        with torch.no_grad():
            module(diary.watch("input", torch.ones(2, 3)))
    except RuntimeError:
        diary.reached("caught")
    diary.reached("after")


def generator(diary: Diary) -> None:
    def produce() -> Iterator[Tensor]:
        for index in range(3):
            yield diary.watch(f"item {index}", torch.full((2,), float(index)))

    for item in produce():
        item.mul_(2)
        diary.reached("one item")
    del item
    diary.reached("done")


def worker_thread(diary: Diary) -> None:
    def work() -> None:
        diary.watch("of the worker", torch.ones(2).cumsum(0))
        diary.reached("worker is about to end")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    diary.reached("joined")


def checkpointed(diary: Diary) -> None:
    module = Inner(diary)
    x = torch.randn(2, 3, requires_grad=True)
    out = checkpoint(module, x, use_reentrant=False)
    diary.reached("forward done")
    out.sum().backward()
    diary.reached("backward done")


def optimizer_step(diary: Diary) -> None:
    module = Inner(diary)
    optimizer = torch.optim.AdamW(module.parameters())
    for index in range(2):
        optimizer.zero_grad()
        diary.watch(f"loss {index}", module(torch.randn(2, 3)).sum()).backward()
        diary.watch(f"gradient {index}", module.linear.bias.grad)
        optimizer.step()
        diary.reached(f"step {index}")


PROGRAMS: list[Callable[[Diary], None]] = [
    straight_line, nested_functions, modules_without_grad, graph_and_backward, views_and_in_place,
    caught_exception, exception_through_modules, generator, worker_thread, checkpointed, optimizer_step,
]  # fmt: skip


@contextmanager
def no_collector() -> Iterator[None]:
    """Only reference counts let tensors die here, so that a cycle of ours would show."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _diary_of(program: Callable[[Diary], None], context: Any) -> list[str]:
    diary = Diary()
    torch.manual_seed(0)
    with no_collector():
        with context:
            program(diary)
            diary.reached("end of the block")
        diary.reached("after the block")
    return diary.entries


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_tensors_die_in_the_same_order(program: Callable[[Diary], None], record: Record) -> None:
    _diary_of(program, nullcontext())  # what torch does once, on first use, is no part of the comparison
    plain = _diary_of(program, nullcontext())
    assert _diary_of(program, record()) == plain
    # A diary in which nothing died before the end could not tell anything.
    assert any(entry.endswith("died") for entry in plain[: plain.index("end of the block")])


def test_the_trace_keeps_no_tensor_alive(record: Record) -> None:
    with no_collector():
        with record() as trace:
            x = torch.ones(3)
            y = x * 2
        watched = weakref.ref(x), weakref.ref(y)
        del x, y
        assert [ref() for ref in watched] == [None, None]
        assert len(trace) > 0


def _gradient_addresses(context: Any) -> list[bool]:
    """For each parameter: whether its gradient is the very memory that backward computed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    computed: dict[int, int] = {}
    parameters = dict(enumerate(model.parameters()))
    for number, p in parameters.items():
        p.register_hook(lambda g, number=number: computed.__setitem__(number, g.data_ptr()))
    with context:
        model(torch.randn(3, 4)).sum().backward()
    return [p.grad.data_ptr() == computed[number] for number, p in parameters.items()]


def test_gradients_are_stolen_not_copied(record: Record) -> None:
    plain = _gradient_addresses(nullcontext())
    assert any(plain)
    assert _gradient_addresses(record()) == plain


def _collector() -> tuple[object, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)


def test_the_collector_is_left_alone(record: Record) -> None:
    before = _collector()
    with record():
        assert _collector() == before
        nn.Linear(2, 2)(torch.ones(1, 2))
        assert _collector() == before
    assert _collector() == before


def test_nothing_is_frozen_or_unfrozen(record: Record) -> None:
    """Frozen objects may die meanwhile, so their number may fall a little, but it neither grows nor becomes 0."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    held = [[number] for number in range(1000)]
    with record():
        nn.Linear(2, 2)(torch.ones(1, 2))
        inside = gc.get_freeze_count()
    assert len(held) == 1000
    assert 0 < inside <= frozen
    assert 0 < gc.get_freeze_count() <= frozen


def test_a_collector_that_the_program_set_is_left_alone(record: Record) -> None:
    gc.disable()
    try:
        before = _collector()
        with record():
            torch.ones(2).relu()
            assert _collector() == before
        assert _collector() == before
    finally:
        gc.enable()


def test_tensors_in_cycles_die_when_the_program_collects(record: Record) -> None:
    with record():
        box: list[Any] = [torch.ones(2) * 3]
        box.append(box)
        watched = weakref.ref(box[0])
        del box
        gc.collect()
        assert watched() is None


def test_a_class_of_modules_can_go() -> None:
    """Nothing that is kept for a trace, or for the process, keeps a class, and with it the globals of its methods."""

    def record_one() -> tuple[tg.Trace, weakref.ref[type]]:
        class Local(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x + 1

        with tg.record() as trace:
            Local()(torch.ones(2))
        return trace, weakref.ref(Local)

    trace, cls = record_one()
    gc.collect()
    assert cls() is None
    assert [event.name for event in trace.events(kind="module")] == ["Local"]
    gc.collect()
    assert cls() is None
