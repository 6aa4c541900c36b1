"""Rooms for large copies: used again when nobody refers to them, and never before."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from torchglass.capture import rooms as module
from torchglass.capture.copies import copy_of
from torchglass.capture.rooms import SMALLEST, Rooms

LARGE = SMALLEST // 4 + 7
"""Numbers of four bytes, not a whole number of pages."""


def test_a_room_is_used_again_once_nobody_refers_to_it() -> None:
    rooms = Rooms()
    tensor = torch.frombuffer(rooms.take(10_000), dtype=torch.uint8)
    address = tensor.data_ptr()
    array = tensor.numpy()
    del tensor
    other = torch.frombuffer(rooms.take(10_000), dtype=torch.uint8)
    assert other.data_ptr() != address, "the array still lies in the first"
    del array
    again = torch.frombuffer(rooms.take(9_000), dtype=torch.uint8)
    assert again.data_ptr() == address
    assert address % 4096 == 0


def test_a_small_copy_gets_no_large_room() -> None:
    rooms = Rooms()
    del [rooms.take(1_000_000)][0]
    assert len(rooms.take(1000)) == 4096


def test_idle_rooms_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100_000)
    monkeypatch.setattr(module, "KEPT", 50_000)
    rooms = Rooms()
    taken = [rooms.take(20_480) for _ in range(4)]
    taken.pop()
    assert len(rooms.free) == 1
    taken.append(rooms.take(40_960))
    assert rooms.free == [], "there would be more than the most"
    taken.clear()
    assert rooms.free == [], "nothing is on its way, and much was free"
    del [rooms.take(4096)][0]
    assert len(rooms.free) == 1


def odd_tensors() -> list[torch.Tensor]:
    plain = torch.arange(LARGE, dtype=torch.float32)
    numbers = torch.complex(plain, -plain)
    return [
        plain,
        plain.to(torch.bfloat16).repeat(2),
        plain.reshape(1, -1).expand(3, -1),
        plain[: LARGE - 7].reshape(4, -1).t(),
        plain.view(torch.uint8) > 3,
        numbers.conj(),
        numbers.conj().imag,
        plain.double().requires_grad_(),
        torch.nn.Parameter(plain),
    ]


@pytest.mark.parametrize("number", range(9))
def test_the_bytes_are_those_of_a_plain_copy(number: int) -> None:
    tensor = odd_tensors()[number]
    rooms = Rooms()
    copy = copy_of(tensor, rooms)
    assert len(rooms.taken) == 1, "it is large enough for a room"
    assert (copy.shape, copy.dtype, copy.requires_grad) == (tensor.shape, tensor.dtype, False)
    assert copy.is_contiguous()
    assert torch.equal(copy, tensor.detach().resolve_conj().resolve_neg())


def test_what_has_no_plain_bytes_or_is_small_gets_no_room() -> None:
    rooms = Rooms()
    many = torch.ones(SMALLEST)
    copies: list[Any] = [
        copy_of(each, rooms) for each in (torch.ones(3), many.to_sparse(), torch.empty(SMALLEST, device="meta"))
    ]
    assert len(copies) == 3
    assert rooms.taken == {}


def test_large_marks_keep_what_was_there_then(tmp_path: Path) -> None:
    """With an open recording in memory beside it and without; each room holds several tensors in turn."""
    x = torch.zeros(LARGE)
    with tg.record(to=tmp_path / "run.trace") as trace:
        for _ in range(12):
            tg.mark("x", x)
            x += 1
        with tg.record() as inner:
            tg.mark("both", x)
            x += 1
    gc.collect()
    kept = [trace.tensor(event.inputs[0]) for event in trace.events(kind="mark")]
    assert [(each[0].item(), each[-1].item(), each.min() == each.max()) for each in kept] == [
        (float(n), float(n), True) for n in range(13)
    ]
    (mark,) = inner.events(kind="mark")
    assert inner.tensor(mark.inputs[0]).eq(12).all()
    loaded = tg.load(tmp_path / "run.trace")
    again = [loaded.tensor(event.inputs[0]) for event in loaded.events(kind="mark")]
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))
