"""The calls probe: records each call of one of the program's functions as an event, with arguments and result.

``sys.monitoring`` reports the calls from Python 3.12 on (``monitoring.py``), ``sys.setprofile`` before that
(``profiling.py``). Generators and coroutines are left out: other code runs while they are suspended, so their events
would not nest. Views reconstruct their calls from the recorded stacks, as they do for all calls without this probe.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.milestones import RESUMED
from torchglass.capture.session import CALL, Session
from torchglass.capture.slots import UNBOUND, content, slot, slots_of
from torchglass.capture.torch.names import CALL_IMPL, no_functions
from torchglass.journal.layout import STACK
from torchglass.source.origins import origin_of
from torchglass.system import get_ident

USER = "user"
IS_FUNCTION = 0x1 | 0x2
"""The flags CO_OPTIMIZED and CO_NEWLOCALS, which functions have, and bodies of modules and classes do not."""
VARARGS, VARKEYWORDS = 0x4, 0x8
INSTALLED = ("/site-packages/", "/dist-packages/")
_INLINE = frozenset(["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"])
_UNKNOWN: Any = object()


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How to record the calls of a function."""

    code: CodeType
    """The code of the function; kept alive, because tables identify it by its ``id``."""
    what: int
    arguments: tuple[tuple[int, str], ...]
    """The slot and the name of each argument, in the order in which the function declares them."""
    is_forward: bool


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that is running: its record, its frame, and the state of the log to restore at its end."""

    at: int
    before: tuple[int, int, int]
    """The parent, anchor and base of the log before the call."""
    frame_id: int
    code: CodeType


class CallsProbe:
    """Writes the events of calls for one session."""

    def __init__(self, session: Session, packages: tuple[str, ...]) -> None:
        self.session = session
        self.packages = packages
        self.plans: dict[int, CallPlan | None] = {}
        """The plan for each function, or None if its calls are not recorded, keyed by the ``id`` of its code."""
        self._kept: list[CodeType] = []
        self._open: dict[int, list[OpenCall]] = {}
        """The running calls of each thread, outermost first."""

    def forget(self) -> None:
        """Forget all open calls."""
        self._open.clear()

    # ------------------------------------------------------------ which calls

    def is_meant(self, frame: FrameType) -> bool:
        """Return whether the calls of a function are recorded."""
        try:
            return self.plan_for(frame) is not None
        except BaseException as fault:
            self.session.forgive(fault)
            return False

    def plan_for(self, frame: FrameType) -> CallPlan | None:
        """Return how to record the calls of a function, or None if they are not recorded."""
        code = frame.f_code
        plan = self.plans.get(id(code), _UNKNOWN)
        if plan is _UNKNOWN:
            plan = None
            if self._is_chosen(frame, code):
                plan = self._plan(code)
            self._kept.append(code)
            self.plans[id(code)] = plan
        return plan

    def _is_chosen(self, frame: FrameType, code: CodeType) -> bool:
        if (
            code.co_flags & IS_FUNCTION != IS_FUNCTION
            or code.co_flags & RESUMED
            or code.co_name in _INLINE
        ):
            return False
        module: Any = frame.f_globals.get("__name__")
        if isinstance(module, str) and any(
            module == name or module.startswith(f"{name}.") for name in self.packages
        ):
            return True
        path = code.co_filename.replace("\\", "/")
        return (
            USER in self.packages
            and origin_of(path) == "user"
            and not any(each in path for each in INSTALLED)
        )

    def _plan(self, code: CodeType) -> CallPlan:
        plain = code.co_argcount
        named = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & VARARGS:
            rest = [named]
        else:
            rest = []
        if code.co_flags & VARKEYWORDS:
            others = [named + len(rest)]
        else:
            others = []
        order = [*range(plain), *rest, *range(plain, named), *others]
        arguments = tuple((at, code.co_varnames[at]) for at in order)
        return CallPlan(
            code, self.session.what(CALL, code.co_qualname), arguments, code.co_name == "forward"
        )

    # ------------------------------------------------------------ what happens

    def begin(self, frame: FrameType) -> None:
        """Record that a call begins."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or log.session is not self.session:
            return
        plan = self.plan_for(frame)
        caller = frame.f_back
        if plan is None or (plan.is_forward and caller is not None and caller.f_code is CALL_IMPL):
            return  # the event of the module holds the same
        before = (log.parent, log.anchor, log.base)
        try:
            self._open_call(log, plan, frame, before)
        except BaseException as fault:
            log.parent, log.anchor, log.base = before
            self.session.forgive(fault)

    def _open_call(
        self, log: ThreadLog, plan: CallPlan, frame: FrameType, before: tuple[int, int, int]
    ) -> None:
        session, caller = self.session, frame.f_back
        if log.steps:
            session.heal_steps(log, caller)
        with no_functions():
            at = session.open_event(log, plan.what, caller, (), _arguments(frame, plan))
        if at < 0:
            return
        if caller is not None:
            log.anchor, log.base = (
                id(caller),
                log.stack if log.at == at + 1 else log.word(at, STACK),
            )
        self._open.setdefault(log.ident, []).append(OpenCall(at, before, id(frame), plan.code))

    def end(self, frame: FrameType, result: Any) -> None:
        """Record that a call returns."""
        call = self._ended(frame)
        log = LOGS.get(get_ident())
        if call is None or log is None:
            return
        log.parent, log.anchor, log.base = call.before
        try:
            with no_functions():
                self.session.close_event(log, call.at, result)
        except BaseException as fault:
            self.session.forgive(fault)

    def fail(self, frame: FrameType, error: BaseException | None) -> None:
        """Record that an exception leaves a call; None means that the exception is not known."""
        call = self._ended(frame)
        log = LOGS.get(get_ident())
        if call is None or log is None:
            return
        log.parent, log.anchor, log.base = call.before
        if error is not None:
            self.session.fail_event(log, call.at, error)
        else:
            self.session.left_event(log, call.at)

    def _ended(self, frame: FrameType) -> OpenCall | None:
        """Remove and return the running call of a frame, or None.

        Calls inside it whose end was not reported have ended too, and are also removed.
        """
        calls = self._open.get(get_ident(), [])
        for index in range(len(calls) - 1, -1, -1):
            if calls[index].frame_id == id(frame) and calls[index].code is frame.f_code:
                found = calls[index]
                del calls[index:]
                return found
        return None


def _arguments(frame: FrameType, plan: CallPlan) -> dict[str, Any]:
    """Return the arguments of a call by name; {} if they cannot be read without side effects."""
    slots = None
    if plan.arguments:
        slots = slots_of(frame, len(plan.arguments))
    if slots is None:
        return {}
    found = {name: content(slot(slots, at)) for at, name in plan.arguments}
    return {name: value for name, value in found.items() if value is not UNBOUND}
