"""The code view as text: exact lines for small programs, and what must hold for all of them."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs, zoo
from tests.handmade import HandmadeTrace, Maker
from tests.modules import module_of
from tests.views import shown
from tests.work import work_of
from torchglass.events.types import Location
from torchglass.views.text.style import Page
from torchglass.views.text.words import width_of

ESCAPES = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;;[^\x1b]*\x1b\\")
PROGRAM = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        return x + h.relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Sequential(nn.Linear(4, 6), nn.GELU())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        left, right = self.head(
            x,  # all of it
        ).split([2, 4], dim=-1)
        return left.sum() * right


def main():
    with torch.no_grad():
        return Net()(torch.ones(3, 4))
"""
BODY = """\
return Net()(torch.ones(3, 4))  # model.py:32 in main:
│ # ones([3, 4], device=cpu, pin_memory=False) -> f32[3, 4];
│ ⬇️ Net
│ x = block(x) × 3  # model.py:23 in Net.forward: → f32[3, 4]
│ │ ⬇️ blocks.0–2
│ │ h = self.fc(x)  # model.py:11 in Block.forward: → f32[3, 4]
│ │ │ # t(f32[4, 4]) -> f32[4, 4];
│ │ │ # addmm(f32[4], f32[3, 4], f32[4, 4]) -> f32[3, 4];
│ │ return x + h.relu()  # :12
│ │ │ # relu(f32[3, 4]) -> f32[3, 4];
│ │ │ # add.Tensor(f32[3, 4], f32[3, 4]) -> f32[3, 4];
│ left, right = self.head(x).split([2, 4], dim=-1)  # :24
│ │ # t(f32[6, 4]) -> f32[4, 6];  head.0
│ │ # addmm(f32[6], f32[3, 4], f32[4, 6]) -> f32[3, 6];  head.0
│ │ # gelu(f32[3, 6]) -> f32[3, 6];  head.1
│ ).split([2, 4], dim=-1)  # :26 → left: f32[3, 2], right: f32[3, 4]
│ │ # split_with_sizes(f32[3, 6], [2, 4], -1) -> (f32[3, 2], f32[3, 4]);
│ return left.sum() * right  # :27
│ │ # sum(f32[3, 2]) -> f32[];
│ │ # mul.Tensor(f32[], f32[3, 4]) -> f32[3, 4];"""


def lines_of(trace: Any, width: int = 100, page: Page | None = None, **options: Any) -> list[str]:
    return shown.lines_of(trace, "code", page or Page(width), **options)


def program(folder: Path, text: str = PROGRAM, name: str = "model") -> ModuleType:
    """A module in a file of its own."""
    return module_of(folder, text, name)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tg.Trace:
    monkeypatch.chdir(tmp_path)
    module = program(tmp_path)
    net = module.Net()
    monkeypatch.setattr(module, "Net", lambda: net)  # its weights are made before
    with tg.record(ops=True) as recorded:
        module.main()
    return recorded


def body(lines: list[str]) -> list[str]:
    """Without the lines of the test itself, which stand around."""
    start = next(index for index, line in enumerate(lines) if "return Net()" in line)
    depth = lines[start].index("return")
    return [line[depth:] for line in lines[start:-1]]


# ---------------------------------------------------------------- golden, and beside it what must hold


def test_a_small_model(trace: tg.Trace) -> None:
    assert "\n".join(body(lines_of(trace, 120))) == BODY


def test_the_files_may_be_gone(trace: tg.Trace, tmp_path: Path) -> None:
    assert len(trace)
    (tmp_path / "model.py").unlink()
    assert "\n".join(body(lines_of(trace, 120))) == BODY


def test_with_times(trace: tg.Trace) -> None:
    lines = lines_of(trace, 140, times=True)
    plain = [line[10:] for line in lines[:-1]]
    assert plain == lines_of(trace, 130)[:-1]
    assert all(re.match(r" *[\d.]+ (ns|µs|ms|s) $| {10}$", line[:10]) for line in lines[:-1])
    assert re.match(r"\d+ ops in [\d.]+ \S+ of [\d.]+ \S+ · \d+ folded", lines[-1])


def test_the_expression_is_highlighted(trace: tg.Trace) -> None:
    colored = lines_of(trace, page=Page(120, color=True))
    assert [ESCAPES.sub("", line) for line in colored] == lines_of(trace, 120)
    text = "\n".join(colored)
    assert "h = \x1b[36mself.fc(x)\x1b[0m" in text
    assert "return \x1b[36mx + h.relu()\x1b[0m" in text
    assert "left, right = \x1b[36mself.head(x)\x1b[0m.split([2, 4], dim=-1)" in text


@pytest.mark.parametrize("name", [name for name in programs.names() if name not in programs.SLOW])
def test_no_line_is_wider_than_the_page(name: str) -> None:
    trace = programs.recorded(name, ops=True)
    for width in (40, 80, 120, 200):
        for options in ({}, {"times": True}, {"frames": "all"}):
            lines = lines_of(trace, width, **options)
            assert max(map(width_of, lines)) <= width
            assert all(line.isprintable() for line in lines)
    steps = [line.lstrip("│ ┆0123456789") for line in lines_of(trace, 200, fold=False, inner=True)]
    ops = [event for event in trace.events(kind="op") if event.inputs or event.outputs]
    assert sum(line.startswith("# ") for line in steps) >= len(ops)


def test_a_transformer_at_all_widths() -> None:
    network, inputs = zoo.FAMILIES["llama"]()
    with tg.record(ops=True) as trace:
        network(**inputs)
    narrow, wide = lines_of(trace, 80), lines_of(trace, 200)
    for mark in ("# ", "⬇️"):  # notes and the last line may take more lines on a narrow page
        assert sum(mark in line for line in narrow) == sum(mark in line for line in wide) > 0
    assert any("⬇️ layers.0–1" in line for line in wide)
    assert any("modeling_llama.py" in line and " in LlamaAttention.forward:" in line for line in wide)
    assert not any("/torch/nn/" in line for line in wide)


# ---------------------------------------------------------------- what is said when something is not known


def test_a_trace_that_an_exception_left_begins_with_how_it_ended() -> None:
    with suppress(RuntimeError), tg.record(ops=True) as trace:
        torch.ones(2, 3) @ torch.ones(2, 3)
    lines = lines_of(trace)
    assert lines[0].startswith("✗ RuntimeError: mat1 and mat2 shapes")
    assert any(re.search(r"# mm\(f32\[2, 3\], f32\[2, 3\]\) ✗ RuntimeError: mat1", line) for line in lines)


def test_nothing_recorded_and_nothing_selected() -> None:
    with tg.record(ops=True) as trace:
        pass
    assert lines_of(trace)[0].startswith("Nothing was recorded")
    with tg.record(ops=True) as trace:
        torch.ones(2)
    assert lines_of(trace, only=tg.select(kind="mark")) == ["No step is selected: the trace has 1, and none that fits."]
    with tg.record() as trace:
        torch.ones(2)
    assert lines_of(trace, 200)[-1].endswith("record(ops=True) shows the aten ops in them")


def test_source_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    latin = program(tmp_path, "# -*- coding: latin-1 -*-\ndef f(x):\n    return x.exp()  # ü\n", "latin")
    (tmp_path / "latin.py").write_bytes(b"def f(x):\n    return x.exp()  # \xfc\n")
    with tg.record(ops=True) as trace:
        latin.f(torch.ones(2))
    text = "\n".join(lines_of(trace))
    assert "(source not known)  # " in text
    assert "# exp(f32[2]) -> f32[2];" in text
    assert "note: " in text
    assert "\xfc" not in text


def test_a_line_of_ten_thousand_characters(tmp_path: Path) -> None:
    module = program(tmp_path, f"def f(x):\n    return x.exp(){' + x' * 2500}\n", "long")
    with tg.record(ops=True) as trace:
        module.f(torch.ones(2))
    lines = lines_of(trace, 80)
    assert max(map(width_of, lines)) <= 80
    assert any("return x.exp() + x" in line and "…  # long.py:2" in line for line in lines)
    assert any(line.endswith("# add.Tensor(f32[2], f32[2]) -> f32[2]; × 2,500") for line in lines)


def test_what_a_terminal_obeys_is_spelt_out() -> None:
    at = Location("/project/\x1b[2Jevil.py", 1, 1, 0, 3, "f\x07", "x = 'a\x1b[31m' + y\tz", "user")
    make = Maker()
    make.add("op", "aten::\x1b[0m", args="'\x1b]0;'", result="\n", stack=(at,), location=at, inputs=[(2,)])
    trace = HandmadeTrace(make.made, notes=("\x1b[5m",))
    assert all(line.isprintable() for line in lines_of(trace))


# ---------------------------------------------------------------- size


def test_the_work_grows_with_the_events_and_no_faster(tmp_path: Path) -> None:
    net = program(tmp_path).Net()
    x = torch.ones(3, 4)

    def recorded(times: int) -> tg.Trace:
        with tg.record(ops=True) as trace, torch.no_grad():
            for number in range(times):
                net(x[number % 3 :])
        return trace

    small, large = recorded(60), recorded(240)
    assert len(lines_of(large)) < 100
    assert work_of(lambda: lines_of(large)) < 6 * work_of(lambda: lines_of(small))
    assert work_of(lambda: lines_of(large, fold=False)) < 6 * work_of(lambda: lines_of(small, fold=False))


def test_a_thousand_frames_of_recursion() -> None:
    def down(x: torch.Tensor, levels: int) -> torch.Tensor:
        x = x + 1
        return down(x, levels - 1) if levels else x

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        with tg.record(ops=True) as trace:
            down(torch.ones(2), 1000)
    finally:
        sys.setrecursionlimit(limit)
    assert len(trace) >= 1000
    folded, whole = lines_of(trace, 80), lines_of(trace, 80, fold=False)
    assert any("return down(x, levels - 1) if levels else x × 1,000 deep" in line for line in folded)
    assert len(folded) < 30
    assert max(map(width_of, whole)) <= 80
    assert any("┆1001 " in line for line in whole)
