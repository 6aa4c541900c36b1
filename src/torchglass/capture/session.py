"""The session: the journal, the interned tables and the event handling that recordings of one family of threads share.

A recording that begins in a thread which is already recorded joins the session of that thread, and is a window over its
records. So the events of the inner recording are in both recordings, and nothing is recorded twice.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from types import FrameType
from typing import Any

from torchglass import compiled
from torchglass.capture.contents import Copies
from torchglass.capture.engine import fast
from torchglass.capture.engine.codes import class_bytes
from torchglass.capture.engine.edges import Close, Open, make_close, make_open
from torchglass.capture.engine.forms import Forms
from torchglass.capture.engine.host import BackwardPass
from torchglass.capture.engine.log import LEAVING, LOGS, ThreadLog
from torchglass.capture.engine.module_paths import ModuleAtPath
from torchglass.capture.engine.stack import StackTable
from torchglass.capture.engine.value_table import ValueTable
from torchglass.capture.error_texts import LONGEST_ERROR, error_text
from torchglass.capture.sources import SourceKeeper
from torchglass.capture.threads import thread_label
from torchglass.capture.torch.names import torch_version
from torchglass.capture.torch.parameters import ParameterNames
from torchglass.capture.transparency.ours import is_theirs
from torchglass.capture.transparency.scripts import remember_text, restore_text
from torchglass.journal import forks, layout, rows, writer
from torchglass.journal.layout import END, NONE, PARENT, WHAT
from torchglass.journal.ring import Limits
from torchglass.journal.writer import EXPECTED_BYTES, Journal, ThreadWriter
from torchglass.source.codes import HERE
from torchglass.source.text import PROCESS_START
from torchglass.system import get_ident, getpid, perf_counter_ns

# Kinds of events (docs/glossary.md).
FUNCTION = "function"
OP = "op"
STEP = "step"
UNSEEN = "unseen"
MARK = "mark"
VARIABLE = "variable"
CALL = "call"

LEFT = "left by an exception"
"""The error of an event that ended with an exception that we could not see."""
CALL_BITS = 40
"""The number of bits for the calls that one variables probe numbers; more bits than it can ever need."""

Listener = Callable[["ThreadLog", int, str], None]
"""Called with a log, the number of a record and ``"open"`` or ``"close"``, on the event's own thread."""


def _nothing(log: ThreadLog) -> None:
    """Do nothing: without torch there are no modes."""


class Session:
    """The journal of one family of threads, and everything that was interned in it.

    A new entry first gets a number, then its row, and only then becomes visible to others: between any two calls Python
    may run code of the program (a signal handler, a `__del__`) that needs the same row.
    """

    measurer: Any = None
    """Measures values, while a recording wants that (capture/statistics/measurer.py)."""

    def __init__(self, limits: Limits, fused: str) -> None:
        self.journal = Journal(limits=limits, expected=EXPECTED_BYTES)
        self.fused = fused
        self.running = True

        # The engine and its tables.
        self.stacks = StackTable(self.journal)
        self.engine: Any = fast.make_engine(self)
        """The compiled engine; None if everything is done in Python."""
        if self.engine is None:
            self.values = ValueTable(self.journal)
        else:
            self.values = fast.FastValues(self.journal, self.engine)
        self.forms = Forms(self.journal, self.values.value_of, self.values.value_after_op)
        self.sources = SourceKeeper(self.journal)
        self.stacks.codes.seen = self.sources.seen

        # Callees (functions, ops, marks …), modules and their classes, by number or name.
        self.what_numbers = count()
        self.module_numbers = count()
        self.class_numbers = count()
        self.kinds: dict[int, str] = {}
        """The kind (function, op, mark …) of each callee."""
        self.named: dict[tuple[str, str, str], int] = {}
        """The numbers of callees that are not torch functions, by kind, name and detail."""
        self.modules: dict[int, ModuleAtPath] = {}
        self.module_ids: dict[tuple[int, int], ModuleAtPath] = {}
        """Keyed by (row of the caller, id of the module)."""
        self.modules_met: dict[int, ModuleAtPath] = {}
        """Keyed by the ``id`` of a module: its newest row, which leads to its other rows."""
        self.classes_met: dict[int, tuple[weakref.ref[type], int]] = {}
        """Keyed by ``id``: a class of modules, and its row."""
        self.parameters = ParameterNames(self.modules)

        # Exceptions, faults and notes.
        self._error_numbers = count()
        self._last_error: tuple[str, int, int] = ("", NONE, NONE)
        """The text of the last exception, the number of its row, and the generation of that number."""
        self.leaving: dict[int, BaseException] = {}
        """By thread, the exception that leaves an event, while listeners hear of the event."""
        self.faults: dict[str, int] = {}
        self._notes: set[str] = set()

        # Threads and recordings.
        self.logs: list[ThreadLog] = []
        self._named_threads: dict[int, str] = {}
        self.recorders: list[Any] = []
        """The running recordings (capture.recorder.Recorder), outermost first."""
        self.recordings = 0
        """The number of recordings that the session has had."""
        self.homes: list[Any] = []
        """The recordings that are written to a folder (capture/keeping.py); the first one has the journal's file."""
        self.copies = Copies()
        self.journal.on_drop = self.copies.forget

        # Probes and listeners.
        self.records_modules = False
        self.records_calls = False
        self.records_functions = False
        self.records_ops = False
        self.function_mode: Any = None
        self.op_mode: Any = None
        self.enter_thread: Callable[[ThreadLog], None] = _nothing
        """Puts our modes on the stacks of a thread that is recorded from now on (capture/torch/listeners.py)."""
        self.leave_thread: Callable[[ThreadLog], None] = _nothing
        """Removes our modes when the thread ends (capture/torch/listeners.py)."""
        self.listeners: list[Listener] = []
        self.on_write: list[Callable[[Any], None]] = []
        """Called with each tensor, or list of tensors, that a torch function has changed in place."""
        self.watched: set[str] = set()
        """The names of variables that are followed now."""
        self._call_ranges = -1
        self.in_backward: BackwardPass | None = None
        """The run of the autograd engine that is in progress."""
        self.runs: list[Any] = []
        """The same as capture/torch/gradients.py has them."""
        # Released together with the session (capture/release.py).
        self.plans: list[Any] = []
        self.measurers: list[Any] = []

        self.journal.complete_records = self.carry
        self._write_head()
        self.open_event, self.close_event, self.close_op = self._edges()

    def _edges(self) -> tuple[Open, Close, Close]:
        """Return the functions that open and close an event, and the one that closes an op's."""
        if self.engine is None:
            open_event = make_open(self)
            close_event = make_close(self, self.values.plain_value_of, self.forms.describe)
            close_op = make_close(self, self.values.value_after_op, self.forms.describe_made)
            return open_event, close_event, close_op
        self.forms.pin((1, None))
        self.forms.on_carry = self.engine.clear_forms
        self.engine.ask({"form_ids": self.forms.ids, "form_numbers": self.forms.numbers})
        return self.engine.open_event, self.engine.close_event, self.engine.close_op

    def _write_head(self) -> None:
        self.journal.rows.add(layout.JOURNAL, 0, _head_bytes(getpid(), compiled.described()))

    # Threads

    def add_log(self, name: str, spawned_by: tuple[ThreadLog, int] | None = None) -> ThreadLog:
        log = ThreadLog(self, get_ident(), name, spawned_by)
        log.listening = bool(self.listeners)
        self.name_thread(log)
        self.logs.append(log)
        LOGS[log.ident] = log
        return log

    def name_thread(self, log: ThreadLog) -> None:
        """Write the name of a thread, and again when it has changed: a worker process gets its name late."""
        label = thread_label(log)
        if self._named_threads.get(log.number) == label:
            return
        self._named_threads[log.number] = label
        caller = NONE
        record = NONE
        if log.spawned_by is not None:
            caller = log.spawned_by[0].number
            record = log.spawned_by[1]
        self.journal.rows.add(layout.THREAD, log.number, _thread_bytes(label, caller, record))

    def extend_windows(self, starter: ThreadLog, log: ThreadLog) -> None:
        """Add a thread to the recordings that the thread which started it belongs to."""
        for recorder in list(self.recorders):
            if any(window.log is starter for window in recorder.windows):
                recorder.own(log)

    def adopt(self) -> ThreadLog | None:
        """Give a log to a thread of the autograd engine (on a GPU), into which torch has copied our mode."""
        backward = self.in_backward
        if backward is None or not self.running or LEAVING:
            return None
        name = f"{backward.log.name} (autograd)"
        log = self.add_log(name, (backward.log, backward.caller))
        self.extend_windows(backward.log, log)
        return log

    def run_backward(self, backward: BackwardPass | None) -> None:
        """Note which run of the autograd engine is in progress now; None if there is none any more."""
        self.in_backward = backward
        if self.engine is not None:
            self.engine.in_backward = backward is not None

    def measure_with(self, measurer: Any) -> None:
        """Measure values with this measurer from now on; None means not to measure."""
        self.measurer = measurer
        if self.engine is None:
            return
        statistics = self.journal.measured
        if measurer is None:
            self.engine.measure(None, statistics, None, False, False, False)
            self.engine.keep(None, None)
            return
        sketches = None
        if measurer.sketches:
            sketches = self.journal.sketched
        chooses = bool(measurer.choosers)
        asks = bool(measurer.on_bad)
        self.engine.measure(measurer, statistics, sketches, measurer.is_plain, chooses, asks)
        if measurer.is_plain and measurer.saved is not None:
            self.engine.keep(measurer.saved, self.journal.kept)
        else:
            self.engine.keep(None, None)

    def configure(self) -> None:
        """Turn each probe on if any recording wants it."""
        options = [each.options for each in self.recorders]
        self.records_modules = any(each.modules for each in options)
        self.records_ops = any(each.ops for each in options)
        # The function mode carries what a dispatch mode needs (modes.py).
        self.records_functions = self.records_ops or any(each.functions for each in options)
        if self.engine is not None:
            self.engine.records_modules = self.records_modules
            self.engine.records_ops = self.records_ops

    def end(self) -> None:
        """Stop recording."""
        self.running = False
        if self.engine is not None:
            self.engine.running = False

    # Events

    def what(self, kind: str, name: str, note: str | None = None, detail: str = "") -> int:
        """Return the number of a callee that is not a torch function, such as an optimizer's step or a mark."""
        number = self.named.get((kind, name, detail))
        if number is None:
            row = rows.WhatRow(kind, name, note, detail, [], None, False)
            number = self.named[kind, name, detail] = self.add_what(kind, rows.encoded(row))
        return number

    def add_what(self, kind: str, payload: bytes) -> int:
        """Write the row of a new callee, and return its number."""
        number = next(self.what_numbers)
        self.journal.rows.add(layout.WHAT_ROW, number, payload)
        self.kinds[number] = kind
        return number

    def class_number(self, cls: type) -> int:
        """Return the row of a class of modules, looked up by ``id``: a metaclass may define its own hash."""
        known = self.classes_met.get(id(cls))
        if known is None or known[0]() is not cls:
            known = (weakref.ref(cls), next(self.class_numbers))
            self.journal.rows.add(layout.CLASS, known[1], class_bytes(cls))
            self.classes_met[id(cls)] = known
        return known[1]

    def fail_event(self, log: ThreadLog, at: int, error: BaseException) -> None:
        """Close a record that an exception leaves; it is called while that exception is being raised."""
        try:
            if self.records_ops:
                is_op = self.kinds.get(log.word(at, WHAT)) == OP
                if is_op:
                    remember_text(log, at, error)
                else:
                    restore_text(log, at, error)
            number = self.error_number(error)
            self.name_thread(log)  # now, because a worker process may be killed before its end
            self.end_steps(log, at, number)
            self._close_failed(log, at, number)
            if log.listening:
                self.leaving[log.ident] = error
                self.tell(log, at, "close")
        except BaseException as fault:
            self.forgive(fault)
        finally:
            self.leaving.pop(log.ident, None)

    def left_event(self, log: ThreadLog, at: int) -> None:
        """Close a record that an unknown exception left; if one left an event inside the record, it is that one."""
        last, error = log.last_error
        try:
            number = error
            if last <= at:
                number = self._text_number(LEFT)
            self.end_steps(log, at, number)
            self._close_failed(log, at, number)
            if log.listening:
                self.tell(log, at, "close")
        except BaseException as fault:
            self.forgive(fault)

    def _close_failed(self, log: ThreadLog, at: int, error: int) -> None:
        if not forks.owns_journal[0]:
            forks.leave_parent()
        log.last_error = (at, error)
        log.close(at, NONE, NONE, error, NONE, perf_counter_ns())

    def error_number(self, error: BaseException) -> int:
        """Return the number of the row with an exception's text, which all events that the exception leaves share."""
        return self._text_number(error_text(error))

    def _text_number(self, text: str) -> int:
        known, number, generation = self._last_error
        if known != text or generation != self.forms.generation:
            number = next(self._error_numbers)
            generation = self.forms.generation
            self.journal.passing.add(layout.ERROR_ROW, number, rows.encoded(text))
            self._last_error = (text, number, generation)
        return number

    def tell(self, log: ThreadLog, at: int, edge: str) -> None:
        """Call the listeners with this thread's own recording off, so that they cannot be recorded."""
        was_on = log.on
        log.on = False
        try:
            for listener in self.listeners:
                listener(log, at, edge)
        except BaseException as fault:
            self.forgive(fault)
        finally:
            log.on = was_on

    def heal_steps(self, log: ThreadLog, frame: FrameType | None) -> None:
        """Close optimizer steps that an exception left, if the program caught it, because their post hook never ran.

        A step is still running while an event inside it is open, or the frame of its wrapper is on the stack.
        """
        while log.steps:
            step = log.steps[-1]
            if log.parent > step.at or step.runs_above(log, frame):
                return
            last, error = log.last_error
            if last <= step.at:
                error = self._text_number(LEFT)
            self.end_steps(log, step.at - 1, error)

    def end_steps(self, log: ThreadLog, after: int, error: int) -> None:
        """Close the open steps that began after the record ``after``, with this error."""
        while log.steps and log.steps[-1].at > after:
            step = log.steps.pop()
            if log.parent == step.at:
                log.parent, log.anchor, log.base = step.before
            self._close_failed(log, step.at, error)
            if log.listening:
                self.tell(log, step.at, "close")

    def close_left_open(self, log: ThreadLog, begin: int) -> None:
        """Close the records that stayed open because Ctrl-C interrupted our code; running ones stay open."""
        running = {log.parent}
        at = log.parent
        while at >= begin:
            running.add(at)
            at = log.word(at, PARENT)
        for chunk in self.journal.streams.of(layout.RECORDS, log.number):
            first = max(chunk.first, begin)
            last = min(chunk.last, log.at)
            if first >= last:
                continue
            for at in _left_open(chunk, first, last):
                if at not in running:
                    log.close(at, NONE, NONE, self._text_number(LEFT), NONE, perf_counter_ns())

    def call_numbers(self) -> int:
        """Return the first number for the calls of a variables probe; each probe has its own range of numbers."""
        self._call_ranges += 1
        return self._call_ranges << CALL_BITS

    def carry(self, log: ThreadWriter, opened: writer.OpenRecords) -> writer.OpenRecords:
        """Write open records again at the start of a chunk, because the chunks before it may be dropped."""
        carried = self.forms.carry(log, opened)
        backward = self.in_backward
        if backward is not None and backward.log is log:
            self.backward_ran(backward.log, backward.first, NONE)
        return carried

    def backward_ran(self, log: ThreadLog, begin: int, end: int) -> None:
        """Note that the autograd engine ran from one record to another; the end is NONE when it begins."""
        self.journal.passing.add(
            layout.BACKWARD, log.number, rows.encoded(rows.BackwardRow(begin, end))
        )

    # Notes, and faults of our code

    def note(self, text: str) -> None:
        """Add a note for the reader of the trace, once."""
        if text not in self._notes:
            self._notes.add(text)
            self.journal.rows.add(layout.NOTE, len(self._notes), rows.encoded(text))

    is_theirs = staticmethod(is_theirs)
    """The compiled engine calls it, too."""

    def forgive(self, error: BaseException) -> None:
        """Count a fault of our code; raise an exception of the program (Ctrl-C, an exit, a timeout) again."""
        if is_theirs(error):
            raise error
        self.fault(error)

    def fault(self, error: BaseException) -> None:
        """Count a fault of our code and keep one line about it, so that it costs an event and never the program."""
        where = ""
        trace = error.__traceback__
        while trace is not None:
            where = f" at {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
            trace = trace.tb_next
        self.count_fault(f"{type(error).__name__}: {str(error)[:LONGEST_ERROR]}{where}")

    def count_fault(self, text: str) -> None:
        known = self.faults.get(text, 0)
        self.faults[text] = known + 1
        if not known:
            self.journal.rows.add(layout.FAULT, len(self.faults), rows.encoded(text))


def _left_open(chunk: layout.Chunk, first: int, last: int) -> list[int]:
    """Return the records of a chunk that are still open."""
    ends = chunk.words(first, last)[END :: layout.RECORD_WORDS].tolist()
    if NONE in ends:
        return [first + offset for offset, end in enumerate(ends) if end == NONE]
    return []


@lru_cache(maxsize=64)
def _thread_bytes(label: str, caller: int, record: int) -> bytes:
    return rows.encoded(rows.ThreadRow(label, caller, record))


@lru_cache(maxsize=1)
def _head_bytes(process: int, engine: str) -> bytes:
    python = list(sys.version_info[:3])
    return rows.encoded(
        rows.JournalRow(python, list(HERE.names), process, PROCESS_START, engine, torch_version())
    )
