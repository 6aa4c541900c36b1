"""Where any dispatch mode would change a result, ours is off, and back on afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torchglass as tg
from torchglass.capture.transparency.modes import NOTE, NOTE_IN_BACKWARD, sensitive_functions


class Empty(TorchDispatchMode):
    """A mode that does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def product_gradient() -> Tensor:
    torch.manual_seed(1)
    x = torch.randn(7, 5, requires_grad=True)
    x.prod(1).sum().backward()
    assert x.grad is not None
    return x.grad


def with_a_zero() -> Tensor:
    x = torch.tensor([2.0, 0.0, 3.0, 0.1], requires_grad=True)
    (gradient,) = torch.autograd.grad(x.prod(), x)
    return gradient


def phase() -> Tensor:
    """A loss that depends on what eigenvectors leave open: torch refuses to derive it."""
    matrix = torch.tensor([[0.0, 1.0], [-2.0, 0.3]], dtype=torch.float64, requires_grad=True)
    return torch.linalg.eig(matrix).eigenvectors.real.sum()


def dispatch_modes() -> int:
    return torch._C._len_torch_dispatch_stack()


@pytest.mark.parametrize("act", [product_gradient, with_a_zero])
def test_gradients_keep_their_bits(act: Callable[[], Tensor]) -> None:
    plain = act()
    with tg.record(ops=True) as trace:
        recorded, inside = act(), dispatch_modes()
    assert inside == 1
    assert recorded.numpy().tobytes() == plain.numpy().tobytes()
    assert NOTE_IN_BACKWARD in trace.notes


def test_an_empty_mode_does_change_something() -> None:
    """Otherwise the tests here would prove nothing."""
    with Empty():
        phase().backward()  # no error
    x = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
    found = []
    for context in (nullcontext(), Empty()):
        with context:
            found.append(torch.nn.functional.one_hot(x.long())._version)
    assert found[0] != found[1]


def test_the_error_of_a_phase_is_still_raised_and_the_mode_is_back() -> None:
    with tg.record(ops=True) as trace:
        loss = phase()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="depends on this quantity"):
                loss.backward(retain_graph=True)
            assert dispatch_modes() == 1
        torch.ones(2).relu()
    assert dispatch_modes() == 0
    assert [event.name for event in trace.events() if event.kind == "op"][-1] == "aten::relu"


def test_after_the_recording_and_in_another_one() -> None:
    with tg.record(ops=True):
        loss = phase()
    with pytest.raises(RuntimeError, match="depends on this quantity"):
        loss.backward(retain_graph=True)
    with tg.record(ops=True), pytest.raises(RuntimeError, match="depends on this quantity"):
        loss.backward()
    assert dispatch_modes() == 0


def test_in_a_thread() -> None:
    found: list[object] = []

    def work() -> None:
        with pytest.raises(RuntimeError, match="depends on this quantity"):
            phase().backward()
        found.append(dispatch_modes())
        found.append(product_gradient().numpy().tobytes())

    with tg.record(ops=True):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [1, product_gradient().numpy().tobytes()]


def test_when_there_is_no_room_to_record() -> None:
    plain = product_gradient(), torch.linalg.svdvals(_matrix()), torch.nn.functional.one_hot(torch.tensor([1, 2]))
    with tg.record(ops=True, max_events=2):
        full = product_gradient(), torch.linalg.svdvals(_matrix()), torch.nn.functional.one_hot(torch.tensor([1, 2]))
        with pytest.raises(RuntimeError, match="depends on this quantity"):
            phase().backward()
    assert [(t.numpy().tobytes(), t._version) for t in full] == [(t.numpy().tobytes(), t._version) for t in plain]


def _matrix() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(6, 5)


def test_a_thread_that_outlives_the_recording_is_left_alone() -> None:
    go_on, found = threading.Event(), []

    def work() -> None:
        torch.ones(2).relu()
        go_on.wait(10)
        found.append(torch.nn.functional.one_hot(torch.tensor([1, 2]))._version)
        found.append(dispatch_modes())

    with tg.record(ops=True):
        thread = threading.Thread(target=work)
        thread.start()
    go_on.set()
    thread.join()
    assert found == [torch.nn.functional.one_hot(torch.tensor([1, 2]))._version, 0]


def test_what_only_a_script_called_is_cured_too() -> None:
    scripted = torch.jit.script(_product)
    x = torch.tensor([[2.0, 0.0, 3.0, 0.1], [1.1, 0.7, 0.3, 2.0]], requires_grad=True)
    (plain,) = torch.autograd.grad(scripted(x), x)
    with tg.record(ops=True) as trace:
        (recorded,) = torch.autograd.grad(scripted(x), x)
    assert recorded.numpy().tobytes() == plain.numpy().tobytes()
    assert NOTE_IN_BACKWARD in trace.notes


def _product(x: Tensor) -> Tensor:
    return x.prod()


def test_listed_functions_say_that_their_ops_are_not_seen() -> None:
    assert len(sensitive_functions()) >= 16
    with tg.record(ops=True) as trace:
        torch.linalg.svdvals(torch.eye(2))
        torch.eye(2).relu()
    event = next(event for event in trace.events() if event.name == "linalg.svdvals")
    assert event.note == NOTE
    assert not [each for each in trace.events() if each.parent == event.id]


def test_complex_residuals_are_those_of_the_plain_program() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 3, dtype=torch.complex64), torch.randn(4, 2, dtype=torch.complex64)
    plain = torch.linalg.lstsq(a, b, driver="gels").residuals
    with tg.record(ops=True):
        recorded = torch.linalg.lstsq(a, b, driver="gels").residuals
    assert torch.equal(plain, recorded)
    with Empty():
        assert not torch.equal(plain, torch.linalg.lstsq(a, b, driver="gels").residuals)
