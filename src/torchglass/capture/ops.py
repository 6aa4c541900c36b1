"""The ops probe: every aten (or custom) op that torch dispatches, below the function and module that it ran in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch._ops import OpOverload

from torchglass.capture.cures import BRANCHING_IN_BACKWARD
from torchglass.capture.log import LOGS, NONE, ThreadLog
from torchglass.capture.modes import OpMode
from torchglass.capture.session import OP, Session, What, survives

_no_functions = torch._C.DisableTorchFunction
_frame = sys._getframe

Written = tuple[tuple[int, ...], tuple[str, ...]]
"""Which arguments an op writes into: positions, and names of those given by keyword only."""
_NOTHING: Written = ((), ())


class OpTable(dict[int, int]):
    """The number of each op's events, by ``id`` of the op: hashing an op costs a Python call."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.written: dict[int, Written] = {}
        """By number: ops that change arguments."""
        self.branching: set[int] = set()
        """Ops whose backward formula asks whether a mode is on."""
        self._kept: list[Any] = []
        """The ops themselves, so that an ``id`` stays its op's."""

    def add(self, op: Any) -> int:
        """Asked once for each op."""
        written = _written_arguments(op)
        with self.session.lock:
            self._kept.append(op)
            number = len(self.session.whats)
            self.session.whats.append(What(OP, op))
            if written != _NOTHING:
                self.written[number] = written
            if op_name(op) in BRANCHING_IN_BACKWARD:
                self.branching.add(number)
            self[id(op)] = number
        return number


def op_name(op: Any) -> str:
    """``aten::mm``, with the overload unless it is the default one: ``aten::mul.Tensor``."""
    if isinstance(op, OpOverload):
        return op.name()
    name = op.name() if callable(getattr(op, "name", None)) else getattr(op, "__name__", type(op).__name__)
    return f"{getattr(op, 'namespace', None) or 'higher_order'}::{name}"


def _written_arguments(op: Any) -> Written:
    schema = getattr(op, "_schema", None)
    if schema is None or not schema.is_mutable:
        return _NOTHING
    writes = [
        (position, argument.name, argument.kwarg_only)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return (
        tuple(position for position, _, by_name in writes if not by_name),
        tuple(name for _, name, by_name in writes if by_name),
    )


def op_mode_class(session: Session) -> type[OpMode]:
    """A dispatch mode that records into the logs of this session."""
    body = {"__torch_dispatch__": _make_handler(OpTable(session)), "session": session}
    return type("OpMode", (OpMode,), body)


def _make_handler(table: OpTable) -> Callable[..., Any]:
    """The hot path of the probe; the open and the close of an event are the same as for all probes."""
    session, written, branching = table.session, table.written, table.branching
    open_event, close_op, fail_event = session.open_event, session.close_op, session.fail_event
    adopt, renew = session.adopt, session.values.renew

    def __torch_dispatch__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        log = LOGS.get(get_ident()) or adopt()
        if log is None or not log.on or not session.records_ops:
            return func(*args, **kwargs) if kwargs else func(*args)
        if type(func) is not OpOverload:
            return _call_higher_order(table, log, func, args, kwargs)
        if log.steps:
            session.heal_steps(log, _frame(1))
        parent, at, what = log.parent, NONE, table.get(id(func), NONE)
        # Torch calls ops from C++: neither the program's function modes nor its tensors may see that we do so here.
        with _no_functions():
            try:
                if what < 0:
                    what = table.add(func)
                at = open_event(log, what, _frame(1), args, kwargs)
            except BaseException as fault:
                log.parent = parent
                if not survives(fault):
                    raise
                session.fault(fault)
            try:
                result = func(*args, **kwargs) if kwargs else func(*args)
            except BaseException as error:
                if at >= 0:
                    log.parent = parent
                    fail_event(log, at, error)
                args = kwargs = None  # the traceback keeps this frame: it must not keep the tensors
                raise
            if at >= 0:
                log.parent = parent
                try:
                    changed = renew(args, kwargs, *written[what]) if what in written else None
                    close_op(log, at, changed if result is None else result)
                    if what in branching:
                        log.branched = True
                except BaseException as fault:
                    if not survives(fault):
                        raise
                    session.fault(fault)
            return result

    return __torch_dispatch__


def _call_higher_order(table: OpTable, log: ThreadLog, func: Any, args: Any, kwargs: Any) -> Any:
    """``cond``, ``while_loop``, ``flex_attention``: what they call is the program's own, and may be recorded."""
    session, parent, at = log.session, log.parent, NONE
    try:
        with _no_functions():
            what = table.get(id(func), NONE)
            at = session.open_event(log, table.add(func) if what < 0 else what, _frame(2), args, kwargs)
    except Exception as fault:
        log.parent = parent
        session.fault(fault)
    try:
        result = func(*args, **(kwargs or {}))
    except BaseException as error:
        log.parent = parent
        if at >= 0:
            session.fail_event(log, at, error)
        raise
    log.parent = parent
    try:
        with _no_functions():
            if at >= 0:
                session.close_op(log, at, result)
    except Exception as fault:
        session.fault(fault)
    return result
