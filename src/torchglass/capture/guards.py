"""Small repairs of what recording would otherwise change or miss in torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torchglass.capture.cures import away, guard_backward, guard_roots, put_back
from torchglass.capture.log import LOGS
from torchglass.capture.modes import OP_MODES, take_op_mode

__tracebackhide__ = True  # pytest leaves our frames out of its reports

TRACED = "ops inside torch.jit.trace were not seen: a dispatch mode would break its tracing of sizes"


def make_swap_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.utils.swap_tensors`` refuses tensors with weak references: drop ours first."""

    def swap_tensors(t1: Any, t2: Any) -> Any:
        for log in list(LOGS.values()):
            log.session.values.forget(t1, t2)
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
        except Exception as fault:
            log.session.fault(fault)
        begin, outer, off = len(log.records), log.session.in_backward, away()
        spans, span = log.backward_spans, len(log.backward_spans)
        spans.append((begin, sys.maxsize))  # known at once: whoever streams may look before it ends
        log.session.in_backward = (log, log.parent)
        try:
            return original(*args, **kwargs)
        finally:
            put_back(off)
            log.session.in_backward = outer
            spans[span] = (begin, len(log.records))
            args = kwargs = None  # type: ignore[assignment]  # a traceback keeps this frame, not the tensors

    return _engine_run_backward


def make_jit_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.jit.trace`` fails on traced sizes when any dispatch mode is on: ours goes off for the while."""

    def without_op_mode(*args: Any, **kwargs: Any) -> Any:
        mode, above = take_op_mode() if get_ident() in LOGS else (None, 0)
        if mode is None:
            return original(*args, **kwargs)
        mode.session.notes[TRACED] = None
        try:
            return original(*args, **kwargs)
        finally:
            OP_MODES.insert(mode, above)

    return without_op_mode
