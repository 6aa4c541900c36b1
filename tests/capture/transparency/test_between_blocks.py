"""What is kept from block to block is used only where nothing has changed in between."""

from __future__ import annotations

import gc
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from tests.capture.transparency import snapshot
from torchglass.capture.torch import private
from torchglass.journal import rows
from torchglass.options import Options


@pytest.fixture(autouse=True)
def _before() -> Iterator[None]:
    """Each test begins behind a block, and leaves everything as it was."""
    _names_in_a_block()
    taken = snapshot.take()
    yield
    assert snapshot.changed(taken) == []


def _names_in_a_block() -> list[str]:
    with tg.record() as trace:
        nn.Linear(2, 2)(torch.from_numpy(numpy.ones((1, 2), dtype=numpy.float32)))
    return [event.name for event in trace.events()]


def _counting(original: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    calls: list[int] = []

    def own(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(*args, **kwargs)

    return own, calls


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch, "from_numpy"),
        (nn.Module, "__call__"),
        (F, "handle_torch_function"),
        (torch.autograd, "_engine_run_backward"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_what_the_program_put_there_since_is_called_and_stays(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _names_in_a_block()
    with monkeypatch.context() as patch:
        own, calls = _counting(vars(owner)[name])
        patch.setattr(owner, name, own)
        with tg.record() as trace:
            x = torch.from_numpy(numpy.ones((1, 2), dtype=numpy.float32))
            nn.Linear(2, 2)(x).sum().backward()
            F.relu(x)
        assert vars(owner)[name] is own
        assert calls
        names = [event.name for event in trace.events()]
        assert {"Linear", "F.linear", "Tensor.backward"} <= set(names)
    assert _names_in_a_block() == plain


def test_what_the_program_put_there_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        own, _ = _counting(torch.from_numpy)
        patch.setattr(torch, "from_numpy", own)
        _names_in_a_block()
    gone = weakref.ref(own)
    del own
    gc.collect()
    assert gone() is None


def test_a_name_that_is_missing_now_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _names_in_a_block()
    with monkeypatch.context() as patch:
        patch.delattr(torch, "frombuffer")
        assert _names_in_a_block() == plain
        assert not hasattr(torch, "frombuffer")
    assert _names_in_a_block() == plain


def test_another_code_of_module_calls_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._call_impl(*args, **kwargs)

    function: types.FunctionType = private.wrapped_call
    with monkeypatch.context() as patch:
        patch.setattr(function, "__code__", own.__code__)
        names = _names_in_a_block()
        assert function.__code__ is own.__code__
    assert names == _names_in_a_block()
    assert "Linear" in names


def test_a_filter_of_warnings_that_came_since() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with tg.record():
            warnings.warn("mine", stacklevel=1)
        assert list(warnings.filters) == before
    assert [str(each.message) for each in caught] == ["mine"]


def test_each_recording_writes_its_own_options() -> None:
    """Their text is made once for all that are equal."""
    for options in ({}, {"ops": True}, {"name": 'a "b"'}, {"max_events": 1}, {"values": tg.select(module="a")}):
        given = Options(**options)  # type: ignore[arg-type]
        row = rows.RecordingRow(given.name, 1, 2.5, 3, given.as_dict())
        assert rows.encoded_recording(given.name, 1, 2.5, 3, given.as_text()) == rows.encoded(row)


def test_another_with_statement_is_not_taken_for_the_last_one() -> None:
    def enter(block: Any) -> tuple[str, ...]:
        block.__enter__()
        torch.ones(1)
        block.__exit__(None, None, None)
        return _functions(tg.last_trace())

    def enter_twice() -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for _ in range(2):
            with tg.record() as trace:
                torch.ones(1)
            found.append(_functions(trace))
        return found

    def _functions(trace: Any) -> tuple[str, ...]:
        return tuple(place.function for place in next(iter(trace.events())).stack)

    plain, again = enter_twice()
    assert plain == again
    assert [name.rpartition(".")[2] for name in enter(tg.record())[-2:]] == [plain[-2].rpartition(".")[2], "enter"]
