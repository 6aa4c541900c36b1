"""Compares two runs of one piece of code in every facet that a program could notice.

A run is boiled down to *facets*: a flat dict from a name (`out[0].stride`, `error.text`, `rng.torch`) to a
plain value that can be compared with `==`. Facets on which plain runs differ from each other say nothing
about the context under test, so they are left out.
"""

from __future__ import annotations

import dataclasses
import io
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _python_dispatch

Context = Callable[[], AbstractContextManager[Any]]
Facets = dict[str, object]

# A first difference may be chance in the program itself (the last bits of lstsq depend on where its memory lies): so
# many plain runs more must not show it, and as many under the context must all show it.
CONFIRMING_RUNS = 10


@dataclasses.dataclass(frozen=True)
class Case:
    """A piece of code with fresh inputs for every run: `act(prepare())` is what is compared."""

    name: str
    prepare: Callable[[], Any]
    act: Callable[[Any], Any]
    ignore: str = ""  # facets that end so are not compared (uninitialised memory)
    raises: type[BaseException] = Exception  # what `act` may raise; all else ends the comparison


@dataclasses.dataclass(frozen=True)
class Alone:
    """What a case shows when nothing is done to it, and on which facets two such runs differ."""

    facets: Facets
    by_chance: set[str]


def alone(case: Case) -> Alone:
    """Run `case` twice without any context: once for all the contexts that it is then compared under."""
    first, second = observe(case, nullcontext), observe(case, nullcontext)
    return Alone(first, _unequal(first, second))


def differences(case: Case, context: Context, plain: Alone | None = None) -> list[str]:
    """Say in which facets `case` under `context` differs from `case` alone; empty when in none."""
    plain = plain or alone(case)
    first = plain.facets
    found = _unequal(first, observe(case, context)) - plain.by_chance
    found = {name for name in found if not (case.ignore and name.endswith(case.ignore))}
    for _ in range(CONFIRMING_RUNS if found else 0):
        found -= _unequal(first, observe(case, nullcontext))
        found &= _unequal(first, observe(case, context))
    if not found:
        return []
    under = observe(case, context)
    return [f"{case.name}: {name}: {_short(first, name)} became {_short(under, name)}" for name in sorted(found)]


def observe(case: Case, context: Context) -> Facets:
    """Run `case` once under `context` and return everything that can be told from outside."""
    seed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = case.prepare()
    before = surroundings()
    raised: list[BaseException] = []
    facets: Facets = {}
    result: Any = None
    with _overhearing(facets):
        try:
            with context():
                result = _noting(case.act, inputs, raised)
        except case.raises as error:
            facets.update(_error_facets(error, raised))
    facets.update(facets_of("out", result))
    facets.update({f"left.{name}": value == before[name] for name, value in surroundings().items()})
    facets.update(rng_facets())
    facets.update(facets_of("in", inputs))
    return facets


@contextmanager
def _overhearing(facets: Facets) -> Iterator[None]:
    """Note what is printed and warned of, each warning as if it were the first."""
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(out), redirect_stderr(err):
        warnings.simplefilter("always")
        yield
    facets["stdout"], facets["stderr"] = out.getvalue(), err.getvalue()
    facets["warnings"] = [(w.category.__name__, str(w.message)) for w in caught]


def _noting(act: Callable[[Any], Any], inputs: Any, raised: list[BaseException]) -> Any:
    try:
        return act(inputs)
    except BaseException as error:
        raised.append(error)
        raise


def _error_facets(error: BaseException, raised: list[BaseException]) -> Facets:
    return {
        "error.type": type(error).__qualname__,
        "error.text": str(error),
        "error.is_the_same_object": bool(raised) and raised[0] is error,
        "error.cause": type(error.__cause__).__qualname__,
        "error.context": type(error.__context__).__qualname__,
    }


def seed() -> None:
    """Put every generator that a sample may draw from at one known state.

    Not with `torch.manual_seed`: it keeps the whole stack as text for each device that is not there, which takes
    longer than most of what is compared here.
    """
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def rng_facets() -> Facets:
    """The state of every generator."""
    kind, keys, *rest = np.random.get_state()
    return {
        "rng.torch": torch.get_rng_state().numpy().tobytes(),
        "rng.python": random.getstate(),
        "rng.numpy": (kind, keys.tobytes(), *rest),
    }


def surroundings() -> Facets:
    """The process-wide state that a recording touches or might: equal before and after a block."""
    hooks = vars(nn.modules.module)
    return {
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "dispatch flag": _python_dispatch._is_in_torch_dispatch_mode,
        "Module.__call__": id(nn.Module.__dict__["__call__"]),
        "has_torch_function": id(torch.overrides.has_torch_function),
        "Function.apply": id(torch.autograd.Function.__dict__.get("apply")),
        "swap_tensors": id(torch.utils.swap_tensors),
        "Thread.start": id(threading.Thread.__dict__["start"]),
        "Thread._bootstrap_inner": id(threading.Thread.__dict__["_bootstrap_inner"]),
        "module hooks": {n: dict(h) for n, h in hooks.items() if n.startswith("_global_") and isinstance(h, dict)},
        "grad enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
    }


def facets_of(name: str, value: Any) -> Facets:
    """The facets of a nested result: of each tensor its metadata and bytes, of the rest type and value."""
    facets: Facets = {}
    for path, leaf in leaves(name, value):
        if isinstance(leaf, Tensor):
            facets.update({f"{path}.{key}": part for key, part in tensor_facets(leaf).items()})
        else:
            facets[path] = _plain(leaf)
    return facets


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a nested result holds, each with its path; other objects are leaves themselves."""
    if isinstance(value, Mapping):
        yield f"{path}.type", type(value)
        for key, item in value.items():
            yield from leaves(f"{path}[{key!r}]", item)
    elif isinstance(value, tuple | list):
        yield f"{path}.type", type(value)
        for index, item in enumerate(value):
            yield from leaves(f"{path}[{index}]", item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(f"{path}.{field.name}", getattr(value, field.name))
    else:
        yield path, value


def _plain(leaf: Any) -> object:
    """Atoms as they are; of other objects the type alone, for their text may hold an address."""
    atoms = str | int | float | complex | bool | type(None) | torch.dtype | torch.device | torch.layout
    return (type(leaf).__qualname__, repr(leaf) if isinstance(leaf, atoms) else None)


def tensor_facets(tensor: Tensor) -> Facets:
    """What tells two tensors apart: bytes (so that NaN equals NaN), layout, history and version."""
    with torch.no_grad():
        facets: Facets = {
            "type": type(tensor).__qualname__,
            "dtype": tensor.dtype,
            "layout": tensor.layout,
            "device": tensor.device,
            "requires_grad": tensor.requires_grad,
            "grad_fn": tensor.grad_fn.name() if tensor.grad_fn is not None else None,
            "conj, neg": (tensor.is_conj(), tensor.is_neg()),
        }
        for key, read in _MAY_RAISE.items():
            try:
                facets[key] = read(tensor)
            except (RuntimeError, NotImplementedError) as error:
                facets[key] = type(error).__name__
    return facets


def raw_bytes(tensor: Tensor) -> object:
    """The bytes of the elements, or those of the components of a sparse, nested or quantised tensor."""
    tensor = tensor.detach()
    if tensor.is_meta:
        return None
    if tensor.is_nested:
        return [raw_bytes(part) for part in tensor.unbind()]
    if tensor.is_quantized:
        return (raw_bytes(tensor.int_repr()), str(tensor.qscheme()))
    if tensor.layout is torch.sparse_coo:
        return (raw_bytes(tensor._indices()), raw_bytes(tensor._values()), tensor.is_coalesced())
    if tensor.layout in _COMPRESSED:
        return tuple(raw_bytes(part) for part in _COMPRESSED[tensor.layout](tensor))
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


_COMPRESSED: dict[torch.layout, Callable[[Tensor], tuple[Tensor, ...]]] = {
    torch.sparse_csr: lambda t: (t.crow_indices(), t.col_indices(), t.values()),
    torch.sparse_bsr: lambda t: (t.crow_indices(), t.col_indices(), t.values()),
    torch.sparse_csc: lambda t: (t.ccol_indices(), t.row_indices(), t.values()),
    torch.sparse_bsc: lambda t: (t.ccol_indices(), t.row_indices(), t.values()),
}

# Strided nested tensors have no shape, inference tensors no version, sparse ones no strides.
_MAY_RAISE: dict[str, Callable[[Tensor], object]] = {
    "shape": lambda t: tuple(t.shape),
    "stride": lambda t: t.stride(),
    "offset": lambda t: t.storage_offset(),
    "_version": lambda t: t._version,
    "bytes": raw_bytes,
}


def _unequal(a: Facets, b: Facets) -> set[str]:
    missing = object()
    return {name for name in a.keys() | b.keys() if a.get(name, missing) != b.get(name, missing)}


def _short(facets: Facets, name: str) -> str:
    return repr(facets.get(name, "absent"))[:200]
