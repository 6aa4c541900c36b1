"""What the recordings of one thread family share: interning tables, thread logs, the open and the close of an event.

A recording that begins in a thread which is recorded already joins that thread's session and is a window over
its logs; so the inner one's events are in both, and nothing is recorded twice.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any

from torchglass.capture.arguments import Forms
from torchglass.capture.copies import Copies
from torchglass.capture.edges import make_close, make_open
from torchglass.capture.log import END, ERROR, LEAVING, LOGS, NONE, PARENT, WIDTH, ThreadLog
from torchglass.capture.stack import StackTable
from torchglass.capture.values import ValueTable

LONGEST_ERROR = 500
FUNCTION, OP, STEP, UNSEEN, MARK, VARIABLE = "function", "op", "step", "unseen", "mark", "variable"

KnownModule = tuple[weakref.ref[Any], int]
"""A module, checked with ``is`` because ids are reused, and its row."""
Listener = Callable[["ThreadLog", int, str], None]
"""Called with a log, the offset of a record and ``"open"`` or ``"close"``, on the event's own thread."""


@dataclass(slots=True)
class What:
    """What a record is of, unless a module call: its kind and the function called or the name to show."""

    kind: str
    subject: Any
    note: str | None = None
    detail: str = ""


@dataclass(slots=True)
class ModuleRow:
    """One module under one path; ``parameters`` holds (name, value id)."""

    module: weakref.ref[Any]
    cls: type
    root: int
    path: str
    parameters: tuple[tuple[str, int], ...] = ()
    described: bool = False
    below: dict[int, list[str]] | None = None
    """Of a root: the paths of the modules below it, by id; checked when used, since models change."""
    settings: str = ""
    read: Callable[[Any], str] | None = None
    """How to read the settings of the module, until somebody has (capture/modules.py says when)."""

    @property
    def detail(self) -> str:
        """Its settings; whoever asks first has them read, if the module is still there."""
        read, self.read = self.read, None
        module = None if read is None else self.module()
        if read is not None and module is not None:
            self.settings = read(module)
        return self.settings


def _nothing(log: ThreadLog) -> None:
    """Where torch is not installed there are no modes."""


class Session:
    """The tables that recordings in one family of threads write to."""

    def __init__(self, max_records: int, fused: str) -> None:
        self.max_records = max_records
        self.fused = fused
        self.values = ValueTable()
        self.forms = Forms(self.values.value_of, self.values.made)
        self.stacks = StackTable()
        self.whats: list[What] = []
        self.named: dict[tuple[str, str, str], int] = {}
        self.modules: list[ModuleRow] = []
        self.module_ids: dict[tuple[int, int], KnownModule] = {}
        """By (row of the caller, id of the module): the row."""
        self.module_paths: dict[tuple[int, str, int], KnownModule] = {}
        """By (row of the root, path, id of the module)."""
        self.settings: dict[type, tuple[str, ...] | None] = {}
        """What modules of a class show of themselves (capture/settings.py)."""
        self.records_modules = False
        self.errors: list[str] = []
        self.faults: dict[str, int] = {}
        self.notes: dict[str, None] = {}
        self.logs: list[ThreadLog] = []
        self.listeners: list[Listener] = []
        self.copies = Copies()
        self.lock = threading.RLock()  # one: a `__del__` that calls torch may run while it is held
        self.recorders: list[Any] = []
        """The recordings under way (capture.recorder.Recorder), outermost first."""
        self.shared = False
        """Whether more than one recording wrote to it."""
        self.running = True
        self.records_functions = False
        self.records_ops = False
        self.mode_class: type | None = None
        self.op_mode_class: type | None = None
        self.enter_thread: Callable[[ThreadLog], None] = _nothing
        """What puts our modes on the stacks of a thread that is recorded from now on …"""
        self.on_write: list[Callable[[Any], None]] = []
        """Told of each tensor, or list of them, that a torch function has changed in place (the variables probes)."""
        self.watched: set[str] = set()
        """The names of variables that are followed now."""
        self.leave_thread: Callable[[ThreadLog], None] = _nothing
        """… and takes them off when it ends (capture/listeners.py)."""
        self.in_backward: tuple[ThreadLog, int] | None = None
        """While the autograd engine runs: the log and the record that called it."""
        self.open_event = make_open(self)
        self.close_event = make_close(self, self.values.plain_value_of, self.forms.describe)
        self.close_op = make_close(self, self.values.made, self.forms.describe_made)

    # Threads

    def add_log(self, name: str, spawned_by: tuple[ThreadLog, int] | None = None) -> ThreadLog:
        log = ThreadLog(self, get_ident(), name, spawned_by)
        log.listening = bool(self.listeners)
        self.logs.append(log)
        LOGS[log.ident] = log
        return log

    def extend_windows(self, starter: ThreadLog, log: ThreadLog) -> None:
        """The recordings that own a thread own the threads it starts."""
        for recorder in list(self.recorders):
            if any(window.log is starter for window in recorder.windows):
                recorder.windows.append(type(recorder.windows[0])(log, 0))

    def adopt(self) -> ThreadLog | None:
        """A thread of the autograd engine (on a GPU), into which torch copied our mode: give it a log."""
        calling = self.in_backward
        if calling is None or not self.running or LEAVING:
            return None
        log = self.add_log(f"{calling[0].name} (autograd)", calling)
        self.extend_windows(calling[0], log)
        return log

    def configure(self) -> None:
        """Probes are on while any recording wants them."""
        self.records_modules = any(each.options.modules for each in self.recorders)
        self.records_ops = any(each.options.ops for each in self.recorders)
        # The function mode carries the cures that a dispatch mode needs.
        self.records_functions = self.records_ops or any(each.options.functions for each in self.recorders)

    def widen(self, max_events: int) -> None:
        """An inner recording may ask for more events than the outer one."""
        self.max_records = max(self.max_records, max_events)
        for log in self.logs:
            log.limit = max(log.limit, len(log.records) + max_events * WIDTH)

    # Events

    def what(self, kind: str, subject: str, note: str | None = None, detail: str = "") -> int:
        """The number of something that is no torch function: an optimizer's step, an unseen region, a mark."""
        number = self.named.get((kind, subject, detail))
        if number is None:
            number = self.named[kind, subject, detail] = self.add_what(What(kind, subject, note, detail))
        return number

    def add_what(self, what: What) -> int:
        """Give something a number. It is made before, since making an object may run a `__del__` that calls torch."""
        with self.lock:
            number = len(self.whats)
            self.whats.append(what)
        return number

    def fail_event(self, log: ThreadLog, at: int, error: BaseException) -> None:
        """Close a record that an exception left. Runs while that exception is on its way: must not raise."""
        records = log.records
        try:
            records[at + ERROR] = self.error_number(error)
            self.end_steps(log, at, records[at + ERROR])
            records[at + END] = perf_counter_ns()
            if log.listening:
                self.tell(log, at, "close")
        except Exception as fault:
            self.fault(fault)

    def error_number(self, error: BaseException) -> int:
        """The number of an exception's text: once for all the events that it leaves."""
        try:
            text = str(error)[:LONGEST_ERROR]
        except Exception:
            text = "(its text could not be read)"
        name = type(error).__name__
        return self._text_number(f"{name}: {text}" if text else name)

    def _text_number(self, text: str) -> int:
        if not self.errors or self.errors[-1] != text:
            self.errors.append(text)
        return len(self.errors) - 1

    def tell(self, log: ThreadLog, at: int, edge: str) -> None:
        """Call the listeners with this thread's own recording off, so that they cannot be recorded."""
        was_on, log.on = log.on, False
        try:
            for listener in self.listeners:
                listener(log, at, edge)
        except Exception as fault:
            self.fault(fault)
        finally:
            log.on = was_on

    def heal_steps(self, log: ThreadLog, frame: FrameType | None) -> None:
        """Close optimizer steps that an exception left and the program caught: their post hook never ran.

        A step is under way while an event inside of it is open, or the frame of its wrapper is on the stack.
        """
        while log.steps and log.parent <= log.steps[-1].at and not log.steps[-1].runs_above(log, frame):
            at = log.steps[-1].at
            inner = [e for e in log.records[at + WIDTH + ERROR :: WIDTH] if e != NONE]
            self.end_steps(log, at - 1, inner[-1] if inner else self._text_number("left by an exception"))

    def end_steps(self, log: ThreadLog, after: int, error: int) -> None:
        """Close the open steps that began behind the record ``after``, with this error."""
        while log.steps and log.steps[-1].at > after:
            step = log.steps.pop()
            if log.parent == step.at:
                log.parent, log.anchor, log.base = step.before
            log.records[step.at + END] = perf_counter_ns()
            log.records[step.at + ERROR] = error
            if log.listening:
                self.tell(log, step.at, "close")

    def close_left_open(self, log: ThreadLog, begin: int) -> None:
        """Close the records that Ctrl-C left open by falling between our own steps; those under way stay open."""
        ends = log.records[begin + END :: WIDTH]
        if NONE not in ends:
            return
        under_way, at = set(), log.parent
        while at >= begin:
            under_way.add(at)
            at = log.records[at + PARENT]
        for at in (begin + number * WIDTH for number, end in enumerate(ends) if end == NONE):
            if at not in under_way:
                log.records[at + END] = perf_counter_ns()
                log.records[at + ERROR] = self._text_number("left by an exception")

    # Faults of ours

    def forgive(self, error: BaseException) -> None:
        """Count a fault of ours; what is the program's own (Ctrl-C, an exit) goes on."""
        if not survives(error):
            raise error
        self.fault(error)

    def fault(self, error: BaseException) -> None:
        """A fault of our own costs an event, never the program: count it, keep one line about it."""
        where = ""
        trace = error.__traceback__
        while trace is not None:
            where = f" at {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
            trace = trace.tb_next
        text = f"{type(error).__name__}: {str(error)[:LONGEST_ERROR]}{where}"
        self.faults[text] = self.faults.get(text, 0) + 1


def survives(error: BaseException) -> bool:
    """Whether an exception raised in our own code is our fault (Ctrl-C and exits are the program's)."""
    return isinstance(error, Exception)
