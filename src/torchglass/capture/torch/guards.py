"""Small repairs of what recording would otherwise change or miss in torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.torch.gradients import Run
from torchglass.capture.transparency.mode_sensitive import away, guard_backward, guard_roots, put_back
from torchglass.capture.transparency.modes import OP_MODES, take_op_mode
from torchglass.journal.layout import NONE

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
                guard_backward(None)
            guard_roots(args[0] if args else None)
        except BaseException as fault:
            log.session.forgive(fault)
        begin, outer, off, run = log.at, log.session.in_backward, away(), _begin(log)
        log.session.backward_ran(log, begin, NONE)  # known at once: the process may not see its end
        log.session.run_backward((log, log.parent, begin))
        accumulates = bool(kwargs.get("accumulate_grad", True))
        try:
            result = original(*args, **kwargs)
            put_back(off)
            if run is not None:
                _end(run, log, _frame(1), accumulates)
            return result
        finally:
            put_back(off)
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


def make_jit_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.jit.trace`` fails on traced sizes when any dispatch mode is on: ours goes off for the while."""

    def without_op_mode(*args: Any, **kwargs: Any) -> Any:
        mode, above = take_op_mode() if get_ident() in LOGS else (None, 0)
        if mode is None:
            return original(*args, **kwargs)
        mode.session.note(TRACED)
        try:
            return original(*args, **kwargs)
        finally:
            OP_MODES.insert(mode, above)

    return without_op_mode
