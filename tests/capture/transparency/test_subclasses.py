"""No code of the program's tensor classes runs because of us, whatever is measured and kept."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import torchglass as tg

called: list[str] = []


class WithFunctions(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class WithOps(torch.Tensor):
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called.append(str(func))
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


class Wrapper(torch.Tensor):
    """Has no memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Wrapper":
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, strides=inner.stride())
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called.append(str(func))
        bare = tree_map(lambda each: each.inner if isinstance(each, Wrapper) else each, (args, kwargs or {}))
        result = func(*bare[0], **bare[1])
        return tree_map(lambda each: Wrapper(each) if isinstance(each, torch.Tensor) else each, result)


class WithAttributes(torch.Tensor):
    @property
    def shape(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        called.append("shape")
        return super().shape

    def numel(self) -> int:
        called.append("numel")
        return super().numel()

    def detach(self) -> Any:
        called.append("detach")
        return super().detach()


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "functions": lambda tensor: tensor.as_subclass(WithFunctions),
    "ops": lambda tensor: tensor.as_subclass(WithOps),
    "wrapper": Wrapper,
    "attributes": lambda tensor: tensor.as_subclass(WithAttributes),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"values": "all"},
    {"values": "all", "ops": True},
    {"values": tg.select(function="mul")},
    {"values": "stats+sketch"},
    {"values": "all", "variables": True},
]


def program(make: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
    called.clear()
    a = make(torch.arange(6.0).reshape(2, 3) + 1)
    b = a * 2
    c = b.t() @ a
    c.add_(1)
    torch.stack([b, a]).sum()
    torch.nn.functional.relu(c)
    return list(called)


@pytest.mark.parametrize("options", OPTIONS, ids=[str(sorted(each)) for each in OPTIONS])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_tensor_subclass_is_called(kind: str, options: dict[str, Any]) -> None:
    plain = program(KINDS[kind])
    with tg.record(**options) as trace:
        recorded = program(KINDS[kind])
    assert recorded == plain
    assert not any("failed to record" in note for note in trace.notes)


@pytest.mark.parametrize("kind", ["functions", "ops", "attributes"])
def test_a_subclass_with_memory_of_its_own_is_kept(kind: str) -> None:
    with tg.record(values="all") as trace:
        program(KINDS[kind])
    (event,) = trace.events(function="mul")
    assert torch.equal(trace.tensor(event.outputs[0]), (torch.arange(6.0).reshape(2, 3) + 1) * 2)


def test_a_subclass_that_wraps_others_is_not_kept_and_the_trace_says_so() -> None:
    with tg.record(values="all") as trace:
        program(Wrapper)
    assert any("classes of the program's own" in note for note in trace.notes)
