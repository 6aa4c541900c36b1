"""record(values=select(…)): what the events that are meant took and gave is measured and kept, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.capture.statistics.measurer import Measurer
from torchglass.compiled import extension


class Net(nn.Module):
    """Two layers with a softmax behind."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.head(self.encoder(x)), -1)


def recorded(selection: Any, **options: Any) -> tg.Trace:
    model, x = Net(), torch.randn(3, 4)
    with tg.record(values=selection, **options) as trace:
        model(x)
    return trace


@pytest.mark.parametrize("ops", [False, True])
@pytest.mark.parametrize(
    "criteria",
    [
        {"module": "encoder.*"},
        {"function": "softmax"},
        {"module": ("encoder.0", "head"), "kind": "module"},
        {"path": "test_choosing.py", "function": "softmax"},
        {"where": lambda event: event.name == "Linear"},
        {"where": lambda event: any(each.shape == (3, 2) for each in event.outputs)},
        {},
    ],
    ids=["module", "function", "modules", "path", "where", "outputs", "all"],
)
def test_what_the_events_that_are_meant_took_and_gave_is_kept_and_nothing_else(criteria: Any, ops: bool) -> None:
    trace = recorded(tg.select(**criteria), ops=ops)
    meant = {each.id for event in trace.events(**criteria) for each in (*event.inputs, *event.outputs)}
    if "outputs" in str(criteria.get("where", lambda: 0).__code__.co_names):  # only known when the event ends
        meant = {each.id for event in trace.events(**criteria) for each in event.outputs}
    assert meant
    assert set(trace.kept()) == {each.id for each in trace.values() if each.stats is not None} == meant
    assert trace.notes == ()


def test_all_events_are_the_same_as_all() -> None:
    torch.manual_seed(0)
    some = recorded(tg.select(), ops=True)
    torch.manual_seed(0)
    every = recorded("all", ops=True)
    assert some.kept() == every.kept()
    assert all(torch.equal(some.tensor(each), every.tensor(each)) for each in every.kept())


def test_a_value_is_as_it_was_at_the_event_that_was_meant() -> None:
    with tg.record(values=tg.select(function="add")) as trace:
        x = torch.zeros(3)
        y = x + 1
        y.mul_(5)
        y + 1
    first, second = trace.events(function="add")
    assert trace.tensor(first.outputs[0]).tolist() == [1, 1, 1]
    assert trace.tensor(second.inputs[0]).tolist() == [5, 5, 5]
    assert trace.tensor(second.outputs[0]).tolist() == [6, 6, 6]


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ({"module": "encodr.*"}, "no module 'encodr.*' ran; did you mean 'encoder.1'"),
        ({"function": "sofmax"}, "no function 'sofmax' ran; did you mean 'softmax'?"),
        ({"op": "softmax"}, "no op 'softmax' ran; there were none"),
        ({"module": "encoder", "function": "softmax"}, "what ran fits some of it, but nothing all of it"),
    ],
)
def test_a_selection_that_meant_nothing_is_said_with_near_names(criteria: Any, said: str) -> None:
    trace = recorded(tg.select(**criteria))
    assert not trace.kept()
    assert not trace.measured
    (note,) = trace.notes
    assert note.startswith("record(values=select(")
    assert said in note


def test_a_budget_that_is_reached_is_said_and_the_rest_has_statistics() -> None:
    trace = recorded(tg.select(function="softmax"), max_bytes=30)
    (softmax,) = trace.events(function="softmax")
    assert torch.equal(trace.tensor(softmax.inputs[0]), trace.tensor(softmax.inputs[0]))
    with pytest.raises(tg.NotRecorded, match=r"record\(values='all'\) all of them, values=select"):
        trace.tensor(softmax.outputs[0])
    assert softmax.outputs[0].stats is not None
    assert "record(values=select(…)) kept 1 values of 24 bytes" in trace.notes[0]


def test_one_inside_of_another_recording_keeps_its_own_and_the_outer_one_has_all_statistics() -> None:
    model, x = Net(), torch.randn(3, 4)
    with tg.record(values="stats") as outer:
        model(x)
        with tg.record(values=tg.select(function="softmax")) as inner:
            model(x)
        model(x)
    (softmax,) = inner.events(function="softmax")
    assert set(inner.kept()) == {softmax.inputs[0].id, softmax.outputs[0].id}
    assert all(value.stats is not None for value in outer.values())


def test_a_where_that_fails_costs_values_and_is_said() -> None:
    trace = recorded(tg.select(where=lambda event: event.nothing))
    assert not trace.kept()
    assert trace.notes[0].startswith("record(values=select(where=…)) failed: AttributeError")


def test_variables_are_refused() -> None:
    with pytest.raises(tg.UsageError, match=r"torchglass.mark\(name, tensor\)"):
        tg.record(values=tg.select(variable="x"))


PROGRAM = """
import torch
import torch.multiprocessing as mp
import torchglass as tg

def work():
    torch.zeros(3).softmax(0)

if __name__ == "__main__":
    {record}
        torch.ones(3).softmax(0)
        child = mp.get_context("spawn").Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
"""
RECORDS = {
    "names": "with tg.record(to='x.trace', values=tg.select(function='softmax')):",
    "where": "with tg.record(to='x.trace', values=tg.select(where=lambda event: event.name.endswith('softmax'))):",
}


@pytest.mark.parametrize("which", RECORDS)
def test_a_process_that_is_started_anew_keeps_the_same_by_names_and_measures_all_by_where(
    which: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(record=RECORDS[which]))
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=120)
    trace = tg.load(tmp_path / "x.trace")
    parent, child = trace.events(function="softmax")
    assert trace.tensor(parent.outputs[0]).tolist() == pytest.approx([1 / 3] * 3)
    assert child.outputs[0].stats is not None
    assert (child.outputs[0].id in trace.kept()) == (which == "names")


def test_the_command_takes_it_as_keys_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch\ntorch.ones(3).softmax(0).exp()\n")
    command = [sys.executable, "-m", "torchglass", "run", "--to", "x.trace", "--values"]
    subprocess.run([*command, "function=softmax", "program.py"], cwd=tmp_path, check=True, timeout=120)
    trace = tg.load(tmp_path / "x.trace")
    assert {each.id for each in next(trace.events(function="softmax")).outputs} <= set(trace.kept())
    assert len(trace.kept()) == 2
    missed = subprocess.run(
        [*command[:4], "--to", "y.trace", "--values", "function=sofmax", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "kept nothing: no function 'sofmax' ran; did you mean 'softmax'?" in missed.stderr
    assert missed.stdout == ""
    wrong = subprocess.run([*command, "functon=x", "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode
    assert "--values takes KEY=PATTERN" in wrong.stderr


@pytest.mark.skipif(extension is None, reason="the compiled engine is not there")
@pytest.mark.parametrize(
    ("options", "asked_of_python"),
    [
        ({"values": tg.select(function="relu")}, {"means"}),
        ({"values": tg.select(function="relu", path="test_choosing.py")}, {"means"}),
        ({"values": "stats", "stop_on": "nonfinite"}, set[str]()),
    ],
    ids=["names", "places", "stop_on"],
)
def test_the_compiled_engine_asks_python_only_which_events_are_meant(
    options: dict[str, Any], asked_of_python: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred calls at two places: what they take and give does not go through Python."""
    asked: list[str] = []
    for name in ("took", "gave", "gave_several", "means", "raise_alarm"):
        plain = getattr(Measurer, name)
        monkeypatch.setattr(Measurer, name, lambda *args, n=name, f=plain: asked.append(n) or f(*args))
    x = torch.tensor([-1.0, 2.0])
    with tg.record(**options) as trace:
        for _ in range(100):
            x.relu()
            x.exp()
    assert set(asked) == asked_of_python
    assert len(asked) <= 400
    given = [event.outputs[0].stats for event in trace.events(function="relu")]
    assert len(given) == 100
    assert {stats and stats.max for stats in given} == {2.0}
    others = {event.outputs[0].stats is None for event in trace.events(function="exp")}
    assert others == {options["values"] != "stats"}


def test_an_answer_is_that_of_the_recordings_that_are_running() -> None:
    x = torch.ones(2)
    with tg.record(values=tg.select(function="exp")) as outer:
        for number in range(6):
            with tg.record(values=tg.select(function="relu" if number % 2 else "tanh")):
                x.relu()
                x.tanh()
                x.exp()
    kept = {
        name: [event.outputs[0].stats is not None for event in outer.events(function=name)]
        for name in ("exp", "relu", "tanh")
    }
    assert kept == {"exp": [True] * 6, "relu": [False, True] * 3, "tanh": [True, False] * 3}
