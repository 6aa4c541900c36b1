"""`torchglass doctor` names what is too old, and uses what is newer than any that was tried."""

from __future__ import annotations

import sys

import pytest
import torch

from torchglass.capture.torch import listeners
from torchglass.cli import doctor, main


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0a0+git1234", "3.0"])
def test_a_newer_torch_is_used_with_a_note(
    version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert f"ok  torch       {version}: newer than any that torchglass was tried with" in printed
    assert "one addition was seen" in printed


@pytest.mark.parametrize("version", ["2.8.0", "2.15.0+cu132"])
def test_a_torch_that_was_tried_has_no_note(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert doctor.torch() == doctor.Check("torch", version)


def test_an_older_torch_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.7.1")
    assert doctor.torch().cure == "torchglass needs torch 2.8 or newer: pip install -U torch"


def test_what_could_not_be_put_up_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = next(each for each in listeners.patches() if "Optimizer" in each.name)
    monkeypatch.setattr(hooks, "made", None)
    monkeypatch.setattr(hooks, "make", lambda: 1 / 0)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "!!  features    torchglass could not install hooks of torch.optim.Optimizer, which it needs for" in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert "one addition was seen" in printed
    monkeypatch.undo()
    assert main(["doctor"]) == 0
    assert "ok  features    all could be put up" in capsys.readouterr().out


def test_a_newer_python_is_used_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "newer than any" not in doctor.python().text
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert "newer than any that torchglass was tried with" in doctor.python().text
    assert doctor.python().cure == ""
