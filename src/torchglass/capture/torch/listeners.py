"""All that listens to torch, put up and taken down together; imported only where torch is installed."""

from __future__ import annotations

import ast
import dis
import sys
import warnings
from collections.abc import Callable
from functools import cache
from threading import get_ident
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.utils import dlpack

from torchglass.capture.engine import fast
from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.session import Session
from torchglass.capture.statistics.measurer import Measurer
from torchglass.capture.torch import conversions, functions, guards, modules, optimizers, private
from torchglass.capture.torch.functions import FunctionTable, RecordingMode, make_mode
from torchglass.capture.torch.modules import add_uncalled as add_uncalled
from torchglass.capture.torch.modules import read_all_settings as read_all_settings
from torchglass.capture.torch.ops import make_op_mode
from torchglass.capture.transparency import compiled, modes
from torchglass.capture.transparency.modes import FUNCTION_MODES, OP_MODES, OpMode, compiled_op_mode
from torchglass.capture.transparency.modes import finish_pops as finish_pops
from torchglass.capture.transparency.patches import Patch, Patches, PatchSet
from torchglass.capture.transparency.warnings import WarningPlaces

_warn = warnings.warn


def patches() -> list[Any]:
    """What is replaced in torch while anything records; each looks for itself what stands there when it is put up."""
    return _patches(fast.is_used())


@cache
def _patches(is_compiled: bool) -> list[Any]:
    wanted = [
        Patch(torch.overrides, "has_torch_function", modes.make_has_torch_function),
        Patch(torch.jit.ScriptFunction, "__call__", guards.make_script_call),
        Patch(torch.utils, "swap_tensors", guards.make_swap_tensors),
        Patch(torch.autograd.Function, "apply", guards.make_apply),
        Patch(torch.autograd, "_engine_run_backward", guards.make_run_backward),
        *(Patch(torch, name, conversions.make_conversion) for name in ("from_numpy", "frombuffer", "from_dlpack")),
        Patch(dlpack, "from_dlpack", conversions.make_conversion),
        Patch(private.jit_trace, "_trace_impl", guards.make_jit_trace),
        Patch(private.jit_trace, "trace_module", guards.make_jit_trace),
    ]
    calls = Patches(Patch(nn.Module, "__call__", modules.make_call))
    first = _for_compiled(calls) if is_compiled else [calls]
    return [*first, Patches(*wanted), optimizers.StepHooks(), WarningPlaces()]


def _for_compiled(calls: Patches) -> list[Any]:
    """What is replaced for the compiled engine: the way to function modes, and the inside of module calls.

    Warnings are counted past the frames of functions that we call a second time.
    """
    handler, handle, warn = "handle_torch_function", fast.extension.handle_torch_function, fast.extension.warn
    asking = [Patch(each, handler, lambda _: handle, private.handle_torch_function) for each in _asking()]
    made: list[Any] = [
        Patches(*asking, Patch(warnings, "warn", lambda _: warn, _warn)),
        ModuleCalls(private.wrapped_call, calls) if _can_be_exchanged(private.wrapped_call) else calls,
    ]
    if _asks_for_rules(private.find_dispatch_rule):
        made.append(CodeSwap(private.find_dispatch_rule, _finding_code))
    made.append(_LookUps())
    return made


class _LookUps:
    """Torch looks its own functions up by letters, for each call: C knows them."""

    def install(self) -> None:
        fast.extension.answer_torch(True)

    def remove(self) -> None:
        fast.extension.answer_torch(False)


def _asking() -> list[Any]:
    """The modules whose functions find ``handle_torch_function`` among their own names."""
    names = ("torch.nn.functional", "torch.functional", "torch._tensor")
    return [sys.modules[name] for name in names if name in sys.modules]


@cache
def compile_door(others: PatchSet) -> Any:
    """Steps aside, and takes the other patches down, while compiled code runs."""
    return compiled.CompileDoor(others)


def prepare(session: Session) -> None:
    """Make the modes that the session needs now; sweep away what an earlier one left in this thread."""
    FUNCTION_MODES.drop(lambda mode: isinstance(mode, RecordingMode) and not mode.session.running)
    OP_MODES.drop(lambda mode: isinstance(mode, OpMode) and not mode.session.running)
    session.enter_thread, session.leave_thread = listen, leave
    if session.engine is not None:
        session.engine.ask({**modules.answers(session), **functions.answers(session), "finish_pops": finish_pops})
    for note in private.missing_notes():
        session.note(note)
    if session.function_mode is None and session.records_functions and private.has(private.FUNCTIONS):
        session.function_mode = make_mode(FunctionTable(session))
    if session.op_mode is None and session.records_ops and private.has(private.OPS):
        session.op_mode = make_op_mode(session)


def measure(session: Session) -> None:
    """Measure what is in the values as long as a recording asks for it."""
    wanted = [each for each in session.recorders if each.options.measures]
    measurer = session.measurer
    if measurer is None:
        if not wanted:
            return
        measurer = session.measurer = Measurer(session)
    measurer.choose(session.recorders)
    session.measure_with(measurer if wanted else None)
    if not wanted:
        measurer.finish()
        session.measurers.append(measurer)


def listen(log: ThreadLog) -> None:
    """Put the modes that the session needs on the calling thread's stacks, unless they are there."""
    session = log.session
    if session.function_mode is not None and not log.has_mode:
        FUNCTION_MODES.push(session.function_mode)
        log.has_mode = True
    if session.op_mode is not None and session.records_ops and not log.has_op_mode:
        OP_MODES.push(session.op_mode)
        log.has_op_mode = True


def leave(log: ThreadLog) -> None:
    """The calling thread ends: its modes die with it, as the stacks are the thread's own."""
    FUNCTION_MODES.take(log.session.function_mode)
    OP_MODES.take(log.session.op_mode)


def let_go(log: ThreadLog) -> None:
    """Take off what the calling thread's log no longer needs; a mode goes off in its own thread only."""
    session = log.session
    if log.ident != get_ident():
        return
    if not log.on:
        FUNCTION_MODES.drop(lambda mode: mode is session.function_mode)
    if log.has_op_mode and not (log.on and session.records_ops):
        OP_MODES.drop(lambda mode: mode is session.op_mode)
        log.has_op_mode = False


# ---------------------------------------------------------------- the code of module calls


class CodeSwap:
    """Another code for one function, put in and taken out like a patch.

    Setting ``nn.Module.__call__`` makes Python look at each of its hundreds of subclasses, which takes 0.3 ms. Giving
    the function that stands there another code does not, and leaves its frame in tracebacks, with its name and line.
    """

    def __init__(self, function: FunctionType, make: Callable[[CodeType], CodeType]) -> None:
        self.function = function
        self.original = function.__code__
        """Any other that the program has set since stays, and does what it does."""
        self._replacement = make(self.original)

    def install(self) -> None:
        if self.function.__code__ is self.original:
            self.function.__code__ = self._replacement

    def remove(self) -> None:
        if self.function.__code__ is self._replacement:
            self.function.__code__ = self.original


class ModuleCalls(CodeSwap):
    """The code of ``nn.Module.__call__``; what the program has put there instead is replaced as a whole."""

    def __init__(self, function: FunctionType, others: Patches) -> None:
        super().__init__(function, _calling_code)
        self._others = others

    def install(self) -> None:
        if nn.Module.__call__ is self.function and self.function.__code__ is self.original:
            super().install()
        else:
            self._others.install()

    def remove(self) -> None:
        super().remove()
        self._others.remove()


def _calling_code(original: CodeType) -> CodeType:
    """Code that hands its arguments to C, and says that it is the original, at the place of its plain call."""
    place = _place_of(original)
    assert place is not None
    tree = ast.parse("def f(self, *args, **kwargs):\n call = 'call'; return call(self, args, kwargs)")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.lineno, node.end_lineno = original.co_firstlineno, place[1]
        elif isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = place
    module = compile(tree, original.co_filename, "exec")
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    constants = tuple(fast.extension.module_call if each == "call" else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_name=original.co_name, co_qualname=original.co_qualname)


def _asks_for_rules(function: Any) -> bool:
    """Whether torch's way to a dispatch mode leads through a function of this kind."""
    return (
        type(function) is FunctionType
        and not function.__code__.co_freevars
        and function.__code__.co_varnames[: function.__code__.co_argcount] == ("op", "torch_dispatch_class")
    )


def _finding_code(original: CodeType) -> CodeType:
    """Code that knows that nobody has written a rule for our mode, and asks the original about all others."""
    module = compile(
        "def f(op, torch_dispatch_class):\n ours = 'ours'; find = 'find'\n"
        " return None if torch_dispatch_class is ours else find(op, torch_dispatch_class)",
        original.co_filename,
        "exec",
    )
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    found = {"ours": compiled_op_mode(), "find": FunctionType(original, private.find_dispatch_rule.__globals__)}
    constants = tuple(found.get(each, each) if isinstance(each, str) else each for each in code.co_consts)
    return code.replace(
        co_consts=constants, co_name=original.co_name, co_qualname=original.co_qualname,
        co_firstlineno=original.co_firstlineno,
    )  # fmt: skip


def _can_be_exchanged(function: Any) -> bool:
    if type(function) is not FunctionType or function.__code__.co_freevars:
        return False
    return _place_of(function.__code__) is not None


def _place_of(code: CodeType) -> tuple[int, int, int, int] | None:
    """Where torch's own code calls ``_call_impl``; None where it does not, or takes other arguments."""
    if code.co_varnames[:3] != ("self", "args", "kwargs"):
        return None
    is_named = False
    for each in dis.get_instructions(code):
        is_named |= each.argval == "_call_impl"
        if is_named and each.opname == "CALL_FUNCTION_EX" and each.positions is not None:
            at = each.positions
            found = (at.lineno, at.end_lineno, at.col_offset, at.end_col_offset)
            return None if None in found else found  # type: ignore[return-value]
    return None
