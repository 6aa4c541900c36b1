"""`torchglass open`: the page beside the bundle, and a browser where there is one."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.cli import main


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    tg.save(tg.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), tmp_path / "run.trace")
    return tmp_path / "run.trace"


def test_the_page_is_next_to_the_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", str(bundle), "--no-browser"]) == 0
    page = bundle.parent / "run.html"
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_browser_is_opened_or_the_command_says_that_there_is_none(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not asked.append(address))
    assert main(["open", str(bundle)]) == 0
    assert asked == [(bundle.parent / "run.html").as_uri()]
    assert "no browser" not in capsys.readouterr().out
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert main(["open", str(bundle), "--out", str(bundle.parent / "x.html")]) == 0
    assert "no browser could be opened here" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_one_line(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", str(bundle), "--out", str(bundle.parent / "no" / "x.html"), "--no-browser"]) == 1
    assert "cannot write" in capsys.readouterr().err
