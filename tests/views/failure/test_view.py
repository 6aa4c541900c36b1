"""The story of a failure tells what the failing thread did last, not what others did meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import torchglass as tg
from tests.handmade import HandmadeTrace, Maker
from torchglass.answers.failure import LAST_EVENTS
from torchglass.views.failure import sheet


def test_the_last_events_are_those_of_the_failing_process_and_thread() -> None:
    make = Maker()
    for line in range(3):
        make.add("function", "F.relu", code="F.relu(x)", line=line)
    failed = make.add("function", "Tensor.matmul", code="a @ b", error="RuntimeError: no", line=9)
    for _ in range(LAST_EVENTS):
        make.add("function", "stack", code="torch.stack(items)")
    for number in range(failed + 1, len(make.made)):
        elsewhere = {"process": 7} if number % 2 else {"thread": "DataLoader worker 0"}
        make.made[number] = make.made[number]._replace(**elsewhere)
    rows = sheet(HandmadeTrace(make.made, failed=failed)).rows
    heading = max(at for at, row in enumerate(rows) if row.kind == "heading")
    assert [make.made[row.event].name for row in rows[heading + 1 :]] == ["F.relu"] * 3 + ["Tensor.matmul"]


def left_by(error: type[BaseException], program: Callable[[], object], **options: Any) -> tg.Trace:
    with pytest.raises(error), tg.record(**options) as trace:
        program()
    return trace


def mismatches_of(trace: tg.Trace) -> list[str]:
    told = [row.text("remark") for row in sheet(trace).rows if row.kind == "mismatch"]
    return [text.rpartition(" at ")[0] or text for text in told]


def test_who_wrote_to_what_backward_needs() -> None:
    def program() -> None:
        x = torch.ones(4, requires_grad=True)
        other = x.exp()
        other.add_(0)
        y = x.sigmoid()
        y[0] = 1
        y.sum().backward()

    for ops in (False, True):
        assert mismatches_of(left_by(RuntimeError, program, ops=ops)) == [
            "backward needs f32[4] as it was, from y = x.sigmoid()",
            "it has been written to since then, by y[0] = 1",
        ]


def test_a_step_between_forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program() -> None:
        out = model(torch.ones(2, 3))
        out.sum().backward(retain_graph=True)
        optimizer.step()
        out.square().sum().backward()

    assert mismatches_of(left_by(RuntimeError, program)) == [
        "backward needs 1.weight (f32[2, 3]) as it was",
        "it has been written to since then, by optimizer.step()",
    ]


def test_an_error_of_other_code_is_shown_with_what_came_before() -> None:
    """It said that no exception left the block."""

    def program() -> int:
        torch.ones(2).add(1)
        return {"x": 1}["image"]

    trace = left_by(KeyError, program)
    assert trace.failure() is None
    lines = tg.render(trace, "failure").split("\n")
    assert lines[:2] == ["✗ KeyError: 'image'", "no recorded call failed: it was raised by other code"]
    assert [line.split("  ")[1] for line in lines[2:4]] == ["program()", 'return {"x": 1}["image"]']
    assert lines[4] == "the last 2 events"
    head = tg.render(trace).split("\n")[:2]
    assert head[0] == lines[0]
    assert head[1].startswith('  return {"x": 1}["image"]  test_view.py:'), "the tree begins with the place, too"


class Picky(nn.Module):
    """Refuses by code of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return check(x * 2)


def check(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] != 3:
        raise ValueError("three are wanted")
    return x


def raised(trace: tg.Trace) -> list[str]:
    return [row.text("expression") for row in sheet(trace).rows if row.kind == "raised"]


def test_where_code_of_the_programs_own_raised_it(tmp_path: Path) -> None:
    trace = left_by(ValueError, lambda: Picky()(torch.ones(2)), to=tmp_path / "run.trace")
    told = ["return check(x * 2)", 'raise ValueError("three are wanted")']
    assert "where it was raised" in tg.render(trace)
    assert raised(trace) == raised(tg.load(tmp_path / "run.trace")) == told
    tg.save(trace, tmp_path / "again.trace")
    assert tg.load(tmp_path / "again.trace").raised_at == trace.raised_at
    assert [each.function for each in trace.raised_at[-2:]] == ["Picky.forward", "check"]


def test_where_torch_raised_it_is_the_failing_call_itself() -> None:
    trace = left_by(RuntimeError, lambda: torch.ones(2, 3) @ torch.ones(2, 3))
    assert raised(trace) == []
    assert trace.raised_at[-1].function.endswith("<lambda>")


def test_the_place_of_the_raise_without_the_texts() -> None:
    trace = left_by(ValueError, lambda: Picky()(torch.ones(2)), sources=False)
    assert raised(trace) == ["Picky.forward", "check"]


@pytest.mark.parametrize("ends", [SystemExit, GeneratorExit])
def test_a_program_that_ends_as_it_should_has_not_failed(ends: type[BaseException]) -> None:
    def program() -> None:
        torch.ones(2)
        raise ends

    trace = left_by(ends, program)
    assert "✗" not in tg.render(trace)
    assert tg.render(trace, "failure").startswith("No exception left the block")


class Ragged:
    """Its last item does not fit the others."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, item: int) -> torch.Tensor:
        return torch.zeros(3 if item < 3 else 4)


def test_the_worker_of_a_dataloader_that_computed_before_it_knew_what_it_is_for(tmp_path: Path) -> None:
    """As it does where seeding a device is a torch function; and it still runs when its events are read."""
    loader = DataLoader(Ragged(), batch_size=2, num_workers=1, multiprocessing_context="fork")  # type: ignore[arg-type]
    computes, running = [True], list[Any]()

    def program() -> None:
        running.append(iter(loader))
        list(running[0])

    with tg.record(to=tmp_path / "first.trace"):  # from now on children go on in a part of their own
        pass
    os.register_at_fork(after_in_child=lambda: torch.ones(1) if computes else None)
    try:
        left_by(RuntimeError, program, to=tmp_path / "run.trace")
        failed = tg.load(tmp_path / "run.trace").failure()
    finally:
        computes.clear()
    assert failed is not None
    assert failed.thread == "DataLoader worker 0"


def test_the_worker_of_a_dataloader_that_failed(tmp_path: Path) -> None:
    loader = DataLoader(Ragged(), batch_size=2, num_workers=1, multiprocessing_context="fork")  # type: ignore[arg-type]
    error = left_by(RuntimeError, lambda: list(loader), to=tmp_path / "run.trace").left_by[0]
    assert "in DataLoader worker process 0" in error
    trace = tg.load(tmp_path / "run.trace")
    failed = trace.failure()
    assert failed is not None
    assert (failed.name, failed.thread) == ("stack", "DataLoader worker 0")
    text = tg.render(trace)
    assert "path to the failing call in DataLoader worker 0" in text
    assert "the last 0 events" not in text
    assert "is 4, from torch.zeros(3 if item < 3 else 4)" in text
