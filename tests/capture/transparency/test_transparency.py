"""Small programs and tiny transformers give the same results and errors while they are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import programs
from tests.conformance.compare import Case, alone, leaves
from tests.conformance.recording import failures, failures_of_each
from tests.older import COPIES_FOR_EACH_MODE
from tests.zoo import FAMILIES

PROBES: list[dict[str, Any]] = [{}, {"ops": True}, {"ops": True, "values": "stats"}]

# Where a version differs with `ops=True`: gradients (see `is_price_of_ops`), and what a custom op wrote into, if it
# declares that it does: the writes inside its kernel are not counted a second time.
OTHER_VERSION = {
    "complex_numbers": "out[4]",
    "custom_ops": "out[1]",
    "indexing": "out[5]",
    "inplace_and_views": "out[4]",
    "linear_algebra": "out[9]",
    "parametrised": "out[1]",
}


@pytest.mark.parametrize("name", programs.names())
def test_a_program_does_the_same(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    case = Case(name, _forget_compiled, lambda _: programs.load(name).main(), raises=BaseException)
    plain = alone(case)
    for options in PROBES:
        if name == "wrapper_subclass" and options and COPIES_FOR_EACH_MODE:
            continue  # it returns the names of the ops that its own handler saw
        price = f"{name}: {OTHER_VERSION.get(name)}._version: " if options else "none"
        assert [line for line in failures(case, plain, **options) if not line.startswith(price)] == [], options
        printed = capfd.readouterr()
        # Torch 2.8 itself prints a line for each process group that is made.
        assert [line for line in printed.out.splitlines() if not line.startswith("[Gloo] Rank")] == [], options
        assert printed.err == "", options


def _forget_compiled() -> None:
    """Compiled code is kept for the process: without this the second run would be another program."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_transformer_does_the_same_in_training(name: str) -> None:
    assert failures_of_each(Case(name, _training(FAMILIES[name]), _train), *PROBES) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_transformer_does_the_same_in_evaluation(name: str) -> None:
    case = Case(name, lambda: FAMILIES[name](), _evaluate)
    plain = alone(case)
    for options in PROBES:
        assert failures(case, plain, **options) == [], options


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
    return {
        "result": out,
        "gradients": gradients,
        "buffers": dict(model.named_buffers()),
        "parameters": dict(model.named_parameters()),
    }


def _evaluate(built: tuple[nn.Module, dict[str, Tensor]]) -> Any:
    model, inputs = built
    with torch.no_grad():
        return model(**inputs)
