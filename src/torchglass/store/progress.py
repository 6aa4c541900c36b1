"""Tells whoever waits how far reading or repairing a bundle has come."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator

Watcher = Callable[[float], None]
"""Is given a number from 0 to 1; it may go back where the same is read twice."""


class _State(threading.local):
    """Each thread has its own: what another one reads is not what is waited for here."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.stretches: list[tuple[float, float]] = [(0.0, 1.0)]
        """Of the whole: where the work under way begins, and how much it is."""


_state = _State()


@contextlib.contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Have the watcher told of what is done inside."""
    _state.watchers.append(watcher)
    try:
        yield
    finally:
        _state.watchers.remove(watcher)


@contextlib.contextmanager
def stretch(number: int, count: int) -> Generator[None]:
    """One of several equal pieces of the work under way."""
    first, length = _state.stretches[-1]
    _state.stretches.append((first + length * number / count, length / count))
    try:
        yield
        tell(1.0)
    finally:
        _state.stretches.pop()


def tell(done: float) -> None:
    """So much of the innermost piece is done."""
    first, length = _state.stretches[-1]
    for watcher in _state.watchers:
        watcher(first + length * min(done, 1.0))
