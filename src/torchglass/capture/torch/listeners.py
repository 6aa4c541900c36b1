"""All that listens to torch, put up and taken down together; imported only where torch is installed."""

from __future__ import annotations

from functools import cache
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.utils import dlpack

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.session import Session
from torchglass.capture.statistics.measurer import Measurer
from torchglass.capture.torch import conversions, custom, guards, modules, optimizers, private
from torchglass.capture.torch.functions import FunctionTable, RecordingMode, make_mode
from torchglass.capture.torch.modules import add_uncalled as add_uncalled
from torchglass.capture.torch.modules import read_all_settings as read_all_settings
from torchglass.capture.torch.ops import make_op_mode
from torchglass.capture.transparency import compiled, mode_sensitive, swapped
from torchglass.capture.transparency.modes import FUNCTION_MODES, OP_MODES, OpMode
from torchglass.capture.transparency.modes import finish_pops as finish_pops
from torchglass.capture.transparency.patches import Patch, PatchSet
from torchglass.capture.transparency.warnings import WarningPlaces

_CALL = Patch(nn.Module, "__call__", modules.make_call)


@cache
def _wanted() -> list[Patch]:
    return [
        Patch(torch.overrides, "has_torch_function", mode_sensitive.make_has_torch_function),
        Patch(torch.jit.ScriptFunction, "__call__", custom.make_script_call),
        Patch(torch.utils, "swap_tensors", guards.make_swap_tensors),
        Patch(torch.autograd.Function, "apply", custom.make_apply),
        Patch(torch.autograd, "_engine_run_backward", guards.make_run_backward),
        *(Patch(torch, name, conversions.make_conversion) for name in ("from_numpy", "frombuffer", "from_dlpack")),
        Patch(dlpack, "from_dlpack", conversions.make_conversion),
        Patch(private.jit_trace, "_trace_impl", guards.make_jit_trace),
        Patch(private.jit_trace, "trace_module", guards.make_jit_trace),
    ]


def patches() -> list[Any]:
    """The names in torch that are replaced while anything records."""
    wanted = _wanted() if swapped.is_possible() else [_CALL, *_wanted()]
    there = [each for each in wanted if each.name in each.held]
    return [*swapped.patches(), *there, optimizers.StepHooks(), WarningPlaces()]


def compile_door(others: PatchSet) -> Any:
    """Steps aside, and takes the other patches down, while compiled code runs."""
    return compiled.CompileDoor(lambda: others)


def prepare(session: Session) -> None:
    """Make the modes that the session needs now; sweep away what an earlier one left in this thread."""
    FUNCTION_MODES.drop(lambda mode: isinstance(mode, RecordingMode) and not mode.session.running)
    OP_MODES.drop(lambda mode: isinstance(mode, OpMode) and not mode.session.running)
    session.enter_thread, session.leave_thread = listen, leave
    if session.engine is not None:
        session.engine.ask({**modules.answers(session), "finish_pops": finish_pops})
    for note in private.missing_notes():
        session.note(note)
    if session.function_mode is None and session.records_functions and private.has(private.FUNCTIONS):
        session.function_mode = make_mode(FunctionTable(session))
    if session.op_mode is None and session.records_ops and private.has(private.OPS):
        session.op_mode = make_op_mode(session)


def measure(session: Session) -> None:
    """Measure what is in the values as long as a recording asks for it."""
    wanted = any(each.options.values for each in session.recorders)
    if wanted and session.measurer is None:
        session.measurer = Measurer(session)
    measurer = session.measurer
    if measurer is not None:
        measurer.choose(session.recorders)
    session.measure_with(measurer if wanted else None)
    if measurer is not None and not wanted:
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
