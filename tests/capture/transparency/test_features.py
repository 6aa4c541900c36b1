"""Whatever cannot be put up costs its feature: the program does the same, the trace says so, and all is put back."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass import children, compiled, recording
from torchglass.capture import recorder
from torchglass.capture.torch import private

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def broken(what: str, *given: str, engine: str = "") -> str:
    """What went wrong in the cases of ``break_features.py``."""
    program = ROOT / "tests" / "capture" / "transparency" / "break_features.py"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    if engine:
        environment["TORCHGLASS_ENGINE"] = engine
    done = subprocess.run(
        [sys.executable, str(program), what, *given],
        capture_output=True, text=True, timeout=380, check=False, env=environment,
    )  # fmt: skip
    return done.stdout + (done.stderr if done.returncode else "")


def test_each_feature_may_fail_to_be_made_and_to_be_put_up() -> None:
    assert broken("features") == ""


def test_each_feature_of_the_python_engine_may_fail_to_be_made() -> None:
    assert broken("features", "makers", engine="python") == ""


def test_each_part_of_one_recording_may_fail() -> None:
    assert broken("probes") == ""


@pytest.mark.parametrize("part", range(3))
def test_each_private_name_may_be_missing_or_be_something_else(part: int) -> None:
    names = sorted(private.NAMES)
    assert len(names) > 40
    assert broken("names", *(f"torch.{name}" for name in names[part::3])) == ""


@pytest.mark.parametrize("part", range(2))
def test_each_replaced_name_may_be_missing_or_be_something_else(part: int) -> None:
    """Really taken away, so the program may fail too: by the same exception."""
    names = broken("features", "--list").split("\n")
    # Without these torch fails only while some mode is on; Python waits for ever for a thread that cannot begin. The
    # others are not their owner's attributes, or the compiled engine is not used without them.
    own = ("handle_torch_function", "threading.", "warnings.warn", "eval_frame", "Tensor.set_")
    replaced = [name for name in names if "." in name and " " not in name and not any(each in name for each in own)]
    assert "torch.autograd.Function.apply" in replaced
    assert len(replaced) > 12
    assert broken("names", *replaced[part::2]) == ""


@pytest.fixture
def no_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that cannot start, in a process in which none has failed before."""
    monkeypatch.setattr(recorder, "Session", lambda *_: 1 / 0)
    monkeypatch.setattr(recording, "_warned", False)


@pytest.mark.usefixtures("no_recorder")
def test_without_a_recorder_the_block_runs_and_one_warning_says_so() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            with tg.record() as trace:
                y = torch.ones(2) + 1
            assert y.tolist() == [2.0, 2.0]
            assert len(trace) == 0
            assert not trace.complete
            assert not compiled.has_failed
            assert "the recorder could not start: ZeroDivisionError: division by zero (at test_features.py:" in str(
                trace
            )
    (warning,) = warned
    assert "the recorder could not start: ZeroDivisionError" in str(warning.message)
    assert warning.filename == __file__
    assert tg.last_trace() is trace


@pytest.mark.usefixtures("no_recorder")
@pytest.mark.filterwarnings("error")
def test_without_a_recorder_a_warning_that_is_an_error_stops_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    trace = tg.trace(torch.ones, 2)
    assert len(trace) == 0
    assert "could not start" in capsys.readouterr().err


@pytest.mark.usefixtures("no_recorder")
@pytest.mark.filterwarnings("ignore")
def test_without_a_recorder_the_bundle_says_so_too(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "run.trace"):
        torch.ones(2)
    loaded = tg.load(tmp_path / "run.trace")
    assert len(loaded) == 0
    assert "the recorder could not start" in str(loaded)


def test_a_bundle_that_cannot_be_begun_by_a_fault_of_ours_stops_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the program has replaced a function of ``os`` that we write with."""
    monkeypatch.setattr(recording, "_warned", False)
    monkeypatch.setattr(recording.store, "open_part", lambda *_: len(5))  # type: ignore[arg-type]
    with (
        pytest.warns(RuntimeWarning, match="could not start: TypeError"),
        tg.record(to=tmp_path / "run.trace") as trace,
    ):
        y = torch.ones(2) + 1
    assert y.tolist() == [2.0, 2.0]
    assert "could not start: TypeError" in str(trace)


@pytest.mark.usefixtures("no_recorder")
def test_without_a_recorder_what_is_asked_for_wrongly_is_an_error_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(tg.BundleError), tg.record(to=tmp_path / "no folder" / "run.trace"):
        pass


WITHOUT_A_MODULE = """
import importlib.abc, sys
import torch
import torchglass as tg

class Broken(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            raise LookupError(f"no {name}")

sys.meta_path.insert(0, Broken())
for _ in range(2):
    with tg.record(variables=True, values="stats") as trace:
        y = torch.ones(2) + 1
    assert y.tolist() == [2.0, 2.0]
print(len(trace), *trace.notes)
"""


@pytest.mark.parametrize("module", ["variables", "statistics", "torch.listeners", "recorder"])
def test_without_a_module_of_ours_the_block_runs_and_one_warning_says_so(module: str) -> None:
    """As on a Python or torch whose names the module does not find."""
    command = [sys.executable, "-c", WITHOUT_A_MODULE, f"torchglass.capture.{module}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("0 nothing was recorded, because the recorder could not start: LookupError")
    assert run.stderr.count("RuntimeWarning") == 1, run.stderr


def test_without_the_name_that_starts_processes_the_rest_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multiprocessing import spawn

    monkeypatch.delattr(spawn, "get_preparation_data")
    monkeypatch.setattr(children._SPAWN, "made", None)
    with tg.record(to=tmp_path / "run.trace") as trace:
        torch.ones(2)
    assert len(trace) == 1
    assert any("multiprocessing.spawn.get_preparation_data" in note for note in tg.load(tmp_path / "run.trace").notes)
    assert not hasattr(spawn, "get_preparation_data")
