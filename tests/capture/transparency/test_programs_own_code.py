"""What the program has put in place of a library's functions is not called, nor are its exceptions asked for texts."""

import inspect
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

MOCKED = """
import sys, unittest.mock
import torch
import torchglass as tg

with unittest.mock.patch(sys.argv[1]):
    with tg.record() as trace:
        torch.ones(2) + 1
print(len(trace), *trace.notes)
with tg.record() as trace:
    torch.ones(2) + 1
print(len(trace), *trace.notes)
"""


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize(
    "name", ["time.time", "time.perf_counter_ns", "os.getpid", "threading.get_ident", "threading.current_thread"]
)
def test_the_first_block_of_a_process_may_stand_below_a_mock(name: str, engine: str) -> None:
    environment = {**os.environ, "TORCHGLASS_ENGINE": engine}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", MOCKED, name]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (run.stdout, run.stderr) == ("2\n2\n", "")


def test_warnings_warn_says_of_itself_what_it_says_outside() -> None:
    def said() -> list[Any]:
        try:
            signature = str(inspect.signature(warnings.warn))
        except ValueError as refusal:  # Python 3.13 cannot say it
            signature = type(refusal).__name__
        return [signature, warnings.warn.__doc__, warnings.warn.__name__, type(warnings.warn)]

    plain = said()
    with tg.record():
        recorded = said()
        copied = pickle.dumps(warnings.warn)
    assert recorded == plain
    assert pickle.loads(copied) is warnings.warn


asked: list[str] = []


class Own(Exception):
    def __str__(self) -> str:
        asked.append("str")
        return "its own text"

    def __repr__(self) -> str:
        asked.append("repr")
        return "its own text"


class Thing:
    def __repr__(self) -> str:
        asked.append("repr of an argument")
        return "thing"


class Raising(torch.nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise self.error


ERRORS: list[tuple[BaseException, str]] = [
    (Own("plain", 3), "Own: ('plain', 3)"),
    (Own(), "Own"),
    (KeyError(Thing()), "KeyError: <Thing>"),
    (ValueError("bad", Thing(), [1, "b"]), "ValueError: ('bad', <Thing>, [1, 'b'])"),
    (ValueError(torch.ones(3)), "ValueError: <Tensor>"),
    (KeyError("name"), "KeyError: 'name'"),
    (FileNotFoundError(2, "No such file", "x.pt"), "FileNotFoundError: [Errno 2] No such file: 'x.pt'"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_no_code_of_an_exception_runs_and_no_step_comes_of_it(error: BaseException, text: str) -> None:
    asked.clear()
    module = Raising(error)
    with pytest.raises(type(error)) as left, tg.record(ops=True):
        module(torch.ones(2))
    trace: Any = tg.last_trace()
    assert left.value is error
    assert asked == []
    assert trace.left_by == (text,)
    assert [(event.name, event.error) for event in trace.events()] == [
        ("ones", None),
        ("aten::ones", None),
        ("Raising", text),
    ]


def scripted() -> Callable[..., Any]:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x + 1
        return z @ y

    script: Any = torch.jit.script
    return script(product)


def test_an_error_in_a_scripted_function_keeps_its_text_while_ops_are_recorded() -> None:
    function = scripted()

    def failed() -> tuple[type, str]:
        with pytest.raises(RuntimeError) as caught:
            function(torch.ones(2, 3), torch.ones(2, 3))
        return type(caught.value), str(caught.value)

    plain = failed()
    with tg.record(ops=True) as trace:
        recorded = failed()
    assert "cannot be multiplied" in plain[1]
    assert recorded == plain
    assert any("cannot be multiplied" in (event.error or "") for event in trace.events(kind="unseen"))
