"""Events as they happen, for those who print while the program runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torchglass.capture.log import ThreadLog
from torchglass.capture.recorder import Recorder
from torchglass.capture.settling.settle import LiveSettler
from torchglass.events.types import Event

Wants = Callable[[ThreadLog, int, str], bool]
Feed = Callable[[Event, str], None]


class LiveFeed:
    """Calls ``feed(event, edge)`` on the event's own thread, for the raw records that are wanted."""

    def __init__(self, recorder: Recorder, feed: Feed, wants: Wants) -> None:
        self._settler = LiveSettler(recorder)
        self._feed = feed
        self._wants = wants
        self._lock = threading.RLock()  # a `__del__` that calls torch may run while it is held

    def __call__(self, log: ThreadLog, at: int, edge: str) -> None:
        if not self._wants(log, at, edge):
            return
        with self._lock:
            event = self._settler.event(log, at, edge)
        self._feed(event, edge)
