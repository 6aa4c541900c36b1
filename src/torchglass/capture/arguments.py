"""Arguments and results as they stood: tensors become value ids, the rest a small hashable form.

A *form* says all but the tensors: ``F.softmax(x, dim=-1)`` is ``(1, None, "dim", -1)``. Programs repeat a few
forms for ever, so a record keeps one int. In a form None stands for a tensor, an int for itself, a str for
text as it will be shown, a tuple for something nested: a tag, then its items.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, EllipsisType, FunctionType, MemberDescriptorType, NoneType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.values import ValueOf

Form = tuple[Any, ...]
Describe = Callable[..., Any]
"""(value, values, depth=0) → the value's part of a form; the tensors in it are appended to values."""
LONGEST_TEXT = 200
LONGEST_LIST = 64
DEEPEST = 8

LIST, TUPLE, DICT, FIELDS, SLICE = "[", "(", "{", ".", ":"
"""Tags of nested forms. DICT and FIELDS alternate key and item; FIELDS has the class's name first."""


class Forms:
    """All forms of one session."""

    def __init__(self, value_of: ValueOf) -> None:
        self.ids: dict[Form, int] = {}
        self.counter = itertools.count()
        self.describe: Describe = _make_describe(value_of)

    def intern(self, form: Form) -> int:
        return self.ids.setdefault(form, next(self.counter))


def _make_describe(value_of: ValueOf) -> Describe:
    def describe(value: Any, values: list[int], depth: int = 0) -> Any:
        cls = type(value)
        if cls is Tensor or cls is Parameter:
            values.append(value_of(value))
            return None
        if cls is int:
            return value
        atom = _ATOMS.get(cls)
        if atom is not None:
            return atom(value)
        if issubclass(cls, Tensor):  # not isinstance: that asks the object for its __class__
            values.append(value_of(value))
            return None
        if depth >= DEEPEST:
            return f"<{cls.__name__}>"
        return nested(value, cls, values, depth + 1)

    def nested(value: Any, cls: type, values: list[int], depth: int) -> Any:
        if cls is list or cls is tuple:
            if len(value) > LONGEST_LIST and not issubclass(type(value[0]), Tensor):
                return f"<{cls.__name__} of {len(value)}>"
            return (LIST if cls is list else TUPLE, *[describe(item, values, depth) for item in value])
        if cls is slice:
            return (SLICE, *[describe(part, values, depth) for part in (value.start, value.stop, value.step)])
        if issubclass(cls, dict):
            return _dict_form(value, cls, values, depth, describe)
        names = _field_names(cls)
        if names is None:
            for plain in (list, tuple):  # the program's own class of one: read as what it is, not as it says
                if issubclass(cls, plain):
                    return nested(plain(plain.__iter__(value)), plain, values, depth)
            return _foreign(value, cls)
        form: list[Any] = [FIELDS, cls.__name__]
        for name, item in _fields(value, cls, names):
            form += (name, describe(item, values, depth))
        return tuple(form)

    return describe


def _dict_form(value: Any, cls: type, values: list[int], depth: int, describe: Callable[..., Any]) -> Any:
    """Plain dicts as dicts; classes made of one (transformers' ModelOutput) by field."""
    named = cls is not dict and _is_dataclass(cls)
    if dict.__len__(value) > LONGEST_LIST:
        return f"<{cls.__name__} of {dict.__len__(value)}>"
    form: list[Any] = [FIELDS, cls.__name__] if named else [DICT]
    for key, item in list(dict.items(value)):
        text = key if named and type(key) is str else _ATOMS.get(type(key), _type_name)(key)
        form += (text if type(text) is str else str(text), describe(item, values, depth))
    return tuple(form)


def _is_dataclass(cls: type) -> bool:
    return any("__dataclass_fields__" in vars(each) for each in cls.__mro__)


def _field_names(cls: type) -> tuple[str, ...] | None:
    """Named tuples, torch's own result types (``torch.return_types.max``) and dataclasses have named fields."""
    if issubclass(cls, tuple):
        fields = vars(cls).get("_fields") or getattr(cls, "__match_args__", None)
        return fields if type(fields) is tuple else None
    return tuple(cls.__dataclass_fields__) if _is_dataclass(cls) else None  # type: ignore[attr-defined]


def _fields(value: Any, cls: type, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Read without running the class's own code: tuple items, the instance's dictionary, or its slots."""
    if issubclass(cls, tuple):
        return list(zip(names, tuple.__iter__(value), strict=False))
    try:
        held = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        held = {}
    for each in cls.__mro__:
        for name, slot in vars(each).items():
            if type(slot) is MemberDescriptorType and name in names and name not in held:
                try:
                    held[name] = slot.__get__(value, cls)
                except AttributeError:
                    pass  # never set
    return [(name, held[name]) for name in names if name in held]


def _foreign(value: Any, cls: type) -> str:
    """Of all else only the type's name: the program's own ``__repr__`` is never called."""
    if cls is FunctionType or cls is BuiltinFunctionType:
        return f"<function {value.__name__}>"[:LONGEST_TEXT]
    numpy = sys.modules.get("numpy")
    if numpy is not None and cls is numpy.ndarray:
        return f"<ndarray {list(value.shape)}>"
    return f"<{cls.__name__}>"[:LONGEST_TEXT]


def _text(value: Any) -> str:
    text = repr(value[:LONGEST_TEXT])
    return text if len(value) <= LONGEST_TEXT else text + "…"


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _size(value: torch.Size) -> Any:
    return (LIST, *[size if type(size) is int else "?" for size in value[:LONGEST_LIST]])


_ATOMS: dict[type, Callable[[Any], Any]] = {
    NoneType: lambda value: "None",
    bool: repr,
    float: repr,
    complex: repr,
    str: _text,
    bytes: lambda value: f"<bytes of {len(value)}>",
    EllipsisType: lambda value: "...",
    int: repr,
    torch.dtype: str,
    torch.device: lambda value: repr(str(value)),
    torch.layout: str,
    torch.memory_format: str,
    torch.Size: _size,
}
