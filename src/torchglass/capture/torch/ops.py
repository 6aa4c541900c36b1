"""The ops probe: every aten (or custom) op that torch dispatches, below the function and module that it ran in."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from threading import get_ident
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import OP, Session
from torchglass.capture.threads import stay_out
from torchglass.capture.torch import private
from torchglass.capture.torch.functions import without_modes
from torchglass.capture.torch.naming import op_bytes, op_name
from torchglass.capture.torch.private import OpOverload
from torchglass.capture.transparency.modes import BRANCHING_IN_BACKWARD, OpMode, compiled_op_mode
from torchglass.journal.layout import NONE

__tracebackhide__ = True  # pytest leaves our frames out of its reports

_no_functions, _asks, _modes = private.no_functions, private.has_handler, private.count_function_modes
_frame = sys._getframe
_DETACH = torch.ops.aten.detach.default
_PLAIN = (Tensor, Parameter)
_TORCHS_OWN = ("aten", "prim", "prims", "profiler")
_COPY = -1
"""In place of an op's ``id``: ``detach`` where torch copies a handle."""
COPIED = "no op of the plain program: torch copied a tensor's handle, which it dispatches only while something listens"

Written = tuple[tuple[int, ...], tuple[str, ...]]
"""Which arguments an op writes into: positions, and names of those given by keyword only."""
_NOTHING: Written = ((), ())
Boxed = tuple[Any, tuple[int, ...]]
"""The dispatcher's handle of an op (None: it has none), and the positions of the arguments that are single tensors."""
Traits = tuple[Written | None, bool, bool, bool]
"""What an op is like: which arguments it writes into; whether its backward formula asks if a mode is on (branching),
whether it takes tensors in lists or by keyword (nesting), and whether its kernel counts the versions of what it writes
itself (counting)."""
Plan = tuple[int, Written | None, bool, bool, bool]
"""The number of an op's events, then its traits: all that the handler asks of an op, in one look-up."""
_UNKNOWN: Plan = (NONE, None, False, True, False)
_TRAITS: dict[int, tuple[Any, Traits]] = {}
"""By ``id`` of torch's own ops, which torch keeps for ever, too: to read them from a schema takes 40 µs."""
_BOXED: dict[int, tuple[Any, Boxed]] = {}
"""The same of how they are called."""


class OpTable(dict[int, Plan]):
    """What each op is to us, by ``id`` of the op: hashing an op costs a Python call."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._higher: dict[int, int] = {}
        self._boxed: dict[int, Boxed] = {}
        self._kept: list[Any] = []
        """The ops themselves, so that an ``id`` stays its op's."""

    def find(self, op: Any, copied: bool) -> Plan:
        """The plan of an op that is new, or of the one that has two."""
        key = _COPY if copied else id(op)
        plan = self.get(key)
        if plan is None:
            traits = _traits(op)
            plan = self[key] = (self._number(op, COPIED if copied else None), *traits)
        return plan

    def plan(self, op: Any, copied: bool) -> tuple[Any, ...] | None:
        """The plan of an op that is called like any other, and how to call it; None where only Python knows how."""
        if not isinstance(op, OpOverload):
            return None
        plan = self.find(op, copied)
        return None if plan[-1] else (*plan, _inside(op), *self._boxed_of(op))

    def higher_order(self, op: Any) -> int:
        """The number of ``cond`` and its like, which are no ops of the dispatcher's."""
        number = self._higher.get(id(op))
        if number is None:
            number = self._higher[id(op)] = self._number(op, None)
        return number

    def _number(self, op: Any, note: str | None) -> int:
        self._kept.append(op)
        return self.session.add_what(OP, op_bytes(op, note))

    def call_unasked(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an op as C++ does: function modes and tensors with handlers of their own are not asked once more.

        They are not switched off either, because a kernel or a dispatch handler written in Python may use them.
        Where that cannot be had (a number in place of a tensor, an op that is not the dispatcher's) they are.
        """
        handle, positions = self._boxed_of(op)
        try:
            if handle is not None and private.call_boxed is not None and not _has_numbers(args, positions):
                return private.call_boxed(handle, *args, **(kwargs or {}))
            with _no_functions():
                return op(*args, **(kwargs or {}))
        finally:
            args = kwargs = None  # a traceback keeps this frame, not the tensors

    def _boxed_of(self, op: Any) -> Boxed:
        boxed = self._boxed.get(id(op))
        if boxed is None:
            boxed = self._boxed[id(op)] = _boxed(op)
            self._kept.append(op)
        return boxed

    def call_counting(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an op whose kernel is made of in-place ops: below a dispatch mode torch leaves out counting them."""
        exclude, key = private.exclude_key, private.COUNTING_KEY
        was_excluded = private.is_key_excluded(key)
        exclude(key, False)
        try:
            if op.namespace not in _TORCHS_OWN and _has_counter(op) and not private.count_op_modes():
                # Its own counting is done; with its key allowed again it would be done twice.
                return op.redispatch(_keys(args, kwargs) & private.after_counting, *args, **kwargs or {})
            return self.call_unasked(op, args, kwargs)
        finally:
            exclude(key, was_excluded)
            args = kwargs = None

    def pass_on(self, log: ThreadLog | None, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an op that is not recorded: the recording has ended, or our own code is at work."""
        stay_out()
        if log is not None and op_name(op) in BRANCHING_IN_BACKWARD:
            log.branched = True  # the mode may still be there when its gradient is computed
        try:
            if isinstance(op, OpOverload) and self.get(id(op), _UNKNOWN)[-1]:
                return self.call_counting(op, args, kwargs)
            if isinstance(op, OpOverload) and (_asks(args) or _asks_inside(args, kwargs)):
                return self.call_unasked(op, args, kwargs)
            return op(*args, **kwargs) if kwargs else op(*args)
        finally:
            args = kwargs = None


def _traits(op: Any) -> Traits:
    known = _TRAITS.get(id(op))
    if known is not None and known[0] is op:
        return known[1]
    written = _written_arguments(op)
    traits = (
        None if written == _NOTHING else written,
        op_name(op) in BRANCHING_IN_BACKWARD,
        _takes_nested(op),
        _counts_inside(op),
    )
    if op.namespace in _TORCHS_OWN:  # to others a program may add kernels between two blocks
        _TRAITS[id(op)] = (op, traits)
    return traits


def _written_arguments(op: Any) -> Written:
    schema = getattr(op, "_schema", None)
    if schema is not None and op.namespace == "c10d" and schema.name.endswith("_"):
        return (0,), ()  # collectives do not say so in their schema, but it is always the first
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


def _inside(op: Any) -> Callable[..., Any]:
    """What a plain op calls when it is called: its own frame would stand in the tracebacks of the program's errors."""
    call = getattr(op, "_op", None)
    return call if type(op) is OpOverload and isinstance(call, BuiltinFunctionType) else op


def _boxed(op: Any) -> Boxed:
    known = _BOXED.get(id(op))
    if known is None or known[0] is not op:
        known = (op, _read_boxed(op))
        if op.namespace in _TORCHS_OWN:
            _BOXED[id(op)] = known
    return known[1]


def _read_boxed(op: Any) -> Boxed:
    if type(op) is not OpOverload:  # with objects of C++ classes among its arguments
        return None, ()
    try:
        types = [str(each.type) for each in op._schema.arguments]
        return op._handle, tuple(at for at, each in enumerate(types) if each in ("Tensor", "Optional[Tensor]"))
    except RuntimeError:  # prim::device
        return None, ()


def _has_numbers(args: Any, positions: tuple[int, ...]) -> bool:
    """Whether a number stands where a tensor is due: so autograd passes ``x * 2``."""
    return any(not (args[at] is None or isinstance(args[at], Tensor)) for at in positions if at < len(args))


def _counts_inside(op: Any) -> bool:
    """Ops over lists, and custom ops: nothing counts on their behalf, so what their kernels call does."""
    schema = getattr(op, "_schema", None)
    if schema is None or not private.has(private.VERSIONS):
        return False
    if not any("Tensor" in str(each.type) for each in schema.arguments):
        return False
    if op.namespace in _TORCHS_OWN and not (schema.is_mutable and schema.name.startswith("aten::_foreach_")):
        return False
    return not _has_counter(op) or (schema.is_mutable and op.namespace not in _TORCHS_OWN and _KERNELS_COUNT)


def _do_kernels_count() -> bool:
    """Whether the in-place ops inside of a custom op count too: since torch goes on to its kernel by redispatching."""
    codes = [each.__code__ for each in vars(private.CustomOpDef).values() if isinstance(each, FunctionType)]
    inner = [each for code in codes for each in code.co_consts if isinstance(each, CodeType)]
    return any(each.co_name == "adinplaceorview_impl" and "redispatch" in each.co_names for each in inner)


_KERNELS_COUNT = _do_kernels_count()


def _has_counter(op: Any) -> bool:
    return private.has_kernel(op.name(), "ADInplaceOrView")


def _keys(args: Any, kwargs: Any) -> Any:
    """The dispatch keys of all tensors given."""
    flat = [*args, *(kwargs or {}).values()]
    flat += [each for some in flat if isinstance(some, (list, tuple)) for each in some]
    keys = [private.dispatch_keys(each) for each in flat if isinstance(each, Tensor)]
    return functools.reduce(operator.or_, keys)


def _takes_nested(op: Any) -> bool:
    arguments = getattr(getattr(op, "_schema", None), "arguments", ())
    return any("Tensor" in str(each.type) and (each.kwarg_only or each.type.kind() == "ListType") for each in arguments)


def _asks_inside(args: Any, kwargs: Any) -> bool:
    given = [*args, *(kwargs or {}).values()]
    return _asks(given) or any(_asks(each) for each in given if isinstance(each, (list, tuple)))


def make_op_mode(session: Session) -> OpMode:
    """A dispatch mode that records into the logs of this session."""
    session.values.from_ops = True
    table, engine = OpTable(session), session.engine
    handler = _make_handler(table)
    if engine is None:
        mode: Any = type("OpMode", (OpMode,), {"__torch_dispatch__": handler})()
    else:
        mode = compiled_op_mode()()
        mode.set_up(engine, table, handler)
    mode.session = session
    return mode


def _make_handler(table: OpTable) -> Callable[..., Any]:
    """The hot path of the probe; the open and the close of an event are the same as for all probes."""
    session, fail_event, adopt = table.session, table.session.fail_event, table.session.adopt
    open_event, close_op, renew = session.open_event, session.close_op, session.values.renew
    open_unseen, close_unseen, renew_unseen = map(without_modes, (open_event, close_op, renew))

    def __torch_dispatch__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        log = LOGS.get(get_ident()) or adopt()
        if log is None or not log.on or not session.records_ops:
            return table.pass_on(log, func, args, kwargs)
        plan = table.get(id(func))
        if plan is None and not isinstance(func, OpOverload):
            return _call_higher_order(table, log, func, args, kwargs)
        if log.steps:
            session.heal_steps(log, _frame().f_back)
        parent, at, crowded = log.parent, NONE, _modes()
        what, written, branching, nesting, counting = plan or _UNKNOWN
        try:
            # Only a copied handle comes with a plain class among its types.
            copied = func is _DETACH and bool(types) and types[0] in _PLAIN
            if plan is None or copied:
                what, written, branching, nesting, counting = table.find(func, copied)
            at = (open_unseen if crowded else open_event)(
                log, what, _frame(1) if log.spawned_by is None else _frame().f_back, args, kwargs
            )
        except BaseException as fault:
            log.parent = parent
            session.forgive(fault)
        try:
            if counting:
                result = table.call_counting(func, args, kwargs)
            elif _asks(args) or (nesting and _asks_inside(args, kwargs)):
                result = table.call_unasked(func, args, kwargs)
            else:
                result = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            if at >= 0:
                log.parent = parent
                fail_event(log, at, error)
            args = kwargs = None  # the traceback keeps this frame: it must not keep the tensors
            raise
        if branching:
            log.branched = True
        if at >= 0:
            log.parent = parent
            try:
                changed = None
                if written is not None:
                    changed = (renew_unseen if crowded else renew)(args, kwargs, *written)
                (close_unseen if crowded else close_op)(log, at, changed if result is None else result)
            except BaseException as fault:
                session.forgive(fault)
        return result

    return __torch_dispatch__


def _call_higher_order(table: OpTable, log: ThreadLog, func: Any, args: Any, kwargs: Any) -> Any:
    """``cond``, ``while_loop``, ``flex_attention``: what they call is the program's own, and may be recorded."""
    session, parent, at = log.session, log.parent, NONE
    try:
        with _no_functions():
            at = session.open_event(log, table.higher_order(func), _frame(2), args, kwargs)
    except BaseException as fault:
        log.parent = parent
        session.forgive(fault)
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
    except BaseException as fault:
        session.forgive(fault)
    return result
