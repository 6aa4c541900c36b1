"""Attention keeps its fused path under recording, and `fused="open"` shows the inside instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests.conformance.compare import Case, differences


def _attention() -> nn.Module:
    return nn.MultiheadAttention(8, 2, batch_first=True).eval()


def _layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()


def _encoder() -> nn.Module:
    return nn.TransformerEncoder(_layer(), 2).eval()


FUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "MultiheadAttention": (_attention, "_native_multi_head_attention"),
    "TransformerEncoderLayer": (_layer, "_transformer_encoder_layer_fwd"),
    "TransformerEncoder": (_encoder, "_transformer_encoder_layer_fwd"),
}


def _run(module: nn.Module, x: Tensor) -> object:
    with torch.no_grad():
        return module(x, x, x, need_weights=False) if isinstance(module, nn.MultiheadAttention) else module(x)


def _function_names(trace: tg.Trace) -> list[str]:
    return [event.name for event in trace.events() if event.kind == "function"]


@pytest.mark.parametrize("name", FUSED)
def test_the_bits_of_the_fused_path_stay(name: str) -> None:
    build, _ = FUSED[name]
    case = Case(name, lambda: (build(), torch.randn(16, 32, 8)), lambda given: _run(*given))
    assert differences(case, tg.record) == []


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_call_is_an_event_with_nothing_inside(name: str) -> None:
    build, function = FUSED[name]
    with tg.record() as trace:
        _run(build(), torch.randn(2, 4, 8))
    names = _function_names(trace)
    assert function in names
    assert "F.multi_head_attention_forward" not in names
    event = next(e for e in trace.events() if e.name == function)
    assert 'fused="open"' in (event.note or "")


@pytest.mark.parametrize("name", FUSED)
def test_open_shows_the_inside(name: str) -> None:
    build, function = FUSED[name]
    with tg.record(fused="open") as trace:
        _run(build(), torch.randn(2, 4, 8))
    names = _function_names(trace)
    assert function not in names
    assert "F.multi_head_attention_forward" in names
    assert any("scaled_dot_product_attention" in n or "bmm" in n or "softmax" in n for n in names)


def test_torch_still_asks_where_we_answer() -> None:
    """The cure rests on these two files asking through the attribute; a new torch may stop."""
    import inspect

    from torch.nn.modules import activation, transformer

    for module in (activation, transformer):
        assert "torch.overrides.has_torch_function(" in inspect.getsource(module)


def test_it_says_that_the_function_is_not_opened() -> None:
    x = torch.randn(1, 2, 4, 8)
    with tg.record(fused="open") as trace:
        nn.functional.scaled_dot_product_attention(x, x, x)
    assert [note for note in trace.notes if "F.scaled_dot_product_attention stays one step" in note]
    with tg.record(fused="open") as other:
        x.relu()
    assert other.notes == ()
