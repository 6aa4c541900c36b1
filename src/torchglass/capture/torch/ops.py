"""Records every aten or custom op that torch dispatches, inside the event of the function or module that called it."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
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
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports

_no_functions, _asks, _modes = (
    private.no_functions,
    private.has_handler,
    private.count_function_modes,
)
_frame = sys._getframe
_DETACH = torch.ops.aten.detach.default
_PLAIN = (Tensor, Parameter)
_TORCHS_OWN = ("aten", "prim", "prims", "profiler")
_COPY = -1
"""Used in place of the ``id`` of ``detach`` when torch copies a tensor's handle."""
COPIED = "not an op of the plain program: torch copied a tensor's handle, which it dispatches only while it is recorded"

Written = tuple[tuple[int, ...], tuple[str, ...]]
"""The arguments that an op writes into: the positions, and the names of keyword-only arguments."""
_NOTHING: Written = ((), ())
Boxed = tuple[Any, tuple[int, ...]]
"""The dispatcher's handle of an op (None if there is none), and the positions of arguments that are single tensors."""
Traits = tuple[Written | None, bool, bool, bool]
"""The traits of an op, in this order:

- the arguments that it writes into, or None if it writes into none,
- branching: whether its backward formula behaves differently if a dispatch mode is on,
- nesting: whether it takes tensors in lists or as keyword-only arguments,
- counting: whether the ops inside its kernel must count the versions of the tensors that they write into.
"""
Plan = tuple[int, Written | None, bool, bool, bool]
"""The number of an op's row, then its traits. The handler gets all that it needs to know of an op from one look-up."""
CompiledPlan = tuple[int, Written | None, bool, Callable[..., Any], Any, tuple[int, ...]]
"""The plan of an op for the compiled engine (engine/fast/ops.c):

- the number of its row, the arguments that it writes into, and whether it is branching, as in a Plan,
- the function to call,
- its handle and the positions of its tensors, as in Boxed.
"""
_UNKNOWN: Plan = (NONE, None, False, True, False)
"""The plan of an op that has no plan yet."""
_TRAITS: dict[int, tuple[Any, Traits]] = {}
"""The traits of torch's own ops, keyed by ``id``, because reading them from a schema takes 40 µs. Torch never frees
these ops."""
_BOXED: dict[int, tuple[Any, Boxed]] = {}
"""For torch's own ops, keyed by ``id``: how to call them through the dispatcher."""


class OpTable(dict[int, Plan]):
    """Cached recording plan for each op, keyed by ``id``, because hashing an op costs a Python call."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._higher: dict[int, int] = {}
        self._boxed: dict[int, Boxed] = {}
        self._kept: list[Any] = []
        """The ops themselves, so that no other object gets the same ``id``."""

    def find(self, op: Any, copied: bool) -> Plan:
        """Return the plan of an op, and make it if it is new.

        Only ``detach`` has two plans: the second is for ``copied``, when torch copies a tensor's handle.
        """
        key = _COPY
        if not copied:
            key = id(op)
        plan = self.get(key)
        if plan is None:
            traits = _traits(op)
            plan = self[key] = (self._number(op, COPIED if copied else None), *traits)
        return plan

    def compiled_plan(self, op: Any, copied: bool) -> CompiledPlan | None:
        """Return the plan of an op for the compiled engine, or None if only the Python handler can call the op."""
        if not isinstance(op, OpOverload):
            return None
        number, written, branching, _, counting = self.find(op, copied)
        if counting:
            return None
        return (number, written, branching, _inside(op), *self._boxed_of(op))

    def higher_order(self, op: Any) -> int:
        """Return the number of a higher-order operator such as ``cond``, which is not an op of the dispatcher."""
        number = self._higher.get(id(op))
        if number is None:
            number = self._higher[id(op)] = self._number(op, None)
        return number

    def _number(self, op: Any, note: str | None) -> int:
        self._kept.append(op)
        return self.session.add_what(OP, op_bytes(op, note))

    def call_unasked(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an op as C++ does, so that function modes and handlers of tensor subclasses do not see it a second time.

        They stay on for the code inside the op, because a kernel or a dispatch handler written in Python may use them.
        If the dispatcher cannot be called directly (a number in place of a tensor, or an op without a handle), they are
        off while the op runs.
        """
        handle, positions = self._boxed_of(op)
        try:
            if (
                handle is not None
                and private.call_boxed is not None
                and not _has_numbers(args, positions)
            ):
                return private.call_boxed(handle, *args, **(kwargs or {}))
            with _no_functions():
                return op(*args, **(kwargs or {}))
        finally:
            # A traceback keeps this frame, which must not keep the tensors alive.
            args = kwargs = None

    def _boxed_of(self, op: Any) -> Boxed:
        boxed = self._boxed.get(id(op))
        if boxed is None:
            boxed = self._boxed[id(op)] = _boxed(op)
            self._kept.append(op)
        return boxed

    def call_counting(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an op whose kernel runs in-place ops, so that these still count versions.

        Below a dispatch mode, torch would not count them.
        """
        exclude = private.exclude_key
        key = private.COUNTING_KEY
        was_excluded = private.is_key_excluded(key)
        exclude(key, False)
        try:
            if (
                op.namespace not in _TORCHS_OWN
                and _has_counter(op)
                and not private.count_op_modes()
            ):
                # The op has counted its own versions already. With the key allowed again it would count them twice, so
                # start after that key.
                return op.redispatch(
                    _keys(args, kwargs) & private.after_counting, *args, **kwargs or {}
                )
            return self.call_unasked(op, args, kwargs)
        finally:
            exclude(key, was_excluded)
            args = kwargs = None

    def pass_on(self, log: ThreadLog | None, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an op that is not recorded, because the recording has ended or our own code called it."""
        stay_out()
        if log is not None and op_name(op) in BRANCHING_IN_BACKWARD:
            log.branched = True  # our mode may still be on when the gradient is computed
        try:
            if isinstance(op, OpOverload) and self.get(id(op), _UNKNOWN)[-1]:
                return self.call_counting(op, args, kwargs)
            if isinstance(op, OpOverload) and (_asks(args) or _asks_inside(args, kwargs)):
                return self.call_unasked(op, args, kwargs)
            if kwargs:
                return op(*args, **kwargs)
            return op(*args)
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
    if op.namespace in _TORCHS_OWN:  # a program may add kernels to other ops between two recordings
        _TRAITS[id(op)] = (op, traits)
    return traits


def _written_arguments(op: Any) -> Written:
    schema = getattr(op, "_schema", None)
    if schema is not None and op.namespace == "c10d" and schema.name.endswith("_"):
        # Collectives write into their first argument, but their schema does not show it.
        return (0,), ()
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
    """Return the built-in function that an op calls, so that tracebacks of the program do not show the op's frame.

    Return the op itself if it does not simply call a built-in function.
    """
    call = getattr(op, "_op", None)
    if type(op) is OpOverload and isinstance(call, BuiltinFunctionType):
        return call
    return op


def _boxed(op: Any) -> Boxed:
    known = _BOXED.get(id(op))
    if known is None or known[0] is not op:
        known = (op, _read_boxed(op))
        if op.namespace in _TORCHS_OWN:
            _BOXED[id(op)] = known
    return known[1]


def _read_boxed(op: Any) -> Boxed:
    if type(op) is not OpOverload:  # a subclass, for ops that take objects of C++ classes
        return None, ()
    try:
        types = [str(each.type) for each in op._schema.arguments]
        return op._handle, tuple(
            at for at, each in enumerate(types) if each in ("Tensor", "Optional[Tensor]")
        )
    except RuntimeError:  # prim::device
        return None, ()


def _has_numbers(args: Any, positions: tuple[int, ...]) -> bool:
    """Return whether a number is passed for a tensor parameter, as autograd does for ``x * 2``."""
    return any(
        not (args[at] is None or isinstance(args[at], Tensor)) for at in positions if at < len(args)
    )


def _counts_inside(op: Any) -> bool:
    """Return whether the ops that an op's kernel calls must count versions.

    This holds for ops over lists (``_foreach_…``) and for custom ops, whose versions are not counted otherwise.
    """
    schema = getattr(op, "_schema", None)
    if schema is None or not private.has(private.VERSIONS):
        return False
    if not any("Tensor" in str(each.type) for each in schema.arguments):
        return False
    if op.namespace in _TORCHS_OWN and not (
        schema.is_mutable and schema.name.startswith("aten::_foreach_")
    ):
        return False
    return not _has_counter(op) or (
        schema.is_mutable and op.namespace not in _TORCHS_OWN and _KERNELS_COUNT
    )


def _do_kernels_count() -> bool:
    """Return whether in-place ops inside a custom op count versions too, as in newer versions of torch.

    There, the function that counts for a custom op redispatches to the op's kernel.
    """
    codes = [
        each.__code__
        for each in vars(private.CustomOpDef).values()
        if isinstance(each, FunctionType)
    ]
    inner = [each for code in codes for each in code.co_consts if isinstance(each, CodeType)]
    return any(
        each.co_name == "adinplaceorview_impl" and "redispatch" in each.co_names for each in inner
    )


_KERNELS_COUNT = _do_kernels_count()


def _has_counter(op: Any) -> bool:
    return private.has_kernel(op.name(), "ADInplaceOrView")


def _keys(args: Any, kwargs: Any) -> Any:
    """Return the union of the dispatch keys of all tensors among the arguments."""
    flat = [*args, *(kwargs or {}).values()]
    flat += [each for some in flat if isinstance(some, (list, tuple)) for each in some]
    keys = [private.dispatch_keys(each) for each in flat if isinstance(each, Tensor)]
    return functools.reduce(operator.or_, keys)


def _takes_nested(op: Any) -> bool:
    arguments = getattr(getattr(op, "_schema", None), "arguments", ())
    return any(
        "Tensor" in str(each.type) and (each.kwarg_only or each.type.kind() == "ListType")
        for each in arguments
    )


def _asks_inside(args: Any, kwargs: Any) -> bool:
    given = [*args, *(kwargs or {}).values()]
    return _asks(given) or any(_asks(each) for each in given if isinstance(each, (list, tuple)))


def make_op_mode(session: Session) -> OpMode:
    """Make a dispatch mode that records into the logs of this session."""
    session.values.from_ops = True
    table = OpTable(session)
    engine = session.engine
    handler = _make_handler(table)
    if engine is None:
        mode: Any = type("OpMode", (OpMode,), {"__torch_dispatch__": handler})()
    else:
        mode = compiled_op_mode()()
        mode.set_up(engine, table, handler)
    mode.session = session
    return mode


def _make_handler(table: OpTable) -> Callable[..., Any]:
    """Make the handler, which is the hot path of this probe. All probes open and close events in the same way."""
    session = table.session
    fail_event = table.session.fail_event
    adopt = table.session.adopt
    open_event = session.open_event
    close_op = session.close_op
    renew = session.values.new_values_for_written
    open_unseen, close_unseen, renew_unseen = map(without_modes, (open_event, close_op, renew))

    def __torch_dispatch__(
        self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        log = LOGS.get(get_ident()) or adopt()
        if log is None or not log.on or not session.records_ops:
            return table.pass_on(log, func, args, kwargs)
        plan = table.get(id(func))
        if plan is None and not isinstance(func, OpOverload):
            return _call_higher_order(table, log, func, args, kwargs)
        if log.steps:
            session.heal_steps(log, _frame().f_back)
        parent = log.parent
        at = NONE
        other_modes = _modes()
        what, written, branching, nesting, counting = plan or _UNKNOWN
        try:
            # `types` holds a plain class only when torch copies a handle.
            copied = func is _DETACH and bool(types) and types[0] in _PLAIN
            if plan is None or copied:
                what, written, branching, nesting, counting = table.find(func, copied)
            at = (open_unseen if other_modes else open_event)(
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
                if kwargs:
                    result = func(*args, **kwargs)
                else:
                    result = func(*args)
        except BaseException as error:
            if at >= 0:
                log.parent = parent
                fail_event(log, at, error)
            # The traceback keeps this frame, which must not keep the tensors alive.
            args = kwargs = None
            raise
        if branching:
            log.branched = True
        if at >= 0:
            log.parent = parent
            try:
                changed = None
                if written is not None:
                    changed = (renew_unseen if other_modes else renew)(args, kwargs, *written)
                (close_unseen if other_modes else close_op)(
                    log, at, changed if result is None else result
                )
            except BaseException as fault:
                session.forgive(fault)
        return result

    return __torch_dispatch__


def _call_higher_order(table: OpTable, log: ThreadLog, func: Any, args: Any, kwargs: Any) -> Any:
    """Record and call ``cond``, ``while_loop`` or ``flex_attention``, which call functions of the program."""
    session = log.session
    parent = log.parent
    at = NONE
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
