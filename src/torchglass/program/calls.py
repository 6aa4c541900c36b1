"""Finds the call of a function that an event belongs to, also for generators, coroutines and recursive functions.

In the program tree a generator has a node for each time that it is resumed. Here all of them are one ``PythonCall``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from torchglass.events.types import Event, Location
from torchglass.program.dedup import ById, DistinctEvents
from torchglass.program.tree import ProgramTree

UNKNOWN_PLACE = Location("", 0, 0, 0, 0, "", "", "user")
"""Stands for the place of an event without a stack."""


@dataclass(slots=True, eq=False)
class PythonCall:
    """One call of a function of the program, as far as its events show it."""

    frame: int
    """The number of its frame (``_NumberedFrames``): equal for calls from one place with the same callers."""
    at: Location
    """Where the function was at the first event."""
    caller: PythonCall | None
    called_at: Location | None
    """The place of the call in its caller."""
    is_seen: bool = False
    """Whether it had an event itself, and not only a function that it called."""
    module: tuple[str, str] | None = None
    """The root and the path of the module that was running."""


class _CachedCaller(NamedTuple):
    """The call that runs at a frame, which is certain only until the next switch."""

    call: PythonCall
    switches: int
    """The value of ``PythonCalls._switches`` when it was found."""


class PythonCalls:
    """Finds the call of each event. Events must be passed in order.

    A call is identified by the number that the recorder gave it (with ``variables=``), otherwise by the call in the
    program tree.
    """

    def __init__(self, distinct: DistinctEvents, tree: ProgramTree) -> None:
        self._distinct = distinct
        self._tree = tree
        self._frames = _NumberedFrames()
        self._threads: dict[tuple[int, str], int] = {}
        self._known: dict[tuple[Hashable, int], PythonCall] = {}
        """By identity and frame. From Python 3.12 on a comprehension is no call, but its variables are listed apart."""
        self._running: dict[tuple[int, int], PythonCall] = {}
        """By thread and frame, the call that runs there now."""
        self._callers: dict[tuple[int, int], _CachedCaller] = {}
        """By thread and frame."""
        self._switches = 0
        """How often a call began or was resumed."""

    def call_of(self, number: int, event: Event) -> PythonCall:
        """Return the call of the innermost function of the program in a stack.

        ``number`` is the event's id. ``event`` is an event like it; only its stack may be a shorter one.
        """
        identity = self._identity(number)
        thread = self._threads.setdefault((event.process, event.thread), len(self._threads))
        frames = self._frames.frames_of(event.stack)
        frame = frames[-1].number
        running = self._running.get((thread, frame))
        is_in_place = event.detail == "changed"
        if running is not None and is_in_place and self._is_of_a_caller(identity, frames):
            return running
        call = self._known.get((identity, frame))
        if call is None:
            call = self._begun_call(thread, frames, running)
            self._known[identity, frame] = call
        if self._running.get((thread, frame)) is not call:
            self._switch_to(thread, frame, call)
        if not call.is_seen:
            call.is_seen = True
            if event.module is not None:
                call.module = (event.root or "", event.module)
        return call

    def _begun_call(
        self, thread: int, frames: list[_Frame], running: PythonCall | None
    ) -> PythonCall:
        """Return the call of the innermost frame. This is the first event in it."""
        caller = None
        called_at = None
        if len(frames) > 1:
            caller = self._caller(thread, frames)
            called_at = frames[-2].at
        if running is not None and not running.is_seen and running.caller is caller:
            # So far this call was known only as the caller of other calls.
            return running
        frame, at = frames[-1]
        return PythonCall(frame, at, caller, called_at)

    def _identity(self, number: int) -> Hashable:
        """Return a key that is equal for all events in one call of a function."""
        python_call = self._distinct.python_calls[number]
        if python_call >= 0:
            return python_call
        return ("in", self._tree.call(number))

    def _is_of_a_caller(self, identity: Hashable, frames: list[_Frame]) -> bool:
        """Return whether the identity is that of a caller, one of whose variables was then changed in place."""
        return any((identity, frame.number) in self._known for frame in frames[:-1])

    def _caller(self, thread: int, frames: list[_Frame]) -> PythonCall:
        """Return the call that made the innermost one."""
        frame = frames[-2].number
        cached = self._callers.get((thread, frame))
        if cached is not None and cached.switches == self._switches:
            return cached.call
        caller: PythonCall | None = None
        called_at: Location | None = None
        for number, at in frames[:-1]:
            call = self._running.get((thread, number))
            if call is None or (call.caller is not caller and not call.is_seen):
                call = PythonCall(number, at, caller, called_at)
                self._switch_to(thread, number, call)
            caller = call
            called_at = at
        assert caller is not None
        self._callers[thread, frame] = _CachedCaller(caller, self._switches)
        return caller

    def _switch_to(self, thread: int, frame: int, call: PythonCall) -> None:
        """Note that a call runs at a frame from now on: it began, or was resumed."""
        self._switches += 1
        self._running[thread, frame] = call


class _Frame(NamedTuple):
    """A frame of the program in a stack."""

    number: int
    at: Location


class _NumberedFrames:
    """Numbers the frames of stacks. The number is equal for one function called from one place by the same callers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._place_number = ById[Location, int](self._number)
        self.frames_of = ById(self._number_frames)
        """The program's frames in a stack, outermost first; at least one."""

    def _number_frames(self, stack: tuple[Location, ...]) -> list[_Frame]:
        frames: list[_Frame] = []
        callers = -1
        for at in stack:
            if at.origin == "user" or at is stack[-1]:
                number = self._number(("frame", callers, at.file, at.function))
                frames.append(_Frame(number, at))
            callers = self._number((callers, self._place_number(at)))
        return frames or [_Frame(self._number("nowhere"), UNKNOWN_PLACE)]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
