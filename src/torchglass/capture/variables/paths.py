"""Attributes and items that were named (``self.cache``, ``batch["x"]``), read without running foreign code."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from types import MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from torchglass.capture.variables.watch import UNBOUND, PathStep

_MODULE_TABLES = ("_buffers", "_parameters", "_modules")
"""Where an ``nn.Module`` keeps what its ``__getattr__`` would find."""
_bases_of = type.__dict__["__mro__"].__get__
_dict_of_type = type.__dict__["__dict__"].__get__


def take(value: Any, step: PathStep) -> Any:
    """One step from a value; ``UNBOUND`` where there is nothing, or only code could tell."""
    return _item(value, step.key) if step.is_item else _attribute(value, step.key)


def _item(value: Any, key: Any) -> Any:
    kind = type(value)
    if kind is dict or kind is OrderedDict or kind is defaultdict or kind is Counter:
        return dict.get(value, key, UNBOUND)
    if (kind is list or kind is tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return UNBOUND


def _attribute(value: Any, name: str) -> Any:
    own = _own_attributes(value)
    if own is not None:
        if name in own:
            return own[name]
        for table in _MODULE_TABLES:
            found = _item(own.get(table), name)
            if found is not UNBOUND:
                return found
    return _inherited(value, name)


def _own_attributes(value: Any) -> Any:
    kind = type(value)
    if issubclass(kind, type):
        return _dict_of_type(value)
    if kind is ModuleType:
        return value.__dict__
    for base in _bases_of(kind):
        getter = _dict_of_type(base).get("__dict__")
        if getter is not None:
            # An attribute that Python itself made; a class may have put a property in its place.
            return getter.__get__(value) if type(getter).__name__ == "getset_descriptor" else None
    return None


def _inherited(value: Any, name: str) -> Any:
    """A slot's content, or a plain value of the class; properties and methods are not asked."""
    for base in _bases_of(type(value)):
        found = MappingProxyType.get(_dict_of_type(base), name, UNBOUND)
        if found is UNBOUND:
            continue
        if type(found) is MemberDescriptorType:
            try:
                return found.__get__(value)
            except AttributeError:
                return UNBOUND
        is_computed = any("__get__" in _dict_of_type(each) for each in _bases_of(type(found)))
        return UNBOUND if is_computed else found
    return UNBOUND
