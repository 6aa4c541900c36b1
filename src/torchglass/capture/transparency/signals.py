"""Delays Ctrl-C while a recording starts or stops. Otherwise a half-installed patch would stay forever."""

from __future__ import annotations

import importlib
from types import FrameType, TracebackType
from typing import Any

from torchglass.system import get_ident, main_thread

# ``signal`` turns each result into an enum member, which takes a tenth of the time of an empty recorded block.
_signal: Any = importlib.import_module("_signal")
"""The C module below ``signal``."""
_SIGINT = int(_signal.SIGINT)


class Uninterrupted:
    """Delays SIGINT inside its block, and then calls the program's handler.

    Only the main thread runs signal handlers, so this does nothing in other threads.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._caught: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if get_ident() == main_thread().ident:
            handler = _signal.getsignal(_SIGINT)
            # If the handler is `_hold`, an outer block delays the signal already.
            if callable(handler) and getattr(handler, "__func__", None) is not Uninterrupted._hold:
                self._handler = handler
                _signal.signal(_SIGINT, self._hold)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handler is None:
            return
        _signal.signal(_SIGINT, self._handler)
        for number, frame in self._caught:
            self._handler(number, frame)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._caught.append((number, frame))
