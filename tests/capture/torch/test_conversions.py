"""What goes from torch to numpy and back is linked, and shared memory is marked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import torchglass as tg
from torchglass.capture.torch import conversions

ARRAY = np.arange(12.0).reshape(3, 4)
SHARING: dict[str, Callable[[Any], Any]] = {
    "from_numpy": torch.from_numpy,
    "as_tensor": torch.as_tensor,
    "asarray": torch.asarray,
    "from_dlpack": torch.from_dlpack,
}


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.parametrize("array", [ARRAY, ARRAY[1:], ARRAY[:, ::2]], ids=["whole", "rows", "strided"])
def test_a_tensor_over_an_array_shares_its_memory(name: str, array: Any) -> None:
    with tg.record() as trace:
        tensor = getattr(torch, name)(array)
        tensor.view_as(tensor)
    event = next(trace.events(function=f"*{name}"))
    (taken,), (given,) = event.inputs, event.outputs
    assert (taken.kind, given.kind) == ("array", "tensor")
    assert taken.shape == given.shape == array.shape
    assert taken.storage == given.storage is not None
    assert given.producer == event.id
    view = next(trace.events(function="Tensor.view_as")).outputs[0]
    assert view.storage == given.storage


@pytest.mark.parametrize("function", [torch.tensor, torch.ones(1).new_tensor], ids=["tensor", "new_tensor"])
def test_a_copy_shares_nothing(function: Callable[[Any], Any]) -> None:
    with tg.record() as trace:
        function(ARRAY)
    event = next(event for event in trace.events() if event.outputs)
    assert event.inputs[-1].kind == "array"
    assert event.inputs[-1].storage != event.outputs[0].storage


@pytest.mark.parametrize("convert", [lambda t: t.numpy(), np.asarray, lambda t: t.T.numpy()])
def test_an_array_over_a_tensor_shares_its_memory(convert: Callable[[Any], Any]) -> None:
    tensor = torch.rand(2, 3)
    with tg.record() as trace:
        tensor.add_(0)
        array = convert(tensor)
    assert np.shares_memory(array, tensor.numpy())
    first = next(trace.events(function="Tensor.add_")).outputs[0]
    last = next(reversed(list(trace.events(function="Tensor.numpy")))).outputs[0]
    assert last.kind == "array"
    assert last.storage == first.storage is not None


def test_there_and_back() -> None:
    with tg.record(variables=True) as trace:
        first = torch.from_numpy(ARRAY)
        second = first.numpy()
        third = torch.as_tensor(second)
    storages = {event.name: event.outputs[0].storage for event in trace.events(kind="variable")}
    assert len(set(storages.values())) == 1
    assert set(storages) == {"first", "second", "third"}
    assert third.data_ptr() == first.data_ptr()


def test_errors_are_raised_again_and_reported() -> None:
    with pytest.raises(TypeError), tg.record() as trace:
        torch.from_numpy([1])  # type: ignore[arg-type]
    event = next(trace.events(function="from_numpy"))
    assert event.error is not None
    assert event.error.startswith("TypeError")


def test_the_functions_are_put_back() -> None:
    before = [getattr(torch, name) for name in ("from_numpy", "frombuffer", "from_dlpack")]
    with tg.record():
        assert torch.from_numpy is not before[0]
        torch.frombuffer(bytearray(8), dtype=torch.float32)
    assert [getattr(torch, name) for name in ("from_numpy", "frombuffer", "from_dlpack")] == before


def test_a_fault_of_ours_costs_the_link_only(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mock(side_effect=ValueError("broken"))
    with tg.record() as trace:
        monkeypatch.setattr(type(trace._source._recorder.session.values), "lies_in", broken)  # type: ignore[attr-defined]
        tensor = torch.from_numpy(ARRAY)
    assert tensor.shape == (3, 4)
    assert any("broken" in note for note in trace.notes)
    assert {"as_tensor", "asarray"} == conversions.SHARING


@pytest.mark.parametrize("source", [np.zeros((3, 4)), np.arange(12.0).reshape(3, 4)], ids=["owner", "view"])
@pytest.mark.parametrize(
    "convert",
    [lambda a: torch.from_numpy(a[:, 1:]), lambda a: torch.as_tensor(a.T), lambda a: torch.from_dlpack(a[1:][:, 2:])],
    ids=["from_numpy", "as_tensor", "from_dlpack"],
)
def test_a_tensor_over_a_view_without_a_name_shares_memory(convert: Callable[[Any], Any], source: Any) -> None:
    def run() -> None:
        a = source
        t = convert(a)
        u = convert(a)
        other = torch.from_numpy(a.copy())
        del t, u, other

    with tg.record(variables=["a", "t", "u", "other"]) as trace:
        run()
    storages = {event.name: event.outputs[0].storage for event in trace.events(kind="variable") if event.outputs}
    assert storages["a"] == storages["t"] == storages["u"] is not None
    assert storages["other"] not in (None, storages["a"])


def test_views_of_an_array_that_no_event_has_met() -> None:
    """Numpy leaves out the views in between: each says only whose memory it is in the end."""
    source = np.arange(12.0).reshape(3, 4)
    with tg.record() as trace:
        kept = [torch.from_numpy(source[1:]), torch.from_numpy(source[:, 1:])]
    assert kept[0].untyped_storage().data_ptr() != kept[1].untyped_storage().data_ptr()
    first, second = (event.outputs[0].storage for event in trace.events(function="from_numpy"))
    assert first == second is not None


def test_dlpack_by_either_name() -> None:
    before = (torch.from_dlpack, torch.utils.dlpack.from_dlpack)
    with tg.record() as trace:
        torch.from_dlpack(ARRAY)
        torch.utils.dlpack.from_dlpack(ARRAY)
    assert (torch.from_dlpack, torch.utils.dlpack.from_dlpack) == before
    events = list(trace.events(kind="function"))
    assert [event.name for event in events] == ["from_dlpack"] * 2
    for event in events:
        assert event.inputs[0].role == "ext_tensor"
        assert event.inputs[0].storage == event.outputs[0].storage is not None
