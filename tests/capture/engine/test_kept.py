"""What is kept from block to block (texts of settings, plans of functions, memory) must not outlive what it says."""

from __future__ import annotations

import gc
from types import FunctionType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.source import text


class Scaled(nn.Module):
    """Shows what its constructor was given."""

    def __init__(self, factor: Any, word: str = "plain") -> None:
        super().__init__()
        self.factor, self.word = factor, word
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


def _settings(model: nn.Module) -> list[str]:
    with tg.record() as trace:
        model(torch.ones(1, 2))
    return [each.detail for each in trace._tables.module_infos()]


def _thrice(model: nn.Module) -> list[str]:
    """Settings in blocks of their own: they are read, then known by what the module holds, then by its versions."""
    first = _settings(model)
    assert [_settings(model), _settings(model)] == [first, first]
    return first


def test_settings_that_changed_between_blocks_are_shown_as_they_are_now() -> None:
    dropout = nn.Dropout(0.5).eval()
    model = nn.Sequential(dropout, nn.Linear(2, 2))
    assert _thrice(model)[1:] == ["p=0.5, inplace=False", "in_features=2, out_features=2, bias=True"]
    dropout.p = 0.25
    model[1].bias = None
    assert _thrice(model)[1:] == ["p=0.25, inplace=False", "in_features=2, out_features=2, bias=False"]


@pytest.mark.parametrize(
    ("factor", "shown"), [(1, "factor=1"), (1.0, "factor=1.0"), (True, "factor=True"), ("1", "factor='1'")]
)
def test_settings_that_are_equal_and_not_the_same_are_distinguished(factor: Any, shown: str) -> None:
    root = nn.Sequential(Scaled(factor))
    assert _thrice(root)[1] == f"{shown}, word='plain'"


def test_text_that_was_made_while_the_program_ran_is_read_each_time() -> None:
    scaled = Scaled(1, "".join(["a", "b"]))
    assert _thrice(nn.Sequential(scaled))[1] == "factor=1, word='ab'"
    scaled.word = "".join(["c", "d"])
    assert _thrice(nn.Sequential(scaled))[1] == "factor=1, word='cd'"


def test_a_class_that_was_changed_shows_itself_in_another_way() -> None:
    class Own(nn.Linear):
        pass

    model = nn.Sequential(Own(2, 2))
    assert _thrice(model)[1] == "in_features=2, out_features=2, bias=True"

    def __init__(self: Any, out_features: int) -> None: ...

    Own.__init__, Own.extra_repr = __init__, nn.Module.extra_repr  # type: ignore[method-assign,assignment]
    assert _thrice(model)[1] == "out_features=2"


def test_a_function_of_torchs_that_got_another_code_is_called_with_it() -> None:
    def other(given: Any, *_: Any, **__: Any) -> Any:
        return torch.neg(given)

    x, original = torch.ones(2), F.softsign.__code__
    with tg.record():
        assert F.softsign(x).tolist() == [0.5, 0.5]
    try:
        F.softsign.__code__ = other.__code__
        with tg.record():
            assert F.softsign(x).tolist() == [-1.0, -1.0]
    finally:
        F.softsign.__code__ = original


def test_the_memory_of_a_trace_that_somebody_has_is_not_used_again() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))

    def recorded(size: int) -> tg.Trace:
        with tg.record() as trace:
            model(torch.ones(size, 2))
        return trace

    held = [recorded(size) for size in range(1, 4)]
    for size in range(20):
        recorded(size + 10)
        gc.collect()
    assert [{event.inputs[0].shape for event in trace.events(kind="module")} for trace in held] == [
        {(size, 2)} for size in range(1, 4)
    ]


def test_objects_that_show_only_their_class_differ_by_it() -> None:
    class One:
        pass

    class Other:
        pass

    class Takes(nn.Module):
        def forward(self, x: torch.Tensor, what: Any) -> torch.Tensor:
            return x + 1

    model, x = Takes(), torch.ones(1)
    with tg.record() as trace:
        for what in (One(), Other(), One(), {}, "text"):
            model(x, what)
    shown = [event.args.rpartition(" ")[2].rpartition("=")[2] for event in trace.events(kind="module")]
    assert shown == ["<One>", "<Other>", "<One>", "{}", "'text'"]


def test_files_of_torchs_own_are_asked_for_once_for_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    stat = text.stat_of
    monkeypatch.setattr(text, "stat_of", lambda file: (asked.append(file), stat(file))[1])

    class Own(nn.ReLU):
        pass

    def asked_in_a_block() -> list[str]:
        asked.clear()
        with tg.record():
            Own()(torch.ones(2))
        return list(asked)

    theirs = nn.ReLU.forward.__code__.co_filename
    asked_in_a_block()
    again = asked_in_a_block()
    assert (__file__ in again, theirs in again) == (True, False)
    Own.forward = FunctionType(nn.ReLU.forward.__code__.replace(), nn.ReLU.forward.__globals__)  # type: ignore[method-assign]
    assert theirs in asked_in_a_block()
