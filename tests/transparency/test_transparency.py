"""Small programs and tiny transformers give the same results and errors while they are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests import programs
from tests.conformance.compare import Case, differences, leaves
from tests.zoo import FAMILIES


@pytest.mark.parametrize("name", programs.names())
def test_a_program_does_the_same(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    case = Case(name, _forget_compiled, lambda _: programs.load(name).main(), raises=BaseException)
    assert differences(case, tg.record) == []
    assert capfd.readouterr() == ("", "")


def _forget_compiled() -> None:
    """Compiled code is kept for the process: without this the second run would be another program."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_transformer_does_the_same_in_training(name: str) -> None:
    assert differences(Case(name, _training(FAMILIES[name]), _train), tg.record) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_transformer_does_the_same_in_evaluation(name: str) -> None:
    assert differences(Case(name, lambda: FAMILIES[name](), _evaluate), tg.record) == []


def _training(build: Callable[[], tuple[nn.Module, dict[str, Tensor]]]) -> Callable[[], Any]:
    """In training mode, so that dropout draws random numbers."""

    def prepare() -> tuple[nn.Module, dict[str, Tensor]]:
        model, inputs = build()
        return model.train(), inputs

    return prepare


def _train(built: tuple[nn.Module, dict[str, Tensor]]) -> Any:
    model, inputs = built
    out = model(**inputs)
    results = [leaf for _, leaf in leaves("out", out) if isinstance(leaf, Tensor)]
    sum(r.sum() for r in results if r.is_floating_point()).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert any(g is not None for g in gradients.values())
    return out, gradients, dict(model.named_buffers()), dict(model.named_parameters())


def _evaluate(built: tuple[nn.Module, dict[str, Tensor]]) -> Any:
    model, inputs = built
    with torch.no_grad():
        return model(**inputs)
