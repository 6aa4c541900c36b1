"""Events as they happen, for those who print while the program runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.recorder import Recorder
from torchglass.events.types import Event
from torchglass.journal.layout import NONE, PARENT, WHAT
from torchglass.settle.live import LiveSettler

Wants = Callable[[ThreadLog, list[int]], bool]
Feed = Callable[[Event, str], None]
NOT_HELD = (NONE, False)


class Brief(NamedTuple):
    """For those who print nothing when most calls open, and need not be told of them twice."""

    is_silent: Callable[[int, bool], bool]
    """Whether nothing is printed because a call opens inside this event; True: the call of a module."""
    whole: Callable[[Event, int], None]
    """A call inside this event has ended, and nothing happened in it; one before that was alike may stand for it."""


class LiveFeed:
    """Calls ``feed(event, edge)`` on the event's own thread, for the raw records that are wanted when they open.

    Where there is a ``brief``, what opens in silence is held back: most calls end before anything happens in them, and
    are then told of at once. Between the operations of a model each look costs more than what it finds out.
    """

    def __init__(
        self, recorder: Recorder, feed: Feed, wants: Wants, keyed: bool = True, brief: Brief | None = None
    ) -> None:
        assert recorder.session is not None
        self._session = recorder.session
        self._settler = LiveSettler(self._session.journal.streams, recorder.number, recorder.source(), keyed)
        self._feed = feed
        self._wants = wants
        self._brief = brief
        self._held: dict[int, tuple[int, bool]] = {}
        """By thread: the record that is held back, and whether it is of backward."""
        self._lock = threading.RLock()  # a `__del__` that calls torch may run while it is held

    def __call__(self, log: ThreadLog, at: int, edge: str) -> None:
        if edge == "open":
            words = log.read(at)
            if self._wants(log, words):
                self._opened(log, at, words)
        elif self._held.get(log.number, NOT_HELD)[0] == at:
            self._ended(log, at)
        elif (log.number, at) in self._settler.open:
            self._let_go(log)
            with self._lock:
                event = self._settler.closed(log.number, at, log.read(at))
            self._feed(event, edge)

    def _opened(self, log: ThreadLog, at: int, words: list[int]) -> None:
        in_backward, brief = self._session.in_backward is not None, self._brief
        self._let_go(log)
        above = self._settler.open.get((log.number, words[PARENT]))
        if brief is not None and above is not None and brief.is_silent(above[0].id, words[WHAT] < 0):
            self._held[log.number] = (at, in_backward)
        else:
            self._tell_opened(log, at, words, in_backward)

    def _tell_opened(self, log: ThreadLog, at: int, words: list[int], in_backward: bool) -> None:
        with self._lock:
            event = self._settler.opened(log.number, at, words, in_backward)
        self._feed(event, "open")

    def _let_go(self, log: ThreadLog) -> None:
        """Something happens in the call that was held back."""
        at, in_backward = self._held.pop(log.number, NOT_HELD)
        if at != NONE:
            self._tell_opened(log, at, log.read(at), in_backward)

    def _ended(self, log: ThreadLog, at: int) -> None:
        """Nothing happened in the call that was held back."""
        assert self._brief is not None
        _, in_backward = self._held.pop(log.number)
        words = log.read(at)
        above, _ = self._settler.open[log.number, words[PARENT]]
        with self._lock:
            event = self._settler.whole(log.number, words, in_backward)
        self._brief.whole(event, above.id)
