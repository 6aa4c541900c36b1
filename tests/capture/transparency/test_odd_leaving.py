"""A recording that is left elsewhere, twice, or below a mode of the program's: an error says so, and nothing stays."""

import threading
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import torchglass as tg
from torchglass.capture.engine.log import LOGS


def state() -> tuple[int, int, str]:
    return len(LOGS), torch._C._len_torch_function_stack(), str(torch.overrides.has_torch_function.__module__)


CLEAN = (0, 0, "torch._C")


def caught(call: Any) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


def test_leaving_in_another_thread_ends_the_recording_and_says_so() -> None:
    recording = tg.record()
    trace = recording.__enter__()
    torch.ones(2)
    errors: list[BaseException | None] = []

    def leave() -> None:
        errors.append(caught(lambda: recording.__exit__(None, None, None)))

    thread = threading.Thread(target=leave, name="elsewhere")
    thread.start()
    thread.join()
    torch.ones(3)
    assert isinstance(errors[0], tg.UsageError)
    assert "MainThread" in str(errors[0])
    assert "elsewhere" in str(errors[0])
    assert (trace.running, trace.complete, len(trace)) == (False, True, 1)
    assert state()[::2] == CLEAN[::2]
    with tg.record() as again:
        torch.ones(2)
    assert len(again) == 1
    assert state() == CLEAN


def test_leaving_twice_says_so_and_sweeps() -> None:
    recording = tg.record()
    recording.__enter__()
    recording.__exit__(None, None, None)
    with pytest.raises(tg.UsageError, match="left before"):
        recording.__exit__(None, None, None)
    with pytest.raises(tg.UsageError, match="never entered"):
        tg.record().__exit__(None, None, None)
    assert state() == CLEAN


def test_what_stayed_in_the_thread_of_entry_goes_when_it_is_left_there_too() -> None:
    recording = tg.record(ops=True)
    recording.__enter__()
    thread = threading.Thread(target=lambda: caught(lambda: recording.__exit__(None, None, None)))
    thread.start()
    thread.join()
    with pytest.raises(tg.UsageError):
        recording.__exit__(None, None, None)
    assert (*state(), torch._C._len_torch_dispatch_stack()) == (*CLEAN, 0)


def test_an_exception_that_is_on_its_way_matters_more_than_where_the_block_is_left() -> None:
    recording = tg.record()
    recording.__enter__()
    errors: list[BaseException | None] = []

    def leave() -> None:
        error = KeyError("its own")
        errors.append(caught(lambda: recording.__exit__(KeyError, error, None)))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert errors == [None]
    with tg.record():
        pass
    assert state() == CLEAN


OPTIONS: list[dict[str, Any]] = [{}, {"ops": True}, {"values": "stats"}, {"values": "all", "variables": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_function_mode_that_outlives_the_block_sees_only_the_program(options: dict[str, Any]) -> None:
    seen: list[str] = []

    class Seeing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    mode = Seeing()
    with tg.record(**options):
        x = torch.ones(3)
        mode.__enter__()
        y = x * 2
    y = y + 1
    mode.__exit__(None, None, None)
    assert seen == ["mul", "add"]
    assert state() == CLEAN
