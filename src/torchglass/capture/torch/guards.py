"""Makes replacements for single names of torch, where recording would otherwise change results or miss calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from types import FrameType
from typing import Any

from torchglass.capture.engine.edges import recorded_call
from torchglass.capture.engine.host import BackwardPass
from torchglass.capture.engine.jit import begin_trace, end_trace
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import FUNCTION, UNSEEN, Session
from torchglass.capture.torch.conversions import function_number
from torchglass.capture.torch.gradients import Run
from torchglass.capture.transparency import modes
from torchglass.journal.layout import NONE
from torchglass.journal.rows import WhatRow, encoded
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports

_frame = sys._getframe
TRACED = (
    "ops inside torch.jit.trace were not seen: a dispatch mode would break its tracing of sizes"
)


def make_swap_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``torch.utils.swap_tensors`` to drop our weak references first, because it refuses tensors that have any."""

    def swap_tensors(t1: Any, t2: Any) -> Any:
        for log in list(LOGS.values()):
            log.session.values.forget(t1, t2)
            if log.session.measurer is not None:
                log.session.measurer.forget(t1, t2)
        return original(t1, t2)

    return swap_tensors


def make_run_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap torch's call of the autograd engine, to mark the events inside as backward."""

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
        begin = log.at
        outer = log.session.in_backward
        off = modes.away()
        run = _begin(log)
        # Write the beginning now, because the process may be killed before the end.
        log.session.backward_ran(log, begin, NONE)
        log.session.run_backward(BackwardPass(log, log.parent, begin))
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
            # A traceback keeps this frame, which must not keep the tensors alive.
            args = kwargs = None  # type: ignore[assignment]

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


def make_jit_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``torch.jit.trace`` to turn our dispatch mode off while it runs, because it fails with any dispatch mode."""

    def without_op_mode(*args: Any, **kwargs: Any) -> Any:
        if get_ident() in LOGS:
            mode, above = modes.take_op_mode()
        else:
            mode, above = (None, 0)
        if mode is not None:
            mode.session.note(TRACED)
        begin_trace()
        try:
            return original(*args, **kwargs)
        finally:
            end_trace()
            if mode is not None:
                modes.OP_MODES.insert(mode, above)

    return without_op_mode


# ---------------------------------------------------------------- calls that no mode sees

_name_of = type.__dict__["__name__"].__get__


def make_apply(original: Any) -> Any:
    """Wrap ``torch.autograd.Function.apply`` to record a function event, so that its node belongs to its line.

    ``apply`` is a class method, written in Python up to torch 2.14 and in C from torch 2.15 on.
    """
    bind = original.__get__

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        plain = bind(None, cls)
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return plain(*args, **kwargs)
        what = _what(log.session, f"{_name_of(cls)}.apply")
        return recorded_call(log, what, sys._getframe(1), plain, args, kwargs)

    return classmethod(apply)


def _what(session: Session, name: str) -> int:
    """Return the number of an ``apply``, whose positional arguments are all shown under the name ``args``."""
    number = session.named.get((FUNCTION, name, ""))
    if number is None:
        row = WhatRow(FUNCTION, name, None, "", [], "args", False)
        number = session.named[FUNCTION, name, ""] = session.add_what(FUNCTION, encoded(row))
    return number


def make_recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a torch function written in plain Python, to record its calls. Modes see only the calls inside of it.

    A call is an event if it takes or returns a tensor.
    """

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(*args, **kwargs)
        try:
            what = function_number(log.session, original)
        except BaseException as fault:
            log.session.forgive(fault)
            return original(*args, **kwargs)
        return recorded_call(log, what, _frame(1), original, args, kwargs)

    return call


SCRIPTED = (
    "scripted: its lines are not seen; call the Python function it was made from to look inside"
)


def make_script_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``ScriptFunction.__call__`` to record an ``unseen`` event with inputs and outputs: its inside is C++."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(self, *args, **kwargs)
        what = log.session.what(UNSEEN, self.name, SCRIPTED)
        return recorded_call(log, what, sys._getframe(1), partial(original, self), args, kwargs)

    return __call__
