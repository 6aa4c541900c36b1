"""Finds the compiled engine (``torchglass._fast``), and says why it is not used where it is not.

There are two engines that write the same journal: the one in Python (capture/engine/), which is the definition, and the
compiled one (capture/engine/fast/). ``TORCHGLASS_ENGINE=python`` chooses the first although the second is there.
"""

from __future__ import annotations

import importlib
import os
import sysconfig
from typing import TYPE_CHECKING, Any

VARIABLE = "TORCHGLASS_ENGINE"
COMPILED, PYTHON = "compiled", "python"
CHOICES = {PYTHON: PYTHON, "fast": COMPILED, COMPILED: COMPILED, "": COMPILED}
"""The engine for each value of the variable."""
_EXTENSION = "torchglass._fast"


def _find_extension() -> tuple[Any, str]:
    """Return the extension and "", or None and why it is not used."""
    choice = os.environ.get(VARIABLE, "")
    if CHOICES.get(choice) == PYTHON:
        return None, f"{VARIABLE}={choice}"
    if choice not in CHOICES:
        return None, f"{VARIABLE}={choice} is neither python nor fast"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "this Python has no global lock, which it relies on"
    try:
        module: Any = importlib.import_module(_EXTENSION)
    except ModuleNotFoundError as error:
        if error.name == _EXTENSION:
            return None, "it was not built: install torchglass where there is a C compiler"
        return None, str(error)
    except Exception as error:
        # It was built for another Python, or cannot be used in this one.
        return None, str(error)
    if not module.is_main_interpreter():
        return None, "this is a sub-interpreter"
    return module, ""


extension, why_not = _find_extension()
"""The extension, or None; and why the compiled engine is not used, or "". An extension that has failed is not used."""
has_failed = False
"""Whether the compiled engine failed, so that the one in Python is used instead."""


def give_up(reason: str) -> None:
    """Use the engine in Python from now on, because the compiled one has failed."""
    global why_not, has_failed
    why_not = why_not or reason
    has_failed = True


def trust_again() -> None:
    """Use the compiled engine again after ``give_up``: it was not the cause."""
    global why_not, has_failed
    why_not = ""
    has_failed = False


def engine() -> str:
    """Return which engine recordings that begin now have."""
    if extension is not None and not why_not:
        return COMPILED
    return PYTHON


def described() -> str:
    """Return the engine, with the reason if it is not the compiled one."""
    if not why_not:
        return engine()
    return f"{engine()}: {why_not}"


class _PythonFields:
    """The base of ``ThreadWriter`` and ``NumberedWriter`` (journal/) where there is no extension."""

    __slots__ = ()


if TYPE_CHECKING:
    Log = ValueFields = _PythonFields
else:
    Log = getattr(extension, "Log", _PythonFields)
    """The base of ``ThreadWriter``. That of the extension has the fields as members in C."""
    ValueFields = getattr(extension, "ValueFields", _PythonFields)
    """The base of ``NumberedWriter``, likewise."""


def slots(base: type, names: str) -> tuple[str, ...]:
    """Return the ``__slots__`` of a class with these fields: those names that its base in C does not have."""
    return tuple(name for name in names.split() if not hasattr(base, name))
