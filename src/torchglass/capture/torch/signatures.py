"""The parameter names of torch functions and of modules' ``forward``: they become the roles of values."""

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
    """Positional parameter names, and the name of ``*args`` if it takes any; empty where nothing is known."""
    name = getattr(func, "__name__", "")
    if name in _OPERATORS:
        return _OPERATORS[name], None
    if type(func) is FunctionType:
        names, rest = _code_parameters(func)
        # torch's wrappers around methods take (*args, **kwargs): a method's first argument is still the tensor.
        return (_BINARY, None) if not names and rest and name.startswith("__") else (names, rest)
    return _schema_parameters(name), None


def forward_parameters(cls: type) -> tuple[tuple[str, ...], str | None]:
    """The same for the ``forward`` of a module class, without ``self``."""
    forward = getattr(cls, "forward", None)
    forward = getattr(forward, "__wrapped__", forward)
    if type(forward) is not FunctionType:
        return (), None
    names, rest = _code_parameters(forward)
    return names[1:], rest


def op_parameters(op: Any) -> tuple[tuple[str, ...], str | None]:
    """The same for an op, whose schema says it; higher-order operators have none."""
    schema = getattr(op, "_schema", None)
    return ((), None) if schema is None else (tuple([each.name for each in schema.arguments]), None)


def _code_parameters(func: FunctionType) -> tuple[tuple[str, ...], str | None]:
    code = func.__code__
    names = code.co_varnames[: code.co_argcount]
    takes_rest = bool(code.co_flags & 0x04)
    return names, code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if takes_rest else None


@cache
def _schema_parameters(name: str) -> tuple[str, ...]:
    """The names in torch's own operator schemas; overloads agree on the leading ones nearly always."""
    stem = name.strip("_") if name.startswith("__") else name
    for candidate in (name, stem, stem.removeprefix("i"), stem.removeprefix("r")):
        schemas = schemas_named(f"aten::{candidate}")
        if schemas:
            longest = max(schemas, key=lambda schema: sum(not arg.kwarg_only for arg in schema.arguments))
            return tuple(arg.name for arg in longest.arguments if not arg.kwarg_only)
    return _BINARY if name.startswith("__") else ()
