"""Settling asks nothing but the journal: without torch, in another process, the tables are the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs
from tests.settle.journals import unsealed
from tests.store.samples import differences
from torchglass.store import load

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["numpy"] = None
from torchglass.store import load, save
for line in sys.stdin:
    path, again = line.rstrip("\\n").split("\\t")
    save(load(path).tables(), again)
    print("settled", flush=True)
"""
SHORT = [name for name in programs.names() if name not in programs.SLOW]


Settle = Callable[[Path], Path]


@pytest.fixture(scope="module")
def settled_without_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settle]:
    """Settles bundles in one other process, which has no torch."""
    errors = tmp_path_factory.mktemp("without torch") / "errors.txt"
    with errors.open("w") as stderr:
        command = [sys.executable, "-c", WITHOUT_TORCH]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    asked, answers = other.stdin, other.stdout

    def settle(path: Path) -> Path:
        again = path.with_name("again.trace")
        asked.write(f"{path}\t{again}\n")
        asked.flush()
        assert answers.readline() == "settled\n", errors.read_text()
        return again

    with other:
        yield settle
        asked.close()
        assert other.wait(timeout=120) == 0
    assert errors.read_text() == ""


@pytest.mark.parametrize("name", SHORT)
def test_a_program(name: str, tmp_path: Path, settled_without_torch: Settle) -> None:
    living = unsealed(tmp_path / "run.trace", name)
    stored = load(settled_without_torch(tmp_path / "run.trace")).tables()
    assert differences(living, stored, ("notes", "sources")) == []
    assert stored.complete
    assert len(stored) > 0
    assert stored.sources == living.sources
    assert set(living.notes) <= set(stored.notes)


@pytest.mark.parametrize("name", ["attention", "training_step", "threads", "inplace_and_views"])
def test_with_ops_and_variables(name: str, tmp_path: Path, settled_without_torch: Settle) -> None:
    living = unsealed(tmp_path / "run.trace", name, ops=True, variables=("*",))
    stored = load(settled_without_torch(tmp_path / "run.trace")).tables()
    assert differences(living, stored, ("notes",)) == []
    assert {living.callees[number].kind for number in living.callee} >= {"op", "variable"}


@pytest.mark.parametrize("limit", [50, 200])
def test_with_a_gap(limit: int, tmp_path: Path, settled_without_torch: Settle) -> None:
    living = unsealed(tmp_path / "run.trace", "generation", max_events=limit)
    stored = load(settled_without_torch(tmp_path / "run.trace")).tables()
    assert differences(living, stored, ("notes",)) == []
    assert "gap" in [living.event(number).name for number in range(len(living))]


def test_inside_the_block_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_without_torch: Settle
) -> None:
    """A look inside is what a kill at that moment would leave."""
    with tg.record(to=tmp_path / "run.trace") as trace:
        programs.load("attention").main()
        inside = trace._tables
        by_another = load(settled_without_torch(tmp_path / "run.trace")).tables()
    assert differences(inside, by_another, ("notes", "sources")) == []
    assert differences(inside, trace._tables, ("complete", "duration_ns", "sources", "notes", "modules")) == []


def test_modules_of_a_call_that_is_running(tmp_path: Path, settled_without_torch: Settle) -> None:
    """Names and paths are there before the call has ended; settings and parameters when the outermost has."""

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.ReLU()

        def forward(self, x: object) -> object:
            y = self.second(self.first(x))
            found.append(settled_without_torch(tmp_path / "run.trace"))
            return y

    found: list[Path] = []
    with tg.record(to=tmp_path / "run.trace"):
        Looks()(torch.ones(2, 3))
    inside = tg.load(found[0])
    assert [(info.path, info.name) for info in inside.modules()] == [
        ("", "Looks"),
        ("first", "Linear"),
        ("second", "ReLU"),
    ]
    call = next(inside.events(kind="module"))
    assert (call.name, call.end_ns, call.inputs[0].shape) == ("Looks", None, (2, 3))
