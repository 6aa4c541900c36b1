"""What others say of a program under `torchglass run` (pytest, Python's warnings) does not speak of us."""

from __future__ import annotations

import re
from pathlib import Path

import torchglass as tg
from tests.cli.test_run import both, recorded, speaks_of_us

TESTS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return torch.cat([self.fc(x), x.view(5, 5)])

def test_a_module():
    assert Model()(torch.ones(2, 4)).shape == (2, 3)

def test_a_function():
    torch.ones(2) + torch.ones(3)
"""

ABOVE = """
import warnings
import torch

def deep():
    warnings.warn("two above", stacklevel=3)

warnings.warn("one above", stacklevel=2)
deep()
print(torch.ones(2) + 1)
"""

NOBODY_CATCHES = """
import atexit
import torch
from torch import nn

class Finalised:
    def __del__(self):
        nn.Linear(2, 2)(torch.ones(3))

Finalised()
atexit.register(lambda: torch.ones(2) + torch.ones(3))
print(torch.ones(2))
"""


def told(out: str) -> str:
    """A report without the time, and without the entry of the method of torch's that our wrapper stands for."""
    out = re.sub(r"\n\S*module\.py:\d+: in _wrapped_call_impl\n(?: .*\n)+", "\n", out)
    return re.sub(r"in \d+\.\d+s", "in a while", out)


def test_pytest_shows_the_programs_lines_alone(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text(TESTS)
    plain, ours = both(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_model.py")
    assert (ours.status, ours.err) == (plain.status, plain.err)
    assert plain.status == 1
    assert "shape '[5, 5]' is invalid" in plain.out
    assert not speaks_of_us(ours.out)
    assert told(ours.out) == told(plain.out)


def test_errors_that_nobody_can_catch_are_shown_without_our_frames(tmp_path: Path) -> None:
    (tmp_path / "nobody.py").write_text(NOBODY_CATCHES)
    plain, ours = both(tmp_path, "nobody.py")
    assert plain.err.count("Exception ignored in") == 2
    assert (ours.status, ours.out, unnumbered(ours.err)) == (plain.status, plain.out, unnumbered(plain.err))


def unnumbered(text: str) -> str:
    """Without the addresses of objects."""
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


def test_names_of_variables_may_come_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "three.py").write_text("import torch\na = torch.ones(1)\nb = a + 1\nc = b + 1\n")
    assert recorded(tmp_path, "--variables", "a", "--variables", "b,c", "three.py").status == 0
    found = [event.name for event in tg.load(tmp_path / "kept.trace").events(kind="variable")]
    assert found == ["a", "b", "c"]


def test_a_warning_from_above_the_program(tmp_path: Path) -> None:
    (tmp_path / "above.py").write_text(ABOVE)
    plain, ours = both(tmp_path, "above.py")
    assert ours == plain
    assert plain.err.count("UserWarning") == 2
