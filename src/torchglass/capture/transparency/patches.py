"""The few process-wide names that are replaced while anything records, counted and put back by the last one."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any

Make = Callable[[Any], Any]
"""Gets the original and gives the replacement, which must pass through in threads that are not recorded."""


class Patch:
    """One attribute of one module or class, and what makes its replacement.

    What stands there when this is made is kept with its replacement, if it is its owner's: blocks come and go, and
    those two stay the same. Of what a program put there nothing is kept: it must be able to go.
    """

    def __init__(self, owner: Any, name: str, make: Make, only: Any = None) -> None:
        self.held = vars(owner)
        self.name = name
        self.make = make
        self.leaves_others = only is not None
        """``only``: whatever else stands there is left alone."""
        self.put: Callable[[str, Any], None] = getattr(self.held, "__setitem__", None) or partial(setattr, owner)
        """Into the dictionary of a module; of a class Python must be told."""
        found = self.held.get(name) if only is None else only
        is_own = only is not None or (found is not None and _is_its_own(owner, found))
        self.original: Any = found if is_own else object()
        self.replacement: Any = make(found) if is_own else object()


def _is_its_own(owner: Any, found: Any) -> bool:
    """Whether something was written where its owner was."""
    home = str(getattr(owner, "__module__", None) or owner.__name__)
    return str(getattr(found, "__module__", None) or home).partition(".")[0] == home.partition(".")[0]


class Patches:
    """Patches that are installed and removed together, and may be again: two dozen in each block, so in one loop.

    A name that its owner does not have is passed over. Where the program replaced ours in the meantime, its own stays.
    """

    def __init__(self, *patches: Patch) -> None:
        self._patches = [(each.held, each.name, each.put, each.original, each.replacement, each) for each in patches]
        self._others: list[tuple[Patch, Any, Any]] = []
        """Where something of the program's stood: that, and what was put there."""

    def install(self) -> None:
        for held, name, put, original, replacement, patch in self._patches:
            if held.get(name) is original:
                put(name, replacement)
            elif name in held and not patch.leaves_others:
                self._install_around(patch, held[name])

    def _install_around(self, patch: Patch, found: Any) -> None:
        replacement = patch.make(found)
        self._others.append((patch, found, replacement))
        patch.put(patch.name, replacement)

    def remove(self) -> None:
        for held, name, put, original, replacement, _ in self._patches:
            if held.get(name) is replacement:
                put(name, original)
        while self._others:
            patch, found, replacement = self._others.pop()
            if patch.held.get(patch.name) is replacement:
                patch.put(patch.name, found)


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
                if not self._suspended:
                    self._installed[-1].remove()
                self._installed.pop()  # last: what an exception kept from being put back is put back by the next one


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
        if get_ident() == threading.main_thread().ident:
            handler = _signal.getsignal(_SIGINT)
            if callable(handler) and getattr(handler, "__func__", None) is not Uninterrupted._hold:  # held already
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
