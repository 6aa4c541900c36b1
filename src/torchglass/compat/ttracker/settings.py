"""What the environment decides, read when it is needed, so that a program may set it after its imports."""

from __future__ import annotations

import os
from typing import Any

from torchglass.views.live.ttracker import ENGLISH, Words, words_for


def is_off() -> bool:
    """``TORCHGLASS=0``: every front door does nothing."""
    return _setting("TORCHGLASS") == "0"


def console_is_on() -> bool:
    """``TORCHGLASS_CONSOLE=0`` leaves the lines to the log files."""
    return _setting("TORCHGLASS_CONSOLE") != "0"


def words() -> Words:
    """``TORCHGLASS_LANG=zh``: the words of Tensor Tracker's own document."""
    language = _setting("TORCHGLASS_LANG")
    return words_for(language) if language else ENGLISH


def tag() -> str:
    """``LTAG``: the name of the folder for this run's log files."""
    return os.environ.get("LTAG", "")


# os.environ itself takes 1 µs for a name that is not set, its own dict 0.1 µs; two names are asked in every call.
_VALUES: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
_KEYS = {name: os.environ.encodekey(name) for name in ("TORCHGLASS", "TORCHGLASS_CONSOLE", "TORCHGLASS_LANG")}


def _setting(name: str) -> str:
    value = _VALUES.get(_KEYS[name])
    return "" if value is None else os.environ.decodevalue(value)
