"""Reports events as they happen, for callers that print while the program runs."""

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


class LeafCall(NamedTuple):
    """Functions that let a call without inner events be reported once, if nothing is printed when it opens."""

    is_silent: Callable[[int, bool], bool]
    """Returns whether nothing is printed when a call opens inside this event; the bool means a call of a module."""
    whole: Callable[[Event, int], None]
    """Called when a call inside this event has ended without inner events; the event may be that of an equal call."""


class LiveFeed:
    """Calls ``feed(event, edge)`` on the event's own thread, for the records that are wanted when they open.

    With a ``brief``, a call that opens silently is held back: most calls end before anything happens inside, and are
    then reported once. Each report costs more than it finds out.
    """

    def __init__(
        self,
        recorder: Recorder,
        feed: Feed,
        wants: Wants,
        keyed: bool = True,
        brief: LeafCall | None = None,
    ) -> None:
        assert recorder.session is not None
        self._session = recorder.session
        self._settler = LiveSettler(
            self._session.journal.streams, recorder.number, recorder.source(), keyed
        )
        self._feed = feed
        self._wants = wants
        self._brief = brief
        self._held: dict[int, tuple[int, bool]] = {}
        """Keyed by thread: the record that is held back, and whether it belongs to a backward pass."""
        self._lock = (
            threading.RLock()
        )  # reentrant: a `__del__` that calls torch may run while it is held

    def __call__(self, log: ThreadLog, at: int, edge: str) -> None:
        if edge == "open":
            words = log.read(at)
            if self._wants(log, words):
                self._opened(log, at, words)
        elif self._held.get(log.number, NOT_HELD)[0] == at:
            self._ended(log, at)
        elif (log.number, at) in self._settler.open:
            self._report_held(log)
            with self._lock:
                event = self._settler.closed(log.number, at, log.read(at))
            self._feed(event, edge)

    def _opened(self, log: ThreadLog, at: int, words: list[int]) -> None:
        in_backward = self._session.in_backward is not None
        brief = self._brief
        self._report_held(log)
        above = self._settler.open.get((log.number, words[PARENT]))
        if (
            brief is not None
            and above is not None
            and brief.is_silent(above[0].id, words[WHAT] < 0)
        ):
            self._held[log.number] = (at, in_backward)
        else:
            self._tell_opened(log, at, words, in_backward)

    def _tell_opened(self, log: ThreadLog, at: int, words: list[int], in_backward: bool) -> None:
        with self._lock:
            event = self._settler.opened(log.number, at, words, in_backward)
        self._feed(event, "open")

    def _report_held(self, log: ThreadLog) -> None:
        """Report that the call that was held back has opened, because an event happens inside it."""
        at, in_backward = self._held.pop(log.number, NOT_HELD)
        if at != NONE:
            self._tell_opened(log, at, log.read(at), in_backward)

    def _ended(self, log: ThreadLog, at: int) -> None:
        """Report the call that was held back once, as a whole, because no event happened inside it."""
        assert self._brief is not None
        _, in_backward = self._held.pop(log.number)
        words = log.read(at)
        above, _ = self._settler.open[log.number, words[PARENT]]
        with self._lock:
            event = self._settler.leaf_call(log.number, words, in_backward)
        self._brief.whole(event, above.id)
