"""Warnings of recorded functions come from the program's own line, not from our handler that called the function.

Python asks its list of filters what to do with a warning, and a filter is asked by calling ``match`` of what it has
in the place of a pattern, and ``issubclass`` for its category. Ours, the first in the list, takes those warnings that
are said to come from a module of ours and gives them again, at the place that they would have without us: so the
program's own filters, "once at each place" and the printed line are as ever. All others it lets pass.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchglass.capture.torch.names import HANDLER
from torchglass.capture.transparency.patches import Patch, Patches

OURS = "torchglass.capture."
COMMANDS = "torchglass.cli."
"""What runs a program: above the program's first line there is nothing without us."""
ABOVE_ALL = ("<sys>", 0) if sys.version_info >= (3, 13) else ("sys", 1)
"""Where Python says that a warning comes from whose level is above the whole stack."""
_asked = threading.local()


class _Text:
    def match(self, text: str) -> bool:
        _asked.text = text
        return True


class _Module:
    def match(self, name: str) -> bool:
        _asked.is_above = name.startswith(COMMANDS)
        _asked.is_ours = _asked.is_above or name.startswith(OURS)
        return _asked.is_ours


class _Category(type):
    """Asked last, and with the category: here the warning is given again."""

    def __subclasscheck__(cls, category: type) -> bool:
        if not getattr(_asked, "is_ours", False):
            return False
        _asked.is_ours = False
        if _asked.is_above:
            registry = sys.__dict__.setdefault("__warningregistry__", {})
            warnings.warn_explicit(_asked.text, category, *ABOVE_ALL, "sys", registry)
            return True
        frame = _programs_frame(sys._getframe(1))
        if frame is None:
            return False
        space = frame.f_globals
        registry = space.setdefault("__warningregistry__", {})
        name = space.get("__name__") or "<string>"
        warnings.warn_explicit(_asked.text, category, frame.f_code.co_filename, frame.f_lineno, name, registry)
        return True


class _AnyWarning(Warning, metaclass=_Category):
    pass


def _programs_frame(frame: FrameType | None) -> FrameType | None:
    """Who called the function that warns: above our handler, and above what torch put between."""
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    while frame is not None and (_is_ours(frame) or frame.f_code is HANDLER):
        # torch's own way to a handler begins in the function itself, a frame that is there twice then.
        frame = frame.f_back.f_back if frame.f_code is HANDLER and frame.f_back is not None else frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(OURS)


_FILTER: Any = ("ignore", _Text(), _AnyWarning, _Module(), 0)


def make_filters_mutated(original: Callable[[], None]) -> Callable[[], None]:
    """Called whenever the program has changed the filters: ours must stay the first."""

    def _filters_mutated() -> None:
        original()
        _put_first()

    return _filters_mutated


def _put_first() -> None:
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    if filters[:1] != [_FILTER]:
        _take_out(filters)
        filters.insert(0, _FILTER)


def _take_out(filters: list[Any]) -> None:
    while _FILTER in filters:
        filters.remove(_FILTER)


class WarningPlaces:
    """Our filter, put up and taken down like a patch."""

    def __init__(self) -> None:
        self._put_into: list[Any] = []
        self._keeps_first = Patches(Patch(warnings, "_filters_mutated", make_filters_mutated))

    def install(self) -> None:
        # Warnings in pure Python ask in another order. The version of the filters stays: what was said once is known.
        if type(warnings.warn_explicit) is not type(len) or "_filters_mutated" not in vars(warnings):
            return
        self._keeps_first.install()
        self._put_into = warnings.filters  # type: ignore[assignment]
        _put_first()

    def remove(self) -> None:
        """Also from the copy that a ``catch_warnings`` of the program has made since."""
        self._keeps_first.remove()
        _take_out(self._put_into)
        if self._put_into is not warnings.filters:
            _take_out(warnings.filters)  # type: ignore[arg-type]
        self._put_into = []
