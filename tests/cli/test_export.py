"""`torchglass export` and `torchglass graph` of a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.cli import main


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    with tg.record() as trace:
        model(x)
    tg.save(trace, tmp_path / "run.trace")
    return tmp_path / "run.trace"


def test_a_file_by_its_suffix(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = bundle.parent / "model.dot"
    assert main(["export", str(bundle), str(out), "--depth", "0"]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_text().startswith("digraph")
    assert "Linear" not in out.read_text()


def test_a_timeline(bundle: Path) -> None:
    out = bundle.parent / "run.perfetto.json"
    assert main(["export", str(bundle), str(out)]) == 0
    assert json.loads(out.read_text())["traceEvents"]


def test_an_unknown_suffix_is_refused_before_the_trace_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "no-such.trace", "model.xyz"]) == 1
    assert ".mmd (the data flow for Mermaid)" in capsys.readouterr().err


def test_graph_prints_the_data_flow_of_a_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(bundle), "--no-functions"]) == 0
    assert "Linear(4, 4)" in capsys.readouterr().out


def test_graph_writes_a_picture_of_a_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(bundle), "--out", str(bundle.parent / "m.mmd")]) == 0
    assert (bundle.parent / "m.mmd").read_text().startswith("flowchart")
