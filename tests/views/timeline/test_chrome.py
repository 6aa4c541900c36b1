"""The timeline for Perfetto, against the format that Chrome and Perfetto read.

Perfetto's own trace processor is no part of its package: it is fetched at first use, so tests cannot count on it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from torch import nn

import torchglass as tg
from tests.handmade import HandmadeTrace, Maker
from torchglass.views.export import chrome_json


def read(trace: Any) -> dict[str, Any]:
    return json.loads("\n".join(chrome_json(trace)))


def rows(trace: Any, phase: str) -> list[dict[str, Any]]:
    return [row for row in read(trace)["traceEvents"] if row["ph"] == phase]


@pytest.fixture(scope="module")
def trace() -> tg.Trace:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with tg.record(name="tiny") as trace:
        tg.mark("begin", 1)
        model(torch.ones(2, 4)).sum().backward()
    return trace


def test_every_event_is_there_once_with_its_times(trace: tg.Trace) -> None:
    slices, instants = rows(trace, "X"), rows(trace, "i")
    assert sorted(row["id"] for row in slices + instants) == list(range(len(trace)))
    begin = min(event.start_ns for event in trace.events())
    for row in slices:
        event = trace.event(row["id"])
        assert row["ts"] == pytest.approx((event.start_ns - begin) / 1000)
        assert row["dur"] == pytest.approx((event.duration_ns or 0) / 1000)


def are_nested(slices: list[dict[str, Any]]) -> bool:
    """Whether the slices of each thread are in one another or apart: what overlaps otherwise is not drawn."""
    open_until: dict[tuple[int, int], list[float]] = {}
    for row in sorted(slices, key=lambda row: (row["ts"], row["id"])):
        ends = open_until.setdefault((row["pid"], row["tid"]), [])
        while ends and ends[-1] <= row["ts"]:
            ends.pop()
        if ends and row["ts"] + row["dur"] > ends[-1] + 1e-6:
            return False
        ends.append(row["ts"] + row["dur"])
    return True


def test_slices_of_a_thread_are_in_one_another_or_apart(trace: tg.Trace) -> None:
    assert are_nested(rows(trace, "X"))


def test_shapes_lines_and_classes_are_arguments(trace: tg.Trace) -> None:
    layer = next(row for row in rows(trace, "X") if row["name"] == "0")
    assert layer["args"]["class"] == "Linear(4, 4)"
    assert (layer["args"]["takes"], layer["args"]["gives"]) == ("f32[2, 4]", "f32[2, 4]")
    assert "test_chrome.py:" in next(row for row in rows(trace, "X") if row["name"] == "Sequential")["args"]["line"]


def test_what_was_in_the_tensors_is_an_argument_where_it_was_measured() -> None:
    with tg.record(values="stats") as measured:
        for number in (1.0, 2.0):
            torch.full((4,), number).log()
        torch.zeros(3).log()
    told = [row["args"].get("contents") for row in rows(measured, "X") if row["name"].endswith("log")]
    assert told == ["all 0", "all 0.69", "3 −Inf"]


def test_processes_and_threads_have_names_and_say_that_times_are_the_hosts(trace: tg.Trace) -> None:
    names = {row["name"]: row["args"]["name"] for row in rows(trace, "M")}
    assert names == {"process_name": "tiny", "thread_name": "MainThread (host time)"}


def test_several_processes_have_names_of_their_own() -> None:
    make = Maker()
    for process, thread in ((7, "MainThread"), (8, "rank 1"), (8, "rank 1, autograd")):
        make.add("function", "exp", None, "x.exp()", process=process, thread=thread)
    found = [row for row in rows(HandmadeTrace(make.made, name="train"), "M") if row["name"] == "process_name"]
    assert [row["args"]["name"] for row in found] == ["train, process 7", "train, rank 1"]


def test_counters_say_what_the_loss_was_and_how_much_memory_the_steps_use() -> None:
    weight = torch.ones(1000, requires_grad=True)
    with tg.record(values="stats") as measured:
        for number in (1.0, 2.0, 4.0):
            hidden = weight * number
            hidden.mean().backward()
    counted = rows(measured, "C")
    assert [row["args"]["value"] for row in counted if row["name"] == "loss"] == [1.0, 2.0, 4.0]
    used = [row["args"]["value"] for row in counted if row["name"] == "tensors in use (bytes)"]
    assert max(used) >= 4000
    assert used[-1] == 0
    assert min(used) >= 0


def test_backward_points_to_its_forward_step() -> None:
    make = Maker()
    make.add("function", "mm", None, "a @ b")
    make.add("op", "aten::mm", None, "loss.backward()", phase="backward", forward_event=0, thread="autograd")
    arrows = [row for row in read(HandmadeTrace(make.made))["traceEvents"] if row["ph"] in "sf"]
    assert [(row["ph"], row["id"]) for row in arrows] == [("s", 1), ("f", 1)]
    assert arrows[0]["tid"] != arrows[1]["tid"]
    assert mistakes(arrows) == []


def test_names_from_the_program_are_data() -> None:
    make = Maker()
    hostile = '"},{"ph":"X\n\u2028</script>\ud800'
    make.add("function", hostile, None, hostile)
    assert rows(HandmadeTrace(make.made), "X")[0]["name"] == hostile


def test_what_never_ended_reaches_to_the_end() -> None:
    make = Maker()
    make.add("function", "sleep", None, "sleep()", end_ns=None)
    make.add("function", "later", None, "later()")
    slept = rows(HandmadeTrace(make.made), "X")[0]
    assert slept["dur"] == pytest.approx(1.01)
    assert "unfinished" in slept["args"]


NUMBER, PLACE = {"type": "number", "minimum": 0}, {"ts": {"type": "number", "minimum": 0}, "tid": {"type": "integer"}}
FORMAT = {
    "X": {**PLACE, "dur": NUMBER, "args": {"type": "object"}},
    "i": {**PLACE, "s": {"enum": ["g", "p", "t"]}},
    "C": {"ts": NUMBER, "args": {"type": "object", "required": ["value"], "properties": {"value": {"type": "number"}}}},
    "M": {"args": {"type": "object", "required": ["name"]}},
    "s": {**PLACE, "id": {"type": "integer"}, "cat": {"type": "string"}},
    "f": {**PLACE, "id": {"type": "integer"}, "cat": {"type": "string"}, "bp": {"const": "e"}},
}
"""For each kind of row what the format asks for, beside a name and a process."""


def mistakes(found: Iterable[dict[str, Any]]) -> list[str]:
    """What is against the format."""
    common = {"name": {"type": "string"}, "pid": {"type": "integer"}, "ph": {"enum": list(FORMAT)}}
    checks = {
        phase: Draft202012Validator({"properties": common | fields, "required": [*common, *fields]})
        for phase, fields in FORMAT.items()
    }
    return [error.message for row in found for error in checks[row["ph"]].iter_errors(row)]


def test_a_hundred_thousand_events_are_valid(tmp_path: Path) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)])
    optimizer, x = torch.optim.SGD(model.parameters()), torch.ones(2, 4)
    with tg.record(ops=True) as trace:
        for _ in range(260):
            model(x).sum().backward()
            optimizer.step()
    assert len(trace) >= 100_000
    tg.export(trace, tmp_path / "a.perfetto.json")
    plain = (tmp_path / "a.perfetto.json").read_bytes()
    tg.export(trace, tmp_path / "a.perfetto.json.gz")
    packed = (tmp_path / "a.perfetto.json.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 15
    found = json.loads(plain)["traceEvents"]
    # Rows with the same fields of the same types are checked once; the numbers in them are checked below.
    kinds = {(row["ph"], tuple(sorted((key, type(value)) for key, value in row.items()))): row for row in found}
    assert mistakes(kinds.values()) == []
    slices = [row for row in found if row["ph"] == "X"]
    assert len(slices) == len(trace)
    assert all(row["dur"] >= 0 and row["ts"] >= 0 for row in slices)
    assert are_nested(slices)
