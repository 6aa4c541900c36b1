"""The tools that are measured, each brought to one form: run a workload, say how many events were seen."""

from __future__ import annotations

import contextlib
import importlib
import io
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from workloads import Workload

Count = Callable[[], int | None]


@dataclass(frozen=True)
class Subject:
    """One tool. `run` is timed; what it returns is called afterwards and says how many events were seen."""

    name: str
    run: Callable[[Workload], Count]
    needs: str = "torch"
    slow: bool = False  # measured in a round of its own, with fewer repetitions
    forward_only: bool = False  # takes a model and its input, not a piece of code
    floor: str = "no-op function mode"  # the subject over which its events are counted

    def missing(self) -> str:
        """Why this tool cannot be measured here; empty when it can."""
        try:
            importlib.import_module(self.needs)
        except ImportError:
            return "not installed"
        except SyntaxError:
            return "needs a newer Python"
        return ""


class Floor(TorchFunctionMode):
    """The least that listening to torch functions can cost: a mode that does nothing, not re-entered."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class OpFloor(TorchDispatchMode):
    """The same for ops."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Lines(io.TextIOBase):
    """A stream to nowhere that counts the lines."""

    def __init__(self) -> None:
        self.count = 0
        self.heads = 0

    def write(self, text: str) -> int:
        self.count += text.count("\n")
        self.heads += text.count("●")
        return len(text)


def plain(workload: Workload) -> Count:
    """Nothing at all."""
    workload.run()
    return lambda: None


def floor(workload: Workload) -> Count:
    """See `Floor`."""
    with Floor():
        workload.run()
    return lambda: None


def three_floors(workload: Workload) -> Count:
    """A wrapper around every module call, and the two modes, none of which does anything."""
    original = nn.Module.__call__

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    nn.Module.__call__ = __call__
    try:
        with Floor(), OpFloor():
            workload.run()
    finally:
        nn.Module.__call__ = original
    return lambda: None


def torchglass(**options: Any) -> Callable[[Workload], Count]:
    """Recording only: settling waits for the first look and is measured apart."""

    def run(workload: Workload) -> Count:
        import torchglass as tg

        with tg.record(**options) as trace:
            workload.run()
        return lambda: len(trace)

    return run


def streaming(**options: Any) -> Callable[[Workload], Count]:
    """Recording into a bundle while it happens; settling, writing and closing are in the time."""

    def run(workload: Workload) -> Count:
        import torchglass as tg

        folder = tempfile.mkdtemp()
        with tg.record(to=f"{folder}/run.trace", **options) as trace:
            workload.run()
        shutil.rmtree(folder)
        return lambda: len(trace)

    return run


def torchglass_ops(workload: Workload) -> Count:
    """Ops, functions, modules and stacks; counted are the ops."""
    import torchglass as tg

    with tg.record(ops=True) as trace:
        workload.run()
    return lambda: sum(1 for _ in trace.events(kind="op"))


def tracing_mode(workload: Workload) -> Count:
    """Our `TracingMode`, not printing."""
    import torchglass as tg

    with tg.TracingMode(quiet=True) as mode:
        workload.run()
    return lambda: len(mode.traces)


def tracer(workload: Workload) -> Count:
    """Our `Tracer`, live: everything is formatted and written while the model runs."""
    import torchglass as tg

    with contextlib.redirect_stdout(Lines()) as lines:
        live = tg.Tracer("benchmark")
        live.start(workload.model)
        workload.run()
        live.stop()
    return lambda: lines.heads


def tracy(workload: Workload) -> Count:
    """Tracy NN, whose interface our `Tracer` has."""
    import tracy_nn

    with contextlib.redirect_stdout(Lines()) as lines:
        live = tracy_nn.Tracer("benchmark")
        live.start(workload.model)
        workload.run()
        live.stop()
    return lambda: lines.heads


def debug_mode(**options: bool) -> Callable[[Workload], Count]:
    """PyTorch's own `DebugMode`."""

    def run(workload: Workload) -> Count:
        from torch.utils._debug_mode import DebugMode

        with DebugMode(**options) as mode:
            workload.run()
        return lambda: len(mode.logs)

    return run


def code_tracing(workload: Workload) -> Count:
    """torch-code-tracing, not printing."""
    from torch_code_tracing import TracingMode

    with TracingMode(quiet=True) as mode:
        workload.run()
    return lambda: len(mode.traces)


def torchinfo(workload: Workload) -> Count:
    """The table of modules that torchinfo makes, not printed."""
    import torchinfo

    found = [
        torchinfo.summary(workload.model, input_data=dict(workload.inputs), verbose=0, depth=20)
        for _ in range(workload.repeat)
    ]
    return lambda: sum(len(each.summary_list) for each in found)


def torchlens(workload: Workload) -> Count:
    """TorchLens, told to take its wrappers off again: left on, they would slow the others down."""
    import torchlens
    from torchlens.options import CaptureOptions

    options = CaptureOptions(unwrap_when_done=True)
    with torch.no_grad():
        found = [
            torchlens.trace(workload.model, list(workload.inputs.values()), capture=options)
            for _ in range(workload.repeat)
        ]
    return lambda: sum(len(each) for each in found)


def pysnooper(workload: Workload) -> Count:
    """PySnooper on the forward of the model and, four frames down, of its children."""
    import pysnooper

    lines = Lines()
    owner = type(workload.model)
    forward = owner.forward
    owner.forward = pysnooper.snoop(lines.write, depth=4, color=False)(forward)
    try:
        workload.run()
    finally:
        owner.forward = forward
    return lambda: lines.count


PLAIN, CONTROL, FLOOR = "plain", "plain again", "no-op function mode"
FLOORS = "no-op function mode, op mode and module wrapper"
RECORDING = "torchglass"

SUBJECTS = [
    Subject(PLAIN, plain),
    Subject(CONTROL, plain),
    Subject(FLOOR, floor),
    Subject(FLOORS, three_floors),
    Subject(RECORDING, torchglass(), "torchglass"),
    Subject("torchglass, modules only", torchglass(functions=False), "torchglass"),
    Subject("torchglass, into a bundle", streaming(), "torchglass"),
    Subject("torchglass, all variables too", torchglass(variables=True), "torchglass"),
    Subject(
        "torchglass, all variables alone", torchglass(variables=True, functions=False, modules=False), "torchglass"
    ),
    Subject(
        "torchglass, one variable alone",
        torchglass(variables=["hidden_states"], functions=False, modules=False),
        "torchglass",
    ),
    Subject("torchglass, ops too", torchglass_ops, "torchglass", floor=FLOORS),
    Subject("torchglass TracingMode, quiet", tracing_mode, "torchglass.compat.torch_code_tracing", floor=FLOORS),
    Subject("torchglass Tracer, live", tracer, "torchglass.compat.tracy_nn"),
    Subject("DebugMode", debug_mode(), "torch.utils._debug_mode"),
    Subject(
        "DebugMode, modules and stacks",
        debug_mode(record_nn_module=True, record_stack_trace=True),
        "torch.utils._debug_mode",
        slow=True,
    ),
    Subject("torchinfo", torchinfo, "torchinfo", forward_only=True),
    Subject("torch-code-tracing", code_tracing, "torch_code_tracing", slow=True),
    Subject("tracy_nn", tracy, "tracy_nn", slow=True),
    Subject("TorchLens", torchlens, "torchlens", slow=True, forward_only=True),
    Subject("PySnooper", pysnooper, "pysnooper", slow=True),
]
