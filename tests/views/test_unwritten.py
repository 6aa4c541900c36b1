"""Memory that nobody has written to yet: nothing is told of its numbers, in any view."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.events.types import Event

VIEWS = ["tree", "code", "listing", "table", "calls", "variables", "graph"]


@pytest.fixture(autouse=True)
def fresh_memory_holds_nan() -> Iterator[None]:
    """Torch fills it so when it is to be deterministic."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def recorded(ops: bool, **options: Any) -> tg.Trace:
    with tg.record(ops=ops, values="stats+sketch", variables=["*"], **options) as trace:
        a = torch.empty(12)
        b = a.view(3, 4)
        c = torch.empty_like(b)
        d = a.new_empty(20)[:5]
        e = torch.empty_strided((3, 4), (1, 3)).t()
        f = torch.ones(3)
        f.resize_(6)
        layer = nn.Linear(3, 2)
        c.copy_(torch.ones(3, 4))
        torch.neg(f[:3], out=d[:3])
        e.fill_(2)
        b.zero_()
        layer(a[:3])
    return trace


def named(trace: tg.Trace, name: str) -> list[Event]:
    return [event for event in trace.events() if event.kind == "function" and event.name.endswith(name)]


@pytest.mark.parametrize("ops", [False, True])
def test_only_what_was_written_has_statistics(ops: bool) -> None:
    trace = recorded(ops)
    for name in ("empty", "empty_like", "new_empty", "empty_strided", "resize_", "view", "Tensor.t"):
        given = [value for event in named(trace, name) for value in event.outputs]
        assert {(value.stats, value.sketch) for value in given} == {(None, None)}, name
    for name, number in (("copy_", 1.0), ("neg", -1.0), ("fill_", 2.0), ("Tensor.zero_", 0.0), ("ones", 1.0)):
        given = [value.stats for event in named(trace, name) for value in event.outputs]
        assert {each and (each.min, each.max) for each in given} == {(number, number)}, name
    for event in (*named(trace, "kaiming_uniform_"), *named(trace, "nn.init.uniform_")):
        assert (event.inputs[0].stats is None, event.outputs[0].stats is None) == (True, False)
    unfilled = [event.outputs[0].stats for event in trace.events() if event.name.startswith("aten::empty")]
    assert set(unfilled) == ({None} if ops else set())


@pytest.mark.parametrize("ops", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_shows_what_is_not_there(view: str, ops: bool) -> None:
    assert re.findall(r".*\d NaN.*", tg.render(recorded(ops), view)) == []


def test_a_bundle_says_the_same(tmp_path: Path) -> None:
    told = recorded(True, to=tmp_path / "run")
    loaded = tg.load(tmp_path / "run")
    for one, two in zip(told.events(), loaded.events(), strict=True):
        assert [value.stats is None for value in one.outputs] == [value.stats is None for value in two.outputs]


def test_what_was_written_before_the_block_and_is_overwritten_in_it_has_its_statistics() -> None:
    x = torch.ones(2, 3)
    with tg.record(values="stats") as trace:
        torch.empty(2, 3)
        x.zero_()
    taken = named(trace, "zero_")[0].inputs[0].stats
    assert taken is not None
    assert taken.mean == 1


def test_the_story_says_so() -> None:
    with tg.record(values="stats") as trace:
        x = torch.empty(3)
        x + 1
    story = str(tg.first_bad(trace))
    assert "x + 1" in story
    assert "took x: f32[3] not written yet, from x = torch.empty(3)" in story
