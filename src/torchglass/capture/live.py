"""Events as they happen, for those who print while the program runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.recorder import Recorder
from torchglass.events.types import Event
from torchglass.settle.live import LiveSettler

Wants = Callable[[ThreadLog, int], bool]
Feed = Callable[[Event, str], None]


class LiveFeed:
    """Calls ``feed(event, edge)`` on the event's own thread, for the raw records that are wanted when they open."""

    def __init__(self, recorder: Recorder, feed: Feed, wants: Wants, keyed: bool = True) -> None:
        assert recorder.session is not None
        self._session = recorder.session
        self._settler = LiveSettler(self._session.journal.streams, recorder.number, recorder.source(), keyed)
        self._feed = feed
        self._wants = wants
        self._lock = threading.RLock()  # a `__del__` that calls torch may run while it is held

    def __call__(self, log: ThreadLog, at: int, edge: str) -> None:
        settler, number = self._settler, log.number
        if edge == "open":
            if not self._wants(log, at):
                return
            with self._lock:
                event = settler.opened(number, at, log.read(at), self._session.in_backward is not None)
        elif (number, at) in settler.open:
            with self._lock:
                event = settler.closed(number, at, log.read(at))
        else:
            return
        self._feed(event, edge)
