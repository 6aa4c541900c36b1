"""Manages the one ``sys.monitoring`` tool that all engines of the process share.

On Python 3.12 and 3.13, two tools on the same code lose each other's events. Also, events that a tool has switched off
stay off for the next tool that gets its number.
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
"""Tool numbers to try first. By convention debuggers use 0, coverage 1, profilers 2 and optimizers 5."""
_IDS = range(6)


class Member(Protocol):
    """The callbacks of one engine in the shared tool."""

    def callbacks(self, depth: int) -> dict[int, Callable[..., Any]]: ...


class Tool:
    """Takes a tool number when the first member joins, and frees the number when the last member leaves."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._number: int | None = None
        self._members: list[Member] = []
        self._listening: list[Member] = []
        """The members whose callbacks are called now."""
        self._wanted: dict[int, tuple[CodeType, dict[Member, int]]] = {}
        """Keyed by the ``id`` of code: the code, and which events each member wants of it."""

    def can_be_had(self) -> bool:
        """Return whether there is a tool number for an engine."""
        return self._number is not None or any(
            _monitoring.get_tool(number) is None for number in _IDS
        )

    def join(self, member: Member) -> None:
        """Add a member, which may then ask for events of code. Its callbacks are called from ``begin`` on."""
        with self.lock:
            if self._number is None:
                self._number = _take_number()
            self._members.append(member)

    def begin(self, member: Member) -> None:
        with self.lock:
            self._listening.append(member)
            self._register()
            events = _monitoring.events
            _monitoring.set_events(
                self._number, events.PY_START | events.PY_RESUME | events.PY_UNWIND
            )
            _monitoring.restart_events()  # this member may want events that other members have switched off

    def end(self, member: Member) -> None:
        """Stop calling the callbacks of a member."""
        with self.lock:
            if member in self._listening:
                self._listening.remove(member)
                self._register()

    def leave(self, member: Member) -> None:
        """Remove a member, and its events and callbacks, because freeing the tool number does not remove them."""
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
                number = self._number
                self._number = None
                _monitoring.free_tool_id(number)

    def ask(self, member: Member, code: CodeType, events: int) -> None:
        """Ask for these events of a code object."""
        with self.lock:
            if member in self._members:
                self._wanted.setdefault(id(code), (code, {}))[1][member] = events
                _monitoring.set_local_events(self._number, code, self._events_of(code))

    def ask_again(self, code: CodeType) -> None:
        """Switch the events of a code object on again where they were switched off."""
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
        """Register the callbacks: a single member's directly, those of several members through one function."""
        if not self._listening:
            _monitoring.set_events(self._number, 0)
        depth = 2
        if len(self._listening) == 1:
            depth = 1
        several = [member.callbacks(depth) for member in self._listening]
        for event in several[0] if several else _EVENTS:
            callbacks = [each[event] for each in several]
            if len(callbacks) > 1:
                callback = _each(callbacks)
            elif callbacks:
                callback = callbacks[0]
            else:
                callback = None
            _monitoring.register_callback(self._number, event, callback)


def _each(callbacks: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a callback that calls several callbacks; an event stays on while one of them wants it."""
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
    # If the program forked while another thread held the lock, the child would wait for ever.
    os.register_at_fork(
        before=TOOL.lock.acquire,
        after_in_parent=TOOL.lock.release,
        after_in_child=TOOL.lock.release,
    )
