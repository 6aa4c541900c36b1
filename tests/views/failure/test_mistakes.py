"""Ten planted mistakes: the line that must be changed is on the first screen of the story."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import torchglass as tg

PROGRAMS = Path(__file__).parents[2] / "programs_failing"
SCREEN = 24
ELSEWHERE = {"none"}
"""What gave the None is said, not which of its lines forgot to return."""

SAYS = {
    "batch": "the first dimension of state.detach() is 16, from state = torch.zeros(16, 3) at batch.py",
    "broadcast": "error = pred - y  both were broadcast",
    "device": "x is on cpu, from torch.randn(2, 8) at device.py",
    "dtype": "x is f64, from torch.from_numpy(data) at dtype.py",
    "embedding": "tok.weight has 100 rows, so that indices go from 0 to 99",
    "flatten": "9216 in x, from x = torch.flatten(x) at flatten.py",
    "matmul": "the last dimension of q is 8, the third dimension of k is 7",
    "none": "x = block(x)  f32[3, 4] → None",
    "skip": "dim 2 of x is 44, from x = up(x) at skip.py",
    "view": "h is not contiguous",
}


def story_of(name: str, width: int = 120) -> list[str]:
    with pytest.raises(Exception, match=""), tg.record() as trace:
        runpy.run_path(str(PROGRAMS / f"{name}.py"))
    return tg.render(trace, width=width).splitlines()


def line_of_the_mistake(name: str) -> int:
    lines = (PROGRAMS / f"{name}.py").read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if "# MISTAKE" in line)


def test_there_are_ten_and_each_has_its_mistake_marked() -> None:
    names = {path.stem for path in PROGRAMS.glob("*.py")} - {"__init__"}
    assert names == set(SAYS)
    assert len(names) == 10
    assert all(map(line_of_the_mistake, names))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", sorted(SAYS))
def test_the_first_screen_has_the_line_and_the_reason(name: str, width: int) -> None:
    screen = story_of(name, width)[:SCREEN]
    assert screen[0].startswith("✗ ")
    assert SAYS[name] in " ".join(" ".join(screen).split()) or any(SAYS[name] in line for line in screen), screen
    if name not in ELSEWHERE:
        places = {int(found) for line in screen for found in re.findall(r":(\d+)\b", line)}
        assert line_of_the_mistake(name) in places, screen


def test_the_story_is_complete_and_says_how_to_see_the_rest() -> None:
    lines = story_of("skip")
    assert len(lines) <= SCREEN + 6
    assert "show(trace, 'tree')" in lines[-1]


def test_a_size_is_born_where_none_of_the_inputs_had_it() -> None:
    """Held to the events themselves."""
    with pytest.raises(RuntimeError), tg.record() as trace:
        runpy.run_path(str(PROGRAMS / "skip.py"))
    born = next(event for event in trace.events() if event.code == "self.up(x)" and event.kind == "module")
    assert all(44 not in (value.shape or ()) for value in born.inputs)
    assert any(44 in (value.shape or ()) for value in born.outputs)


def test_a_block_that_ended_well_has_no_story() -> None:
    with tg.record() as trace:
        pass
    assert "No exception left the block" in tg.render(trace, "failure") or "Nothing was recorded" in tg.render(
        trace, "failure"
    )
