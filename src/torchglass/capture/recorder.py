"""Starts and stops a recording: decides which threads and which probes it has, and restores everything at its end.

``Recorder.start`` joins or makes a session, installs what listens to torch and Python, and starts the probes of
variables and calls. ``Recorder.stop`` undoes it in the opposite order. A fault of ours in one step must not keep the
others from running (``_do_all``), and must never reach the program.
"""

from __future__ import annotations

import dis
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from torchglass import compiled
from torchglass.capture import release, threads
from torchglass.capture.calls import FunctionCalls
from torchglass.capture.engine.jit import begin_inside_trace, end_trace, pause_trace, resume_trace
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.milestones import RESUMED, remove_milestones
from torchglass.capture.error_texts import error_text
from torchglass.capture.keeping import Keeper, Keeping
from torchglass.capture.release import is_idle
from torchglass.capture.session import Listener, Session
from torchglass.capture.torch.names import HAS_TORCH, no_functions
from torchglass.capture.transparency.features import OFF, Feature, attempt, reason_of, replaced
from torchglass.capture.transparency.ours import is_signals
from torchglass.capture.transparency.patches import SharedFeatures
from torchglass.capture.transparency.signals import Uninterrupted
from torchglass.capture.variables.events import VariablesProbe
from torchglass.events.tables import Tables
from torchglass.journal import forks, layout, rows
from torchglass.journal.layout import NONE, Streams
from torchglass.journal.ring import Limits
from torchglass.options import Options
from torchglass.settle.closing import name_rows, only_row, place_rows, without_texts
from torchglass.settle.copies import StoredCopy, stored_copies
from torchglass.settle.settler import Settler, Source
from torchglass.system import get_ident, getpid, perf_counter_ns, seconds_now, thread_name

listeners: Any = (
    importlib.import_module("torchglass.capture.torch.listeners") if HAS_TORCH else None
)
"""The module torchglass.capture.torch.listeners; None without torch, when only variables and calls can be recorded."""
_WITH = dis.opmap.get("BEFORE_WITH")
MAX_TRIES = 5
"""How often to try again to read a running recording, while other threads are still writing to it."""
_LONGEST_CHAIN = 20
"""The most exceptions of a chain to note, because the causes of an exception may form a cycle."""


_last_with: list[tuple[CodeType, int]] = []
"""The ``with`` statement of the last block, which is often that of the next; checking it copies the whole bytecode."""


def _is_with(code: CodeType, offset: int) -> bool:
    """Return whether the instruction at this offset enters a ``with`` block."""
    if _last_with and _last_with[0][0] is code and _last_with[0][1] == offset:
        return True
    found = _WITH is not None and 0 <= offset < len(code.co_code) and code.co_code[offset] == _WITH
    if found:
        _last_with[:] = [(code, offset)]
    return found


def _do_all(session: Session, *steps: Callable[[Session], None]) -> None:
    """Do each step, even if others fail; at the end, raise again what a signal handler of the program has raised."""
    theirs: BaseException | None = None
    for step in steps:
        try:
            step(session)
        except BaseException as fault:
            if is_signals(fault):
                theirs = fault
            else:
                session.fault(fault)
    if theirs is not None:
        raise theirs


@dataclass(slots=True)
class Window:
    """The part of one thread's records that belongs to one recording."""

    log: ThreadLog
    begin: int
    """The first record."""
    end: int | None = None
    """The record after the last one; None while the recording runs."""

    @property
    def end_so_far(self) -> int:
        """Return the end so far."""
        if self.end is None:
            return self.log.at
        return self.end


@lru_cache(maxsize=64)
def _window_bytes(thread: int, begin: int, module: int) -> bytes:
    """Return the row of a window; it is cached, because it is the same in each recording that begins with a thread."""
    return rows.encoded(rows.WindowRow(thread, begin, module))


_STARTED = "threads that are started inside the block"
_THREADS = [
    replaced("threading.Thread.start", _STARTED, threads.make_start),
    replaced("threading.Thread._bootstrap_inner", _STARTED, threads.make_bootstrap),
]


def _features() -> list[Feature]:
    if listeners is None:
        listening = []
    else:
        listening = listeners.patches()
    return [*listening, *_THREADS]


def _forget_in_child() -> None:
    """Turn recording off in a forked child process, which inherits our modes and patches."""
    for log in LOGS.values():
        log.on = False
        log.session.end()
    LOGS.clear()


forks.in_child(_forget_in_child)
PATCHES = SharedFeatures(_features)
DOOR = SharedFeatures(lambda: [] if listeners is None else [listeners.compile_door(PATCHES)])


class Recorder:
    """One recording: from ``start`` to ``stop`` in one thread and the threads started from it."""

    def __init__(self, options: Options, keeper: Keeper | None = None) -> None:
        self.options = options
        self._keeper = keeper
        self._keeping: Keeping | None = None
        self.windows: list[Window] = []
        self.session: Session | None = None
        self.number = 0
        """The number of this recording in its session."""
        self.started_ns = 0
        self.stopped_ns: int | None = None
        self.left_by: tuple[str, ...] = ()
        self._raised: list[list[Any]] = []
        self.settler: Settler | None = None
        """The settler that made the tables the last time."""
        self.kept_in_memory: list[StoredCopy] = []
        self.kept_in_folder: list[StoredCopy] = []
        """Where the copies of values were at that time."""
        self._on_bad: Callable[[], None] | None = None
        self._acquired: list[SharedFeatures] = []
        self._probe: VariablesProbe | None = None
        self._calls: FunctionCalls | None = None
        self._is_idle = False
        """Whether nothing of its session was running when it ended."""
        self._began_in_trace = False
        """Whether ``torch.jit.trace`` was running this thread when the recording began."""

    @property
    def running(self) -> bool:
        return self.session is not None and self.stopped_ns is None

    def start(self, frame: FrameType | None = None, outermost: bool = False) -> None:
        """Begin. ``frame`` is the frame of the with-block, if there is one.

        ``outermost`` means that the frame is ours and runs a whole program, whose stacks begin after the frame.
        """
        try:
            with Uninterrupted(), no_functions():
                self._start(frame, outermost)
        except BaseException:
            self.stop()
            raise

    def _start(self, frame: FrameType | None, outermost: bool) -> None:
        self._began_in_trace = begin_inside_trace()
        log = LOGS.get(get_ident())
        if log is None or not log.session.running:
            session = self.session = self._new_session()
            session.stacks.codes.keeps_text = self._keeper is None or self.options.sources
            log = session.add_log(thread_name())
            if outermost and frame is not None:
                log.base = session.stacks.intern_part(NONE, [])
                log.anchor = id(frame)
            else:
                self._anchor(session, log, frame)
        else:
            session = log.session
            session.journal.widen(self.options.max_events)
        self._join(session, log)
        for patches in (PATCHES, DOOR):
            self._acquired.append(patches)
            patches.acquire()
        if listeners is not None:
            listeners.prepare(session)
            listeners.measure(session)
            listeners.listen(log)
        traced = pause_trace()
        try:
            self._start_probes(session, frame)
        finally:
            resume_trace(traced)
        self._note_problems(session)

    def _start_probes(self, session: Session, frame: FrameType | None) -> None:
        """Follow the variables and record the calls that the options ask for."""
        # A recording around this one may follow some of the variables already; those events are in both recordings.
        fresh = tuple([name for name in self.options.names if not session.watched & {name, "*"}])
        if fresh:
            attempt(
                session.note,
                "the following of variables",
                "the variables",
                lambda: self._follow_variables(fresh, frame),
            )
        if self.options.packages and not session.records_calls:
            attempt(
                session.note,
                "the probe of calls",
                "calls of the program's functions",
                self._record_calls,
            )

    def _new_session(self) -> Session:
        """Make a session, with the Python engine if the compiled one fails."""
        try:
            session = self._make_session()
        except Exception as fault:
            if is_signals(fault) or compiled.engine() != compiled.COMPILED:
                raise
            compiled.give_up(f"it could not be attached ({reason_of(fault)})")
            try:
                session = self._make_session()
            except BaseException:
                compiled.trust_again()  # the engine was not the cause
                raise
        if compiled.has_failed and HAS_TORCH:
            session.note(
                f"the Python engine was used, because the compiled one failed: {compiled.why_not}"
            )
        return session

    def _make_session(self) -> Session:
        session = Session(Limits(self.options.max_events, self.options.keep), self.options.fused)
        if listeners is not None:
            listeners.attach(session)
        return session

    def _follow_variables(self, names: tuple[str, ...], frame: FrameType | None) -> None:
        """Follow variables from now on."""
        assert self.session is not None
        probe = VariablesProbe(self.session, names)
        try:
            probe.start(frame)
        except BaseException:
            probe.take_down()
            raise
        self._probe = probe

    def _record_calls(self) -> None:
        """Record calls of the program's functions from now on."""
        assert self.session is not None
        calls = FunctionCalls(self.session, self.options.packages)
        try:
            calls.start()
        except BaseException:
            calls.abandon()
            raise
        self._calls = calls
        self.session.records_calls = True

    def _note_problems(self, session: Session) -> None:
        """Add a note for each feature that is off."""
        if not OFF:
            return
        for patches in (PATCHES, DOOR):
            for problem in patches.problems():
                session.note(problem)

    def _join(self, session: Session, log: ThreadLog) -> None:
        """Join a session as one of its recordings, from now on."""
        self.session = session
        self.number = session.recordings
        session.recordings += 1
        options = self.options
        self.started_ns = perf_counter_ns()
        row = rows.encoded_recording(
            options.name, getpid(), seconds_now(), self.started_ns, options.as_text()
        )
        session.journal.rows.add(layout.RECORDING, self.number, row)
        if self._keeper is not None:
            self._keeping = Keeping(session, self.number, self._keeper, options.sources)
        self.own(log)
        session.recorders.append(self)
        session.configure()

    def own(self, log: ThreadLog) -> None:
        """Add a thread to this recording, from the next record of the thread on."""
        assert self.session is not None
        row = _window_bytes(log.number, log.at, log.module_under_way())
        self.session.journal.rows.add(layout.WINDOW, self.number, row)
        self.windows.append(Window(log, log.at))

    def _anchor(self, session: Session, log: ThreadLog, frame: FrameType | None) -> None:
        """Note where stack walks may stop: at the caller of the with-block, whose stack stays the same in the block.

        This is possible only for a ``with`` statement in a plain function. The frame of a generator may be resumed by
        another caller, and the frame of an ExitStack is gone at once, so another frame may get its ``id``.
        """
        if frame is None or frame.f_back is None or frame.f_code.co_flags & RESUMED:
            return
        if not _is_with(frame.f_code, frame.f_lasti):
            return
        log.base = session.stacks.whole(frame.f_back)
        log.anchor = id(frame.f_back)

    def stop(self, error: BaseException | None = None) -> None:
        """End, and undo everything that no other recording needs. A fault of our code is never raised.

        ``error`` is the exception that leaves the block, if there is one.
        """
        session = self.session
        if session is None or self.stopped_ns is not None:
            self._leave_trace()
            return
        idle = is_idle(session)
        traced = pause_trace()
        try:
            # Hide our calls from the program's modes.
            with Uninterrupted(), no_functions():
                # Reading a file that somebody has truncated would end the process.
                _do_all(session, lambda _: session.journal.check())
                _do_all(session, self._stop_calls, self._stop_following)
                if error is not None:
                    self._note_failure(session, error)
                _do_all(session, self._close_left_open, self._stop)
        finally:
            self._end(session)
            self._leave_trace()
            resume_trace(traced)
        self._is_idle = idle and not session.recorders
        if self._keeping is None:
            self._release(session)

    def _leave_trace(self) -> None:
        if self._began_in_trace:
            self._began_in_trace = False
            end_trace()

    def _release(self, session: Session) -> None:
        """Release everything that only recording needed; the journal stays, for the trace."""
        if self._is_idle:
            for probe in (self._calls, self._probe):
                if probe is not None:
                    probe.release()
            self._is_idle = False
            self._probe = None
            self._calls = None
            release.release(session)

    def _stop(self, session: Session) -> None:
        self.stopped_ns = perf_counter_ns()
        for window in self.windows:
            window.end = window.log.at
        if self in session.recorders:
            session.recorders.remove(self)
        _do_all(
            session,
            Session.configure,
            self._stop_measuring,
            self._note_problems,
            self._release_threads,
            self._release_patches,
            self._note_problems,
        )

    def _stop_measuring(self, session: Session) -> None:
        if session.measurer is not None and self._on_bad in session.measurer.on_bad:
            session.measurer.on_bad.remove(self._on_bad)
        if listeners is not None:
            listeners.measure(session)

    def _release_patches(self, session: Session) -> None:
        while self._acquired:
            self._acquired.pop().release()

    def _end(self, session: Session) -> None:
        """Read the user's files now, because later they may have changed; then write how the recording ended."""
        try:
            session.sources.read_all()
            if self._keeping is not None:
                self._keeping.stop()
            for window in self.windows:
                session.name_thread(window.log)
            session.journal.write_drop_summaries()
            row = rows.EndedRow(
                self.stopped_ns or 0,
                list(self.left_by),
                [[window.log.number, window.end_so_far] for window in self.windows],
                sum([window.log.lost for window in self.windows]),
                [[text, count] for text, count in session.faults.items()],
                self._raised,
            )
            is_plain = not self.left_by and not session.faults
            if is_plain:
                payload = rows.encoded_ints(list(row))
            else:
                payload = rows.encoded(row)
            session.journal.rows.add(layout.ENDED, self.number, payload)
            session.journal.write_record_count()
        except Exception as fault:
            session.fault(fault)

    def _note_failure(self, session: Session, error: BaseException) -> None:
        """Note the exception that left the block, and its causes."""
        try:
            each: BaseException | None = error
            while each is not None and len(self.left_by) < _LONGEST_CHAIN:
                self.left_by += (error_text(each),)
                each = each.__cause__ or each.__context__
            self._raised = session.stacks.codes.frames_of(error)
            if listeners is not None:
                listeners.finish_pops(error)
            outermost = self.windows[0]
            session.end_steps(outermost.log, outermost.begin - 1, session.error_number(error))
        except Exception as fault:
            session.fault(fault)

    def _release_threads(self, session: Session) -> None:
        """Stop recording the threads that belong to no recording any more."""
        owned = {id(window.log) for recorder in session.recorders for window in recorder.windows}
        for log in session.logs:
            if id(log) not in owned:
                log.on = False
                if LOGS.get(log.ident) is log:
                    del LOGS[log.ident]
                if log.ident == get_ident():
                    remove_milestones(session.stacks)
            if listeners is not None:
                _do_all(session, lambda _, log=log: listeners.release(log))
        if not session.recorders:
            session.end()
            _do_all(session, self._finish_modules)
            session.values.clear()

    def _finish_modules(self, session: Session) -> None:
        if listeners is not None and session.modules:
            listeners.add_uncalled(session)

    def _stop_calls(self, session: Session) -> None:
        """Stop the probe of calls. It is stopped first, because it must not record our functions."""
        if self._calls is not None:
            session.records_calls = False
            self._calls.stop()

    def _stop_following(self, session: Session) -> None:
        if self._probe is not None:
            self._probe.stop()

    def _close_left_open(self, session: Session) -> None:
        for window in self.windows:
            if window.log.ident == get_ident():
                session.close_left_open(window.log, window.begin)

    def progress(self) -> int:
        """Return how many records there are, which grows with every event."""
        return sum(window.end_so_far for window in self.windows)

    def source(self) -> Source:
        """Return the source in which settling finds the texts of files."""
        assert self.session is not None
        return Source(self.session.sources.texts.get, is_here=True)

    def tables(self) -> Tables:
        """Return tables of everything recorded so far; while the recording runs they are a snapshot."""
        if self.session is None:
            return Tables(name=self.options.name)
        if self.running and listeners is not None:
            listeners.read_all_settings(self.session)  # of models whose call is still running
        # Without the lock, a chunk might be freed and used again while it is read.
        with self.session.journal.lock:
            self.session.journal.write_drop_summaries()
            self.settler = self._settled()
            streams = self.session.journal.streams
            if self.options.measures:
                self.kept_in_memory, self.kept_in_folder = stored_copies(
                    streams, self.settler.values, NONE, self.number
                )
            return self.settler.tables

    def _settled(self, tries: int = MAX_TRIES) -> Settler:
        """Settle everything recorded so far; try again if a thread has just ended a call with a new form."""
        assert self.session is not None
        settler = Settler(self.session.journal.streams, self.number, self.source())
        try:
            settler.settle()
        except KeyError:
            if tries and self.running:
                return self._settled(tries - 1)
            raise
        return settler

    @property
    def regions(self) -> dict[int, Any]:
        """The regions of memory that ``kept_in_memory`` refers to."""
        if self.session is None:
            return {}
        return self.session.copies.regions

    def copies(self) -> dict[int, tuple[str, Any]]:
        """Return the copies that are in memory, by the number of their value, with their names."""
        if self.session is None:
            return {}
        copies = self.session.copies
        return {value: (copies.names[value], copy) for value, copy in copies.held.items()}

    def packed_journal(self, only: list[int] | None) -> Streams:
        """Return the journal as a folder keeps it, with rows for facts that could not be found out later.

        ``only`` lists the events to keep; None keeps all events.
        """
        session, settler = self.session, self.settler
        assert session is not None
        journal = session.journal
        if self.options.sources or settler is None:
            added = list(place_rows(journal.streams, session.sources.texts.get))
        else:
            added = list(name_rows(settler))
        if only is not None:
            added.append(only_row(self.number, only))
        for row in added:
            journal.rows.add(*row)
        packed = journal.packed()
        if self.options.sources or not session.stacks.codes.has_text:
            return packed
        return without_texts(packed)

    def leave_file(self, packed: Streams | None) -> None:
        """Leave the file of the journal, because the folder is finished or cannot be written any more."""
        if self._keeping is not None:
            self._keeping.leave(packed)
            if self.session is not None:
                self._release(self.session)

    def stop_on_bad(self, ask: Callable[[], None]) -> None:
        """Call ``ask()`` after an event produced NaN or Inf; an exception that ``ask`` raises reaches the program."""
        assert self.session is not None
        self._on_bad = ask
        if self.session.measurer is not None:
            self.session.measurer.on_bad.append(ask)
            self.session.measure_with(self.session.measurer)

    def listen(self, listener: Listener) -> None:
        """Call ``listener(log, at, edge)`` at the open and close of each event, on its own thread."""
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
