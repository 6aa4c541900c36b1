"""While something else traces the program, what we read, measure and keep is no part of what that makes."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy
import pytest
import torch
from functorch.compile import aot_function
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import torchglass as tg
from torchglass.capture.engine.jit import TRACES


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("bias", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        part = tg.mark("part", y[:, 1:3])
        return torch.relu(y) + part.sum() + self.bias + x.size(0)


X = torch.arange(12.0).reshape(3, 4)


def chain(x: torch.Tensor) -> torch.Tensor:
    return tg.mark("product", x.t() @ x).sin().cumsum(0)[1:]


def exported() -> str:
    return str(torch.export.export(Model(), (X,)).graph)


def exported_with_dynamic_shapes() -> str:
    shapes = {"x": {0: torch.export.Dim("n", min=2)}}
    return str(torch.export.export(Model(), (X,), dynamic_shapes=shapes).graph)


class Attending(torch.nn.Module):
    """It asks torch for overrides, warns, and has a function with a backward of its own: all that we replace."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("the program's own", stacklevel=2)
        y = x[None]
        return Squared.apply(self.attention(y, y, y)[0])


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return 2 * grad_outputs[0] * ctx.saved_tensors[0]


def exported_strictly() -> str:
    """Dynamo reads the whole function here without running it."""
    torch.manual_seed(0)
    found = torch.export.export(Attending().eval(), (X,), strict=True)
    return f"{found.graph}\n{found.graph_signature}"


def made_fx(mode: Any) -> Callable[[], str]:
    return lambda: str(make_fx(chain, tracing_mode=mode)(X).graph)


def made_fx_of_vmap() -> str:
    """Inside of vmap the stand-in is wrapped in a plain tensor."""

    def rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.vmap(lambda row: tg.mark("row", row * 2))(x) @ w
        return torch.autograd.grad(y.pow(2).sum(), w)[0] + y.sum()

    weight = torch.ones(4, 4, requires_grad=True)
    return str(make_fx(rows, tracing_mode="symbolic")(X, weight).graph)


def made_fx_before_autograd() -> str:
    return str(make_fx(chain, pre_dispatch=True)(X).graph)


def made_fx_of_functionalized() -> str:
    return str(make_fx(torch.func.functionalize(lambda x: x.t().clone().mul_(2)))(X).graph)


def functionalized() -> str:
    return str(torch.func.functionalize(lambda x: x[1:].clone().add_(1))(X))


def made_by_aot() -> str:
    graphs: list[str] = []

    def keep(module: Any, inputs: Any) -> Any:
        graphs.append(str(module.graph))
        return module

    compile_with: Any = aot_function
    out = compile_with(chain, keep, keep)(X.clone().requires_grad_())
    out.sum().backward()
    return "\n".join(graphs)


def symbolic_sizes() -> str:
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env) as fake:
        found = torch.nonzero(fake.from_tensor(X)) * 2
        return f"{found.shape} {len(env.guards)} guards"


def symbolically_traced() -> str:
    return str(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())).graph)


TRACERS: list[Callable[[], str]] = [
    exported,
    exported_with_dynamic_shapes,
    exported_strictly,
    made_fx("real"),
    made_fx("fake"),
    made_fx("symbolic"),
    made_fx_of_vmap,
    made_fx_before_autograd,
    made_fx_of_functionalized,
    functionalized,
    made_by_aot,
    symbolic_sizes,
    symbolically_traced,
]
NAMES = [getattr(each, "__name__", "") for each in TRACERS]
NAMES[3:6] = ["made_fx_real", "made_fx_fake", "made_fx_symbolic"]


@pytest.mark.parametrize(
    "options", [{}, {"values": "all"}, {"values": "stats", "ops": True}], ids=["plain", "all", "stats_ops"]
)
@pytest.mark.parametrize("tracer", TRACERS, ids=NAMES)
def test_what_a_tracer_makes_is_the_same(tracer: Callable[[], str], options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracer()
        plain = tracer()
        with tg.record(**options) as trace:
            recorded = tracer()
    assert recorded == plain
    assert not any("failed to record" in note for note in trace.notes)


def test_what_was_not_kept_is_said() -> None:
    with tg.record(values="all") as trace:
        torch.export.export(Model(), (X,))
    assert any("was tracing" in note for note in trace.notes)


TRACE: Any = torch.jit.trace
GET_GRAPH: Any = vars(torch.jit)["_get_trace_graph"]


def jit_function() -> str:
    def rows(x: torch.Tensor) -> torch.Tensor:
        part = tg.mark("part", x[:, 1:])
        return torch.relu(part) @ torch.ones(3, 2) + x.size(0) + x.shape[1]

    return str(TRACE(rows, X).graph)


def jit_module() -> str:
    return str(TRACE(Model(), X).graph)


def jit_graph_for_onnx() -> str:
    return str(GET_GRAPH(Model(), (X,))[0])


def jit_conversion() -> str:
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_numpy(x.numpy()) + torch.from_numpy(ROWS[1:])

    return str(TRACE(add, X).graph)


ROWS = numpy.ones((4, 4), dtype=numpy.float32)


def normal(graph: str) -> str:
    """Without places in files, numbers of classes, and names of values, which are taken from Python's variables."""
    names: dict[str, str] = {}
    bare = re.sub(r"\.___torch_mangle_\d+| # .*?:\d+:\d+", "", graph)
    return re.sub(r"%[\w.]+", lambda found: names.setdefault(found[0], f"%{len(names)}"), bare)


def graph_and_warnings(tracer: Callable[[], str]) -> tuple[str, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = normal(tracer())
    return graph, [str(each.message) for each in caught]


OPTIONS: list[dict[str, Any]] = [{}, {"ops": True}, {"values": "stats"}, {"values": "all"}, {"variables": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "ops", "stats", "all", "variables"])
@pytest.mark.parametrize("tracer", [jit_function, jit_module, jit_graph_for_onnx])
def test_jit_trace_makes_the_same_and_warns_the_same(tracer: Callable[[], str], options: dict[str, Any]) -> None:
    graph_and_warnings(tracer)
    plain = graph_and_warnings(tracer)
    with tg.record(**options) as trace:
        recorded = graph_and_warnings(tracer)
    assert recorded == plain
    assert not any("failed to record" in note for note in trace.notes)
    assert [event for event in trace.events(kind="function") if event.name == "relu"]


@pytest.mark.parametrize("tracer", [jit_module, jit_conversion])
@pytest.mark.parametrize("options", [{"functions": False}, {}], ids=["modules", "functions"])
def test_jit_trace_does_not_see_what_we_read(tracer: Callable[[], str], options: dict[str, Any]) -> None:
    """Parameters of modules, and memory that a tensor shares with an array."""
    graph_and_warnings(tracer)
    plain = graph_and_warnings(tracer)
    with tg.record(**options) as trace:
        recorded = graph_and_warnings(tracer)
    assert recorded == plain
    assert not any("failed to record" in note for note in trace.notes)


@pytest.mark.parametrize("options", [*OPTIONS, {"functions": False}, {"variables": True, "values": "all"}], ids=str)
def test_a_recording_that_begins_inside_jit_trace_changes_nothing(options: dict[str, Any]) -> None:
    def run(block: Callable[[], Any]) -> tuple[str, list[str]]:
        def rows(x: torch.Tensor) -> torch.Tensor:
            with block():
                y = (x * x.shape[1]).view(x.size(0), -1)
                y = y.new_zeros(y.shape) + y
            return y.relu()

        return graph_and_warnings(lambda: str(TRACE(rows, X).graph))

    traces: list[tg.Trace] = []

    @contextmanager
    def recorded() -> Iterator[None]:
        with tg.record(**options) as trace:
            traces.append(trace)
            yield

    run(nullcontext)
    assert run(recorded) == run(nullcontext)
    assert traces
    for trace in traces:
        assert not any("failed to record" in note for note in trace.notes)
        if options.get("functions", True):
            assert "Tensor.view" in [event.name for event in trace.events()]
    assert not TRACES


def test_jit_trace_in_one_thread_leaves_the_sizes_of_another_alone() -> None:
    """The flag is the process's, the tracer the thread's: shapes are plain numbers in both."""
    with tg.record() as trace:
        jit_function()
    shapes = {value.shape for event in trace.events(kind="function") for value in event.inputs if value.shape}
    assert (3, 3) in shapes
    assert all(type(size) is int and size >= 0 for shape in shapes for size in shape)
