"""The functions probe: every torch function that Python code calls, nested ones included."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchglass.capture.cures import guard_backward, sensitive_functions, without_ops
from torchglass.capture.inner import inner_copy
from torchglass.capture.log import LOGS, NONE, STACK, WIDTH
from torchglass.capture.naming import changes_its_input, is_event
from torchglass.capture.session import FUNCTION, Session, What, survives

SKIPPED, FORGETS = -1, -2
"""No event; no event, but what was known of its first argument no longer holds (``p.requires_grad = False``)."""
_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_modes = torch._C._len_torch_function_stack
_no_modes = torch._C.DisableTorchFunction
_frame = sys._getframe
_ONLY_TENSOR = (Tensor,)

Handler = Callable[..., Any]


class FunctionTable(dict[Any, int]):
    """What each torch function is to us: skipped, or the number of its events."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._sensitive = sensitive_functions()
        self.inner: dict[int, Callable[..., Any]] = {}
        """Copies of functions written in Python, to look inside of them."""
        self.bare: dict[int, Callable[..., Any]] = {}
        """Functions that a dispatch mode would change, to be called with ours off (capture/cures.py)."""
        self.writers: set[int] = set()
        """Functions that change an argument: their tensors are looked at again when they return."""

    def __missing__(self, func: Any) -> int:
        """Asked once for each function; never raises, an odd callable is simply not recorded."""
        try:
            if not is_event(func):
                number = self[func] = FORGETS if func.__name__ == "__set__" else SKIPPED
                return number
            with self.session.lock:
                number = len(self.session.whats)
                self.session.whats.append(What(FUNCTION, func))
            copy = inner_copy(func)
            if func in self._sensitive:
                self.bare[number] = without_ops(func)
            elif copy is not None:
                self.inner[number] = copy
            if changes_its_input(func):
                self.writers.add(number)
            self[func] = number
            return number
        except Exception as fault:
            self.session.fault(fault)
            return SKIPPED

    def changed(self, args: tuple[Any, ...], result: Any, seen: bool = False) -> Any:
        """What to show of a function that changed its first argument: its result, or the argument if it gives none.

        Where the ops that did so were seen, the change is known already.
        """
        if not args:
            return result
        if not seen:
            self.session.values.forget_all(args[0])
        return args[0] if result is None else result


class RecordingMode(TorchFunctionMode):
    """What all our modes are; each session makes a class of its own, each thread has its own object."""

    session: Session


def mode_class(table: FunctionTable) -> type[RecordingMode]:
    """A function mode that records into the logs of the table's session."""
    body = {"__torch_function__": _make_handler(table), "session": table.session}
    return type("RecordingMode", (RecordingMode,), body)


def _make_handler(table: FunctionTable) -> Handler:
    """The hot path. What it does for each call is in the order of the lines; why is in docs/how-it-works.md."""
    session, inner, writers, changed, bare = table.session, table.inner, table.writers, table.changed, table.bare
    open_event, close_event, fail_event = session.open_event, session.close_event, session.fail_event
    open_unseen, close_unseen, adopt = _without_modes(open_event), _without_modes(close_event), session.adopt

    def __torch_function__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            what = table[func]
        except TypeError:  # somebody's own callable that cannot be hashed
            what = SKIPPED
        log = LOGS.get(get_ident()) or adopt()
        if what < 0 or log is None or not log.on:
            if what == FORGETS:
                changed(args, None)
            return func(*args, **kwargs) if kwargs else func(*args)
        if log.steps:
            session.heal_steps(log, _frame(1))
        parent, anchor, base = log.parent, log.anchor, log.base
        again, crowded = inner.get(what), _modes()
        try:
            at = (open_unseen if crowded else open_event)(log, what, _frame(1), args, kwargs)
            if crowded or (types and types != _ONLY_TENSOR) or (parent >= 0 and log.records[parent] == what):
                again = None
            if at >= 0 and (again is not None or session.records_ops):
                log.anchor, log.base = id(_frame()), log.records[at + STACK]
        except BaseException as fault:
            log.parent, log.anchor, log.base = parent, anchor, base
            if not survives(fault):
                raise
            session.fault(fault)
            at = NONE
        if at < 0:
            return func(*args, **kwargs) if kwargs else func(*args)
        try:
            if again is None:
                if what in bare and session.records_ops:
                    func = bare[what]
                result = func(*args, **kwargs) if kwargs else func(*args)
            else:
                _push(self)
                result = again(*args, **kwargs) if kwargs else again(*args)
                _pop()
        except BaseException as error:
            while _modes() > crowded:
                _pop()
            log.parent, log.anchor, log.base = parent, anchor, base
            fail_event(log, at, error)
            args = kwargs = None  # the traceback keeps this frame: it must not keep the tensors
            raise
        log.parent, log.anchor, log.base = parent, anchor, base
        try:
            seen = session.records_ops and len(log.records) > at + WIDTH
            shown = changed(args, result, seen) if what in writers else result
            (close_unseen if crowded else close_event)(log, at, shown)
            if log.branched:
                log.branched = False
                guard_backward(result)
        except BaseException as fault:
            if not survives(fault):
                raise
            session.fault(fault)
        return result

    return __torch_function__


def _without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """With other modes on the stack, ours must not let them see that it reads tensors."""

    def unseen(*args: Any) -> Any:
        with _no_modes():
            return function(*args)

    return unseen
