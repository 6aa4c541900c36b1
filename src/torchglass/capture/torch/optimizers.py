"""Records optimizer steps, with the global hooks of ``torch.optim``, because no mode sees a step as a whole."""

from __future__ import annotations

import sys
from typing import Any

import torch.optim.optimizer as registry
from torch import Tensor
from torch.optim import Optimizer

from torchglass.capture.engine.log import LOGS, OpenStep, ThreadLog
from torchglass.capture.session import STEP
from torchglass.capture.statistics.updates import MOST_UPDATES, TOO_MANY, Updates
from torchglass.capture.torch import private
from torchglass.capture.transparency.features import Feature
from torchglass.journal.layout import STACK
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports


STEPS = "the steps of optimizers"


def features() -> list[Feature]:
    """Return the features to install: the hooks."""
    return [Feature("hooks of torch.optim.Optimizer", STEPS, StepHooks)]


class StepHooks:
    """Installs and removes the two hooks of optimizer steps."""

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def install(self) -> None:
        self.handles.append(registry.register_optimizer_step_pre_hook(_before))
        self.handles.append(registry.register_optimizer_step_post_hook(_after))

    def remove(self) -> None:
        while self.handles:
            self.handles.pop().remove()


def _log_of_this_thread() -> ThreadLog | None:
    log = LOGS.get(get_ident())
    if log is not None and log.on and log.session.records_modules:
        return log
    return None


def _held(optimizer: Optimizer) -> list[Any]:
    """Return the parameters that an optimizer may change, each once."""
    found = {id(each): each for group in optimizer.param_groups for each in group["params"]}
    return [each for each in found.values() if isinstance(each, Tensor) and each.requires_grad]


def _arguments(log: ThreadLog, held: list[Any]) -> dict[str, Any]:
    """Return the tensors that a step reads: each parameter under its name, followed by its gradient if it has one."""
    named: dict[str, Any] = {}
    for name, parameter in zip(log.session.parameters.names(held), held, strict=True):
        named[name] = parameter
        grad = None
        if parameter.is_leaf:
            grad = parameter.grad
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
            updates = None
            if at >= 0 and log.session.measurer is not None:
                updates = Updates(held)
            if updates is not None and len(held) > MOST_UPDATES:
                log.session.note(TOO_MANY.format(most=MOST_UPDATES, count=len(held)))
        if at >= 0:
            log.steps.append(OpenStep(at, before, id(stepper), stepper.f_code, updates))
            log.base = log.word(at, STACK)
            log.anchor = id(stepper)
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
            log.session.close_event(
                log, step.at, None if step.updates is None else step.updates.differences()
            )
    except BaseException as fault:
        log.session.forgive(fault)
