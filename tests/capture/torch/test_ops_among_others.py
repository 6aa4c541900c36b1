"""The ops probe beside others that listen or transform: modes, subclasses, tracers, compilers, other recordings."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import torchglass as tg
from tests.older import needs_equal_modes


def names(trace: tg.Trace) -> list[str]:
    return [event.name for event in trace.events() if event.kind == "op"]


def no_faults(trace: tg.Trace) -> None:
    assert not [note for note in trace.notes if "failed to record" in note]


# ---------------------------------------------------------------- the program's own modes and subclasses


class Functions(TorchFunctionMode):
    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Without the types: of a copied handle only the first mode is told its class.
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def program() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    y = F.gelu(x @ x.T)
    torch.cat([y, y]).sum().backward()
    x.prod().backward()
    torch.linalg.svdvals(torch.eye(2))
    nn.Linear(3, 2)(x).sum().backward()


@pytest.mark.parametrize("mode", [Functions, pytest.param(Ops, marks=needs_equal_modes)])
def test_modes_of_the_program_see_what_they_see_without_us(mode: Callable[[list[Any]], Any]) -> None:
    plain, above, below = [], [], []
    with mode(plain):
        program()
    with tg.record(ops=True) as inner, mode(above):
        program()
    with mode(below), tg.record(ops=True) as outer:
        program()
    assert plain
    assert above == plain
    assert below == plain
    no_faults(inner)
    no_faults(outer)


def wrapper_class(seen: list[str], **policy: Any) -> Any:
    """A subclass that answers ops, and with a policy questions about its size or device, itself."""

    class Wrapper(Tensor):
        inner: Tensor

        @staticmethod
        def __new__(cls, inner: Tensor) -> Any:
            wrapped = Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), **policy)
            wrapped.inner = inner
            return wrapped

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            answers = {
                "prim.device.default": lambda t: t.inner.device,
                "aten.sym_size.default": lambda t: t.inner.shape,
                "aten.sym_stride.default": lambda t: t.inner.stride(),
            }
            if str(func) in answers:
                return answers[str(func)](args[0])
            args, kwargs = tree_map(lambda t: t.inner if isinstance(t, cls) else t, (args, kwargs or {}))
            return tree_map(lambda t: cls(t) if isinstance(t, Tensor) else t, func(*args, **kwargs))

    return Wrapper


QUESTIONS = {"prim.device.default", "aten.sym_size.default", "aten.sym_stride.default"}
POLICIES: list[dict[str, Any]] = [{}, {"dispatch_device": True}, {"dispatch_sizes_strides_policy": "sizes"}]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_wrapper_is_given_the_ops_that_it_is_given_without_us(policy: dict[str, Any]) -> None:
    """Where it answers for its own size or device it is asked more often, but never for anything else."""
    seen: list[str] = []
    cls = wrapper_class(seen, **policy)

    def act() -> list[str]:
        seen.clear()
        x = cls(torch.ones(2, 3))
        torch.cat([x + 1, F.gelu(x)]).add_(1).sum()
        return list(seen)

    plain = act()
    with tg.record(ops=True) as trace:
        recorded = act()
    more = Counter(recorded)
    more.subtract(Counter(plain))
    asked = {name for name, count in more.items() if count}
    assert asked <= (QUESTIONS if policy else set())
    assert [name for name in recorded if name not in QUESTIONS] == [name for name in plain if name not in QUESTIONS]
    questions = [name for name in names(trace) if name in ("prim::device", "aten::sym_size", "aten::sym_stride")]
    assert len(questions) <= sum(plain.count(name) for name in QUESTIONS)
    no_faults(trace)


# ---------------------------------------------------------------- transforms, tracers, compilers


def test_function_transforms() -> None:
    x = torch.arange(6.0).reshape(2, 3)

    def act() -> list[Any]:
        return [
            torch.func.vmap(torch.sin)(x),
            torch.func.grad(lambda t: t.sin().sum())(x),
            torch.func.jvp(torch.sin, (x,), (x,)),
            torch.func.hessian(lambda t: t.sin().sum())(x[0]),
        ]

    plain = act()
    with tg.record(ops=True) as trace:
        recorded = act()
    assert str(recorded) == str(plain)
    assert names(trace).count("aten::sin") >= 4
    no_faults(trace)


def test_fake_tensors_and_make_fx() -> None:
    with tg.record(ops=True) as trace:
        with FakeTensorMode():
            assert (torch.ones(2, 3) @ torch.ones(3, 4)).shape == (2, 4)
        graph = make_fx(lambda t: t.sin() + 1)(torch.ones(2))
    assert [str(node.target) for node in graph.graph.nodes][1:3] == ["aten.sin.default", "aten.add.Tensor"]
    assert {"aten::mm", "aten::sin"} <= set(names(trace))
    no_faults(trace)


def test_jit_trace_keeps_sizes() -> None:
    def halves(x: Tensor) -> Tensor:
        rows, _ = x.shape
        return x.view(rows, -1, 2) * 2

    with tg.record(ops=True) as trace:
        traced = torch.jit.trace(halves, torch.ones(2, 4))
        assert torch._C._len_torch_dispatch_stack() == 1
    assert traced(torch.ones(5, 6)).shape == (5, 3, 2)
    assert any("torch.jit.trace" in note for note in trace.notes)


def test_a_compiled_region_is_one_unseen_event_and_compiled_once() -> None:
    compilations = []

    def backend(graph: Any, inputs: Any) -> Any:
        compilations.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.ones(3)
    compiled(x)
    with tg.record(ops=True) as trace:
        for _ in range(3):
            compiled(x)
        x.exp()
    compiled(x)
    assert len(compilations) == 1
    assert [event.kind for event in trace.events()].count("unseen") == 3
    assert names(trace) == ["aten::exp"]


def test_higher_order_ops_run_eagerly_with_their_ops() -> None:
    from torch._higher_order_ops.wrap import wrap

    x = torch.ones(2)
    with tg.record(ops=True) as trace:
        assert torch.equal(wrap(lambda t: t.sin(), x), x.sin())
        assert torch.equal(torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), x.sin())
    assert "aten::sin" in names(trace)
    no_faults(trace)


# ---------------------------------------------------------------- other recordings


def test_recordings_with_other_probes_inside_each_other() -> None:
    x = torch.ones(2)
    with tg.record() as outer:
        x.relu()
        with tg.record(ops=True) as inner:
            x.exp()
        assert torch._C._len_torch_dispatch_stack() == 0
        x.sin()
    assert (names(outer), names(inner)) == ([], ["aten::exp"])
    assert [event.name for event in outer.events()] == ["Tensor.relu", "Tensor.exp", "Tensor.sin"]

    with tg.record(ops=True) as outer:
        x.relu()
        with tg.record() as inner:
            x.exp()
        x.sin()
    assert (names(outer), names(inner)) == (["aten::relu", "aten::exp", "aten::sin"], [])


def test_recordings_with_other_probes_in_two_threads() -> None:
    barrier, traces = threading.Barrier(2), {}

    def work(name: str, **options: Any) -> None:
        with tg.record(**options) as trace:
            barrier.wait()
            torch.ones(2).relu()
            barrier.wait()
        traces[name] = trace

    threads = [
        threading.Thread(target=work, args=("plain",)),
        threading.Thread(target=work, args=("ops",), kwargs={"ops": True}),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (names(traces["plain"]), names(traces["ops"])) == ([], ["aten::ones", "aten::relu"])


def test_at_most_so_many_events() -> None:
    with tg.record(ops=True, max_events=5, keep="begin") as trace:
        x = torch.ones(2)
        for _ in range(10):
            x = x.relu()
    assert len(trace) == 5
    assert any("not recorded" in note for note in trace.notes)


# ---------------------------------------------------------------- faults of ours


FAULTY = ["torchglass.capture.torch.ops._written_arguments", "torchglass.capture.torch.ops._takes_nested"]


@pytest.mark.parametrize("place", FAULTY)
def test_a_fault_costs_an_event_and_never_the_program(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, Mock(side_effect=KeyError("ours")))
    monkeypatch.setattr("torchglass.capture.torch.ops._TRAITS", {})  # nothing is known from earlier blocks
    x = torch.ones(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert any("failed to record" in note for note in trace.notes)
    assert any(event.kind == "function" for event in trace.events())


def test_what_an_op_is_like_is_read_in_the_first_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchglass.capture.torch import ops

    asked: list[str] = []
    read = ops._written_arguments
    monkeypatch.setattr(ops, "_TRAITS", {})
    monkeypatch.setattr(ops, "_written_arguments", lambda op: (asked.append(op.name()), read(op))[1])
    x = torch.ones(3)
    for _ in range(3):
        with tg.record(ops=True) as trace:
            x.relu().add_(1)
        assert [event.name for event in trace.events(kind="op")] == ["aten::relu", "aten::add_.Tensor"]
    assert asked == ["aten::relu", "aten::add_.Tensor"]


def test_faults_while_an_op_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a shape that nothing else has: what is known of others is kept for the process."""
    monkeypatch.setattr("torchglass.capture.engine.value_table.meta_bytes", Mock(side_effect=KeyError("ours")))
    with tg.record(ops=True) as trace:
        assert torch.ones(1, 2, 1, 1, 1).relu().flatten().tolist() == [1.0, 1.0]
    assert any("failed to record" in note for note in trace.notes)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_rule_that_somebody_wrote_for_a_mode_of_theirs_is_followed() -> None:
    """Torch asks for such rules on the way to each dispatch mode; for ours there is none, and it is not asked."""

    class Doubling(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def act() -> list[float]:
        with Doubling():
            return torch.ones(2).neg().tolist()

    with torch.library._scoped_library("aten", "FRAGMENT") as library:
        rule = lambda mode, func, types, args, kwargs: func(*args) * 2  # noqa: E731
        torch.library.register_torch_dispatch("aten::neg", Doubling, rule, lib=library)
        plain = act()
        with tg.record(ops=True) as trace:
            assert act() == plain == [-2.0, -2.0]
    assert act() == [-1.0, -1.0]
    assert {"aten::neg", "aten::mul.Tensor"} <= {event.name for event in trace.events(kind="op")}
