"""What a module shows of its settings, without running the program's own code."""

from __future__ import annotations

from typing import Any

from torch import nn

_SHOWN = (int, float, bool, str, type(None))
_LONGEST = 200
NEVER, BY_NAMES, BY_TORCH = range(3)
"""On who knows what; on plain attributes of the instance; on these, and on which parameters there are, as torch's own
layers show nothing else (capture/engine/fast/described.c)."""
_READS_TENSORS = (".container", ".lazy")
"""Of torch's own layers those whose text is made of what their tensors are."""


Settings = dict[int, tuple[type, tuple[str, ...] | None]]
"""By ``id`` of a class: names to read, or None for a class that shows itself. It holds classes: let it go soon."""


def settings_of(module: nn.Module, known: Settings) -> str:
    """As in ``in_features=6, out_features=6, bias=True``; ``""`` when there is nothing to show."""
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
    shown = [f"{name}={held[name]!r}" for name in names if name in held and type(held[name]) in _SHOWN]
    return ", ".join(shown)[:_LONGEST]


def depends_on(module: nn.Module, known: Settings) -> int:
    """What the text of ``settings_of`` can depend on, for those who keep it: NEVER, BY_NAMES or BY_TORCH."""
    cls = type(module)
    if known[id(cls)][1] is not None:
        return BY_NAMES
    origin = cls.extra_repr.__module__ or ""
    return BY_TORCH if origin.startswith("torch.nn.modules.") and not origin.endswith(_READS_TENSORS) else NEVER


def _shows_itself(cls: type[nn.Module]) -> bool:
    method = cls.extra_repr
    return method is not nn.Module.extra_repr and (method.__module__ or "").startswith("torch.")


def _constructor_names(cls: type[nn.Module]) -> tuple[str, ...]:
    code = getattr(cls.__init__, "__code__", None)
    if code is None or cls.__init__ is nn.Module.__init__:
        return ()
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
