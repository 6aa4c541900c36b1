"""Warnings of recorded functions are the program's own: the same place, the same filters, as often."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.capture.engine import fast

X = torch.ones(2, 2)
Seen = list[tuple[str, str, str, int]]
RECORDINGS = {
    "functions": lambda: tg.record(),
    "ops": lambda: tg.record(ops=True),
    "variables": lambda: tg.record(variables=["x"]),
}


class Warns(nn.Module):
    """A module that calls functions that warn."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(torch.tensor(x))


def work() -> None:
    """Some from C++, some from Python with a level of the stack, each place twice."""
    for _ in range(2):
        torch.tensor(X)
        F.softmax(X)
        Warns()(X)
        warnings.warn("the program's own", DeprecationWarning, stacklevel=2)


def always() -> None:
    """The program sets a filter while it is recorded."""
    warnings.simplefilter("always")
    work()


def by_module() -> None:
    """So does this one: its own warnings are not to be shown."""
    warnings.filterwarnings("ignore", module=__name__)
    work()


def reset() -> None:
    """This one forgets all filters."""
    warnings.resetwarnings()
    work()


def seen(program: Callable[[], None], around: Callable[[], Any]) -> Seen:
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("default")
        with around():
            program()
    return [(str(each.message), each.category.__name__, each.filename, each.lineno) for each in got]


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize("program", [work, always, by_module, reset], ids=lambda each: each.__name__)
def test_the_same_warnings_from_the_same_lines(program: Callable[[], None], recording: str) -> None:
    plain = seen(program, contextlib.nullcontext)
    assert len(plain) >= (0 if program is by_module else 4)
    assert seen(program, RECORDINGS[recording]) == plain


def test_a_warning_that_is_an_error_is_raised_by_the_call() -> None:
    with warnings.catch_warnings(), tg.record() as trace:
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="copy construct") as caught:
            torch.tensor(X)
    assert caught.traceback[0].path.name == "test_warnings.py"
    (event,) = trace.events()
    assert "UserWarning" in (event.error or "")


@pytest.fixture
def unchanged() -> Iterator[None]:
    before = (warnings.filters, list(warnings.filters), vars(warnings)["_filters_mutated"])
    yield
    assert before == (warnings.filters, list(warnings.filters), vars(warnings)["_filters_mutated"])
    assert before[0] is warnings.filters


def test_the_filters_are_put_back(unchanged: None) -> None:
    with tg.record():
        torch.relu(X)


def test_a_program_that_keeps_a_copy_of_the_filters(unchanged: None) -> None:
    mine = warnings.catch_warnings()
    with tg.record():
        mine.__enter__()
        warnings.simplefilter("ignore")
    inside = list(warnings.filters)
    mine.__exit__(None, None, None)
    assert [each[0] for each in inside][:1] == ["ignore"]
    assert all("torchglass" not in repr(each) for each in inside)


def in_backward() -> Seen:
    """Torch counts frames from its hook up to the program's line, through the functions that begin backward."""
    model = nn.Linear(2, 2)
    model.register_full_backward_hook(lambda *_: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(X).sum().backward()
        torch.autograd.backward(model(X).sum())
    return [(str(each.message), each.category.__name__, each.filename, each.lineno) for each in caught]


@pytest.mark.skipif(not fast.make_ready(), reason="the engine in Python does not count frames for warnings.warn")
@pytest.mark.parametrize("options", [{}, {"ops": True}, {"functions": False}, {"values": "stats"}], ids=str)
def test_a_warning_raised_in_backward_stays_at_the_line_of_the_program(options: dict[str, Any]) -> None:
    seen: list[Seen] = []
    for around in (contextlib.nullcontext(), tg.record(**options)):
        with around:
            seen.append(in_backward())
    plain, recorded = seen
    assert [each[2] for each in plain] == [__file__, __file__]
    assert recorded == plain
