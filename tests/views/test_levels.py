"""Calls, loops and rounds as stacks tell of them, against programs that count their own rounds."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import torchglass as tg
from tests.modules import module_of
from tests.views.looping import Writer
from torchglass.views.digest import digest_of
from torchglass.views.levels import LOOP, Level, Levels, count_of


def levels_of(folder: Path, text: str, **options: Any) -> tuple[Levels, dict[str, int]]:
    """The levels of a program's ``main``, and the rounds that it counted itself."""
    module = module_of(folder, text)
    with tg.record(**options) as trace:
        module.main()
    return Levels(digest_of(trace)), getattr(module, "TRUE", {})


def name_of(span: Level, text: str) -> str | None:
    """The name under which a loop counts its rounds: in its body, before anything else."""
    assert span.loop is not None
    node = span.loop.node
    found = re.search(r'turn\("([^"]+)"\)', ast.get_source_segment(text, node) or "")
    return found[1] if found else None


@pytest.mark.parametrize(
    "options", [{}, {"calls": "user"}, {"variables": True}, {"variables": True, "calls": "user"}], ids=str
)
@pytest.mark.parametrize("seed", range(60))
def test_rounds_are_those_that_a_program_counts_itself(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    text = Writer(seed).program()
    levels, true = levels_of(tmp_path, text, **options)
    claimed: dict[str, list[Level]] = {}
    for span in levels.spans:
        here = span.at is not None and Path(span.at.file).name == "sample.py"
        if span.kind == LOOP and here and (name := name_of(span, text)) is not None:
            claimed.setdefault(name, []).append(span)
    for name, spans in claimed.items():
        counts = [count_of(span) for span in spans]
        total = sum(count.number for count in counts)
        assert total <= true.get(name, 0), (name, counts)
        if all(count.exact for count in counts):
            assert total == true.get(name, 0), (name, counts)


PACKAGE = """
def centred(x):
    return shifted(x, x.mean())

def shifted(x, by):
    return x - by
"""
USER = """
import tglevels, torch

def main():
    y = tglevels.centred(torch.ones(2))
    return y * 2
"""


def test_a_call_of_an_installed_package_stands_at_the_program_s_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "tglevels" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    module = module_of(tmp_path, USER)
    with tg.record() as trace:
        module.main()
    shown = tg.render(trace, width=120).splitlines()
    assert [line.split("  ")[0] for line in shown] == [
        "torch.ones(2)",
        "y = tglevels.centred(torch.ones(2))",
        "│ x.mean()",
        "│ x - by",  # what a package calls inside of itself has no level
        "y * 2",
        "4 events",
    ]
    assert "tglevels/__init__.py:3" in shown[2]


def test_what_an_import_runs_stands_below_its_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tgimported.py").write_text("import torch\nx = torch.ones(2) + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = module_of(tmp_path, "def main():\n    from tgimported import x\n    return x * 2\n")
    with tg.record() as trace:
        module.main()
    shown = [line.split("  ")[0] for line in tg.render(trace, width=100).splitlines()]
    assert shown == ["from tgimported import x", "│ torch.ones(2)", "│ x = torch.ones(2) + 1", "x * 2", "3 events"]


TRUTHS = """
import torch

def checked(t):
    t = t.clone()
    if t.isnan().any() or t.sum() > 9 and not t.any():
        raise ValueError
    return t.abs() if t.isinf().any() else t.neg()

def main():
    t = torch.zeros(3)
    for i in range(5):
        u = t.clone()
        if t.any():
            raise ValueError
        elif u.isnan().any():
            break
        v = u.abs()
    for i in range(4):
        y = checked(t)
    while (t < 3).all() and not t.isnan().any():
        t = t + 1
"""


def test_to_ask_whether_a_tensor_is_true_begins_no_round(tmp_path: Path) -> None:
    """Python 3.11 gives that the range of the whole ``if``, of which no expression is."""
    module = module_of(tmp_path, TRUTHS)
    with tg.record() as trace:
        module.main()
    shown = tg.render(trace, width=120)
    assert re.findall(r"(\w+) .*:  (× .*?)  ", shown) == [("for", "× 5"), ("for", "× 4"), ("while", "× 3")]
    written = [line.strip("│ ").split("  ")[0] for line in shown.splitlines()]
    assert [written.count(each) for each in ("u = t.clone()", "v = u.abs()", "y = checked(t)", "t.neg()")] == [1] * 4
