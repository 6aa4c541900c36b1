"""Following variables beside the other probes: our trace function rests while our own handlers work, and only then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import compiled
from torchglass.capture.variables import engine as engine_module

X = torch.ones(2, 2)
needs_settrace = pytest.mark.skipif(sys.version_info >= (3, 12), reason="followed by sys.monitoring there")


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return y + 1


def refused() -> None:
    with pytest.raises(RuntimeError):
        torch.add(torch.ones(2), torch.ones(3))


def in_a_module() -> None:
    Model()(X)


def in_a_function() -> None:
    torch.relu(X)


@needs_settrace
@pytest.mark.parametrize("ops", [False, True])
@pytest.mark.parametrize("act", [in_a_function, in_a_module, refused], ids=lambda each: each.__name__)
def test_the_trace_function_is_there_again_after_a_call(act: Callable[[], None], ops: bool) -> None:
    with tg.record(variables=True, ops=ops) as trace:
        first = sys.gettrace()
        act()
        second = sys.gettrace()
        last = 3
    assert first is not None
    assert first is second
    assert sys.gettrace() is not first
    assert {"second", "last"} <= {each.name for each in trace.events()}
    assert last == 3


@needs_settrace
def test_it_does_not_see_what_our_handlers_call(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[str] = []
    plan_for = engine_module.Engine.plan_for

    def noting(self: Any, frame: Any) -> Any:
        met.append(frame.f_code.co_filename.replace("\\", "/"))
        return plan_for(self, frame)

    monkeypatch.setattr(engine_module.Engine, "plan_for", noting)
    monkeypatch.setattr(engine_module, "REFUSED", {})  # what an earlier block has met it need not be asked of
    with tg.record(variables=True, ops=True):
        Model()(X)
        torch.cat([X, X])
    ours = {each.rpartition("/")[2] for each in met if "/torchglass/capture/" in each}
    assert ("edges.py" in ours) is (compiled.engine() == compiled.PYTHON)  # where it is paused, if not in C
    assert not ours & {"value_table.py", "arguments.py", "stack.py", "milestones.py"}


@needs_settrace
def test_a_trace_function_of_the_program_is_not_paused() -> None:
    seen: list[str] = []

    def theirs(frame: Any, event: str, argument: Any) -> None:
        if "/torchglass/capture/" in frame.f_code.co_filename.replace("\\", "/"):
            seen.append(frame.f_code.co_name)

    before = sys.gettrace()
    sys.settrace(theirs)
    try:
        with tg.record(variables=["y"]):
            Model()(X)
    finally:
        sys.settrace(before)
    assert "number" in seen, "what writes down code that is new"


class Dots:
    def __getattr__(self, key: str) -> int:
        length = len(key)
        return length + 0

    def __setattr__(self, key: str, value: int) -> None:
        kept = value
        vars(self)[key] = kept


@pytest.mark.parametrize("watched", [True, ["key", "length", "kept"]], ids=["all", "named"])
def test_methods_that_python_calls_for_a_dot_are_followed_when_a_name_is_given(watched: Any) -> None:
    with tg.record(variables=watched) as trace:
        dots: Any = Dots()
        dots.first = 1
        read = dots.second
    found = {each.name for each in trace.events() if each.kind == "variable"}
    assert read == 6
    assert ({"key", "length", "kept"} <= found) is (watched is not True)
    assert ("read" in found) is (watched is True)
