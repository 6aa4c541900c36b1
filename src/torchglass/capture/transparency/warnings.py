"""Attributes warnings of recorded functions to the program's own line, not to our handler that called the function.

For each warning, Python goes through its list of filters. To test a filter, it calls ``match`` of the filter's patterns
and ``issubclass`` with the filter's category. We put a filter of ours first in the list. It catches the warnings that
seem to come from our modules, and issues them again at the place that they would have without us. So the program's
filters, "once at each place" and the printed line work as always. Our filter lets all other warnings pass.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchglass.capture.torch.names import HANDLER
from torchglass.capture.transparency.patches import Patch

OURS = "torchglass.capture."
COMMANDS = "torchglass.cli."
"""The modules that run a program. Without torchglass, no frame would be above the program's first line."""
ABOVE_ALL = ("<sys>", 0) if sys.version_info >= (3, 13) else ("sys", 1)
"""The place that Python gives to a warning whose stack level is above the whole stack."""
_asked = threading.local()
"""What Python has passed to our filter for the current warning, for each thread."""


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
    """The metaclass of the filter's category. Python calls ``issubclass`` last, so the warning is issued again here."""

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
        warnings.warn_explicit(
            _asked.text, category, frame.f_code.co_filename, frame.f_lineno, name, registry
        )
        return True


class _AnyWarning(Warning, metaclass=_Category):
    pass


def _programs_frame(frame: FrameType | None) -> FrameType | None:
    """Return the program's frame that called the function that warns, skipping our frames and torch's handler."""
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    while frame is not None and (_is_ours(frame) or frame.f_code is HANDLER):
        # A Python function of torch calls the handler, which calls the function again, so it has two frames: skip one.
        if frame.f_code is HANDLER and frame.f_back is not None:
            frame = frame.f_back.f_back
        else:
            frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(OURS)


_FILTER: Any = ("ignore", _Text(), _AnyWarning, _Module(), 0)


def make_filters_mutated(original: Callable[[], None]) -> Callable[[], None]:
    """Wrap the function that Python calls when the program has changed the filters, to keep our filter first."""

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
    """Installs and removes our warning filter."""

    def __init__(self) -> None:
        self._put_into: list[Any] = []
        self._keeps_first = Patch(warnings, "_filters_mutated", make_filters_mutated)

    def install(self) -> None:
        # The pure Python implementation of warnings tests filters in another order. We do not change the version of the
        # filters, so that Python still knows which warnings have been printed once.
        if type(warnings.warn_explicit) is not type(len):
            raise TypeError("warnings are given by code in Python here")
        self._keeps_first.install()
        self._put_into = warnings.filters  # type: ignore[assignment]
        _put_first()

    def remove(self) -> None:
        """Remove our filter, also from the copy of the list that a ``catch_warnings`` of the program made meanwhile."""
        self._keeps_first.remove()
        _take_out(self._put_into)
        if self._put_into is not warnings.filters:
            _take_out(warnings.filters)  # type: ignore[arg-type]
        self._put_into = []
