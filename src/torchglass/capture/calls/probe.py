"""The calls probe: each call of a function of the program's own is an event, with what went in and what came out.

Which calls there are one of two tells it: ``sys.monitoring`` from Python 3.12 on (``monitoring.py``), before that
``sys.setprofile`` (``profiling.py``). Generators and coroutines are left alone: others run while they wait, so that
nothing is *inside* of them; views read them from the stacks, as they do all calls where none are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.milestones import RESUMED
from torchglass.capture.session import CALL, Session
from torchglass.capture.torch.names import CALL_IMPL, no_functions
from torchglass.capture.variables.frames import content, slot, slots_of
from torchglass.capture.variables.watch import UNBOUND
from torchglass.journal.layout import STACK
from torchglass.source.sites import origin_of

USER = "user"
IS_FUNCTION = 0x1 | 0x2
"""CO_OPTIMIZED, CO_NEWLOCALS: what the bodies of modules and classes do not have."""
VARARGS, VARKEYWORDS = 0x4, 0x8
INSTALLED = ("/site-packages/", "/dist-packages/")
_INLINE = frozenset(["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"])
_UNKNOWN: Any = object()


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What is known of a function whose calls are recorded."""

    code: CodeType
    """Kept, as long as it is known by its ``id``."""
    what: int
    arguments: tuple[tuple[int, str], ...]
    """The slots of its arguments, as they are written, and their names."""
    is_forward: bool


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call under way: its record, the state to go back to, and its frame."""

    at: int
    before: tuple[int, int, int]
    """The log's parent, anchor and base."""
    frame_id: int
    code: CodeType


class CallsProbe:
    """Writes the events; one for each session that asked for calls."""

    def __init__(self, session: Session, packages: tuple[str, ...]) -> None:
        self.session = session
        self.packages = packages
        self.plans: dict[int, CallPlan | None] = {}
        """By ``id`` of code, which is kept."""
        self._kept: list[CodeType] = []
        self._open: dict[int, list[OpenCall]] = {}
        """By thread."""

    def forget(self) -> None:
        """Nothing is told any more."""
        self._open.clear()

    # ------------------------------------------------------------ which calls

    def is_meant(self, frame: FrameType) -> bool:
        """Whether the calls of a function are recorded."""
        try:
            return self.plan_for(frame) is not None
        except BaseException as fault:
            self.session.forgive(fault)
            return False

    def plan_for(self, frame: FrameType) -> CallPlan | None:
        """What to do with the calls of a function; None: nothing."""
        code = frame.f_code
        plan = self.plans.get(id(code), _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self._plan(code) if self._is_chosen(frame, code) else None
            self._kept.append(code)
            self.plans[id(code)] = plan
        return plan

    def _is_chosen(self, frame: FrameType, code: CodeType) -> bool:
        if code.co_flags & IS_FUNCTION != IS_FUNCTION or code.co_flags & RESUMED or code.co_name in _INLINE:
            return False
        module: Any = frame.f_globals.get("__name__")
        if isinstance(module, str) and any(module == name or module.startswith(f"{name}.") for name in self.packages):
            return True
        path = code.co_filename.replace("\\", "/")
        return USER in self.packages and origin_of(path) == "user" and not any(each in path for each in INSTALLED)

    def _plan(self, code: CodeType) -> CallPlan:
        plain, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        rest = [named] if code.co_flags & VARARGS else []
        others = [named + len(rest)] if code.co_flags & VARKEYWORDS else []
        order = [*range(plain), *rest, *range(plain, named), *others]
        arguments = tuple((at, code.co_varnames[at]) for at in order)
        return CallPlan(code, self.session.what(CALL, code.co_qualname), arguments, code.co_name == "forward")

    # ------------------------------------------------------------ what happens

    def begin(self, frame: FrameType) -> None:
        """A call begins."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or log.session is not self.session:
            return
        plan, caller = self.plan_for(frame), frame.f_back
        if plan is None or (plan.is_forward and caller is not None and caller.f_code is CALL_IMPL):
            return  # the module's own event says all of it
        before = (log.parent, log.anchor, log.base)
        try:
            self._open_call(log, plan, frame, before)
        except BaseException as fault:
            log.parent, log.anchor, log.base = before
            self.session.forgive(fault)

    def _open_call(self, log: ThreadLog, plan: CallPlan, frame: FrameType, before: tuple[int, int, int]) -> None:
        session, caller = self.session, frame.f_back
        if log.steps:
            session.heal_steps(log, caller)
        with no_functions():
            at = session.open_event(log, plan.what, caller, (), _arguments(frame, plan))
        if at < 0:
            return
        if caller is not None:
            log.anchor, log.base = id(caller), log.stack if log.at == at + 1 else log.word(at, STACK)
        self._open.setdefault(log.ident, []).append(OpenCall(at, before, id(frame), plan.code))

    def end(self, frame: FrameType, result: Any) -> None:
        """A call returns."""
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
        """An exception leaves a call; None: some exception."""
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
        """The call that this frame is of; those inside of it whose end nobody told of have ended too."""
        calls = self._open.get(get_ident(), [])
        for index in range(len(calls) - 1, -1, -1):
            if calls[index].frame_id == id(frame) and calls[index].code is frame.f_code:
                found = calls[index]
                del calls[index:]
                return found
        return None


def _arguments(frame: FrameType, plan: CallPlan) -> dict[str, Any]:
    """What a function was called with, by name; nothing where that cannot be read without changing it."""
    slots = slots_of(frame, len(plan.arguments)) if plan.arguments else None
    if slots is None:
        return {}
    found = {name: content(slot(slots, at)) for at, name in plan.arguments}
    return {name: value for name, value in found.items() if value is not UNBOUND}
