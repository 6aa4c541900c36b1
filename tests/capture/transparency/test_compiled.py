"""Compiled, scripted, traced and transformed code inside a recording does what it does without one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torchglass as tg
from torchglass.capture.recorder import PATCHES

X = torch.linspace(-1, 1, 8).reshape(2, 4)
pytestmark = pytest.mark.filterwarnings("ignore")


class Backend:
    """Counts what it compiles and how often that runs."""

    def __init__(self, inner: str = "eager") -> None:
        self.inner = inner
        self.compiled = 0
        self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        from torch._dynamo.backends.registry import lookup_backend

        self.compiled += 1
        compiled = lookup_backend(self.inner)(graph, inputs)

        def run(*args: Any) -> Any:
            self.runs += 1
            return compiled(*args)

        return run


@pytest.fixture(autouse=True)
def forget_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert torch._C._len_torch_function_stack() == 0
    assert (PATCHES._users, PATCHES._suspended) == (0, 0)


def function(x: Tensor) -> Tensor:
    return torch.sigmoid(x * 2) + x.relu()


def broken_in_two(x: Tensor) -> Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    return y.relu() + 1


def raises(x: Tensor) -> Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    if y.shape[0] == 2:
        raise ValueError("mine")
    return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x)))


def module() -> Net:
    torch.manual_seed(0)
    return Net()


def compiled_function(backend: Backend) -> Callable[..., Any]:
    return torch.compile(function, backend=backend)


def compiled_whole(backend: Backend) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, fullgraph=True)


def compiled_module(backend: Backend) -> Callable[..., Any]:
    return torch.compile(module(), backend=backend)


def compiled_in_place(backend: Backend) -> Callable[..., Any]:
    model = module()
    model.compile(backend=backend)
    return model


def compiled_with_break(backend: Backend) -> Callable[..., Any]:
    return torch.compile(broken_in_two, backend=backend)


def compiled_inside_a_module(backend: Backend) -> Callable[..., Any]:
    model = module()
    model.first = torch.compile(model.first, backend=backend)
    return model


WAYS = [
    compiled_function, compiled_whole, compiled_module, compiled_in_place, compiled_with_break,
    compiled_inside_a_module,
]  # fmt: skip


def count(way: Callable[..., Any], inner: str, before: bool, around: Any) -> tuple[Any, ...]:
    """Three calls in, two out, two in: results, compilations, runs."""
    torch._dynamo.reset()
    backend = Backend(inner)
    compiled = way(backend) if before else None
    results = []
    with around():
        compiled = way(backend) if compiled is None else compiled
        results += [compiled(X) for _ in range(3)]
    results += [compiled(X) for _ in range(2)]
    with around():
        results += [compiled(X) for _ in range(2)]
    if results[-1].requires_grad:
        results[-1].sum().backward()
    return [result.detach() for result in results], backend.compiled, backend.runs


@pytest.mark.parametrize("before", [True, False], ids=["before", "inside"])
@pytest.mark.parametrize("inner", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_as_often_compiled_as_without_us(way: Callable[..., Any], inner: str, before: bool) -> None:
    plain, compilations, runs = count(way, inner, before, nullcontext)
    recorded, theirs, their_runs = count(way, inner, before, tg.record)
    assert all(torch.equal(one, other) for one, other in zip(plain, recorded, strict=True))
    assert (theirs, their_runs) == (compilations, runs)
    assert compilations > 0


@pytest.mark.parametrize("way", [compiled_function, compiled_whole], ids=lambda way: way.__name__)
def test_a_region_is_one_unseen_event_that_says_how_to_look_inside(way: Callable[..., Any]) -> None:
    compiled = way(Backend())
    with tg.record() as trace:
        torch.relu(X)
        y = compiled(X)
        torch.exp(y)
    relu, region, after = trace.events()
    assert (relu.name, after.name) == ("relu", "exp")
    assert (region.kind, region.parent, region.error, region.code) == ("unseen", None, None, "compiled(X)")
    assert region.note is not None
    assert "set_stance" in region.note
    assert region.end_ns is not None
    # What goes in and comes out is joined to what was seen around it.
    (given,) = region.inputs
    assert (given.id, region.target) == (relu.inputs[0].id, ("y",))
    if region.result == "…":  # this torch has it in no variable of its own
        return
    (made,) = region.outputs
    assert (made.id, made.producer, made.shape) == (after.inputs[0].id, region.id, tuple(y.shape))


def test_a_compiled_module_is_a_module_event_with_an_unseen_inside() -> None:
    compiled = compiled_module(Backend())
    with tg.record() as trace:
        compiled(X)
    assert [(e.kind, e.parent) for e in trace.events()] == [("module", None), ("unseen", 0)]
    assert (trace.event(0).code, trace.event(0).direct) == ("compiled(X)", True)


def test_force_eager_shows_the_inside() -> None:
    compiled = compiled_function(Backend())
    with tg.record() as trace, torch.compiler.set_stance("force_eager"):
        compiled(X)
    assert "sigmoid" in [e.name for e in trace.events()]
    assert not list(trace.events(kind="unseen"))


def test_an_exception_in_the_region() -> None:
    compiled = torch.compile(raises, backend=Backend())
    with tg.record() as trace:
        with pytest.raises(ValueError, match="mine"):
            compiled(X)
        torch.relu(X)
    region, after = [e for e in trace.events() if e.kind == "unseen" or e.name == "relu"]
    assert region.error == "ValueError: mine"
    assert (after.parent, after.error) == (None, None)
    with pytest.raises(ValueError, match="mine"), tg.record() as left:
        compiled(X)
    failed = left.failure()
    assert failed is not None
    assert failed.kind == "unseen"


def test_a_region_called_while_an_exception_is_handled_did_not_fail() -> None:
    compiled = compiled_function(Backend())
    with tg.record() as trace:
        try:
            raise KeyError("other")
        except KeyError:
            compiled(X)
    assert [e.error for e in trace.events(kind="unseen")] == [None]


def ahead_of_time() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function and a module that are compiled before their first call."""
    net = module()
    make: Any = torch.compile
    compiled = make(function, fullgraph=True, backend="eager")
    forward = make(net, fullgraph=True, backend="eager").forward
    if not hasattr(forward, "aot_compile"):
        pytest.skip("this torch compiles nothing ahead of time")
    of_function, of_module = compiled.aot_compile(((X,), {})), forward.aot_compile(((X,), {}))
    return of_function, lambda x: of_module(net, x)


@pytest.mark.parametrize("options", [{}, {"ops": True, "variables": True, "calls": "user"}], ids=["plain", "all"])
@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
def test_what_is_compiled_ahead_of_time(inside: bool, options: dict[str, Any]) -> None:
    """It is traced without our modes, and checks when it is called that there are the same modes as then."""
    made = ahead_of_time()
    expected = [each(X) for each in made]
    with tg.record(**options) as trace:
        if inside:
            made = ahead_of_time()
        found = [each(X) for each in made]
    again = [each(X) for each in made]
    for one, other, plain in zip(found, again, expected, strict=True):
        assert torch.equal(one, other)
        assert inside or torch.equal(one, plain)
    regions = list(trace.events(kind="unseen"))
    assert [[value.shape for value in each.outputs] for each in regions] == [[(2, 4)], [(2, 2)]]
    assert all("ahead of time" in (each.note or "") for each in regions)


def test_an_exception_in_what_is_compiled_ahead_of_time() -> None:
    compiled, _ = ahead_of_time()
    with tg.record() as trace:
        with pytest.raises(RuntimeError, match="GuardManager"):
            compiled(torch.ones(3, 5, dtype=torch.float64))
        torch.relu(X)
    region, after = trace.events(kind="unseen"), list(trace.events())[-1]
    assert ["GuardManager" in (each.error or "") for each in region] == [True]
    assert (after.name, after.parent, after.error) == ("relu", None, None)


def test_torch_is_as_it_was_while_it_compiles_and_runs() -> None:
    """What we replace is not there for dynamo to trace or to keep, and is back after the region."""
    call, code, asks = nn.Module.__call__, nn.Module.__call__.__code__, torch.overrides.has_torch_function
    seen: list[bool] = []

    def is_torchs() -> bool:
        return nn.Module.__call__ is call and call.__code__ is code

    def looks(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.append(is_torchs() and torch.overrides.has_torch_function is asks)
            return graph.forward(*args)

        seen.append(is_torchs() and torch._C._len_torch_function_stack() == 0)
        return run

    compiled = torch.compile(function, backend=looks)
    with tg.record():
        ours = nn.Module.__call__.__code__
        assert ours is not code
        compiled(X)
        assert nn.Module.__call__.__code__ is ours
    assert seen == [True, True]


def test_nested_regions_count_once() -> None:
    inner = torch.compile(function, backend=Backend())
    outer = torch.compile(lambda x: inner(x) + 1, backend=Backend())
    with tg.record() as trace:
        result = outer(X)
    assert torch.equal(result, function(X) + 1)
    assert [e.kind for e in trace.events()] == ["unseen"]


def test_training_a_compiled_module() -> None:
    def train(around: Any) -> tuple[Tensor, int]:
        torch._dynamo.reset()
        backend = Backend("aot_eager")
        model = module()
        compiled = torch.compile(model, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with around():
            for _ in range(3):
                optimizer.zero_grad()
                compiled(X).sum().backward()
                optimizer.step()
        return model.first.weight.detach(), backend.compiled

    plain, recorded = train(nullcontext), train(tg.record)
    assert torch.equal(plain[0], recorded[0])
    assert plain[1] == recorded[1]


def scripted(x: Tensor) -> Tensor:
    return torch.jit.script(function)(x)


def traced(x: Tensor) -> Tensor:
    def split(x: Tensor) -> Tensor:
        b, d = x.shape
        return x.view(b, -1, 2).sum(-1) + d

    made = torch.jit.trace(split, x)
    return made(torch.cat([x, x]))


def exported(x: Tensor) -> Tensor:
    return torch.export.export(module(), (x,)).module()(x)


def symbolically(x: Tensor) -> Any:
    graph = torch.fx.symbolic_trace(module())
    return graph(x), graph.code


def made_fx(x: Tensor) -> Any:
    graph = make_fx(function)(x)
    return graph(x), graph.code


def fake(x: Tensor) -> Any:
    with FakeTensorMode() as mode:
        y = function(mode.from_tensor(x))
    return tuple(y.shape), str(y.dtype)


TRANSFORMS: list[Callable[[Tensor], Any]] = [
    scripted,
    traced,
    exported,
    symbolically,
    made_fx,
    fake,
    torch.vmap(function),
    torch.func.grad(lambda x: function(x).sum()),
    torch.func.jacrev(function),
    torch.func.hessian(lambda x: function(x).sum()),
    lambda x: torch.func.jvp(function, (x,), (x,)),
    lambda x: torch.func.functional_call(module(), dict(module().named_parameters()), (x,)),
    lambda x: torch.cond(x.sum() > 9, torch.sin, torch.cos, (x,)),
    lambda x: torch.utils.checkpoint.checkpoint(module(), x, use_reentrant=False),
]


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda f: getattr(f, "__name__", "transform"))
def test_transforms_give_the_same(transform: Callable[[Tensor], Any]) -> None:
    plain = transform(X)
    with tg.record() as trace:
        recorded = transform(X)
        torch.tanh(X)
    for one, other in zip(as_list(plain), as_list(recorded), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    last = list(trace.events())[-1]
    assert (last.name, last.parent, last.code) == ("tanh", None, "torch.tanh(X)")
    assert not any("failed to record" in note for note in trace.notes)


def test_a_scripted_function_is_one_unseen_event_with_what_it_took_and_gave() -> None:
    scripted_function = torch.jit.script(function)
    before = vars(torch.jit.ScriptFunction)["__call__"]
    x = torch.ones(2, 3)
    with tg.record() as trace:
        result = scripted_function(x)
    assert vars(torch.jit.ScriptFunction)["__call__"] is before
    (event,) = trace.events(kind="unseen")
    assert [value.shape for value in event.inputs] == [(2, 3)]
    assert [value.shape for value in event.outputs] == [tuple(result.shape)]
    assert "scripted" in (event.note or "")
    assert event.target == ("result",)


def warned(options: dict[str, Any] | None) -> list[str]:
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with nullcontext() if options is None else tg.record(**options):
            torch.compile(function, backend="eager")(X)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("options", [{}, {"calls": "user"}, {"variables": True}, {"ops": True}], ids=str)
def test_compiling_warns_of_nothing_of_ours(options: dict[str, Any]) -> None:
    warned(None)
    assert warned(options) == warned(None)
