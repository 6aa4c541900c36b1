"""Findings stand at their line in the views that show lines of the program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.views import finding_marks

SIGN = "\N{BALLOT X}"
MARK = f"{SIGN} broadcast: mse_loss compares"
"""Put together, since the listing shows this file."""


def trained(is_wrong: bool = True) -> tg.Trace:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    y = torch.randn(8) if is_wrong else torch.randn(8, 1)
    with tg.record() as trace:
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return trace


@pytest.mark.parametrize("view", ["tree", "code", "listing"])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_finding_is_below_its_line(view: str) -> None:
    trace = trained()
    lines = tg.render(trace, view, width=160).splitlines()
    (at,) = [number for number, line in enumerate(lines) if MARK in line]
    assert "F.mse_loss(model(x), y)" in lines[at - 1]
    assert "[8, 1]" in lines[at]
    assert "(× 3)" in lines[at]
    assert MARK not in tg.render(trace, view, findings=False)
    assert MARK not in tg.render(trained(is_wrong=False), view)


def test_a_finding_of_a_loss_module_is_below_the_call_of_the_module() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())
    criterion = nn.BCEWithLogitsLoss()
    x, y = torch.randn(8, 4), torch.rand(8, 4)
    with tg.record() as trace:
        criterion(model(x), y[:, :3]).backward()
    lines = tg.render(trace, "tree", width=160).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "softmax-twice" in line]
    assert "BCEWithLogitsLoss" in lines[at - 1]


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_the_data_of_a_view_has_the_marks_too() -> None:
    rows = trained().to_dict("tree")["rows"]
    (mark,) = [cell for row in rows for cell in row["below"] if cell["kind"] == "finding"]
    assert mark["text"].startswith(MARK)


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_long_trace_says_where_its_findings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_marks, "MOST_EVENTS", 10)
    text = tg.render(trained(), "tree")
    assert SIGN not in text
    assert "torchglass check" in text
