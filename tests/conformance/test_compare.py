"""The comparer finds what it is there to find, and nothing in a program that is left alone."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conformance.compare import Case, differences, facets_of
from tests.conformance.recording import failures
from tests.conformance.samples import (
    BRANCHING,
    MODULES,
    OPS,
    chunks,
    module_cases,
    more_module_cases,
    more_op_cases,
    op_cases,
)

SOFTMAX = Case("softmax", lambda: torch.randn(4, 5, requires_grad=True), lambda x: x.softmax(-1))
BAD_MATMUL = Case("matmul", lambda: torch.randn(2, 3), lambda x: x @ x)


class Altering(TorchFunctionMode):
    """A mode that hands every result through `alter`."""

    def __init__(self, alter: Callable[[Tensor], Tensor]) -> None:
        self.alter = alter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch.no_grad():
            return self.alter(func(*args, **(kwargs or {})))


def _flip_lowest_bit(out: Tensor) -> Tensor:
    out.detach().view(torch.int32)[0, 0] ^= 1
    return out


ALTERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "one bit": (_flip_lowest_bit, ".bytes"),
    "version": (lambda out: out.add_(0), "._version"),
    "history": (lambda out: out.detach(), ".grad_fn"),
    "strides": (lambda out: out.t().contiguous().t(), ".stride"),
    "negative bit": (lambda out: torch._neg_view(-out), ".conj, neg"),
    "class": (lambda out: nn.Parameter(out.detach()), ".type"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_altered_result_is_found(name: str) -> None:
    alter, facet = ALTERATIONS[name]
    found = differences(SOFTMAX, lambda: Altering(alter))
    assert any(facet in line for line in found), found


@contextmanager
def _after(act: Callable[[], Any]) -> Iterator[None]:
    try:
        yield
    finally:
        act()


def _other_text(error: BaseException) -> None:
    raise type(error)(f"{error}!")


def _other_type(error: BaseException) -> None:
    raise ValueError(str(error))


def _same_text(error: BaseException) -> None:
    raise type(error)(*error.args) from None


@pytest.mark.parametrize(
    ("change", "facet"),
    [(_other_text, "error.text"), (_other_type, "error.type"), (_same_text, "error.is_the_same_object")],
)
def test_an_altered_exception_is_found(change: Callable[[BaseException], None], facet: str) -> None:
    @contextmanager
    def context() -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            change(error)

    assert any(facet in line for line in differences(BAD_MATMUL, context))


def test_a_swallowed_exception_is_found() -> None:
    @contextmanager
    def context() -> Iterator[None]:
        try:
            yield
        except RuntimeError:
            pass

    assert any("error.type" in line for line in differences(BAD_MATMUL, context))


@pytest.mark.parametrize(
    "draw", [lambda: torch.rand(1), random.random, np.random.rand], ids=["torch", "python", "numpy"]
)
def test_a_drawn_random_number_is_found(draw: Callable[[], Any]) -> None:
    assert any("rng." in line for line in differences(SOFTMAX, lambda: _after(draw)))


def test_a_warning_is_found() -> None:
    found = differences(SOFTMAX, lambda: _after(lambda: warnings.warn("more", stacklevel=1)))
    assert any("warnings" in line for line in found)


def test_a_printed_line_is_found() -> None:
    assert any("stdout" in line for line in differences(SOFTMAX, lambda: _after(lambda: print("hello"))))


def test_an_altered_input_is_found() -> None:
    given: list[Tensor] = []

    def act(x: Tensor) -> Tensor:
        given[:] = [x]
        return x * 2

    case = Case("doubles", lambda: torch.ones(3), act)
    assert any("in.bytes" in line for line in differences(case, lambda: _after(lambda: given[0].add_(1))))


class _EmptyFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _EmptyDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("make", "facet"), [(_EmptyFunctionMode, "function modes"), (_EmptyDispatchMode, "dispatch modes")]
)
def test_a_mode_left_behind_is_found(make: Callable[[], Any], facet: str) -> None:
    modes: list[Any] = []

    @contextmanager
    def context() -> Iterator[None]:
        yield
        modes.append(make())
        modes[-1].__enter__()

    try:
        found = differences(SOFTMAX, context)
    finally:
        while modes:
            modes.pop().__exit__(None, None, None)
    assert any(facet in line for line in found)


PATCHED = [(nn.Module, "__call__"), (torch.overrides, "has_torch_function"), (threading.Thread, "start")]


@pytest.mark.parametrize(("owner", "name"), PATCHED, ids=[name for _, name in PATCHED])
def test_a_name_left_replaced_is_found(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(owner, name)

    def replace() -> None:
        monkeypatch.setattr(owner, name, lambda *args, **kwargs: original(*args, **kwargs))

    assert any(name in line for line in differences(SOFTMAX, lambda: _after(replace)))


def test_a_hook_left_behind_is_found() -> None:
    handles: list[Any] = []

    def leave() -> None:
        handles.append(nn.modules.module.register_module_forward_hook(lambda *_: None))

    found = differences(SOFTMAX, lambda: _after(leave))
    for handle in handles:
        handle.remove()
    assert any("module hooks" in line for line in found)


def test_nan_equals_itself_and_zero_is_not_minus_zero() -> None:
    assert facets_of("x", torch.tensor([float("nan")])) == facets_of("x", torch.tensor([float("nan")]))
    assert facets_of("x", torch.tensor([0.0])) != facets_of("x", torch.tensor([-0.0]))


def test_what_differs_between_plain_runs_is_left_out() -> None:
    counter = iter(range(1000))
    case = Case("counts", lambda: None, lambda _: torch.tensor(next(counter)))
    assert differences(case, nullcontext) == []


def test_a_rare_chance_of_the_program_is_no_difference() -> None:
    counter = iter(range(1000))
    case = Case("rarely differs", lambda: None, lambda _: torch.tensor(next(counter) % 3 == 2))
    assert differences(case, nullcontext) == []


def test_programs_left_alone_do_not_differ() -> None:
    cases = [case for op in chunks(OPS, 16)[3] for case in op_cases(op)]
    cases += [case for info in chunks(MODULES, 16)[3] for case in module_cases(info)]
    assert [line for case in cases for line in differences(case, nullcontext)] == []
    assert len(cases) > 100


def test_an_empty_function_mode_is_caught_switching_off_fused_attention() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def act(x: Tensor) -> Tensor:
        with torch.no_grad():
            return layer(x)

    case = Case("encoder layer", lambda: torch.randn(16, 32, 8), act)
    assert any("out.bytes" in line for line in differences(case, _EmptyFunctionMode))


@pytest.mark.parametrize("name", BRANCHING)
def test_an_empty_dispatch_mode_is_caught_changing_results(name: str) -> None:
    ops = [op for op in OPS if op.name == name]
    cases = [case for op in ops for case in [*op_cases(op), *more_op_cases(op)]]
    found = (line for case in cases for line in differences(case, _EmptyDispatchMode))
    assert any("bytes" in line or "_version" in line or "grad_fn" in line for line in found)


def test_an_empty_dispatch_mode_is_caught_changing_a_module() -> None:
    info = next(info for info in MODULES if info.name == "nn.CTCLoss")
    cases = [*module_cases(info), *more_module_cases(info)]
    assert any("grad_fn" in line for case in cases for line in differences(case, _EmptyDispatchMode))


def test_a_fault_of_the_recorder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchglass._trace import Trace

    note = "torchglass failed to record 1 step(s); the program was not affected: KeyError"
    monkeypatch.setattr(Trace, "notes", property(lambda _: (note,)))
    assert failures(SOFTMAX) == [f"softmax: {note}"]


def test_what_comes_by_chance_is_not_the_contexts_doing() -> None:
    calls: list[int] = []

    def by_chance(x: Tensor) -> Tensor:
        calls.append(0)
        return x + (len(calls) == 3)  # once, and under the context

    assert differences(Case("by chance", lambda: torch.ones(2), by_chance), nullcontext) == []
    assert len(calls) > 3
