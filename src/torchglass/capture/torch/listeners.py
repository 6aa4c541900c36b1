"""Lists and installs everything that listens to torch. This module is imported only if torch is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import nn

from torchglass.capture.engine import fast
from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.session import Session
from torchglass.capture.statistics.measurer import Measurer
from torchglass.capture.torch import guards, modules, private
from torchglass.capture.torch.code_swap import (
    CodeSwap,
    ModuleCalls,
    can_be_swapped,
    finds_rules,
    skip_our_mode,
)
from torchglass.capture.torch.functions import FunctionTable, RecordingMode, make_mode
from torchglass.capture.torch.modules import add_uncalled as add_uncalled
from torchglass.capture.torch.modules import read_all_settings as read_all_settings
from torchglass.capture.torch.ops import make_op_mode
from torchglass.capture.transparency import compiled, modes
from torchglass.capture.transparency.features import Feature, attempt, replaced
from torchglass.capture.transparency.modes import (
    FUNCTION_MODES,
    OP_MODES,
    ModeStack,
    OpMode,
)
from torchglass.capture.transparency.modes import finish_pops as finish_pops
from torchglass.capture.transparency.patches import Patch, PatchGroup, SharedFeatures
from torchglass.capture.transparency.warnings import WarningPlaces
from torchglass.system import get_ident

_warn = getattr(warnings, "warn", None)


PROBES = ("conversions", "optimizers")
"""The files of this folder that define ``features()``, which returns hooks and replaced names to install."""

# What is lost if a feature fails: "torchglass could not install …, which it needs for …" (``features.PROBLEM``).
FUSED = "torch functions and ops: without it any mode would take fused attention another way"
SWAPPED = "that torch.utils.swap_tensors works on tensors it has met"
FORWARD_NODES = (
    "calls of torch.autograd.Function, and which of them an event of backward belongs to"
)
PLACES = "that warnings of torch come from the line of the program"
MEASURER = "the measurer"
FUNCTION_MODE = "a function mode"
OP_MODE = "a dispatch mode"
SHORTER = "the short way from torch to its function modes; without it recording takes longer"
STATISTICS = "what is in the values"


_KEEPS_FUSED = replaced("torch.overrides.has_torch_function", FUSED, modes.make_has_torch_function)
_SWAPS = replaced("torch.utils.swap_tensors", SWAPPED, guards.make_swap_tensors)


def patches() -> list[Any]:
    """Return everything to install in torch while a recording runs, each as a separate feature."""
    return _features(fast.make_ready())


@cache
def _features(is_compiled: bool) -> list[Feature]:
    return [
        *(_of_compiled() if is_compiled else ()),
        Feature(
            "torch.nn.Module.__call__",
            private.MODULES,
            _compiled_calls if is_compiled else _plain_calls,
        ),
        _KEEPS_FUSED,
        replaced("torch.jit.ScriptFunction.__call__", private.SCRIPTED, guards.make_script_call),
        _SWAPS,
        replaced("torch.autograd.Function.apply", FORWARD_NODES, guards.make_apply),
        replaced("torch.autograd._engine_run_backward", private.BACKWARD, guards.make_run_backward),
        replaced("torch.jit._trace._trace_impl", private.TRACING, guards.make_jit_trace),
        replaced("torch.jit._trace.trace_module", private.TRACING, guards.make_jit_trace),
        replaced(
            "torch.jit._trace.ONNXTracedModule.forward", private.TRACING, guards.make_jit_trace
        ),
        *_of_probes(),
        Feature("a filter of warnings", PLACES, WarningPlaces),
    ]


def _of_probes() -> list[Feature]:
    """Return the features of the probes that have their own files (``PROBES``)."""
    found: list[Feature] = []
    for name in PROBES:
        probe = import_module(f"torchglass.capture.torch.{name}")
        found += probe.features()
    return found


def _of_compiled() -> list[Feature]:
    """Return the features of the compiled engine: shorter calls of function modes and dispatch modes.

    The replacement of ``warnings.warn`` skips the frames of functions that we call a second time when it counts the
    stack level of a warning.
    """

    def handle(_: Any) -> Any:
        return fast.extension.handle_torch_function

    original = private.handle_torch_function
    return [
        replaced("torch.nn.functional.handle_torch_function", SHORTER, handle, original),
        replaced("torch.functional.handle_torch_function", SHORTER, handle, original),
        replaced("torch._tensor.handle_torch_function", SHORTER, handle, original),
        replaced("warnings.warn", PLACES, lambda _: fast.extension.warn, _warn),
        Feature("find_torch_dispatch_rule", SHORTER, _skip_rules),
    ]


def _plain_calls() -> Patch:
    return Patch(nn.Module, "__call__", modules.make_call)


def _compiled_calls() -> Any:
    """Return a replacement for module calls in C, or a Python wrapper around them if that is impossible."""
    if can_be_swapped(private.wrapped_call):
        return ModuleCalls(private.wrapped_call, _plain_calls())
    return _plain_calls()


def _skip_rules() -> Any:
    """Return a replacement for the code that finds the rule of an op and a mode: our modes have no rules."""
    if finds_rules(private.find_dispatch_rule):
        return CodeSwap(private.find_dispatch_rule, skip_our_mode)
    return PatchGroup()  # this torch does not call such a function


@cache
def compile_door(features: SharedFeatures) -> Feature:
    """Return the feature that removes our modes and all other features while compiled code runs."""
    return Feature(compiled.DOOR, private.COMPILED, lambda: compiled.CompileDoor(features))


def attach(session: Session) -> None:
    """Give a new session the functions that it calls here, and the compiled engine the Python functions it calls."""
    session.enter_thread = listen
    session.leave_thread = leave
    if session.engine is not None:
        session.engine.ask({**modules.answers(session), "finish_pops": finish_pops})


def _sweep_function_modes() -> None:
    FUNCTION_MODES.drop(lambda mode: isinstance(mode, RecordingMode) and not mode.session.running)


def _sweep_op_modes() -> None:
    OP_MODES.drop(lambda mode: isinstance(mode, OpMode) and not mode.session.running)


def prepare(session: Session) -> None:
    """Remove the modes that an earlier recording left in this thread, and make the modes that the session needs."""
    sweep(session.note)
    for note in private.missing_notes():
        session.note(note)
    if _SWAPS.problem is not None and callable(getattr(torch.utils, "swap_tensors", None)):
        raise RuntimeError(_SWAPS.problem)  # our weak references would make `swap_tensors` fail
    if _KEEPS_FUSED.problem is not None and session.fused == "keep":
        return  # any mode of ours would switch fused attention off, and the user wants it kept
    if (
        session.function_mode is None
        and session.records_functions
        and private.has(private.FUNCTIONS)
    ):
        session.function_mode = attempt(
            session.note,
            FUNCTION_MODE,
            private.FUNCTIONS,
            lambda: make_mode(FunctionTable(session)),
        )
    if session.op_mode is None and session.records_ops and private.has(private.OPS):
        session.op_mode = attempt(session.note, OP_MODE, private.OPS, lambda: make_op_mode(session))


def sweep(note: Callable[[str], None] = lambda _: None) -> None:
    """Remove the modes that an earlier recording left in this thread because it ended in another thread."""
    attempt(note, FUNCTION_MODE, private.FUNCTIONS, _sweep_function_modes)
    attempt(note, OP_MODE, private.OPS, _sweep_op_modes)


def measure(session: Session) -> None:
    """Start or stop measuring values, depending on whether any recording of the session wants it."""
    wanted = [each for each in session.recorders if each.options.measures]
    measurer = session.measurer
    if measurer is None:
        if not wanted:
            return
        measurer = attempt(session.note, MEASURER, STATISTICS, lambda: Measurer(session))
        if measurer is None:
            return
    is_chosen = attempt(
        session.note, MEASURER, STATISTICS, lambda: _choose(session, measurer, bool(wanted))
    )
    if is_chosen is None or not wanted:
        session.measure_with(None)
    if not wanted:
        measurer.finish()
        session.measurers.append(measurer)


def _choose(session: Session, measurer: Measurer, is_wanted: bool) -> bool:
    """Choose what the recordings of a session want measured, and start measuring it if they want anything."""
    measurer.choose(session.recorders)
    session.measurer = measurer
    if is_wanted:
        session.measure_with(measurer)
    return True


def listen(log: ThreadLog) -> None:
    """Put the modes that the session needs on the calling thread's stacks, unless they are already there."""
    session = log.session
    if session.function_mode is not None and not log.has_mode:
        log.has_mode = _push(
            session, FUNCTION_MODES, session.function_mode, FUNCTION_MODE, private.FUNCTIONS
        )
    if session.op_mode is not None and session.records_ops and not log.has_op_mode:
        if private.get_tracing_state() is not None:
            session.note(guards.TRACED)
            return
        log.has_op_mode = _push(session, OP_MODES, session.op_mode, OP_MODE, private.OPS)


def _push(session: Session, stack: ModeStack, mode: Any, name: str, needed_for: str) -> bool:
    """Put a mode on one of the calling thread's stacks, and return whether that worked."""

    def push() -> bool:
        before = stack.count()
        stack.push(mode)
        if stack.count() != before + 1:
            raise RuntimeError("it is not on the stack that it was put on")
        return True

    return attempt(session.note, name, needed_for, push) is not None


def leave(log: ThreadLog) -> None:
    """Remove our modes from the stacks of a thread that ends."""
    FUNCTION_MODES.take(log.session.function_mode)
    OP_MODES.take(log.session.op_mode)


def release(log: ThreadLog) -> None:
    """Remove the modes that the log no longer needs, if it belongs to the calling thread.

    A thread can change only its own mode stacks.
    """
    session = log.session
    if log.ident != get_ident():
        return
    if not log.on:
        FUNCTION_MODES.drop(lambda mode: mode is session.function_mode)
    if log.has_op_mode and not (log.on and session.records_ops):
        OP_MODES.drop(lambda mode: mode is session.op_mode)
        log.has_op_mode = False
