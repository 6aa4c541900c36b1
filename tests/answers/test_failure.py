"""The failure of a program as an answer: the same in text, as data and in the view."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.answers.failure import failure_of


def failed() -> tg.Trace:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(7, 2))
    x = torch.ones(3, 4)
    with pytest.raises(RuntimeError), tg.record() as trace:
        model(x)
    return trace


def test_it_names_the_failing_call_and_what_does_not_fit() -> None:
    failure = failure_of(failed())
    assert failure is not None
    lines = str(failure).split("\n")
    assert lines[0].startswith("RuntimeError: ")
    # Torch 2.15 says "addmm: mat1 and …".
    assert "mat1 and mat2 shapes cannot be multiplied (3x8 and 7x2)" in lines[0]
    assert any("the last dimension of input is 8" in line for line in lines)
    assert any("took 2.weight: f32[2, 7]" in line for line in lines)
    assert lines[-1].startswith("  ")


def test_as_data_it_leads_to_the_events() -> None:
    trace = failed()
    failure = failure_of(trace)
    assert failure is not None
    told = json.loads(json.dumps(failure.to_dict()))
    assert (told["kind"], told["severity"]) == ("failure", "error")
    assert told["event"] == trace.failure().id
    assert told["path"][-1] == told["event"]
    assert told["location"]["file"] == __file__
    kinds = [each["kind"] for each in told["evidence"]]
    assert kinds.count("input") == len(trace.failure().inputs)
    assert "mismatch" in kinds


def test_an_exception_outside_every_call_has_its_line() -> None:
    def elsewhere() -> None:
        torch.ones(2).add(1)
        raise KeyError("path")

    with pytest.raises(KeyError), tg.record() as trace:
        elsewhere()
    failure = failure_of(trace)
    assert failure is not None
    assert failure.event is None
    assert failure.finding.location is not None
    assert failure.finding.location.function.endswith("elsewhere")


def test_a_program_that_ended_well_has_none() -> None:
    assert failure_of(tg.trace(nn.ReLU(), torch.ones(2))) is None


def mismatches(trace: tg.Trace) -> list[str]:
    failure = failure_of(trace)
    assert failure is not None
    return [each.text for each in failure.finding.evidence if each.kind == "mismatch"]


def test_of_tensors_that_are_concatenated_that_dimension_may_differ_and_others_are_counted_from_0() -> None:
    one, other = torch.ones(2, 5, 5), torch.ones(2, 6, 6)
    with pytest.raises(RuntimeError), tg.record() as trace:
        torch.cat([one, other], dim=1)
    assert [text[:17] for text in mismatches(trace)] == ["dim 2 of one is 5", "dim 2 of other is"]


def test_of_tensors_that_are_stacked_each_dimension_must_fit() -> None:
    one, other = torch.ones(2, 3), torch.ones(2, 4)
    with pytest.raises(RuntimeError), tg.record() as trace:
        torch.stack([one, other])
    assert [text[:17] for text in mismatches(trace)] == ["dim 1 of one is 3", "dim 1 of other is"]


def test_parameters_made_at_the_same_line_of_two_files_are_both_told(tmp_path: Path) -> None:
    makers = []
    for name in ("one", "other"):
        text = "import torch\n\ndef make(size):\n    return torch.nn.Linear(size, size)\n"
        (tmp_path / f"{name}.py").write_text(text)
        makers.append(runpy.run_path(str(tmp_path / f"{name}.py"))["make"])
    with pytest.raises(RuntimeError), tg.record() as trace:
        F.linear(torch.ones(2, 3), makers[0](5).weight, makers[1](6).bias)
    failure = failure_of(trace)
    assert failure is not None
    made_in = [event.location.file for each in failure.inputs[1:] for event in each.made_by if event.location]
    assert [Path(file).name for file in made_in] == ["one.py", "other.py"]
