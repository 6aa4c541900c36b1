"""Reads the settings that a module shows, without running the program's code."""

from __future__ import annotations

from typing import Any

from torch import nn

_SHOWN = (int, float, bool, str, type(None))
_LONGEST = 200
Settings = dict[int, tuple[type, tuple[str, ...] | None]]
"""Keyed by ``id`` of a class: the class, and the names of attributes to read, or None to call ``extra_repr``. The
table keeps the classes alive, so that their ids stay valid."""


def settings_of(module: nn.Module, known: Settings) -> str:
    """Return the settings as text: ``in_features=6, out_features=6, bias=True``, or "" if there is nothing to show."""
    cls = type(module)
    found = known.get(id(cls))
    if found is None:
        found = known[id(cls)] = (cls, None if _shows_itself(cls) else _constructor_names(cls))
    names = found[1]
    if names is None:
        return str(module.extra_repr())[:_LONGEST]
    if not names:
        return ""
    held: dict[str, Any] = module.__dict__
    shown = [
        f"{name}={held[name]!r}" for name in names if name in held and type(held[name]) in _SHOWN
    ]
    return ", ".join(shown)[:_LONGEST]


def _shows_itself(cls: type[nn.Module]) -> bool:
    method = cls.extra_repr
    return method is not nn.Module.extra_repr and (method.__module__ or "").startswith("torch.")


def _constructor_names(cls: type[nn.Module]) -> tuple[str, ...]:
    code = getattr(cls.__init__, "__code__", None)
    if code is None or cls.__init__ is nn.Module.__init__:
        return ()
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
