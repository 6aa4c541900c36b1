"""What the recordings of one thread family share: the journal, what is interned in it, the open and close of events.

A recording that begins in a thread which is recorded already joins that thread's session and is a window over
its records; so the inner one's events are in both, and nothing is recorded twice.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any

from torchglass import compiled
from torchglass.capture.contents import Copies
from torchglass.capture.engine import fast
from torchglass.capture.engine.codes import class_bytes
from torchglass.capture.engine.edges import Close, Open, make_close, make_open
from torchglass.capture.engine.forms import Forms
from torchglass.capture.engine.log import LEAVING, LOGS, ThreadLog
from torchglass.capture.engine.module_paths import ModuleAtPath
from torchglass.capture.engine.stack import StackTable
from torchglass.capture.engine.values import ValueTable
from torchglass.capture.sources import SourceKeeper
from torchglass.capture.threads import thread_label
from torchglass.capture.torch.names import torch_version
from torchglass.capture.torch.parameters import ParameterNames
from torchglass.capture.transparency.ours import is_theirs
from torchglass.journal import layout, rows, writer
from torchglass.journal.layout import END, NONE, PARENT
from torchglass.journal.ring import Limits
from torchglass.journal.writer import EXPECTED, Journal, ThreadWriter
from torchglass.source.codes import HERE
from torchglass.source.text import PROCESS_START

LONGEST_ERROR = 500
FUNCTION, OP, STEP, UNSEEN, MARK, VARIABLE = "function", "op", "step", "unseen", "mark", "variable"
CALL = "call"
LEFT = "left by an exception"
CALL_BITS = 40
"""A probe that follows variables numbers fewer calls than this can hold."""

Listener = Callable[["ThreadLog", int, str], None]
"""Called with a log, the number of a record and ``"open"`` or ``"close"``, on the event's own thread."""


def _nothing(log: ThreadLog) -> None:
    """Where torch is not installed there are no modes."""


class Session:
    """The journal of one family of threads, and all that is known of what was written there.

    What is new gets a number, then its row, and only then is known to others: Python may run code of the program
    between any two calls (a signal handler, a `__del__`), which may meet the same.
    """

    measurer: Any = None
    """Measures what is in the values, while a recording asks for that (capture/statistics/measurer.py)."""

    def __init__(self, limits: Limits, fused: str) -> None:
        self.journal = Journal(limits=limits, expected=EXPECTED)
        self.fused = fused
        self.stacks = StackTable(self.journal)
        self.engine: Any = fast.make_engine(self)
        """The compiled engine; None: all is done in Python."""
        self.values = ValueTable(self.journal) if self.engine is None else fast.FastValues(self.journal, self.engine)
        self.forms = Forms(self.journal, self.values.value_of, self.values.made)
        self.sources = SourceKeeper(self.journal)
        self.stacks.codes.seen = self.sources.seen
        self.kinds: dict[int, str] = {}
        """What each number of a function, op, mark … is: its kind."""
        self.what_numbers, self.module_numbers, self.class_numbers = count(), count(), count()
        self._error_numbers = count()
        self.named: dict[tuple[str, str, str], int] = {}
        self.modules: dict[int, ModuleAtPath] = {}
        self.module_ids: dict[tuple[int, int], ModuleAtPath] = {}
        """By (row of the caller, id of the module)."""
        self.modules_met: dict[int, ModuleAtPath] = {}
        """By ``id`` of the module: its newest row, which leads to the others."""
        self.leaving: dict[int, BaseException] = {}  # by thread: what leaves an event, while listeners are told of it
        self.classes_met: dict[int, tuple[weakref.ref[type], int]] = {}
        """By ``id``: a class of modules, and its row."""
        self.records_modules = self.records_calls = self.records_functions = self.records_ops = False
        self._last_error: tuple[str, int, int] = ("", NONE, NONE)
        """The text of the last exception, its row, and the generation of that."""
        self.faults: dict[str, int] = {}
        self._notes: set[str] = set()
        self._call_ranges = -1
        self._named_threads: dict[int, str] = {}
        self.logs: list[ThreadLog] = []
        self.listeners: list[Listener] = []
        self.copies = Copies()
        self.journal.on_drop = self.copies.forget
        self.homes: list[Any] = []
        """Recordings that are written to a folder (capture/keeping.py), the one whose file the journal has first."""
        self.recorders: list[Any] = []
        """The recordings under way (capture.recorder.Recorder), outermost first."""
        self.recordings = 0
        """How many there have been."""
        self.running = True
        self.function_mode: Any = None
        self.op_mode: Any = None
        self.plans: list[Any] = []
        self.measurers: list[Any] = []  # both let go of with it (capture/release.py)
        self.enter_thread: Callable[[ThreadLog], None] = _nothing
        """What puts our modes on the stacks of a thread that is recorded from now on …"""
        self.on_write: list[Callable[[Any], None]] = []
        """Told of each tensor, or list of them, that a torch function has changed in place (the variables probes)."""
        self.watched: set[str] = set()
        """The names of variables that are followed now."""
        self.leave_thread: Callable[[ThreadLog], None] = _nothing
        """… and takes them off when it ends (capture/torch/listeners.py)."""
        self.in_backward: tuple[ThreadLog, int, int] | None = None
        """While the autograd engine runs: the log and the record that called it, and the first record inside."""
        self.runs: list[Any] = []  # of the autograd engine, under way (capture/torch/gradients.py)
        self.parameters = ParameterNames(self.modules)
        self.journal.carry = self.carry
        self._write_head()
        self.open_event, self.close_event, self.close_op = self._edges()

    def _edges(self) -> tuple[Open, Close, Close]:
        """The open and the close of an event, and the close of an op's."""
        if self.engine is None:
            close = make_close(self, self.values.plain_value_of, self.forms.describe)
            return make_open(self), close, make_close(self, self.values.made, self.forms.describe_made)
        self.forms.pin((1, None))
        self.forms.on_carry = self.engine.clear_forms
        self.engine.ask(
            {
                "form_ids": self.forms.ids,
                "form_numbers": self.forms.numbers,
                "meta_ids": self.values.metas,
                "meta_numbers": self.values.meta_numbers,
            }
        )
        return self.engine.open_event, self.engine.close_event, self.engine.close_op

    def _write_head(self) -> None:
        self.journal.rows.add(layout.JOURNAL, 0, _head_bytes(os.getpid(), compiled.described()))

    # Threads

    def add_log(self, name: str, spawned_by: tuple[ThreadLog, int] | None = None) -> ThreadLog:
        log = ThreadLog(self, get_ident(), name, spawned_by)
        log.listening = bool(self.listeners)
        self.name_thread(log)
        self.logs.append(log)
        LOGS[log.ident] = log
        return log

    def name_thread(self, log: ThreadLog) -> None:
        """Write down what a thread is called, and again when that has changed: a worker learns late what it is for."""
        label = thread_label(log)
        if self._named_threads.get(log.number) != label:
            self._named_threads[log.number] = label
            caller, record = (NONE, NONE) if log.spawned_by is None else (log.spawned_by[0].number, log.spawned_by[1])
            self.journal.rows.add(layout.THREAD, log.number, _thread_bytes(label, caller, record))

    def extend_windows(self, starter: ThreadLog, log: ThreadLog) -> None:
        """The recordings that own a thread own the threads it starts."""
        for recorder in list(self.recorders):
            if any(window.log is starter for window in recorder.windows):
                recorder.own(log)

    def adopt(self) -> ThreadLog | None:
        """A thread of the autograd engine (on a GPU), into which torch copied our mode: give it a log."""
        calling = self.in_backward
        if calling is None or not self.running or LEAVING:
            return None
        log = self.add_log(f"{calling[0].name} (autograd)", calling[:2])
        self.extend_windows(calling[0], log)
        return log

    def run_backward(self, calling: tuple[ThreadLog, int, int] | None) -> None:
        """The autograd engine begins to run, for this record; or, as before it, it does not."""
        self.in_backward = calling
        if self.engine is not None:
            self.engine.in_backward = calling is not None

    def measure_with(self, measurer: Any) -> None:
        """From now on what is in the values is measured so; None: it is not."""
        self.measurer = measurer
        if self.engine is not None:
            sketched = self.journal.sketched if measurer is not None and measurer.sketches else None
            is_plain = measurer is not None and measurer.is_plain
            asked = (0, False) if measurer is None else (measurer.choosing, bool(measurer.on_bad))
            self.engine.measure(measurer, self.journal.measured, sketched, is_plain, *asked)
            saved = measurer.saved if measurer is not None and is_plain else None
            self.engine.keep(saved, None if saved is None else self.journal.kept)

    def configure(self) -> None:
        """Probes are on while any recording wants them."""
        self.records_modules = True in [each.options.modules for each in self.recorders]
        self.records_ops = True in [each.options.ops for each in self.recorders]
        # The function mode carries what a dispatch mode needs (modes.py).
        self.records_functions = self.records_ops or True in [each.options.functions for each in self.recorders]
        if self.engine is not None:
            self.engine.records_modules, self.engine.records_ops = self.records_modules, self.records_ops

    def end(self) -> None:
        """Nothing is recorded any more."""
        self.running = False
        if self.engine is not None:
            self.engine.running = False

    # Events

    def what(self, kind: str, name: str, note: str | None = None, detail: str = "") -> int:
        """The number of something that is no torch function: an optimizer's step, an unseen region, a mark."""
        number = self.named.get((kind, name, detail))
        if number is None:
            row = rows.WhatRow(kind, name, note, detail, [], None, False)
            number = self.named[kind, name, detail] = self.add_what(kind, rows.encoded(row))
        return number

    def add_what(self, kind: str, payload: bytes) -> int:
        """Give something a number."""
        number = next(self.what_numbers)
        self.journal.rows.add(layout.WHAT_ROW, number, payload)
        self.kinds[number] = kind
        return number

    def class_number(self, cls: type) -> int:
        """The row of a class of modules; by ``id``, as a metaclass may have a hash of its own."""
        known = self.classes_met.get(id(cls))
        if known is None or known[0]() is not cls:
            known = (weakref.ref(cls), next(self.class_numbers))
            self.journal.rows.add(layout.CLASS, known[1], class_bytes(cls))
            self.classes_met[id(cls)] = known
        return known[1]

    def fail_event(self, log: ThreadLog, at: int, error: BaseException) -> None:
        """Close a record that an exception left. Runs while that exception is on its way."""
        try:
            number = self.error_number(error)
            self.end_steps(log, at, number)
            self._left(log, at, number)
            if log.listening:
                self.leaving[log.ident] = error
                self.tell(log, at, "close")
        except BaseException as fault:
            self.forgive(fault)
        finally:
            self.leaving.pop(log.ident, None)

    def left_event(self, log: ThreadLog, at: int) -> None:
        """Close a record that some exception left: the one that left an event inside of it, if one did."""
        last, error = log.last_error
        try:
            number = error if last > at else self._text_number(LEFT)
            self.end_steps(log, at, number)
            self._left(log, at, number)
            if log.listening:
                self.tell(log, at, "close")
        except BaseException as fault:
            self.forgive(fault)

    def _left(self, log: ThreadLog, at: int, error: int) -> None:
        log.last_error = (at, error)
        log.close(at, NONE, NONE, error, NONE, perf_counter_ns())

    def error_number(self, error: BaseException) -> int:
        """The row of an exception's text: once for all the events that it leaves."""
        return self._text_number(error_text(error))

    def _text_number(self, text: str) -> int:
        known, number, generation = self._last_error
        if known != text or generation != self.forms.generation:
            number, generation = next(self._error_numbers), self.forms.generation
            self.journal.passing.add(layout.ERROR_ROW, number, rows.encoded(text))
            self._last_error = (text, number, generation)
        return number

    def tell(self, log: ThreadLog, at: int, edge: str) -> None:
        """Call the listeners with this thread's own recording off, so that they cannot be recorded."""
        was_on, log.on = log.on, False
        try:
            for listener in self.listeners:
                listener(log, at, edge)
        except BaseException as fault:
            self.forgive(fault)
        finally:
            log.on = was_on

    def heal_steps(self, log: ThreadLog, frame: FrameType | None) -> None:
        """Close optimizer steps that an exception left and the program caught: their post hook never ran.

        A step is under way while an event inside of it is open, or the frame of its wrapper is on the stack.
        """
        while log.steps and log.parent <= log.steps[-1].at and not log.steps[-1].runs_above(log, frame):
            at = log.steps[-1].at
            last, error = log.last_error
            self.end_steps(log, at - 1, error if last > at else self._text_number(LEFT))

    def end_steps(self, log: ThreadLog, after: int, error: int) -> None:
        """Close the open steps that began behind the record ``after``, with this error."""
        while log.steps and log.steps[-1].at > after:
            step = log.steps.pop()
            if log.parent == step.at:
                log.parent, log.anchor, log.base = step.before
            self._left(log, step.at, error)
            if log.listening:
                self.tell(log, step.at, "close")

    def close_left_open(self, log: ThreadLog, begin: int) -> None:
        """Close the records that Ctrl-C left open by falling between our own steps; those under way stay open."""
        under_way, at = {log.parent}, log.parent
        while at >= begin:
            under_way.add(at)
            at = log.word(at, PARENT)
        for chunk in self.journal.streams.of(layout.RECORDS, log.number):
            first, last = max(chunk.first, begin), min(chunk.last, log.at)
            for at in _left_open(chunk, first, last) if first < last else ():
                if at not in under_way:
                    log.close(at, NONE, NONE, self._text_number(LEFT), NONE, perf_counter_ns())

    def call_numbers(self) -> int:
        """Where one of the probes for variables counts the Python calls from: each has numbers of its own."""
        self._call_ranges += 1
        return self._call_ranges << CALL_BITS

    def carry(self, log: ThreadWriter, opened: writer.Open) -> writer.Open:
        """A chunk begins whose predecessors may be dropped: what is under way is said again there."""
        carried = self.forms.carry(log, opened)
        if self.in_backward is not None and self.in_backward[0] is log:
            self.backward_ran(self.in_backward[0], self.in_backward[2], NONE)
        return carried

    def backward_ran(self, log: ThreadLog, begin: int, end: int) -> None:
        """The autograd engine ran from one record to another; NONE: it begins."""
        self.journal.passing.add(layout.BACKWARD, log.number, rows.encoded(rows.BackwardRow(begin, end)))

    # Notes, and faults of ours

    def note(self, text: str) -> None:
        """Something the reader of the trace should know; said once."""
        if text not in self._notes:
            self._notes.add(text)
            self.journal.rows.add(layout.NOTE, len(self._notes), rows.encoded(text))

    is_theirs = staticmethod(is_theirs)
    """Asked by the compiled engine, too."""

    def forgive(self, error: BaseException) -> None:
        """Count a fault of ours; what is the program's own (Ctrl-C, an exit, a timeout of its own) goes on."""
        if is_theirs(error):
            raise error
        self.fault(error)

    def fault(self, error: BaseException) -> None:
        """A fault of our own costs an event, never the program: count it, keep one line about it."""
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
    """The records of a chunk that have no end."""
    if compiled.extension is not None:
        begin = chunk.start + (first - chunk.first) * layout.RECORD
        return [first + offset for offset in compiled.extension.left_open(chunk.buffer, begin, last - first)]
    ends = chunk.words(first, last)[END :: layout.RECORD_WORDS].tolist()
    return [first + offset for offset, end in enumerate(ends) if end == NONE] if NONE in ends else []


@lru_cache(maxsize=64)
def _thread_bytes(label: str, caller: int, record: int) -> bytes:
    return rows.encoded(rows.ThreadRow(label, caller, record))


@lru_cache(maxsize=1)
def _head_bytes(process: int, engine: str) -> bytes:
    python = list(sys.version_info[:3])
    return rows.encoded(rows.JournalRow(python, list(HERE.names), process, PROCESS_START, engine, torch_version()))


def error_text(error: BaseException) -> str:
    """``Type: text`` of an exception."""
    try:
        text = str(error)[:LONGEST_ERROR]
    except Exception:
        text = "(its text could not be read)"
    name = type(error).__name__
    return f"{name}: {text}" if text else name
