"""Breaks one thing after the other that recording puts up, each in a child process of its own, and looks what happens.

Run by test_features.py: ``python break_features.py WHAT NAME …``; prints a line for each case that went wrong.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
import torch._dynamo  # an optimizer's first step imports it: once here and not in each child
import torch._functorch.pyfunctorch
import torch._library.custom_ops
import torch.jit._trace
import torch.utils._python_dispatch
import torch.utils.dlpack
from torch import nn

from tests.capture.transparency import snapshot

Case = tuple[str, str, Callable[[], None]]
"""What is broken, the name that the trace must give, and what breaks it."""


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return 2 * grad * ctx.saved_tensors[0]


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def train() -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.rand(3, 4)
    loss = model(x).pow(2).mean() + torch.prod(x) + Square.apply(x).sum()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return [loss, *model.parameters()]


def attend() -> list[Any]:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad():
        return [layer(torch.rand(2, 3, 8))]


def convert() -> list[Any]:
    array = numpy.arange(4.0)
    made = [torch.from_numpy(array), torch.frombuffer(bytearray(8), dtype=torch.int64), torch.from_dlpack(array)]
    return [*made, torch.utils.dlpack.from_dlpack(torch.ones(2))]


def swap() -> list[Any]:
    one, other = torch.zeros(2), torch.ones(3)
    torch.utils.swap_tensors(one, other)
    return [one, other, torch.empty(0).set_(torch.ones(2))]


def script() -> list[Any]:
    return [scripted(torch.ones(2))]


def trace_by_torch() -> list[Any]:
    return [torch.jit.trace(lambda x: x.sum() + x.shape[0], torch.ones(3))(torch.ones(3))]


def start_thread() -> list[Any]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(torch.arange(5).sum()))
    thread.start()
    thread.join()
    return found


def warn() -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("the program's own", stacklevel=1)
        torch.nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1))
    return [str(each.message) for each in caught]


def warn_from_where() -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1))
    return [(each.filename, each.lineno) for each in caught]


def build() -> list[Any]:
    @torch.compile(backend="eager")
    def compiled(x: Any) -> Any:
        return x.sin() + 1

    return [compiled(torch.ones(2))]


def program(parts: list[Callable[[], list[Any]]]) -> list[Any]:
    """What each part gave: numbers bit for bit, or its exception."""
    results: list[Any] = []
    for part in parts:
        try:
            results.append([each.tolist() if isinstance(each, torch.Tensor) else each for each in part()])
        except Exception as error:
            results.append((type(error).__name__, str(error)))
    return results


PARTS = [train, attend, convert, swap, script, trace_by_torch, start_thread, warn, warn_from_where]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"ops": True, "variables": True, "calls": "user"},
    {"ops": True, "values": "stats"},
]
TORCHS_OWN = ("torch._C._get_tracing_state",)
"""Without these ``len(tensor)`` fails in torch itself, also where we ask for it: that costs an event."""
PLACES = ("warnings.warn", "a filter of warnings")
"""Without these a warning of torch's may be told at another line: that is what their notes say."""


def check(case: Case) -> None:
    """One thing is broken: the program does what it does without us, and the trace says what is missing."""
    _, name, break_it = case
    chosen = [build] if "dynamo" in name else PARTS
    if name in PLACES:
        chosen = [part for part in chosen if part is not warn_from_where]
    break_it()
    import torchglass as tg

    before = snapshot.take()
    notes: list[str] = []
    for options in OPTIONS:
        # torch.jit.trace refuses values that are measured while it runs.
        parts = [part for part in chosen if part is not trace_by_torch or "values" not in options]
        expected = program(parts)
        with warnings.catch_warnings(), tg.record(**options) as trace:
            warnings.simplefilter("ignore")
            found = program(parts)
        for part, one, other in zip(parts, found, expected, strict=True):
            assert one == other, f"{part.__name__} with {options} gave {one} and not {other}"
        assert not threading.gettrace()
        assert not threading.getprofile()
        failed = any("failed to record" in note for note in trace.notes)
        assert not failed or name in TORCHS_OWN, trace.notes
        notes += trace.notes
        assert len(trace) or name in UNRECORDED, f"no events with {options}: {trace.notes}"
    tg.render(trace)
    stayed = snapshot.changed(before)  # a look at all of torch: once
    assert stayed == [], f"{stayed} stayed"
    assert any(name in note for note in notes), f"not said: {notes}"


# ---------------------------------------------------------------- what can be broken


def _owner_of(name: str) -> tuple[Any, str]:
    path, _, last = name.rpartition(".")
    return importlib.import_module("pkgutil").resolve_name(path), last


OF_MODES = ("torch.overrides._pop_mode_temporarily",)
"""Torch itself looks these up in their module, but only while some mode is on: a torch without them does not."""


def _without(name: str) -> None:
    owner, last = _owner_of(name)
    if name in OF_MODES:
        setattr(builtins, last, getattr(owner, last))
    delattr(owner, last)


def _of_another_kind(name: str) -> None:
    owner, last = _owner_of(name)
    setattr(owner, last, object())


def names(given: list[str]) -> Iterator[Case]:
    """Names of torch that are missing, or are something else, when torchglass is imported."""
    for name in given:
        yield f"without {name}", name, lambda name=name: _without(name)
        if name not in OF_MODES:
            yield f"{name} is of another kind", name, lambda name=name: _of_another_kind(name)


def features(given: list[str]) -> Iterator[Case]:
    """What is put up for all recordings: its maker raises; it raises half way when it is put up."""
    import torchglass
    from torchglass.capture import recorder
    from torchglass.capture.torch import conversions

    len(torchglass.trace(torch.ones, 2))
    found = [each for every in (recorder.PATCHES, recorder.DOOR, conversions.SET_PATCHES) for each in every._build()]
    if given == ["--list"]:
        print(*(each.name for each in found), sep="\n")
        return
    for feature in found:
        yield f"{feature.name} cannot be made", feature.name, lambda feature=feature: _no_maker(feature)
        if given != ["makers"]:
            yield f"{feature.name} fails half way", feature.name, lambda feature=feature: _half_way(feature)


def _fail(*_: Any, **__: Any) -> Any:
    raise OSError("broken on purpose")


def _no_maker(feature: Any) -> None:
    feature.made = None
    feature.make = _fail


def _half_way(feature: Any) -> None:
    made = feature.made or feature.make()
    install = made.install

    def fails() -> None:
        install()
        _fail()

    feature.made = made
    made.install = fails


UNRECORDED = ("torch.utils.swap_tensors", "could not start")
"""Without these nothing is recorded at all."""
PROBES = {
    "torchglass.capture.torch.listeners.make_mode": "a function mode",
    "torchglass.capture.torch.listeners.make_op_mode": "a dispatch mode",
    "torchglass.capture.torch.listeners.Measurer": "the measurer",
    "torchglass.capture.statistics.measurer.Measurer.choose": "the measurer",
    "torchglass.capture.recorder.VariablesProbe": "the following of variables",
    "torchglass.capture.variables.Engine.start": "the following of variables",
    "torchglass.capture.variables.events.Engine": "the following of variables",
    "torchglass.capture.recorder.FunctionCalls": "the probe of calls",
    "torchglass.capture.calls.CallsProbe": "the probe of calls",
    "torchglass.capture.calls._teller": "the probe of calls",
    "torchglass.capture.torch.listeners.modules.answers": "Python engine",
    "torchglass.capture.engine.fast.extension.Engine": "Python engine",
    "torchglass.capture.recorder.Session": "could not start",
    "torchglass.capture.session.Session.add_log": "could not start",
    "torchglass.capture.recorder.PATCHES.acquire": "could not start",
}
"""What is made for one recording, and by what name the trace calls it."""


def probes(given: list[str]) -> Iterator[Case]:
    import torchglass

    len(torchglass.trace(torch.ones, 2))
    for path, name in PROBES.items():
        owner, last = _owner_of(path)
        yield f"{path} fails", name, lambda owner=owner, last=last: setattr(owner, last, _fail)


def main() -> None:
    what, *given = sys.argv[1:]
    program([*PARTS, build] if what == "features" else PARTS)  # torch does some things on first use only
    for case in {"names": names, "features": features, "probes": probes}[what](given):
        sys.stderr.write(f"{case[0]}\n")
        pid = os.fork()
        if pid == 0:
            status = 0
            try:
                check(case)
            except BaseException:
                traceback.print_exc()
                print(case[0], "→", "".join(traceback.format_exception_only(sys.exception())), flush=True)
                status = 1
            os._exit(status)
        _, status = os.waitpid(pid, 0)
        if status and status != 256:
            print(f"{case[0]} → ended by {status}", flush=True)


if __name__ == "__main__":
    main()
