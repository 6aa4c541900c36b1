"""Where a line of the tree or of the code view stands: a bare number belongs to the file named last above it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import torchglass as tg
from tests.modules import module_of

INNER = """
import torch

def twice(x):
    y = x * 2  # inner
    return y + y  # inner
"""
OUTER = """
import torch
import {inner}

def main():
    x = torch.ones(3)  # outer
    for _ in range(2):
        x = {inner}.twice(x)  # outer
        x = x.exp()  # outer
    x = x.sum()  # outer
"""
PLACE = re.compile(r"(?:([\w.]+\.py)|(?<=[ #])):(\d+)\b")


@pytest.mark.parametrize("view", ["tree", "code"])
def test_a_bare_line_number_belongs_to_the_file_named_last_above_it(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "inner_of_places.py").write_text(INNER)
    outer = module_of(tmp_path, OUTER.format(inner="inner_of_places"))
    with tg.record() as trace:
        outer.main()
    file = ""
    found: set[str] = set()
    for row in trace.render(view, width=140).splitlines():
        for name, line in PLACE.findall(row):
            file = name or file
            text = (tmp_path / file).read_text().splitlines()[int(line) - 1] if (tmp_path / file).exists() else ""
            for code in ("x * 2", "y + y", "x.exp()", "x.sum()", "torch.ones(3)"):
                if code in row:
                    assert code in text, row
                    found.add(code)
    assert len(found) == 5


CHECKPOINTED = """
import torch
from torch.utils.checkpoint import checkpoint

def block(v):
    return torch.tanh(v) * 2

def main():
    v = torch.randn(3, requires_grad=True)
    z = checkpoint(block, v, use_reentrant=False)
    z.sum().backward()
    w = checkpoint(block, v, use_reentrant=True)
    w.sum().backward()
"""


def test_a_checkpoint_is_shown_as_it_is_written(tmp_path: Path) -> None:
    module = module_of(tmp_path, CHECKPOINTED)
    with tg.record() as trace:
        module.main()
    rows = trace.render("tree", width=140).splitlines()
    assert any(row.startswith("z = checkpoint(block, v, use_reentrant=False)") for row in rows)
    assert any(row.startswith("w = checkpoint(block, v, use_reentrant=True)") for row in rows)
