"""The few process-wide names that are replaced while anything records, counted and put back by the last one."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

Make = Callable[[Any], Any]
"""Gets the original and gives the replacement, which must pass through in threads that are not recorded."""


class Patch:
    """One attribute of one module or class; may be installed again after it was removed."""

    def __init__(self, owner: Any, name: str, make: Make) -> None:
        self.owner = owner
        self.name = name
        self.make = make
        self.original: Any = None
        self.replacement: Any = None
        self.held = vars(owner)
        found = self.held.get(name)
        self._first = found if _is_its_own(owner, found) else None
        self._kept: Any = None
        """What stood there when this was made, and its replacement: blocks come and go, and those stay the same."""

    def install(self) -> None:
        original = self.original = self.held[self.name]
        if original is not None and original is self._first:
            replacement = self._kept = self._kept or self.make(original)
        else:  # the program's own, which must be able to go
            replacement = self.make(original)
        self.replacement = replacement
        setattr(self.owner, self.name, replacement)

    def remove(self) -> None:
        """Put the original back; where the program replaced ours in the meantime, its own stays."""
        if self.replacement is not None and self.held.get(self.name) is self.replacement:
            setattr(self.owner, self.name, self.original)
        self.original = self.replacement = None


def _is_its_own(owner: Any, found: Any) -> bool:
    """Whether something was written where its owner was: what a program put there must be able to go."""
    home = str(getattr(owner, "__module__", None) or owner.__name__)
    return str(getattr(found, "__module__", None) or home).partition(".")[0] == home.partition(".")[0]


class PatchSet:
    """Patches shared by all recordings of the process."""

    def __init__(self, build: Callable[[], list[Any]]) -> None:
        self._build = build
        self._lock = threading.RLock()
        self._users = 0
        self._suspended = 0
        self._installed: list[Any] = []

    def acquire(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            for patch in self._build():
                self._installed.append(patch)
                if not self._suspended:
                    patch.install()

    def suspend(self) -> None:
        """Put the originals back for a while (compiled regions); nests."""
        with self._lock:
            self._suspended += 1
            if self._suspended == 1:
                for patch in reversed(self._installed):
                    patch.remove()

    def resume(self) -> None:
        with self._lock:
            self._suspended -= 1
            if self._suspended == 0:
                for patch in self._installed:
                    patch.install()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            while self._installed:
                patch = self._installed.pop()
                if not self._suspended:
                    patch.remove()


# ---------------------------------------------------------------- signals

# Ctrl-C waits while a recording starts or stops: half an installed patch would stay for good.

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
