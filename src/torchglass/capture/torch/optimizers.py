"""Optimizer steps as events: no torch function announces them, the optimizers' global hooks do."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any

from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from torchglass.capture.engine.log import LOGS, OpenStep, ThreadLog
from torchglass.capture.session import STEP
from torchglass.capture.statistics.updates import MOST_UPDATES, TOO_MANY, Updates
from torchglass.capture.torch import private
from torchglass.journal.layout import STACK

__tracebackhide__ = True  # pytest leaves our frames out of its reports


class StepHooks:
    """Installed and removed like a patch."""

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def install(self) -> None:
        self.handles = [
            register_optimizer_step_pre_hook(_before),
            register_optimizer_step_post_hook(_after),
        ]

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def _log_of_this_thread() -> ThreadLog | None:
    log = LOGS.get(get_ident())
    return log if log is not None and log.on and log.session.records_modules else None


def _held(optimizer: Optimizer) -> list[Any]:
    """The parameters that it may change, each once."""
    found = {id(each): each for group in optimizer.param_groups for each in group["params"]}
    return [each for each in found.values() if isinstance(each, Tensor) and each.requires_grad]


def _arguments(log: ThreadLog, held: list[Any]) -> dict[str, Any]:
    """What a step reads: each parameter under its name, and behind it the gradient, if it has one."""
    named: dict[str, Any] = {}
    for name, parameter in zip(log.session.parameters.names(held), held, strict=True):
        named[name] = parameter
        grad = parameter.grad if parameter.is_leaf else None
        if grad is not None:
            named[f"{name}.grad"] = grad
    return named


def _before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    log = _log_of_this_thread()
    if log is None:
        return
    try:
        stepper = sys._getframe(1)  # the optimizer's wrapper, alive until the step ends
        if log.steps:
            log.session.heal_steps(log, stepper.f_back)
        before = (log.parent, log.anchor, log.base)
        what = log.session.what(STEP, type(optimizer).__name__)
        with private.no_functions():
            held = _held(optimizer)
            at = log.session.open_event(log, what, stepper.f_back, (), _arguments(log, held))
            updates = Updates(held) if at >= 0 and log.session.measurer is not None else None
            if updates is not None and len(held) > MOST_UPDATES:
                log.session.note(TOO_MANY.format(most=MOST_UPDATES, count=len(held)))
        if at >= 0:
            log.steps.append(OpenStep(at, before, id(stepper), stepper.f_code, updates))
            log.anchor, log.base = id(stepper), log.word(at, STACK)
    except BaseException as fault:
        log.session.forgive(fault)


def _after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    log = _log_of_this_thread()
    if log is None or not log.steps or log.steps[-1].at != log.parent:
        return
    try:
        step = log.steps.pop()
        log.parent, log.anchor, log.base = step.before
        with private.no_functions():
            log.session.close_event(log, step.at, None if step.updates is None else step.updates.differences())
    except BaseException as fault:
        log.session.forgive(fault)
