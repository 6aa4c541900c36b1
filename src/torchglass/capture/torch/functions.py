"""Records every torch function that Python code calls, including calls from torch functions written in Python."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import cache
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchglass.capture.engine import fast
from torchglass.capture.engine.log import LEAVING, LOGS, ThreadLog
from torchglass.capture.session import FUNCTION, Session
from torchglass.capture.threads import stay_out
from torchglass.capture.torch import private
from torchglass.capture.torch.conversions import SHARING, share
from torchglass.capture.torch.names import HANDLER
from torchglass.capture.torch.naming import (
    LEAVES,
    changes_its_input,
    changes_metadata,
    function_bytes,
    is_event,
    is_torchs_own,
)
from torchglass.capture.transparency import modes
from torchglass.journal.layout import NONE, STACK, WHAT
from torchglass.source.origins import origin_of
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports

SKIPPED = -1
"""Stands in place of a number for a function whose calls are not recorded."""
FORGETS = -2
"""Like SKIPPED, but the function changes its first argument, whose value must be read again at its next use
(``p.requires_grad = False``)."""
_TORCHS_KINDS = (
    MethodDescriptorType,
    BuiltinFunctionType,
    MethodWrapperType,
    WrapperDescriptorType,
)
_push, _pop, _modes = (
    private.push_function_mode,
    private.pop_function_mode,
    private.count_function_modes,
)
_no_modes = private.no_functions
_frame = sys._getframe
_PLAIN: tuple[Any, ...] = ((Tensor,), (), [])
"""The possible ``types`` of a call if no argument is of a tensor subclass."""
_sensitive_functions = cache(modes.sensitive_functions)

Handler = Callable[..., Any]
Call = Callable[..., Any]


class FunctionPlan(NamedTuple):
    """How one recording treats the calls of a function. The handler gets all of this from one look-up."""

    number: int
    """The row of its name in the journal, or SKIPPED or FORGETS."""
    listening_copy: Call | None = None
    """For a function written in Python: a copy that does not check for overrides. If it is called while our mode is on,
    the calls inside of it are recorded."""
    replacement: Call | None = None
    """Call this instead, whether the call is recorded or not: the function with our dispatch mode off, if that mode
    would change its result (transparency/modes.py), or torch's function that the program has wrapped."""
    on_return: Callable[[tuple[Any, ...], Any, bool], Any] | None = None
    """Call this with (args, result, has_inner_events) when the function returns. Record what it returns as the
    result."""


_NO_EVENT = FunctionPlan(SKIPPED)
PLAIN, CHANGES, CONVERTS = range(3)
"""What to do when a function returns. PLAIN: nothing. CHANGES: note that the function changed its first argument.
CONVERTS: note that its result may share memory with an array."""


class FunctionTraits(NamedTuple):
    """The properties of a function that are the same in every recording."""

    kind: int
    """PLAIN, CHANGES or CONVERTS; or SKIPPED or FORGETS."""
    listening_copy: Call | None
    without_ops: Call | None
    """The function with our dispatch mode off, if that mode would change its result."""
    row: bytes
    """The encoded row of the function's name and parameters."""


_KNOWN: tuple[dict[Any, FunctionTraits], dict[Any, FunctionTraits]] = ({}, {})
"""The traits of functions that torch defines and never frees: first without recorded ops, then with them."""


class FunctionTable(dict[Any, FunctionPlan]):
    """Cached recording plan for each torch function of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        session.plans.append(self)
        self._sensitive = _sensitive_functions()

    def __missing__(self, func: Any) -> FunctionPlan:
        """Make the plan of a function at its first call. If that fails, the function is not recorded."""
        try:
            plan = self[func] = self._plan(func, _original_of(func, _frame(1)))
            return plan
        except BaseException as fault:
            self.session.forgive(fault)
            return _NO_EVENT

    def _plan(self, func: Any, original: Any) -> FunctionPlan:
        known = _KNOWN[self.session.records_ops]
        traits = known.get(original)
        if traits is None or not _is_copy_of(traits.listening_copy, original):
            traits = _traits_of(original, self._sensitive, self.session.records_ops)
            if is_torchs_own(original) and original is func:
                known[func] = traits
        replacement = traits.without_ops
        if replacement is None and original is not func:
            replacement = original
        if traits.kind < 0:
            return FunctionPlan(traits.kind, replacement=replacement)
        return FunctionPlan(
            number=self.session.add_what(FUNCTION, traits.row),
            listening_copy=traits.listening_copy,
            replacement=replacement,
            on_return=(None, self.changed, self.converted)[traits.kind],
        )

    def call_unrecorded(self, log: ThreadLog, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function that could not be recorded. Our modes must still not change its results."""
        result = func(*args, **(kwargs or {}))
        if log.branched:
            self.guard(log, result)
        return result

    def guard(self, log: ThreadLog, result: Any) -> None:
        """Add hooks for an op whose backward formula would see our dispatch mode (capture/transparency/modes.py)."""
        log.branched = False
        modes.guard_backward(result)

    def after_return(self, log: ThreadLog, result: Any, kwargs: Any) -> None:
        """Do what only few calls need: guard their backward, and report that they wrote to ``out=``."""
        if log.branched:
            self.guard(log, result)
        if kwargs and "out" in kwargs:
            for tell in self.session.on_write:
                tell(kwargs["out"])

    def on_unrecorded_call(self, number: int, args: tuple[Any, ...]) -> None:
        """Do what an unrecorded call needs: if its number is FORGETS, note that it changed its first argument.

        If the recording has ended in another thread, remove its dispatch mode here, since it can change results.
        """
        stay_out()
        if number == FORGETS:
            self.changed(args, None)
        if not self.session.running and self.session.op_mode is not None:
            modes.OP_MODES.drop(lambda mode: mode is self.session.op_mode)

    def converted(self, args: tuple[Any, ...], result: Any, has_inner_events: bool) -> Any:
        """Note that a tensor may share the memory of the array that it was made from."""
        share(self.session, args, result)
        return result

    def changed(self, args: tuple[Any, ...], result: Any, has_inner_events: bool = False) -> Any:
        """Note that a function changed its first argument. Return the result, or the argument if the result is None."""
        if not args:
            return result
        # If its ops were recorded, they have noted the change already.
        if not (has_inner_events and self.session.records_ops):
            self.session.values.mark_all_changed(args[0])
        for tell in self.session.on_write:
            tell(args[0])
        if result is None:
            return args[0]
        return result


class RecordingMode(TorchFunctionMode):
    """The base class of our function modes. Each session has one mode, which is on the stacks of all its threads."""

    session: Session


def make_mode(table: FunctionTable) -> RecordingMode:
    """Make a function mode that records into the logs of the table's session."""
    handler = _make_handler(table)
    engine = table.session.engine
    if engine is None:
        mode: Any = type("RecordingMode", (RecordingMode,), {"__torch_function__": handler})()
    else:
        mode = _compiled_mode()()
        mode.set_up(engine, table, handler, FunctionTable.changed, table.session.on_write)
    mode.session = table.session
    return mode


@cache
def _compiled_mode() -> type[RecordingMode]:
    """Return the mode class whose handler is in C. Make it only once, since that takes as long as thirty events."""
    return type("RecordingMode", (fast.extension.FunctionMode, RecordingMode), {})


def _traits_of(func: Any, sensitive: Any, records_ops: bool) -> FunctionTraits:
    if not is_event(func):
        kind = FORGETS if changes_metadata(func) else SKIPPED
        return FunctionTraits(kind, None, None, b"")
    if changes_its_input(func):
        kind = CHANGES
    elif func.__name__ in SHARING:
        kind = CONVERTS
    else:
        kind = PLAIN
    row = function_bytes(func, records_ops)
    if func in sensitive:
        return FunctionTraits(kind, None, modes.without_ops(func), row)
    return FunctionTraits(kind, inner_copy(func), None, row)


def _original_of(func: Any, frame: FrameType | None) -> Any:
    """Return torch's function if ``func`` is a wrapper that the program has installed in its place, else ``func``.

    Without this, the wrapper would run twice. ``frame`` is the frame of the caller. If torch's function is written in
    Python, it has called the handler itself, so the caller's frame has its code.
    """
    if type(func) in _TORCHS_KINDS:
        return func
    while frame is not None and (frame.f_code is HANDLER or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    if frame is not None and origin_of(frame.f_code.co_filename) == "torch":
        code = frame.f_code
        held_in_module = frame.f_globals.get(code.co_name)
        is_installed = func is held_in_module or func is vars(Tensor).get(code.co_name)
        if not is_installed or getattr(func, "__code__", None) is code or code.co_freevars:
            return func
        # The copy needs no defaults, because the function has passed all its arguments to the handler.
        return FunctionType(code, frame.f_globals, code.co_name)
    names = [name for name, held in vars(Tensor).items() if held is func]
    if names:
        return getattr(private.TensorBase, names[0], func)
    return func


def _is_copy_of(copy: Any, func: Any) -> bool:
    """Return whether a listening copy is up to date, because a program may change a function's code or defaults."""
    return copy is None or (
        copy.__code__ is func.__code__
        and copy.__defaults__ is func.__defaults__
        and copy.__kwdefaults__ is func.__kwdefaults__
    )


def _make_handler(table: FunctionTable) -> Handler:
    """Make the handler, which is the hot path of this probe. docs/how-it-works.md gives the reason for each step."""
    session = table.session
    adopt = table.session.adopt
    open_event = session.open_event
    close_event = session.close_event
    fail_event = session.fail_event
    open_unseen = without_modes(open_event)
    close_unseen = without_modes(close_event)

    def __torch_function__(
        self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        try:
            number, listening_copy, replacement, on_return = table[func]
        except TypeError:  # a callable of the program that cannot be hashed
            number, listening_copy, replacement, on_return = _NO_EVENT
        call = replacement or func
        log = LOGS.get(get_ident()) or adopt()
        if number < 0 or log is None or not log.on:
            if number == FORGETS or not session.running or LEAVING:
                table.on_unrecorded_call(number, args)
            return call(*args, **(kwargs or {}))
        if log.steps:
            session.heal_steps(log, _frame().f_back)
        parent = log.parent
        anchor = log.anchor
        base = log.base
        other_modes = _modes()
        try:
            event = (open_unseen if other_modes else open_event)(
                log, number, _frame().f_back, args, kwargs
            )
            if listening_copy is not None and (
                other_modes
                or types not in _PLAIN
                or (parent >= 0 and log.word(parent, WHAT) == number)
            ):
                listening_copy = None
            if event >= 0 and (listening_copy is not None or session.records_ops):
                log.anchor = id(_frame())
                if log.at == event + 1:
                    log.base = log.stack
                else:  # a signal handler of the program has run since, and was recorded
                    log.base = log.word(event, STACK)
        except BaseException as fault:
            log.parent = parent
            log.anchor = anchor
            log.base = base
            session.forgive(fault)
            event = NONE
        if event < 0:
            return table.call_unrecorded(log, call, args, kwargs)
        try:
            if listening_copy is None:
                if kwargs:
                    result = call(*args, **kwargs)
                else:
                    result = call(*args)
            else:
                _push(self)
                if kwargs:
                    result = listening_copy(*args, **kwargs)
                else:
                    result = listening_copy(*args)
                _pop()
        except BaseException as error:
            modes.finish_pops(error)  # a signal may have interrupted torch while it switched modes
            while _modes() > other_modes:
                _pop()
            log.parent = parent
            log.anchor = anchor
            log.base = base
            fail_event(log, event, error)
            # The traceback keeps this frame, which must not keep the tensors alive.
            args = kwargs = None
            raise
        log.parent = parent
        log.anchor = anchor
        log.base = base
        try:
            shown = result
            if on_return is not None:
                shown = on_return(args, result, log.at > event + 1)
            (close_unseen if other_modes else close_event)(log, event, shown)
            if log.branched or (kwargs and "out" in kwargs):
                table.after_return(log, result, kwargs)
        except BaseException as fault:
            session.forgive(fault)
        return result

    return __torch_function__


def without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that the program's modes do not see that it reads tensors."""

    def unseen(*args: Any) -> Any:
        with _no_modes():
            return function(*args)

    return unseen


# ---------------------------------------------------------------- listening copies

# To record the calls inside a torch function that is written in Python, the handler calls a copy of it while our mode
# is on. The copy must not check for overrides again, since that would lead back to the handler.

CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no(*_: Any) -> bool:
    return False


_globals: dict[int, dict[str, Any]] = {}
"""The globals of listening copies, keyed by ``id`` of the original module's globals, which torch never frees."""


def _answering_globals(original: dict[str, Any]) -> dict[str, Any]:
    found = _globals.get(id(original))
    if found is None:
        # Each module gets its own class, so that `__missing__` is a C method of the real globals: no Python call.
        cls = type("AnsweringGlobals", (dict,), {"__missing__": original.__getitem__})
        found = cls(dict.fromkeys(CHECKS, _no), __builtins__=original.get("__builtins__", builtins))
        _globals[id(original)] = found
    return found


def inner_copy(func: Any) -> Callable[..., Any] | None:
    """Return a copy of a Python torch function that skips the function's override check, or None if that is impossible.

    Without a copy, a call is a single event. Two kinds of functions have no copy. A function without a check
    (``boolean_dispatch``, ``meshgrid``) calls a function that checks, which would report the same name again. A
    function that checks through the module ``torch.overrides`` (``nn.init``) does not look up the check in its own
    globals, but the copy differs only in its globals.
    """
    if type(func) is not FunctionType or func.__name__ in LEAVES:
        return None
    if not any(name in func.__code__.co_names and name in func.__globals__ for name in CHECKS):
        return None
    if not (getattr(func, "__module__", None) or "").startswith("torch"):
        return None  # a function of the program, whose globals may change
    copy = FunctionType(
        func.__code__,
        _answering_globals(func.__globals__),
        func.__name__,
        func.__defaults__,
        func.__closure__,
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy
