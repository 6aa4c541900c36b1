"""`to_pandas` gives the columns to pandas, and says what to install where that is not there."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torchglass as tg
from torchglass.errors import MissingExtra, NotRecorded


@pytest.fixture
def trace() -> tg.Trace:
    return tg.trace(torch.relu, torch.ones(2))


def test_without_pandas(trace: tg.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'torchglass\[pandas\]'"):
        trace.to_pandas()


def test_what_pandas_is_given(trace: tg.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def frame(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return columns

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=frame))
    assert trace.to_pandas() == trace.columns("events")
    assert trace.to_pandas("tensor_values")["shape"] == ["[2]", "[2]"]
    with pytest.raises(NotRecorded, match="no table 'x'"):
        trace.to_pandas("x")


def test_with_the_real_one(trace: tg.Trace) -> None:
    pytest.importorskip("pandas")
    frame = trace.to_pandas()
    assert list(frame.columns) == list(trace.columns())
    assert frame["name"].tolist() == ["relu"]
