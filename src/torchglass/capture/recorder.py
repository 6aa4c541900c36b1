"""Starts and stops: who is recorded from when to when, with which probes, and everything put back after."""

from __future__ import annotations

import dis
import os
import threading
import time
from dataclasses import dataclass
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from torchglass.capture import compiled, fused, guards, modules, optimizers, scripted, threads
from torchglass.capture.functions import FunctionTable, RecordingMode, mode_class
from torchglass.capture.log import LOGS, ThreadLog
from torchglass.capture.milestones import RESUMED, remove_milestones
from torchglass.capture.modes import FUNCTION_MODES, OP_MODES, OpMode, finish_pops
from torchglass.capture.ops import op_mode_class
from torchglass.capture.patches import Patch, PatchSet
from torchglass.capture.session import Listener, Session
from torchglass.capture.settling.settle import Settler
from torchglass.capture.settling.shelf import Shelf
from torchglass.capture.signals import Uninterrupted
from torchglass.events.tables import Tables

_WITH = dis.opmap.get("BEFORE_WITH")
_LONGEST_CHAIN = 20
"""Exceptions may be raised in answer to each other in a circle."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to record; the keywords of ``torchglass.record``."""

    modules: bool = True
    functions: bool = True
    ops: bool = False
    fused: str = "keep"
    sources: bool = True
    max_events: int = 1_000_000
    name: str = ""


@dataclass(slots=True)
class Window:
    """The part of one thread's log that belongs to one recording."""

    log: ThreadLog
    begin: int
    end: int | None = None


def _build_patches() -> list[Any]:
    return [
        Patch(nn.Module, "__call__", modules.make_call),
        Patch(torch.overrides, "has_torch_function", fused.make_has_torch_function),
        Patch(threading.Thread, "start", threads.make_start),
        Patch(threading.Thread, "_bootstrap_inner", threads.make_bootstrap),
        Patch(torch.jit.ScriptFunction, "__call__", scripted.make_script_call),
        Patch(torch.utils, "swap_tensors", guards.make_swap_tensors),
        Patch(torch.autograd, "_engine_run_backward", guards.make_run_backward),
        Patch(torch.jit._trace, "_trace_impl", guards.make_jit_trace),
        Patch(torch.jit._trace, "trace_module", guards.make_jit_trace),
        optimizers.StepHooks(),
    ]


def _forget_in_child() -> None:
    """A forked child has our modes and patches but is not recorded: what it did would be lost with it."""
    for log in LOGS.values():
        log.on = log.session.running = False
    LOGS.clear()


os.register_at_fork(after_in_child=_forget_in_child)
PATCHES = PatchSet(_build_patches)
DOOR = PatchSet(lambda: [compiled.CompileDoor(lambda: PATCHES)])


class Recorder:
    """One recording: from ``start`` to ``stop`` in one thread and the threads started from it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.windows: list[Window] = []
        self.session: Session | None = None
        self.started_ns = 0
        self.stopped_ns: int | None = None
        self.started_at = 0.0
        self.process = os.getpid()
        self.owner = 0
        self.shelf = Shelf(options.sources)
        self.left_by: tuple[str, ...] = ()
        self._holds: list[PatchSet] = []

    @property
    def running(self) -> bool:
        return self.session is not None and self.stopped_ns is None

    def start(self, frame: FrameType | None = None) -> None:
        """Begin. ``frame`` is the frame of the with-block, where there is one."""
        try:
            with Uninterrupted():
                self._start(frame)
        except BaseException:
            self.stop()
            raise

    def _start(self, frame: FrameType | None) -> None:
        log = LOGS.get(get_ident())
        if log is None or not log.session.running:
            session = Session(self.options.max_events, self.options.fused)
            log = session.add_log(threading.current_thread().name)
            self._anchor(session, log, frame)
        else:
            session = log.session
            session.widen(self.options.max_events)
            session.shared = True
        self.session, self.owner = session, log.ident
        self.windows.append(Window(log, len(log.records)))
        session.recorders.append(self)
        self.started_at = time.time()
        session.configure()
        for patches in (PATCHES, DOOR):
            self._holds.append(patches)
            patches.acquire()
        self._listen_here(session, log)
        self.started_ns = time.perf_counter_ns()

    def _anchor(self, session: Session, log: ThreadLog, frame: FrameType | None) -> None:
        """Where stack walks may stop: above the with-block, whose callers stay as they are while it runs.

        Only for a real ``with`` statement in a plain function: the frame of a generator is resumed by others,
        and the frame of an ExitStack is gone at once (and its id somebody else's).
        """
        if frame is None or frame.f_back is None or frame.f_code.co_flags & RESUMED:
            return
        code = frame.f_code.co_code
        if _WITH is None or not 0 <= frame.f_lasti < len(code) or code[frame.f_lasti] != _WITH:
            return
        log.base = session.stacks.whole(frame.f_back)
        log.anchor = id(frame.f_back)

    def _listen_here(self, session: Session, log: ThreadLog) -> None:
        FUNCTION_MODES.drop(lambda mode: isinstance(mode, RecordingMode) and not mode.session.running)
        OP_MODES.drop(lambda mode: isinstance(mode, OpMode) and not mode.session.running)
        if session.mode_class is None and session.records_functions:
            session.mode_class = mode_class(FunctionTable(session))
        if session.op_mode_class is None and session.records_ops:
            session.op_mode_class = op_mode_class(session)
        threads.listen(log)

    def stop(self, error: BaseException | None = None) -> None:
        """End, and put back whatever this was the last to need. Never raises by our doing.

        ``error`` is the exception that leaves the block, if one does.
        """
        session = self.session
        if session is None or self.stopped_ns is not None:
            return
        with Uninterrupted():
            if error is not None:
                self._note_failure(session, error)
            self._stop(session)
        self._read_sources(session)

    def _stop(self, session: Session) -> None:
        self.stopped_ns = time.perf_counter_ns()
        for window in self.windows:
            window.end = len(window.log.records)
        if self in session.recorders:
            session.recorders.remove(self)
        session.configure()
        self._let_go(session)
        while self._holds:
            self._holds.pop().release()

    def _note_failure(self, session: Session, error: BaseException) -> None:
        """What left the block, and what it was raised in answer to."""
        try:
            each: BaseException | None = error
            while each is not None and len(self.left_by) < _LONGEST_CHAIN:
                self.left_by += (session.errors[session.error_number(each)],)
                each = each.__cause__ or each.__context__
            if not isinstance(error, Exception):
                finish_pops(error)
            session.end_steps(self.windows[0].log, self.windows[0].begin - 1, session.error_number(error))
        except Exception as fault:
            session.fault(fault)

    def _let_go(self, session: Session) -> None:
        """Stop recording the threads that no recording owns any more; a mode goes off in its own thread only."""
        owned = {id(window.log) for recorder in session.recorders for window in recorder.windows}
        for log in session.logs:
            if id(log) not in owned:
                log.on = False
                if LOGS.get(log.ident) is log:
                    del LOGS[log.ident]
                if log.ident == get_ident():
                    remove_milestones(session.stacks)
                    FUNCTION_MODES.drop(lambda mode: type(mode) is session.mode_class)
            if log.has_op_mode and log.ident == get_ident() and not (log.on and session.records_ops):
                OP_MODES.drop(lambda mode: type(mode) is session.op_mode_class)
                log.has_op_mode = False
        if not session.recorders:
            session.running = False
            self._finish_modules(session)
            session.values.clear()

    def _finish_modules(self, session: Session) -> None:
        try:
            modules.add_uncalled(session)
        except Exception as fault:
            session.fault(fault)

    def _read_sources(self, session: Session) -> None:
        """Read the user's files now: later they may be gone or changed."""
        try:
            self.shelf.read_all(list(session.stacks.codes.values()))
        except Exception as fault:
            session.fault(fault)

    def progress(self) -> int:
        """How many records there are: grows with every event."""
        return sum(len(window.log.records) if window.end is None else window.end for window in self.windows)

    def tables(self) -> Tables:
        """Everything recorded so far, settled; while it runs a snapshot."""
        if self.session is None:
            return Tables(name=self.options.name)
        return Settler(self).settle()

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
