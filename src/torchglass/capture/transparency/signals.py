"""Ctrl-C waits while a recording starts or stops: half an installed patch would stay for good."""

from __future__ import annotations

import importlib
import threading
from types import FrameType, TracebackType
from typing import Any

_signal: Any = importlib.import_module("_signal")
"""Without the enumerations that ``signal`` makes of each answer: a tenth of what an empty block costs."""
_SIGINT = int(_signal.SIGINT)


class Uninterrupted:
    """Holds SIGINT back inside its block and hands it to the program's own handler afterwards.

    Only the main thread runs signal handlers; in others this does nothing.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._caught: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(_SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_SIGINT, self._hold)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is None:
            return
        _signal.signal(_SIGINT, self._handler)
        for number, frame in self._caught:
            self._handler(number, frame)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._caught.append((number, frame))
