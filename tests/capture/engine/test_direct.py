"""Tensors are read where they are: what stands there is what torch's getters say, or they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.capture.engine.journals import journal_of, kinds_of_tensors
from torchglass import compiled
from torchglass.capture.engine import fast
from torchglass.capture.engine.fast import direct
from torchglass.capture.torch import private

pytestmark = pytest.mark.skipif(not fast.is_used(), reason=f"no compiled engine: {compiled.why_not}")


@pytest.fixture(autouse=True)
def read_as_before() -> Iterator[None]:
    yield
    direct.read_directly()


SAMPLES: dict[str, Callable[[], Any]] = {
    "a number": lambda: torch.tensor(2.0),
    "empty": lambda: torch.empty(0, 3),
    "a view": lambda: torch.zeros(4, 6)[1:, ::2],
    "five dimensions, channels last": lambda: torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
    "expanded": lambda: torch.zeros(3, 1).expand(3, 5),
    "written into": lambda: torch.zeros(3).add_(1).mul_(2),
    "made larger": lambda: torch.zeros(3).resize_(4, 5),
    "complex": lambda: torch.zeros(2, dtype=torch.complex64).conj(),
    "on the meta device": lambda: torch.empty(3, 4, device="meta"),
    "a parameter": lambda: nn.Parameter(torch.zeros(2, 2)),
    "a frozen parameter": lambda: nn.Parameter(torch.zeros(2, 2), requires_grad=False),
    "a result that takes gradients": lambda: nn.Parameter(torch.zeros(2, 2)) * 2,
    "with the data of another": lambda: _with_data(torch.zeros(2, 3), torch.zeros(7)),
}


def _with_data(tensor: Any, other: Any) -> Any:
    tensor.data = other
    return tensor


@pytest.mark.parametrize("name", SAMPLES)
def test_what_stands_in_a_tensor_is_what_it_says(name: str) -> None:
    assert direct.read_directly()
    tensor = SAMPLES[name]()
    version, (_, _, _, grad, count, *sizes), address = fast.extension.read_tensor(tensor)
    assert (version, bool(grad), count) == (tensor._version, tensor.requires_grad, tensor.dim())
    assert sizes == [*tensor.shape, *tensor.stride()]
    assert address == private.storage_address(tensor)


def test_a_tensor_that_keeps_no_version_or_has_many_dimensions_is_not_read_so() -> None:
    assert direct.read_directly()
    with torch.inference_mode():
        inference = torch.zeros(2)
    assert fast.extension.read_tensor(inference) is None
    assert fast.extension.read_tensor(torch.zeros((1,) * 6)) is None


@pytest.mark.parametrize("options", [{}, {"ops": True}], ids=["functions", "ops"])
def test_by_the_getters_the_journal_is_the_same(options: dict[str, Any]) -> None:
    found: list[dict[str, Any]] = []
    for begin in (direct.read_directly, lambda: fast.extension.read_directly(None)):
        begin()
        found.append(journal_of(kinds_of_tensors, **options))
        for record in found[-1]["threads"][0]:
            del record[5:7]  # autograd numbers its nodes on from run to run
    assert fast.extension.read_state() is None
    read, asked = found
    assert len(read["values"]) > 30
    assert read == asked


def test_a_torch_that_keeps_its_words_elsewhere_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with private.no_functions(), torch.no_grad():
        tensor, storage, autograd, counter, sizes, count = direct._offsets()
    monkeypatch.setattr(direct, "_offsets", lambda: (tensor, storage + 8, autograd, counter, sizes, count))
    assert not direct.read_directly()
    assert fast.extension.read_state() is None
    with tg.record() as trace:
        torch.zeros(2, 3) + 1
    assert "[2, 3]" in tg.render(trace)


def test_a_library_without_the_names_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "SYMBOLS", (("torch_cpu", "no_such_name"),))
    assert not direct.read_directly()
    assert fast.extension.read_state() is None


class _Names(torch.overrides.TorchFunctionMode):
    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._told.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("modes", [1, 2])
def test_a_mode_of_the_program_is_told_what_it_would_be_told(modes: int) -> None:
    """With modules alone, ours is none of the modes: whatever we read would be told to theirs."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def told(**options: Any) -> list[str]:
        names: list[str] = []
        with _Names(names), _Names(names if modes == 2 else []):
            if options:
                with tg.record(**options):
                    net(torch.ones(1, 2).add_(1))
            else:
                net(torch.ones(1, 2).add_(1))
        return names

    assert told(functions=False) == told() != []
