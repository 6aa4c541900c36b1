"""Whether the hot path runs compiled here, and if not, why: the one place that looks for the extension.

The engine in Python (capture/engine/) is the definition; the extension ``torchglass._fast`` (capture/engine/fast/)
writes the same journal. ``TORCHGLASS_ENGINE=python`` chooses the first although the second is there.
"""

from __future__ import annotations

import importlib
import os
import sysconfig
from typing import TYPE_CHECKING, Any

VARIABLE = "TORCHGLASS_ENGINE"
COMPILED, PYTHON = "compiled", "python"
CHOICES = {PYTHON: PYTHON, "fast": COMPILED, COMPILED: COMPILED, "": COMPILED}


def _find() -> tuple[Any, str]:
    """The extension, or None and why there is none."""
    wanted = os.environ.get(VARIABLE, "")
    if CHOICES.get(wanted) == PYTHON:
        return None, f"{VARIABLE}={wanted}"
    if wanted not in CHOICES:
        return None, f"{VARIABLE}={wanted} is neither python nor fast"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "this Python has no global lock, which it relies on"
    try:
        found: Any = importlib.import_module("torchglass._fast")
    except ImportError as reason:
        missing = isinstance(reason, ModuleNotFoundError) and reason.name == "torchglass._fast"
        return None, "it was not built: install torchglass where there is a C compiler" if missing else str(reason)
    if not found.is_main_interpreter():
        return None, "this is a sub-interpreter"
    return found, ""


extension, why_not = _find()
"""``torchglass._fast``, or None; and why it is None, or why the engine in Python is used although it is there."""


def give_up(reason: str) -> None:
    """Use the engine in Python from now on."""
    global why_not
    why_not = why_not or reason


def engine() -> str:
    """Which engine recordings that begin now have."""
    return COMPILED if extension is not None and not why_not else PYTHON


def described() -> str:
    """The same, with the reason where it is not the compiled one."""
    return engine() if not why_not else f"{engine()}: {why_not}"


class _Nothing:
    """What classes are made of where the extension is not there."""

    __slots__ = ()


if TYPE_CHECKING:
    Log = ValueFields = _Nothing
else:
    Log = getattr(extension, "Log", _Nothing)
    """Where a thread's records go: its fields are C's own where there is an extension …"""
    ValueFields = getattr(extension, "ValueFields", _Nothing)
    """… and where values go."""


def slots(base: type, names: str) -> tuple[str, ...]:
    """The names, without those that the base has."""
    return tuple(name for name in names.split() if not hasattr(base, name))
