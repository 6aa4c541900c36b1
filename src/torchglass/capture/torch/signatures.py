"""Finds the parameter names of torch functions, ops and ``forward`` methods, which become the roles of values."""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from torchglass.capture.torch.names import schemas_named

_BINARY = ("self", "other")
_OPERATORS = {
    "__getitem__": ("self", "index"),
    "__setitem__": ("self", "index", "value"),
    "__get__": ("self",),
    "__set__": ("self", "value"),
}


def function_parameters(func: Any) -> tuple[tuple[str, ...], str | None]:
    """Return the names of a function's positional parameters, and the name of its ``*args`` or None.

    The names are empty if they are unknown.
    """
    name = getattr(func, "__name__", "")
    if name in _OPERATORS:
        return _OPERATORS[name], None
    if type(func) is FunctionType:
        names, rest = _code_parameters(func)
        # torch's wrappers around operator methods take (*args, **kwargs). The first argument is still the tensor.
        if not names and rest and name.startswith("__"):
            return (_BINARY, None)
        return (names, rest)
    return _schema_parameters(name), None


def forward_parameters(cls: type) -> tuple[tuple[str, ...], str | None]:
    """Return the parameters of a module class's ``forward``, without ``self``."""
    forward = getattr(cls, "forward", None)
    forward = getattr(forward, "__wrapped__", forward)
    if type(forward) is not FunctionType:
        return (), None
    names, rest = _code_parameters(forward)
    return names[1:], rest


def op_parameters(op: Any) -> tuple[tuple[str, ...], str | None]:
    """Return the parameters of an op from its schema. A higher-order operator has no schema and no names."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return ((), None)
    return (tuple([each.name for each in schema.arguments]), None)


def _code_parameters(func: FunctionType) -> tuple[tuple[str, ...], str | None]:
    code = func.__code__
    names = code.co_varnames[: code.co_argcount]
    takes_rest = bool(code.co_flags & 0x04)
    return names, code.co_varnames[
        code.co_argcount + code.co_kwonlyargcount
    ] if takes_rest else None


@cache
def _schema_parameters(name: str) -> tuple[str, ...]:
    """Return the parameter names from torch's operator schemas.

    The longest overload is used, since overloads nearly always have the same first parameters.
    """
    candidates = [name]
    if name.startswith("__"):
        # An operator method: __add__, in place __iadd__, or reflected __radd__.
        stem = name.strip("_")
        candidates += [stem, stem.removeprefix("i"), stem.removeprefix("r")]
    for candidate in candidates:
        schemas = schemas_named(f"aten::{candidate}")
        if schemas:
            longest = max(
                schemas, key=lambda schema: sum(not arg.kwarg_only for arg in schema.arguments)
            )
            return tuple(arg.name for arg in longest.arguments if not arg.kwarg_only)
    if name.startswith("__"):
        return _BINARY
    return ()
