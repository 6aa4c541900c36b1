"""What stands in the place of single names of torch: what recording would otherwise change there, or miss."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

from torchglass.capture.engine import fast
from torchglass.capture.engine.edges import recorded_call
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import FUNCTION, UNSEEN, Session
from torchglass.capture.torch.gradients import Run
from torchglass.capture.transparency import modes
from torchglass.journal.layout import NONE
from torchglass.journal.rows import WhatRow, encoded

__tracebackhide__ = True  # pytest leaves our frames out of its reports

_frame = sys._getframe
TRACED = "ops inside torch.jit.trace were not seen: a dispatch mode would break its tracing of sizes"


def make_swap_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.utils.swap_tensors`` refuses tensors with weak references: drop ours first."""

    def swap_tensors(t1: Any, t2: Any) -> Any:
        for log in list(LOGS.values()):
            log.session.values.forget(t1, t2)
            if log.session.measurer is not None:
                log.session.measurer.forget(t1, t2)
        return original(t1, t2)

    return swap_tensors


def make_run_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """The autograd engine's door: what happens inside is the backward phase."""

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on:
            return original(*args, **kwargs)
        try:
            if log.branched:
                log.branched = False
                modes.guard_backward(None)
            modes.guard_roots(args[0] if args else None)
        except BaseException as fault:
            log.session.forgive(fault)
        begin, outer, off, run = log.at, log.session.in_backward, modes.away(), _begin(log)
        log.session.backward_ran(log, begin, NONE)  # known at once: the process may not see its end
        log.session.run_backward((log, log.parent, begin))
        accumulates = bool(kwargs.get("accumulate_grad", True))
        try:
            result = original(*args, **kwargs)
            modes.put_back(off)
            if run is not None:
                _end(run, log, _frame(1), accumulates)
            return result
        finally:
            modes.put_back(off)
            if run is not None:
                run.drop()
            log.session.run_backward(outer)
            log.session.backward_ran(log, begin, log.at)
            args = kwargs = None  # type: ignore[assignment]  # a traceback keeps this frame, not the tensors

    return _engine_run_backward


def _begin(log: ThreadLog) -> Run | None:
    try:
        return Run(log)
    except BaseException as fault:
        log.session.forgive(fault)
        return None


def _end(run: Run, log: ThreadLog, frame: FrameType, always: bool) -> None:
    parent = log.parent
    try:
        run.end(frame, always)
    except BaseException as fault:
        log.parent = parent
        log.session.forgive(fault)


asking: list[bool] = []
"""One for each ``torch.jit.trace`` under way."""


def make_jit_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.jit.trace`` fails on traced sizes when any dispatch mode is on: ours goes off for the while."""

    def without_op_mode(*args: Any, **kwargs: Any) -> Any:
        mode, above = modes.take_op_mode() if get_ident() in LOGS else (None, 0)
        if mode is not None:
            mode.session.note(TRACED)
        asking.append(True)
        if fast.is_used():  # the tracer sees getters: all of its runs must ask the same
            fast.extension.read_directly(None)
        try:
            return original(*args, **kwargs)
        finally:
            asking.pop()
            if not asking and fast.is_used():
                fast.read_directly()
            if mode is not None:
                modes.OP_MODES.insert(mode, above)

    return without_op_mode


# ---------------------------------------------------------------- calls that no mode is told of

_name_of = type.__dict__["__name__"].__get__


def make_apply(original: Any) -> Any:
    """``torch.autograd.Function.apply``, a class method, as a function event: its node belongs to its line."""
    plain = original.__func__

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return plain(cls, *args, **kwargs)
        what = _what(log.session, f"{_name_of(cls)}.apply")
        return recorded_call(log, what, sys._getframe(1), partial(plain, cls), args, kwargs)

    return classmethod(apply)


def _what(session: Session, name: str) -> int:
    """Its number; all that it is given by position goes to ``forward``, under names that need not be known."""
    number = session.named.get((FUNCTION, name, ""))
    if number is None:
        row = WhatRow(FUNCTION, name, None, "", [], "args", False)
        number = session.named[FUNCTION, name, ""] = session.add_what(FUNCTION, encoded(row))
    return number


SCRIPTED = "scripted: its lines are not seen; call the Python function it was made from to look inside"


def make_script_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """``ScriptFunction.__call__`` as an ``unseen`` event, with what it takes and gives: its inside is C++."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(self, *args, **kwargs)
        what = log.session.what(UNSEEN, self.name, SCRIPTED)
        return recorded_call(log, what, sys._getframe(1), partial(original, self), args, kwargs)

    return __call__
