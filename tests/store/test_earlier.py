"""What earlier versions and other Pythons wrote is read: bundles as they left them, kept in ``earlier/``."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.store import load, repair

EARLIER = Path(__file__).parent / "earlier"


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(EARLIER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"{name}.trace"


def test_a_finished_bundle_of_format_2(tmp_path: Path) -> None:
    path = unpacked("format2", tmp_path)
    trace = tg.load(path)
    assert (trace.complete, len(trace), trace.notes) == (True, 18, ())
    assert [(event.name, event.code) for event in trace.events(module="") if event.kind == "function"][:2] == [
        ("Tensor.relu", "h.relu()"),
        ("ones", "torch.ones(4, 2)"),
    ]
    (value,) = trace.kept()
    assert torch.equal(trace.tensor(value), torch.arange(4, dtype=torch.uint8))
    assert trace.sql("SELECT count(*) FROM events WHERE phase = 'backward'") == [(0,)]


def test_a_finished_bundle_of_format_3(tmp_path: Path) -> None:
    trace = tg.load(unpacked("format3", tmp_path))
    assert (trace.complete, len(trace), trace.notes) == (True, 41, ())
    assert [event.python_call for event in trace.events() if event.kind == "variable"] == [0]
    assert not trace.measured
    assert all(value.stats is None for value in trace.values())


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_a_journal_that_another_python_left(python: str, tmp_path: Path) -> None:
    """Its instructions, and where each one stands in the source, are read as that Python meant them."""
    path = unpacked(f"killed-{python}", tmp_path)
    for _ in range(2):  # as it was left, and when it was finished
        trace = tg.load(path)
        shown = [(event.name, event.code, event.location.line) for event in trace.events() if event.location]
        assert shown[4:] == [
            ("arange", "torch.arange(6.0)", 25),
            ("Tensor.reshape", "torch.arange(6.0).reshape(2, 3)", 25),
            ("Net", "Net()(torch.arange(6.0).reshape(2, 3))", 25),
            ("Linear", "self.first(x)", 17),
            ("F.linear", "self.first(x)", 17),
            ("Tensor.unbind", "h", 18),
            ("Tensor.relu", "each.relu()", 18),
            ("Tensor.relu", "each.relu()", 18),
            ("rows", "rows = [each.relu() for each in h]", 18),
        ]
        (call,) = [event for event in trace.events() if event.name == "Net"]
        assert (call.end_ns, [value.shape for value in call.inputs]) == (None, [(2, 3)])
        repair(path)
    assert load(path).tables().complete is False


@pytest.mark.parametrize("name", ["format5", "killed-sketches"])
def test_hashes_of_another_definition_are_not_compared_with_those_of_today(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    for number in range(3):  # as it was left, when it was finished, and saved again
        trace = tg.load(path)
        values = [value for value in trace.values() if value.sketch is not None]
        assert len(values) == 5
        assert {value.sketch.hash for value in values} == {0}
        assert not any(tg.same(one, other).how == "bits" for one in values for other in values)
        found = trace.find(torch.arange(600.0) * 2)
        assert [each.likeness.how for each in found] == ["close", "close", "order", "order"]
        assert found[0].likeness.error < 1e-6
        if number == 0:
            repair(path)
        else:
            tg.save(trace, path := tmp_path / f"again-{number}.trace")
