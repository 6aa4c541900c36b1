"""What the process knows from earlier blocks is used again, and only while it holds."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchglass as tg
from tests.modules import module_of
from torchglass.capture.engine import fast
from torchglass.journal import layout, shared
from torchglass.journal.writer import EXPECTED

compiled = pytest.mark.skipif(not fast.is_used(), reason="the compiled engine's own")
TP_GETATTR = 64
"""Where a type has the function that is asked by letters."""


def names(trace: tg.Trace, kind: str = "function") -> list[str]:
    return [each.name for each in trace.events(kind=kind)]


# ---------------------------------------------------------------- functions


def test_a_function_with_another_code_is_looked_into_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = torch.randn(3)
    for _ in range(2):
        with tg.record() as trace:
            F.softmax(x, dim=0)
        assert names(trace) == ["F.softmax", "Tensor.softmax"]
    other = module_of(
        tmp_path,
        "def softmax(input, dim=None, _stacklevel=3, dtype=None):\n"
        "    if has_torch_function_unary(input):\n"
        "        return handle_torch_function(softmax, (input,), input, dim=dim)\n"
        "    return input.exp()\n",
    )
    monkeypatch.setattr(F.softmax, "__code__", other.softmax.__code__)
    with tg.record() as trace:
        F.softmax(x, dim=0)
    assert names(trace) == ["F.softmax", "Tensor.exp"]


def test_a_function_has_another_row_where_ops_are_recorded() -> None:
    matrix = torch.randn(3, 3)
    notes = []
    for ops in (False, True, False, True):
        with tg.record(ops=ops) as trace:
            torch.linalg.svdvals(matrix)
        notes.append([each.note for each in trace.events(kind="function")])
    assert notes[0] == notes[2] != notes[1] == notes[3]


def test_a_method_that_the_program_replaces_between_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    x, told, relu = torch.randn(3), [], torch.Tensor.relu

    @functools.wraps(relu)
    def replacement(self: torch.Tensor) -> torch.Tensor:
        told.append(1)
        return relu(self)

    with tg.record() as trace:
        x.relu()
        monkeypatch.setattr(torch.Tensor, "relu", replacement, raising=False)
        x.relu()
        monkeypatch.undo()
        x.relu()
    assert told == [1]
    assert names(trace) == ["Tensor.relu"] * 3


def test_a_replaced_method_that_is_no_event_runs_once_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, told, size = torch.randn(3), [], torch.Tensor.size

    def replacement(self: torch.Tensor, *args: int) -> Any:
        told.append(1)
        return size(self, *args)

    monkeypatch.setattr(torch.Tensor, "size", replacement, raising=False)
    with tg.record():
        assert x.size(0) == 3
    assert told == [1]


def test_a_function_of_the_programs_own_that_torch_is_told_of_runs_as_it_is() -> None:
    def doubled(x: Any) -> Any:
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(doubled, (x,), x)
        return x * 2

    with tg.record() as trace:
        result = doubled(torch.ones(2))
    assert result.tolist() == [2, 2]
    assert names(trace)[-1].endswith("doubled"), "one event: its checks are its own affair"


# ---------------------------------------------------------------- torch's look-ups


def asked_by_letters() -> list[int]:
    types = (type(torch.Tensor), type(torch._C._VariableFunctions))
    return [ctypes.c_void_p.from_address(id(each) + TP_GETATTR).value or 0 for each in types]


@compiled
def test_torchs_types_answer_by_letters_in_a_block_only() -> None:
    assert asked_by_letters() == [0, 0]
    with tg.record():
        assert all(asked_by_letters())
        with pytest.raises(AttributeError):
            torch.Tensor.no_such_method  # type: ignore[attr-defined]
    assert asked_by_letters() == [0, 0]


@compiled
def test_an_answer_by_letters_is_that_of_the_class_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked as C++ code asks: pybind and torch's own way to a mode."""
    ask = ctypes.pythonapi.PyObject_GetAttrString
    ask.restype, ask.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_char_p]
    with tg.record():
        for _ in range(2):
            assert ask(torch.Tensor, b"relu") is torch.Tensor.relu
            assert ask(torch.Tensor, b"shape") is torch.Tensor.shape
            assert ask(torch.Tensor, b"__name__") == "Tensor"
            assert ask(torch._C._VariableFunctions, b"cat") is torch._C._VariableFunctions.cat
            assert ask(nn.Parameter, b"relu") is nn.Parameter.relu
        monkeypatch.setattr(torch.Tensor, "relu", len, raising=False)
        assert ask(torch.Tensor, b"relu") is len
        monkeypatch.undo()
        assert ask(torch.Tensor, b"relu") is torch.Tensor.relu
        with pytest.raises(AttributeError, match="no attribute 'relu_twice'"):
            ask(torch.Tensor, b"relu_twice")
        long = "a_name_that_is_longer_than_all_of_those_that_torch_itself_has"
        monkeypatch.setattr(torch.Tensor, long, 7, raising=False)
        assert ask(torch.Tensor, long.encode()) == 7


@compiled
def test_a_handler_of_a_mode_that_is_gone_refuses() -> None:
    ask = ctypes.pythonapi.PyObject_GetAttrString
    ask.restype, ask.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_char_p]
    with tg.record():
        mode = torch.overrides._get_current_function_mode()
        handler = ask(mode, b"__torch_function__")
        assert handler.__self__ is mode
        assert handler is ask(mode, b"__torch_function__")
        assert handler(torch.neg, (), (torch.ones(1),)).item() == -1
        with pytest.raises(TypeError, match="no names"):
            handler(torch.neg, types=())
    del mode
    with pytest.raises(TypeError, match="a mode that is there"):
        handler(torch.neg, ())
    with pytest.raises(AttributeError):
        handler.__self__


# ---------------------------------------------------------------- code, classes, room


def test_a_file_that_was_edited_between_two_blocks_is_shown_as_it_ran(tmp_path: Path) -> None:
    text = "def act(x):\n    return x.relu()\n"
    first = module_of(tmp_path, text, "acting")
    x = torch.randn(2)
    for _ in range(2):
        with tg.record() as trace:
            first.act(x)
        assert [each.source for each in trace.events(kind="function")] == ["return x.relu()"]
    second = module_of(tmp_path, text.replace("relu", "tanh").replace("def", "\ndef"), "acting")
    with tg.record() as trace:
        second.act(x)
    assert [(each.source, each.line) for each in trace.events(kind="function")] == [("return x.tanh()", 3)]


def test_classes_of_one_name_are_told_apart() -> None:
    def make(size: int) -> nn.Module:
        class Layer(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * size

        return Layer()

    layers = [make(size) for size in range(3)]
    for _ in range(2):
        with tg.record() as trace:
            for layer in layers:
                layer(torch.ones(1))
        assert names(trace, "module") == ["Layer"] * 3
        assert len({each.root for each in trace.events(kind="module")}) == 3


def test_variables_are_named_in_each_block() -> None:
    def act(x: torch.Tensor) -> torch.Tensor:
        halved = x / 2
        return halved + 1

    for _ in range(3):
        with tg.record(variables=True) as trace:
            act(torch.ones(1))
        assert {"x", "halved"} <= set(names(trace, "variable"))


def test_a_journal_begins_with_the_room_that_the_one_before_needed() -> None:
    def chunks(count: int) -> int:
        with tg.record() as trace:
            session = fast_session()
            x = torch.ones(1)
            for _ in range(count):
                x = x + 1
            found = len(session.journal.streams.of(layout.RECORDS, 0))
        assert len(trace) == count + 1
        return found

    def fast_session() -> Any:
        from torchglass.capture.engine.log import LOGS

        return next(iter(LOGS.values())).session

    EXPECTED.clear()
    assert chunks(2000) > 1
    assert chunks(2000) == 1, "the second needs no second chunk"
    chunks(10)
    assert EXPECTED[layout.RECORDS] < shared.LARGEST_FIRST, "a short one is followed by a short one"
