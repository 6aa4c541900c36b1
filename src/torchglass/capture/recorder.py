"""Starts and stops: who is recorded from when to when, with which probes, and everything put back after."""

from __future__ import annotations

import dis
import importlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from torchglass.capture import release, threads
from torchglass.capture.calls import FunctionCalls
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.milestones import RESUMED, remove_milestones
from torchglass.capture.keeping import Keeper, Keeping
from torchglass.capture.release import is_quiet
from torchglass.capture.session import Listener, Session, error_text
from torchglass.capture.torch.names import HAS_TORCH
from torchglass.capture.transparency.patches import Patch, Patches, PatchSet, Uninterrupted
from torchglass.capture.variables.events import VariablesProbe
from torchglass.events.tables import Tables
from torchglass.journal import layout, rows
from torchglass.journal.layout import NONE
from torchglass.journal.ring import Limits
from torchglass.options import Options
from torchglass.settle.settler import Settler, Source
from torchglass.settle.values import Kept, kept_values

listeners: Any = importlib.import_module("torchglass.capture.torch.listeners") if HAS_TORCH else None
"""The file of that name; None where torch is not installed, and only variables can be followed."""
_WITH = dis.opmap.get("BEFORE_WITH")
LOOKS = 5
"""How often a recording that is under way is looked at once more, since other threads go on meanwhile."""
_LONGEST_CHAIN = 20
"""Exceptions may be raised in answer to each other in a circle."""


_last_with: list[tuple[CodeType, int]] = []
"""The statement by which the last block was entered, mostly that of the next one: to ask copies the whole code."""


def _is_with(code: CodeType, offset: int) -> bool:
    """Whether a ``with`` statement is at work at this place."""
    if _last_with and _last_with[0][0] is code and _last_with[0][1] == offset:
        return True
    found = _WITH is not None and 0 <= offset < len(code.co_code) and code.co_code[offset] == _WITH
    if found:
        _last_with[:] = [(code, offset)]
    return found


@dataclass(slots=True)
class Window:
    """The part of one thread's records that belongs to one recording."""

    log: ThreadLog
    begin: int
    end: int | None = None


@lru_cache(maxsize=64)
def _window_bytes(thread: int, begin: int, module: int) -> bytes:
    """The same in each recording that begins with a thread."""
    return rows.encoded(rows.WindowRow(thread, begin, module))


_THREADS = Patches(
    Patch(threading.Thread, "start", threads.make_start),
    Patch(threading.Thread, "_bootstrap_inner", threads.make_bootstrap),
)


def _patches() -> list[Any]:
    listening = [] if listeners is None else listeners.patches()
    return [*listening, _THREADS]


def _forget_in_child() -> None:
    """A forked child has our modes and patches but is not recorded: what it did would be lost with it."""
    for log in LOGS.values():
        log.on = False
        log.session.end()
    LOGS.clear()


os.register_at_fork(after_in_child=_forget_in_child)
PATCHES = PatchSet(_patches)
DOOR = PatchSet(lambda: [] if listeners is None else [listeners.compile_door(PATCHES)])


class Recorder:
    """One recording: from ``start`` to ``stop`` in one thread and the threads started from it."""

    def __init__(self, options: Options, keeper: Keeper | None = None) -> None:
        self.options = options
        self._keeper = keeper
        self._keeping: Keeping | None = None
        self.windows: list[Window] = []
        self.session: Session | None = None
        self.number = 0
        """Which recording of its session it is."""
        self.started_ns = 0
        self.stopped_ns: int | None = None
        self.left_by: tuple[str, ...] = ()
        self._raised: list[list[Any]] = []
        self.settler: Settler | None = None
        """What the tables were made by, the last time."""
        self.kept_in_memory: list[Kept] = []
        self.kept_in_folder: list[Kept] = []
        """Where copies of values lay then, by the number in those tables."""
        self._asks: Callable[[], None] | None = None
        self._holds: list[PatchSet] = []
        self._probe: VariablesProbe | None = None
        self._calls: FunctionCalls | None = None
        self._is_quiet = False
        """Nothing of its session was under way when it ended."""

    @property
    def running(self) -> bool:
        return self.session is not None and self.stopped_ns is None

    def start(self, frame: FrameType | None = None, outermost: bool = False) -> None:
        """Begin. ``frame`` is the frame of the with-block, where there is one.

        ``outermost``: it is ours and runs a whole program, whose stacks begin below it.
        """
        try:
            with Uninterrupted():
                self._start(frame, outermost)
        except BaseException:
            self.stop()
            raise

    def _start(self, frame: FrameType | None, outermost: bool) -> None:
        log = LOGS.get(get_ident())
        if log is None or not log.session.running:
            session = Session(Limits(self.options.max_events, self.options.keep), self.options.fused)
            session.stacks.codes.keeps_text = self._keeper is None or self.options.sources
            log = session.add_log(threading.current_thread().name)
            if outermost and frame is not None:
                log.base, log.anchor = session.stacks.intern_part(NONE, []), id(frame)
            else:
                self._anchor(session, log, frame)
        else:
            session = log.session
            session.journal.widen(self.options.max_events)
        self._join(session, log)
        for patches in (PATCHES, DOOR):
            self._holds.append(patches)
            patches.acquire()
        if listeners is not None:
            listeners.prepare(session)
            listeners.measure(session)
            listeners.listen(log)
        # A recording around this one may follow some of the variables already: its events are in both.
        fresh = tuple([name for name in self.options.names if not session.watched & {name, "*"}])
        if fresh:
            self._probe = VariablesProbe(session, fresh)
            self._probe.start(frame)
        if self.options.packages and not session.records_calls:
            session.records_calls = True
            self._calls = FunctionCalls(session, self.options.packages)
            self._calls.start()

    def _join(self, session: Session, log: ThreadLog) -> None:
        """Become one of the recordings of a session, from now on."""
        self.session, self.number = session, session.recordings
        session.recordings += 1
        options = self.options
        self.started_ns = time.perf_counter_ns()
        row = rows.encoded_recording(options.name, os.getpid(), time.time(), self.started_ns, options.as_text())
        session.journal.rows.add(layout.RECORDING, self.number, row)
        if self._keeper is not None:
            self._keeping = Keeping(session, self.number, self._keeper, options.sources)
        self.own(log)
        session.recorders.append(self)
        session.configure()

    def own(self, log: ThreadLog) -> None:
        """Record this thread too, from its next record on."""
        assert self.session is not None
        row = _window_bytes(log.number, log.at, log.module_under_way())
        self.session.journal.rows.add(layout.WINDOW, self.number, row)
        self.windows.append(Window(log, log.at))

    def _anchor(self, session: Session, log: ThreadLog, frame: FrameType | None) -> None:
        """Where stack walks may stop: above the with-block, whose callers stay as they are while it runs.

        Only for a real ``with`` statement in a plain function: the frame of a generator is resumed by others,
        and the frame of an ExitStack is gone at once (and its id somebody else's).
        """
        if frame is None or frame.f_back is None or frame.f_code.co_flags & RESUMED:
            return
        if not _is_with(frame.f_code, frame.f_lasti):
            return
        log.base = session.stacks.whole(frame.f_back)
        log.anchor = id(frame.f_back)

    def stop(self, error: BaseException | None = None) -> None:
        """End, and put back whatever this was the last to need. Never raises by our doing.

        ``error`` is the exception that leaves the block, if one does.
        """
        session = self.session
        if session is None or self.stopped_ns is not None:
            return
        quiet = is_quiet(session)
        with Uninterrupted():
            self._stop_probes(session)
            if error is not None:
                self._note_failure(session, error)
            for window in self.windows:
                if window.log.ident == get_ident():
                    session.close_left_open(window.log, window.begin)
            self._stop(session)
        self._end(session)
        self._is_quiet = quiet and not session.recorders
        if self._keeping is None:
            self._release(session)

    def _release(self, session: Session) -> None:
        """Let go of what was needed to record; the journal stays, to be looked at."""
        if self._is_quiet:
            for probe in (self._calls, self._probe):
                if probe is not None:
                    probe.let_go()
            self._is_quiet, self._probe, self._calls = False, None, None
            release.let_go(session)

    def _stop(self, session: Session) -> None:
        self.stopped_ns = time.perf_counter_ns()
        for window in self.windows:
            window.end = window.log.at
        if self in session.recorders:
            session.recorders.remove(self)
        session.configure()
        if session.measurer is not None and self._asks in session.measurer.on_bad:
            session.measurer.on_bad.remove(self._asks)
        if listeners is not None:
            listeners.measure(session)
        self._let_go(session)
        while self._holds:
            self._holds.pop().release()

    def _end(self, session: Session) -> None:
        """Read the user's files now, as later they may be gone or changed; then write how it ended."""
        try:
            session.sources.read_all()
            if self._keeping is not None:
                self._keeping.stop()
            for window in self.windows:
                session.name_thread(window.log)
            row = rows.EndedRow(
                self.stopped_ns or 0,
                list(self.left_by),
                [[window.log.number, window.log.at if window.end is None else window.end] for window in self.windows],
                sum([window.log.lost for window in self.windows]),
                [[text, count] for text, count in session.faults.items()],
                self._raised,
            )
            is_plain = not self.left_by and not session.faults
            payload = rows.encoded_ints(list(row)) if is_plain else rows.encoded(row)
            session.journal.rows.add(layout.ENDED, self.number, payload)
        except Exception as fault:
            session.fault(fault)

    def _note_failure(self, session: Session, error: BaseException) -> None:
        """What left the block, and what it was raised in answer to."""
        try:
            each: BaseException | None = error
            while each is not None and len(self.left_by) < _LONGEST_CHAIN:
                self.left_by += (error_text(each),)
                each = each.__cause__ or each.__context__
            self._raised = session.stacks.codes.frames_of(error)
            if listeners is not None:
                listeners.finish_pops(error)
            session.end_steps(self.windows[0].log, self.windows[0].begin - 1, session.error_number(error))
        except Exception as fault:
            session.fault(fault)

    def _let_go(self, session: Session) -> None:
        """Stop recording the threads that no recording owns any more."""
        owned = {id(window.log) for recorder in session.recorders for window in recorder.windows}
        for log in session.logs:
            if id(log) not in owned:
                log.on = False
                if LOGS.get(log.ident) is log:
                    del LOGS[log.ident]
                if log.ident == get_ident():
                    remove_milestones(session.stacks)
            if listeners is not None:
                listeners.let_go(log)
        if not session.recorders:
            session.end()
            self._finish_modules(session)
            session.values.clear()

    def _finish_modules(self, session: Session) -> None:
        try:
            if listeners is not None and session.modules:
                listeners.add_uncalled(session)
        except Exception as fault:
            session.fault(fault)

    def _stop_probes(self, session: Session) -> None:
        """First of all: they must not follow our own functions."""
        for probe in (self._calls, self._probe):
            try:
                if probe is not None:
                    probe.stop()
            except Exception as fault:
                session.fault(fault)
        if self._calls is not None:
            session.records_calls = False

    def progress(self) -> int:
        """How many records there are: grows with every event."""
        return sum(window.log.at if window.end is None else window.end for window in self.windows)

    def source(self) -> Source:
        """Where settling finds the texts of files."""
        assert self.session is not None
        return Source(self.session.sources.texts.get, is_here=True)

    def tables(self) -> Tables:
        """Everything recorded so far, settled; while it runs a snapshot."""
        if self.session is None:
            return Tables(name=self.options.name)
        if self.running and listeners is not None:
            listeners.read_all_settings(self.session)  # of models whose call is still under way
        with self.session.journal.lock:  # else a chunk might be given up, and used again, while it is read
            self.settler, streams = self._settled(), self.session.journal.streams
            if self.options.measures:
                self.kept_in_memory, self.kept_in_folder = kept_values(streams, self.settler.values, NONE, self.number)
            return self.settler.tables

    def _settled(self, looks: int = LOOKS) -> Settler:
        """All that was recorded until now, settled; again where a thread has just ended a call with a new form."""
        assert self.session is not None
        settler = Settler(self.session.journal.streams, self.number, self.source())
        try:
            settler.settle()
        except KeyError:
            if looks and self.running:
                return self._settled(looks - 1)
            raise
        return settler

    @property
    def regions(self) -> dict[int, Any]:
        """Pieces of memory that ``kept_in_memory`` speaks of."""
        return {} if self.session is None else self.session.copies.regions

    def copies(self) -> dict[int, tuple[str, Any]]:
        """The copies that are in memory, by the number of their value, with their names."""
        if self.session is None:
            return {}
        copies = self.session.copies
        return {value: (copies.names[value], copy) for value, copy in copies.held.items()}

    def leave_file(self, is_settled: bool) -> None:
        """The folder is finished: the file of the journal can go; the journal too, if its tables are there."""
        if self._keeping is not None:
            self._keeping.leave(is_settled)
            if self.session is not None:
                self._release(self.session)

    def stop_on_bad(self, ask: Callable[[], None]) -> None:
        """Have ``ask()`` called when an event gave something that is not finite: what it raises, the program gets."""
        assert self.session is not None
        self._asks = ask
        if self.session.measurer is not None:
            self.session.measurer.on_bad.append(ask)
            self.session.measure_with(self.session.measurer)

    def listen(self, listener: Listener) -> None:
        """Have ``listener(log, at, edge)`` called at the open and close of each event, on its own thread."""
        assert self.session is not None
        self.session.listeners.append(listener)
        for log in self.session.logs:
            log.listening = True

    def unlisten(self, listener: Listener) -> None:
        session = self.session
        if session is None or listener not in session.listeners:
            return
        session.listeners.remove(listener)
        for log in session.logs:
            log.listening = bool(session.listeners)
