"""Turns PyTorch's OpInfo and ModuleInfo entries into cases to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import islice, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
from torch.utils._pytree import tree_leaves

from tests.conformance.compare import Case, seed

# Their elements are whatever the memory held.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# In order of preference: float32 where the operator knows it.
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.float64, torch.bfloat16)
# Where one sample of an operator is not enough.
MORE_DTYPES = (torch.float32, torch.complex64, torch.int64)
MORE_SAMPLES = 2
# What an empty dispatch mode changes, by the first of its samples that show it.
BRANCHING = """
linalg.cond linalg.eigvalsh linalg.lstsq linalg.matrix_norm linalg.matrix_rank linalg.pinv linalg.svdvals
linalg.tensorinv nn.functional.one_hot pinverse
""".split()
MANY_SAMPLES = 40
# Some module classes have hundreds of samples; so many, evenly spread, are taken of each.
MODULE_SAMPLES = 12


def op_cases(op: Any) -> Iterator[Case]:
    """One sample of an operator, in each way it can be called, and its error inputs."""
    dtype = next((dtype for dtype in DTYPES if dtype in op.dtypes), None)
    if dtype is not None:
        yield from _op_samples(op, dtype)
    if op.error_inputs_func is not None:
        for index, error in enumerate(_errors(op)):
            yield _error_case(op, index, str(error.error_regex)[:40])


def more_op_cases(op: Any) -> Iterator[Case]:
    """Further samples of an operator, in several dtypes and without gradients."""
    for dtype in MORE_DTYPES:
        if dtype in op.dtypes and op.name in BRANCHING:
            yield from _many_cases(op, dtype)
        elif dtype in op.dtypes:
            count = sum(1 for _ in islice(_samples(op, dtype, False), 1 + MORE_SAMPLES))
            for index in range(1, count):
                yield _further_case(op, f"{index} {dtype}", partial(_sample_at, op, dtype, index))


def _many_cases(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Each a copy of a sample made once: to make the one at 40 anew is to make the 39 before it."""
    seed()
    for index, sample in enumerate(islice(_samples(op, dtype, False), 1, 1 + MANY_SAMPLES), 1):
        yield _further_case(op, f"{index} {dtype}", partial(deepcopy, _inputs(sample)))


def _further_case(op: Any, which: str, prepare: Callable[[], Any]) -> Case:
    ignore = ".bytes" if op.name in UNINITIALISED else ""
    return Case(f"{op.full_name} {which}", prepare, lambda s: call(op.op, s), ignore)


def _sample_at(op: Any, dtype: torch.dtype, index: int) -> dict[str, Any]:
    return _inputs(next(islice(_samples(op, dtype, False), index, None)))


def _inputs(sample: Any) -> dict[str, Any]:
    return {"input": sample.input, "args": sample.args, "kwargs": sample.kwargs}


def _op_samples(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    ignore = ".bytes" if op.name in UNINITIALISED else ""
    with_grad = op.supports_autograd and dtype.is_floating_point

    def prepare(requires_grad: bool = with_grad) -> Any:
        return _inputs(next(_samples(op, dtype, requires_grad)))

    if next(_samples(op, dtype, False), None) is None:
        return
    yield Case(f"{op.full_name}", prepare, lambda s: call_with_gradients(op.op, s), ignore)
    if method := op.get_method():
        yield Case(f"{op.full_name} as method", prepare, lambda s: call(method, s), ignore)
    if inplace := op.get_inplace():
        yield Case(f"{op.full_name} in place", lambda: prepare(False), lambda s: call(inplace, s), ignore)


# The functions behind `op.sample_inputs` and `op.error_inputs`: those look for a unittest on the whole stack at
# every sample, which takes longer than all that is tested here.
def _samples(op: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    return iter(op.sample_inputs_func(op, "cpu", dtype, requires_grad))


def _errors(op: Any) -> Iterator[Any]:
    return iter(op.error_inputs_func(op, "cpu"))


def _error_case(op: Any, index: int, label: str) -> Case:
    def prepare() -> Any:
        return _inputs(next(islice(_errors(op), index, None)).sample_input)

    return Case(f"{op.full_name} error {index} ({label})", prepare, lambda s: call(op.op, s))


def call(function: Any, sample: dict[str, Any]) -> Any:
    """The result of calling `function` on a sample."""
    return function(sample["input"], *sample["args"], **sample["kwargs"])


def call_with_gradients(function: Any, sample: dict[str, Any]) -> Any:
    """The result, and the gradients of everything in the sample that asks for one."""
    out = call(function, sample)
    wanted = [leaf for leaf in tree_leaves(sample) if isinstance(leaf, Tensor) and leaf.requires_grad]
    return {"result": out, "gradients": gradients(out, wanted)}


def gradients(out: Any, wanted: list[Tensor]) -> Any:
    """The gradients of the sum of all results by `wanted`; None where there is nothing to derive."""
    results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not results or not wanted:
        return None
    # ones_like keeps the layout of a sparse result.
    return torch.autograd.grad(results, wanted, [torch.ones_like(r) for r in results], allow_unused=True)


def module_cases(info: Any) -> Iterator[Case]:
    """One sample of a module class, in training and in evaluation, and its error inputs."""
    dtype = _module_dtype(info)
    for training in (True, False):
        if _module_inputs(info, dtype, training):
            yield _module_case(info, dtype, training, 0)
    if info.module_error_inputs_func is not None:
        for index in range(len(_module_errors(info))):
            yield _module_error_case(info, index)


def more_module_cases(info: Any) -> Iterator[Case]:
    """Further samples of a module class, in training and in evaluation."""
    dtype = _module_dtype(info)
    for training in (True, False):
        count = len(_module_inputs(info, dtype, training))
        for index in sorted({count * i // MODULE_SAMPLES for i in range(MODULE_SAMPLES)} - {0}):
            yield _module_case(info, dtype, training, index)


def _module_dtype(info: Any) -> torch.dtype:
    return torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]


def _module_inputs(info: Any, dtype: torch.dtype, training: bool) -> list[Any]:
    return list(info.module_inputs_func(info, "cpu", dtype, requires_grad=training, training=training))


def _module_case(info: Any, dtype: torch.dtype, training: bool, index: int) -> Case:
    def prepare() -> Any:
        inputs = _module_inputs(info, dtype, training)[index]
        module = _build(info, inputs).to(dtype).train(training)
        call = inputs.forward_input
        args, kwargs = (call.args, call.kwargs) if call is not None else ((), {})
        return {"args": args, "kwargs": kwargs, "module": module, "state": module.state_dict(keep_vars=True)}

    name = f"{info.name} {index} {'train' if training else 'eval'}"
    return Case(name, prepare, _train_step if training else _evaluate)


def _build(info: Any, inputs: Any) -> nn.Module:
    return info.module_cls(*inputs.constructor_input.args, **inputs.constructor_input.kwargs)


def _train_step(sample: dict[str, Any]) -> Any:
    module = sample["module"]
    out = module(*sample["args"], **sample["kwargs"])
    given = [leaf for leaf in tree_leaves([sample["args"], sample["kwargs"]]) if isinstance(leaf, Tensor)]
    wanted = [t for t in [*given, *module.parameters()] if t.requires_grad]
    return {"result": out, "gradients": gradients(out, wanted)}


def _evaluate(sample: dict[str, Any]) -> Any:
    with torch.no_grad():
        return sample["module"](*sample["args"], **sample["kwargs"])


def _module_errors(info: Any) -> list[Any]:
    make = info.module_error_inputs_func
    return list(make(info, "cpu", torch.float32, requires_grad=False, training=False))


def _module_error_case(info: Any, index: int) -> Case:
    def prepare() -> Any:
        return _module_errors(info)[index]

    def act(error: Any) -> Any:
        module = _build(info, error.module_error_input)
        if error.error_on is ModuleErrorEnum.FORWARD_ERROR:
            call = error.module_error_input.forward_input
            return module(*call.args, **call.kwargs)
        return None

    return Case(f"{info.name} error {index}", prepare, act)


def chunks(entries: list[Any], count: int) -> list[list[Any]]:
    """`entries` by name, in `count` runs of nearly equal length: few tests, each with a readable range."""
    ordered = sorted(entries, key=lambda entry: entry.name)
    bounds = [len(ordered) * i // count for i in range(count + 1)]
    return [ordered[a:b] for a, b in pairwise(bounds)]


def label(chunk: list[Any]) -> str:
    """How pytest calls a chunk: its first and last entry."""
    return f"{chunk[0].name}..{chunk[-1].name}"


OPS = list(op_db)
MODULES = list(module_db)
