"""The first bad value: the planted line is named, forward and backward, and what was meant is left alone."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.answers.first_bad import planted
from torchglass.answers.bad_story import hint_of

Program = Callable[[], None]
BOTH = pytest.mark.parametrize("ops", [False, True], ids=["functions", "ops"])


def line_marked(program: Any, mark: str = "# here") -> int:
    """The line of a program that is marked; in a class of its own, where it has one."""
    lines = Path(planted.__file__).read_text(encoding="utf-8").splitlines()
    first, length = program.__code__.co_firstlineno, len(inspect.getsourcelines(program)[0])
    own = [at for at in range(first, first + length) if lines[at - 1].rstrip().endswith(mark)]
    if own:
        return own[0]
    named = next(name for name in program.__code__.co_names if name.startswith("_"))
    source, begin = inspect.getsourcelines(getattr(planted, named))
    return next(begin + at for at, line in enumerate(source) if line.rstrip().endswith(mark))


def recorded(program: Program, **options: Any) -> tg.Trace:
    torch.manual_seed(0)
    with tg.record(values="stats", **options) as trace:
        program()
    assert trace.notes == ()
    return trace


@BOTH
@pytest.mark.parametrize("program", planted.FORWARD, ids=lambda program: program.__name__)
def test_the_planted_line_is_named(program: Program, ops: bool) -> None:
    found = tg.first_bad(recorded(program, ops=ops))
    assert found is not None
    assert (found.event.line, found.came_in) == (line_marked(program), False)
    assert f"planted.py:{found.event.line}" in str(found)


@pytest.mark.parametrize("program", planted.BACKWARD, ids=lambda program: program.__name__)
def test_the_planted_line_is_named_in_backward(program: Program) -> None:
    trace = recorded(program, ops=True)
    found = tg.first_bad(trace)
    assert found is not None
    assert (found.event.line, found.event.phase) == (line_marked(program), "backward")
    if program is not planted.a_backward_of_ones_own:
        assert found.event.forward_event is not None
        assert trace.event(found.event.forward_event).line == line_marked(program, "# forward")
        assert "the gradient of " in str(found)


@BOTH
@pytest.mark.parametrize("program", planted.MEANT, ids=lambda program: program.__name__)
def test_what_was_meant_is_left_alone(program: Program, ops: bool) -> None:
    trace = recorded(program, ops=ops)
    assert tg.first_bad(trace) is None
    assert any(value.stats and (value.stats.neginf or value.stats.posinf) for value in trace.values())


def test_the_story() -> None:
    trace = recorded(planted.zero_by_zero)
    lines = str(tg.first_bad(trace)).replace(str(Path(planted.__file__).parent), "").splitlines()
    assert lines[0] == "4 NaN of 4 numbers from Tensor.div: 0 / 0"
    assert lines[1].startswith("  share = mask / total")
    assert "took mask: f32[4] all 0, from mask = torch.zeros(4)" in lines[2]
    assert "took total: f32[] = 0, from total = mask.sum()" in lines[3]
    assert lines[4] == "  gave f32[4] 4 NaN"
    assert lines[5].startswith("  2 events passed it on: Tensor.mean at ")


ZERO, HALF = torch.tensor([0.0, 1.0]), torch.full((2,), 300.0, dtype=torch.float16)


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        (lambda: ZERO.rsqrt(), "division by 0"),
        (lambda: (ZERO - 1).rsqrt(), "the square root of a negative number"),
        (lambda: ZERO.reciprocal(), "division by 0"),
        (lambda: 1 / ZERO, "division by 0"),
        (lambda: 0 / ZERO, "division by 0"),
        (lambda: torch.true_divide(1, ZERO), "division by 0"),
        (lambda: torch.true_divide(0, ZERO), "0 / 0"),
        (lambda: torch.div(ZERO, 0, rounding_mode="floor"), "division by 0"),
        (lambda: ZERO**-0.5, "division by 0: a negative power of 0"),
        (lambda: torch.atanh(ZERO), ""),
        (lambda: ZERO.lgamma(), ""),
        (lambda: HALF * 300, "beyond the largest float16 (6.55e+04)"),
        (lambda: HALF / 1e-4, "beyond the largest float16 (6.55e+04)"),
        (lambda: HALF**2, "beyond the largest float16 (6.55e+04)"),
    ],
)
def test_why_it_is_bad(program: Program, hint: str) -> None:
    heading = str(tg.first_bad(recorded(program))).splitlines()[0]
    assert heading.partition(": ")[2] == hint


def test_a_number_divided_by_a_tensor_is_not_its_divisor() -> None:
    with tg.record(values="stats") as trace:
        1 / torch.tensor([2.0, 4.0])
    event = trace.event(1)
    for name, args, hint in [
        ("Tensor.__rtruediv__", "f32[2], 0", ""),
        ("Tensor.__truediv__", "f32[2], 0", "division by 0"),
    ]:
        assert hint_of(event._replace(name=name, args=args)) == hint


def test_a_batch_that_came_in_bad() -> None:
    batch, model = torch.tensor([[1.0, float("nan")]]), nn.Sequential(nn.Linear(2, 2))
    with tg.record(values="stats", ops=True) as trace:
        model(batch)
    found = tg.first_bad(trace)
    assert found is not None
    assert (found.came_in, found.event.name) == (True, "Sequential")
    assert str(found).startswith("1 NaN of 2 numbers came in with batch of Sequential")


def test_other_conditions() -> None:
    with tg.record(values="stats") as trace:
        x = torch.full((4,), 10.0)
        y = x * x
        y * y
    names = [found and found.event.code for found in (tg.first_bad(trace, when) for when in ("abs>50", "max >= 1e4"))]
    assert names == ["x * x", "y * y"]
    assert tg.first_bad(trace, lambda stats: stats.std > 0) is None
    with pytest.raises(tg.UsageError, match="'abs>1e4'"):
        tg.first_bad(trace, "big")
    with pytest.raises(tg.WrongType, match="not int"):
        tg.first_bad(trace, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("allow", ["log", ["Tensor.l*"], "planted.py:LINE"])
def test_functions_and_lines_can_be_allowed(allow: Any) -> None:
    trace = recorded(planted.log_of_zero)
    if isinstance(allow, str):
        allow = allow.replace("LINE", str(line_marked(planted.log_of_zero)))
    found = tg.first_bad(trace, allow=allow)
    assert found is not None
    assert found.event.code == "p * logs"  # 0 · -inf


def test_a_trace_without_statistics_is_refused() -> None:
    with tg.record() as trace:
        torch.ones(3)
    with pytest.raises(tg.NotRecorded, match="values='stats'"):
        tg.first_bad(trace)


@BOTH
def test_an_overflow_that_a_grad_scaler_skips_does_not_count(ops: bool) -> None:
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with tg.record(values="stats", ops=ops) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((2, 3), 0.3)).mean() * 0.1).backward()
            scaler.step(optimizer)
            scaler.update()
    assert tg.first_bad(trace) is None


@BOTH
@pytest.mark.parametrize("program", [planted.zero_by_zero, planted.a_row_that_is_masked_wholly])
def test_a_recording_can_stop_at_it(program: Program, ops: bool) -> None:
    with pytest.raises(tg.BadValue) as caught, tg.record(stop_on="nonfinite", ops=ops) as trace:
        program()
    assert str(caught.value) == str(tg.first_bad(trace))
    (place,) = [entry for entry in caught.traceback if entry.name == program.__name__]
    assert place.lineno + 1 == line_marked(program)


def test_a_recording_does_not_stop_at_what_was_meant() -> None:
    with tg.record(stop_on="nonfinite", ops=True) as trace:
        for program in planted.MEANT:
            program()
    assert trace.complete
    assert trace.failure() is None


def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.zeros(2)\ny = x / x\nprint('done')\n", encoding="utf-8")
    command = [sys.executable, "-m", "torchglass", "run", "--first-bad", "train.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.stdout == "done\n"  # what is ours goes to stderr
    lines = ran.stderr.splitlines()
    assert lines[:2] == ["2 NaN of 2 numbers from Tensor.div: 0 / 0", "  y = x / x  at train.py:3"]
    assert tg.first_bad(tg.load(tmp_path / "train.trace")) is not None
