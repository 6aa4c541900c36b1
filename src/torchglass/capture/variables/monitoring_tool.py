"""Our one tool of ``sys.monitoring``, which all engines of the process share.

Two tools over the same code lose events of each other, on Python 3.12 and 3.13; and what a tool switches off stays off
for the next one that gets its number.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

_monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none
_FIRST_CHOICES = (4, 3)
"""0, 1, 2 and 5 are by convention a debugger's, coverage's, a profiler's and an optimizer's."""
_IDS = range(6)


class Member(Protocol):
    """An engine's part."""

    def callbacks(self, depth: int) -> dict[int, Callable[..., Any]]: ...


class Tool:
    """Takes a number when the first engine comes, gives it back when the last one goes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._number: int | None = None
        self._members: list[Member] = []
        self._told: list[Member] = []
        """Those of them whose callbacks are called."""
        self._wanted: dict[int, tuple[CodeType, dict[Member, int]]] = {}
        """By ``id`` of code: who wants which events of it."""

    def can_be_had(self) -> bool:
        """Whether an engine can begin."""
        return self._number is not None or any(_monitoring.get_tool(number) is None for number in _IDS)

    def join(self, member: Member) -> None:
        """From now on a member may ask for events of code; of calls it is told from ``begin`` on."""
        with self.lock:
            if self._number is None:
                self._number = _take_number()
            self._members.append(member)

    def begin(self, member: Member) -> None:
        with self.lock:
            self._told.append(member)
            self._register()
            events = _monitoring.events
            _monitoring.set_events(self._number, events.PY_START | events.PY_RESUME | events.PY_UNWIND)
            _monitoring.restart_events()  # what others have switched off this one may want

    def end(self, member: Member) -> None:
        """A member is told of nothing any more."""
        with self.lock:
            if member in self._told:
                self._told.remove(member)
                self._register()

    def leave(self, member: Member) -> None:
        """The last one leaves nothing: every event and callback by itself, freeing the number alone would not do."""
        with self.lock:
            if member not in self._members:
                return
            self.end(member)
            self._members.remove(member)
            for code, wants in [each for each in self._wanted.values() if member in each[1]]:
                del wants[member]
                _monitoring.set_local_events(self._number, code, self._events_of(code))
            self._wanted = {key: each for key, each in self._wanted.items() if each[1]}
            if not self._members:
                number, self._number = self._number, None
                _monitoring.free_tool_id(number)

    def ask(self, member: Member, code: CodeType, events: int) -> None:
        """Be told of these events of a code object."""
        with self.lock:
            if member in self._members:
                self._wanted.setdefault(id(code), (code, {}))[1][member] = events
                _monitoring.set_local_events(self._number, code, self._events_of(code))

    def ask_again(self, code: CodeType) -> None:
        """Be told also of what was switched off."""
        with self.lock:
            if self._number is not None:
                _monitoring.set_local_events(self._number, code, 0)
                _monitoring.set_local_events(self._number, code, self._events_of(code))

    def _events_of(self, code: CodeType) -> int:
        events = 0
        for each in self._wanted.get(id(code), (code, {}))[1].values():
            events |= each
        return events

    def _register(self) -> None:
        """One member is called at once; several one after the other."""
        if not self._told:
            _monitoring.set_events(self._number, 0)
        depth = 1 if len(self._told) == 1 else 2
        several = [member.callbacks(depth) for member in self._told]
        for event in several[0] if several else _EVENTS:
            callbacks = [each[event] for each in several]
            callback = _each(callbacks) if len(callbacks) > 1 else callbacks[0] if callbacks else None
            _monitoring.register_callback(self._number, event, callback)


def _each(callbacks: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Calls several; what one of them still wants stays on for all."""
    disable = _monitoring.DISABLE

    def call(*args: Any) -> Any:
        verdict = disable
        for callback in callbacks:
            if callback(*args) is not disable:
                verdict = None
        return verdict

    return call


def _take_number() -> int:
    for number in (*_FIRST_CHOICES, *_IDS):
        try:
            _monitoring.use_tool_id(number, "torchglass")
        except ValueError:
            continue
        return number
    raise RuntimeError("all ids of sys.monitoring are taken")


def _all_events() -> tuple[int, ...]:
    events: Any = getattr(_monitoring, "events", None)
    names = ("PY_START", "PY_RESUME", "INSTRUCTION", "PY_RETURN", "PY_UNWIND")
    return tuple(getattr(events, name) for name in names if events is not None)


_EVENTS = _all_events()
TOOL = Tool()

if _monitoring is not None and hasattr(os, "register_at_fork"):
    # A child whose parent forked while another thread was in here would wait for ever.
    os.register_at_fork(before=TOOL.lock.acquire, after_in_parent=TOOL.lock.release, after_in_child=TOOL.lock.release)
