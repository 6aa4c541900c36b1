"""Decorated functions under torch.compile: no warnings, every line of every call, the same results."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchglass.compat.ttracker import auto_diff, var_tracker

X = torch.linspace(-1, 1, 12).reshape(4, 3)


@auto_diff
def twice(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


@var_tracker("y")
def followed(x: Tensor) -> Tensor:
    y = x + 1
    return y * 2


class Net(nn.Module):
    """A module whose forward is decorated."""

    @auto_diff
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


@pytest.mark.parametrize(
    ("function", "marks"),
    [
        (twice, ["┌──", "input", "output", "time"]),
        (lambda x: twice(x) + 1, ["┌──", "input", "output", "time"]),
        (lambda x: followed(x) + 1, ["┌──", "input", "y@", "output", "time"]),
        (Net(), ["┌──", "input", "output", "time"]),
    ],
    ids=["itself", "called", "followed", "module"],
)
def test_each_call_is_shown_whole_and_nobody_warns(
    function: Any, marks: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORCHGLASS", "TORCHGLASS_CONSOLE", "TORCHGLASS_LANG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    plain = function(X)
    capsys.readouterr()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert torch.equal(compiled(X), plain)
    assert [
        str(each.message) for each in caught if "torchglass" in str(each.message) or "Dynamo" in str(each.message)
    ] == []
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(marks)
    for line, mark in zip(lines, marks * 2, strict=True):
        assert mark in line
