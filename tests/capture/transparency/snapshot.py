"""A picture of everything in torch that could be replaced, to find what was not put back."""

from __future__ import annotations

import sys
import threading
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.utils._python_dispatch
from torch import nn

Place = tuple[str, str]
Snapshot = dict[Place, Any]

# In these every attribute counts, whatever it is; elsewhere in torch whatever can be called.
WATCHED: tuple[Any, ...] = (
    torch, torch.nn, torch.nn.functional, torch.nn.modules.module, torch.overrides, torch.Tensor, nn.Module,
    torch.autograd, torch.autograd.Function, torch.utils, torch.optim, torch.optim.Optimizer,
    threading, threading.Thread,
)  # fmt: skip
# Kept: the tests take these names away.
_count_functions, _count_ops = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
CONTAINERS = (dict, list, set)
_NOWHERE = object()


def take() -> Snapshot:
    """Every attribute with the object it holds; kept alive, so that its identity cannot be taken over."""
    found: Snapshot = {}
    for owner in WATCHED:
        found.update({(_name(owner), name): value for name, value in list(vars(owner).items())})
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (name == "torch" or name.startswith("torch.")):
            _add_callables(found, name, module)
    found.update({("contents", f"{owner}.{name}"): _copy(value) for (owner, name), value in _hook_tables()})
    found["torch", "function modes"] = _count_functions()
    found["torch", "dispatch modes"] = _count_ops()
    found["torch", "dispatch flag"] = torch.utils._python_dispatch._is_in_torch_dispatch_mode
    found["sys", "meta_path"] = tuple(sys.meta_path)
    found["sys", "hooks"] = (sys.gettrace(), sys.getprofile(), sys.excepthook, threading.excepthook)
    return found


def changed(before: Snapshot) -> list[str]:
    """What is not the same object as `before`. What an import inside the block added is no change."""
    after = take()
    other = [place for place, value in after.items() if before.get(place, _NOWHERE) is not value]
    new = [place for place in other if place not in before]
    swapped = [place for place in other if place in before and not _same(before[place], after[place])]
    is_less = len(after) - len(new) < len(before)
    lost = [place for place in before if place not in after and _matters(before[place])] if is_less else []
    return [f"{owner}.{name}" for owner, name in sorted({*lost, *swapped, *_added(before, new, after)})]


def _add_callables(found: Snapshot, name: str, module: ModuleType) -> None:
    for key, value in list(vars(module).items()):
        if callable(value):
            found[name, key] = value
            _add_code(found, name, key, value)
        if issubclass(type(value), type) and value.__module__ == name:
            members = list(vars(value).items())
            found.update({(f"{name}.{key}", member): item for member, item in members if _is_code(item)})
            for member, item in members:
                _add_code(found, f"{name}.{key}", member, item)


def _add_code(found: Snapshot, owner: str, name: str, value: Any) -> None:
    """A function may be the same and do something else."""
    if type(value) is FunctionType:
        found[owner, f"code of {name}"] = value.__code__


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _hook_tables() -> list[tuple[Place, Any]]:
    modules = [sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"]]
    return [
        ((module.__name__, name), value)
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("_global_") and isinstance(value, CONTAINERS)
    ]


def _added(before: Snapshot, new: list[Place], after: Snapshot) -> list[Place]:
    """New names in what was loaded before; a module that appeared was imported by the program."""
    owners = {owner for owner, _ in before} if new else set()
    return [place for place in new if place[0] in owners and _is_code(after[place]) and not _lazily_made(*place)]


def _lazily_made(owner: str, name: str) -> bool:
    """Modules fill in some of their names on first use, through a `__getattr__` of their own."""
    return hasattr(sys.modules.get(owner), "__getattr__") or name.startswith("__")


def _matters(value: Any) -> bool:
    return not isinstance(value, ModuleType)


def _same(a: Any, b: Any) -> bool:
    plain = (int, float, str, tuple, bool, type(None), *CONTAINERS)
    return a is b or (isinstance(a, plain) and type(a) is type(b) and a == b)


def _copy(value: Any) -> Any:
    return type(value)(value)


def _name(owner: Any) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
