"""The functions probe: every torch function that Python code calls, nested ones included."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import cache
from threading import get_ident
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchglass.capture.engine import fast
from torchglass.capture.engine.log import LEAVING, LOGS, ThreadLog
from torchglass.capture.session import FUNCTION, Session
from torchglass.capture.threads import stay_out
from torchglass.capture.torch import private
from torchglass.capture.torch.conversions import SHARING, share
from torchglass.capture.torch.names import HANDLER
from torchglass.capture.torch.naming import LEAVES, changes_its_input, function_bytes, is_event, is_torchs_own
from torchglass.capture.transparency import modes
from torchglass.journal.layout import NONE, STACK, WHAT
from torchglass.source.sites import origin_of

__tracebackhide__ = True  # pytest leaves our frames out of its reports

SKIPPED, FORGETS = -1, -2
"""No event; no event, but what was known of its first argument no longer holds (``p.requires_grad = False``)."""
_TORCHS_KINDS = (MethodDescriptorType, BuiltinFunctionType, MethodWrapperType, WrapperDescriptorType)
_push, _pop, _modes = private.push_function_mode, private.pop_function_mode, private.count_function_modes
_no_modes = private.no_functions
_frame = sys._getframe
_PLAIN: tuple[Any, ...] = ((Tensor,), (), [])
"""The types among a call's arguments where no tensor subclass takes part."""
_sensitive_functions = cache(modes.sensitive_functions)

Handler = Callable[..., Any]
Call = Callable[..., Any]
Plan = tuple[int, Call | None, Call | None, Call | None]
"""What a function is to us, in one look-up. Its number (or SKIPPED, FORGETS); a copy of it to look inside, where it is
written in Python; what is to be called instead of it, recorded or not: the way with our dispatch mode off, where that
would change it (transparency/modes.py), or what the program has replaced; what more there is to know when it returns:
(args, result, seen) → what to show."""
_NO_EVENT: Plan = (SKIPPED, None, None, None)
PLAIN, CHANGES, CONVERTS = range(3)
Traits = tuple[int, Call | None, Call | None, bytes]
"""What a function is like in any recording: SKIPPED, FORGETS, or what more there is to know when it returns; the copy
of it; the way with our dispatch mode off; its row."""
_KNOWN: tuple[dict[Any, Traits], dict[Any, Traits]] = ({}, {})
"""Torch's own functions, which live as long as the process, where ops are not recorded and where they are; C looks
here, too (engine/fast/learned.c)."""


class FunctionTable(dict[Any, Plan]):
    """What each torch function is to us."""

    def __init__(self, session: Session) -> None:
        self.session = session
        session.plans.append(self)
        self._sensitive = _sensitive_functions()

    def __missing__(self, func: Any) -> Plan:
        """Asked once for each function; never raises, an odd callable is simply not recorded."""
        try:
            plan = self[func] = self._plan(func, _original_of(func, _frame(1)))
            return plan
        except BaseException as fault:
            self.session.forgive(fault)
            return _NO_EVENT

    def _plan(self, func: Any, original: Any) -> Plan:
        known = _KNOWN[self.session.records_ops]
        traits = known.get(original)
        if traits is None or not _is_copy_of(traits[1], original):
            traits = _traits_of(original, self._sensitive, self.session.records_ops)
            if is_torchs_own(original) and original is func:
                known[func] = traits
        kind, copy, bare, row = traits
        if bare is None and original is not func:
            bare = original
        if kind < 0:
            return kind, None, bare, None
        return self.session.add_what(FUNCTION, row), copy, bare, (None, self.changed, self.converted)[kind]

    def call_unrecorded(self, log: ThreadLog, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function that there is no room to record: its results are kept as they are while our modes are on."""
        result = func(*args, **(kwargs or {}))
        if log.branched:
            self.guard(log, result)
        return result

    def guard(self, log: ThreadLog, result: Any) -> None:
        """An op ran whose backward formula would see our dispatch mode (capture/transparency/modes.py)."""
        log.branched = False
        modes.guard_backward(result)

    def behind(self, log: ThreadLog, result: Any, kwargs: Any) -> None:
        """What few calls need when they have returned: a cure; to say that ``out=`` was written into."""
        if log.branched:
            self.guard(log, result)
        if kwargs and "out" in kwargs:
            for tell in self.session.on_write:
                tell(kwargs["out"])

    def beside(self, what: int, args: tuple[Any, ...]) -> None:
        """What a call that is not recorded still needs.

        When the recording has ended in another thread, at least the dispatch mode can go, which would change bits.
        """
        stay_out()
        if what == FORGETS:
            self.changed(args, None)
        if not self.session.running and self.session.op_mode is not None:
            modes.OP_MODES.drop(lambda mode: mode is self.session.op_mode)

    def converted(self, args: tuple[Any, ...], result: Any, seen: bool) -> Any:
        """A tensor may lie in the memory of the array that it was made from."""
        share(self.session, args, result)
        return result

    def changed(self, args: tuple[Any, ...], result: Any, seen: bool = False) -> Any:
        """What to show of a function that changed its first argument: its result, or the argument if it gives none.

        Where events inside of it were seen and ops are recorded, the change is known already.
        """
        if not args:
            return result
        if not (seen and self.session.records_ops):
            self.session.values.forget_all(args[0])
        for tell in self.session.on_write:
            tell(args[0])
        return args[0] if result is None else result


class RecordingMode(TorchFunctionMode):
    """What all our modes are; each session has one, which is on the stacks of all its threads."""

    session: Session


def make_mode(table: FunctionTable) -> RecordingMode:
    """A function mode that records into the logs of the table's session."""
    handler, engine = _make_handler(table), table.session.engine
    if engine is None:
        mode: Any = type("RecordingMode", (RecordingMode,), {"__torch_function__": handler})()
    else:
        mode = _compiled_mode()()
        mode.set_up(engine, table, handler, FunctionTable.changed, table.session.on_write)
    mode.session = table.session
    return mode


@cache
def _compiled_mode() -> type[RecordingMode]:
    """Made once: a class takes as long as thirty events."""
    return type("RecordingMode", (fast.extension.FunctionMode, RecordingMode), {})


def answers(session: Session) -> dict[str, Any]:
    """What C looks into, and writes to, for functions that the process knows."""
    return {
        "functions_known": _KNOWN,
        "what_numbers": session.what_numbers,
        "kinds": session.kinds,
        "function_kind": FUNCTION,
    }


def _traits_of(func: Any, sensitive: Any, records_ops: bool) -> Traits:
    if not is_event(func):
        return (FORGETS if func.__name__ == "__set__" else SKIPPED), None, None, b""
    kind = CHANGES if changes_its_input(func) else CONVERTS if func.__name__ in SHARING else PLAIN
    row, is_sensitive = function_bytes(func, records_ops), func in sensitive
    return kind, None if is_sensitive else inner_copy(func), modes.without_ops(func) if is_sensitive else None, row


def _original_of(func: Any, frame: FrameType | None) -> Any:
    """What was called: torch names what stands in its place now, and a program may have put a function of its own
    there, around torch's. To call that would run it a second time.

    ``frame`` is the one that called us: of a function of torch's that is written in Python it is that one's own.
    """
    if type(func) in _TORCHS_KINDS:
        return func
    while frame is not None and (frame.f_code is HANDLER or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    if frame is not None and origin_of(frame.f_code.co_filename) == "torch":
        code, is_there = frame.f_code, frame.f_globals.get(frame.f_code.co_name)
        is_replaced = func is is_there or func is vars(Tensor).get(code.co_name)
        if not is_replaced or getattr(func, "__code__", None) is code or code.co_freevars:
            return func
        return FunctionType(code, frame.f_globals, code.co_name)  # it passes all its arguments on: no defaults
    names = [name for name, held in vars(Tensor).items() if held is func]
    return getattr(private.TensorBase, names[0], func) if names else func


def _is_copy_of(copy: Any, func: Any) -> bool:
    """Whether the copy that was made to look inside is still one: a program may give a function another code."""
    return copy is None or (
        copy.__code__ is func.__code__
        and copy.__defaults__ is func.__defaults__
        and copy.__kwdefaults__ is func.__kwdefaults__
    )


def _make_handler(table: FunctionTable) -> Handler:
    """The hot path. What it does for each call is in the order of the lines; why is in docs/how-it-works.md."""
    session, adopt = table.session, table.session.adopt
    open_event, close_event, fail_event = session.open_event, session.close_event, session.fail_event
    open_unseen, close_unseen = without_modes(open_event), without_modes(close_event)

    def __torch_function__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            what, again, bare, special = table[func]
        except TypeError:  # somebody's own callable that cannot be hashed
            what, again, bare, special = _NO_EVENT
        log = LOGS.get(get_ident()) or adopt()
        if what < 0 or log is None or not log.on:
            if what == FORGETS or not session.running or LEAVING:
                table.beside(what, args)
            return (bare or func)(*args, **(kwargs or {}))
        if log.steps:
            session.heal_steps(log, _frame().f_back)
        parent, anchor, base, crowded, call = log.parent, log.anchor, log.base, _modes(), bare or func
        try:
            at = (open_unseen if crowded else open_event)(log, what, _frame().f_back, args, kwargs)
            if again is not None and (
                crowded or types not in _PLAIN or (parent >= 0 and log.word(parent, WHAT) == what)
            ):
                again = None
            if at >= 0 and (again is not None or session.records_ops):
                # Else a signal handler of the program's has run, and was recorded, since it was opened.
                log.anchor, log.base = id(_frame()), log.stack if log.at == at + 1 else log.word(at, STACK)
        except BaseException as fault:
            log.parent, log.anchor, log.base = parent, anchor, base
            session.forgive(fault)
            at = NONE
        if at < 0:
            return table.call_unrecorded(log, call, args, kwargs)
        try:
            if again is None:
                result = call(*args, **kwargs) if kwargs else call(*args)
            else:
                _push(self)
                result = again(*args, **kwargs) if kwargs else again(*args)
                _pop()
        except BaseException as error:
            modes.finish_pops(error)  # a signal may have left one of torch's own half way
            while _modes() > crowded:
                _pop()
            log.parent, log.anchor, log.base = parent, anchor, base
            fail_event(log, at, error)
            args = kwargs = None  # the traceback keeps this frame: it must not keep the tensors
            raise
        log.parent, log.anchor, log.base = parent, anchor, base
        try:
            shown = result if special is None else special(args, result, log.at > at + 1)
            (close_unseen if crowded else close_event)(log, at, shown)
            if log.branched or (kwargs and "out" in kwargs):
                table.behind(log, result, kwargs)
        except BaseException as fault:
            session.forgive(fault)
        return result

    return __torch_function__


def without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """With other modes on the stack, ours must not let them see that it reads tensors."""

    def unseen(*args: Any) -> Any:
        with _no_modes():
            return function(*args)

    return unseen


# ---------------------------------------------------------------- inner

# Torch functions written in Python, called again with the recorder listening to what they call.

CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no(*_: Any) -> bool:
    return False


_globals: dict[int, dict[str, Any]] = {}
"""By id of a module's globals, which torch keeps for ever."""


def _answering_globals(original: dict[str, Any]) -> dict[str, Any]:
    found = _globals.get(id(original))
    if found is None:
        # A class for each module: ``__missing__`` as a C method of the real globals costs no Python call.
        cls = type("AnsweringGlobals", (dict,), {"__missing__": original.__getitem__})
        found = cls(dict.fromkeys(CHECKS, _no), __builtins__=original.get("__builtins__", builtins))
        _globals[id(original)] = found
    return found


def inner_copy(func: Any) -> Callable[..., Any] | None:
    """A copy of a Python torch function that skips its own override check; None where that cannot be.

    A function that makes no check of its own (``boolean_dispatch``, ``meshgrid``) passes the question on to the
    next, which would report the same function again, and one that asks ``torch.overrides`` by attribute
    (``nn.init``) would not be answered by its globals: these stay one event.
    """
    if type(func) is not FunctionType or func.__name__ in LEAVES:
        return None
    if not any(name in func.__code__.co_names and name in func.__globals__ for name in CHECKS):
        return None
    if not (getattr(func, "__module__", None) or "").startswith("torch"):
        return None  # the user's own function: its globals may change, and its checks are its own affair
    copy = FunctionType(
        func.__code__,
        _answering_globals(func.__globals__),
        func.__name__,
        func.__defaults__,
        func.__closure__,
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy
