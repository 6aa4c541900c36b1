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
from torchglass.journal import layout
from torchglass.journal.chunks import MAX_FIRST_CHUNK_BYTES
from torchglass.journal.writer import EXPECTED_BYTES


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


def test_a_registered_function_of_the_program_runs_as_it_is() -> None:
    def doubled(x: Any) -> Any:
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(doubled, (x,), x)
        return x * 2

    with tg.record() as trace:
        result = doubled(torch.ones(2))
    assert result.tolist() == [2, 2]
    assert names(trace)[-1].endswith("doubled"), "one event: its checks are its own affair"


# ---------------------------------------------------------------- torch's types


def test_torchs_types_are_left_as_they_are() -> None:
    """No slot of theirs is ours in a block, such as the one that is asked for attributes by letters."""
    types = (type(torch.Tensor), type(torch._C._VariableFunctions))
    before = [[ctypes.c_void_p.from_address(id(each) + at).value for at in range(48, 168, 8)] for each in types]
    with tg.record():
        torch.ones(2).relu()
        during = [[ctypes.c_void_p.from_address(id(each) + at).value for at in range(48, 168, 8)] for each in types]
    assert during == before


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


def test_classes_of_one_name_are_distinguished() -> None:
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

    EXPECTED_BYTES.clear()
    assert chunks(2000) > 1
    assert chunks(2000) == 1, "the second needs no second chunk"
    chunks(10)
    assert EXPECTED_BYTES[layout.RECORDS] < MAX_FIRST_CHUNK_BYTES, "a short one is followed by a short one"
