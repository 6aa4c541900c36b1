"""Ended recordings go when nobody has them: what leads back to a session is cut, so that counting references is enough.

A session and its parts know each other, and the collector that finds such circles comes late: until then a trace that
is long gone holds its journal. What is cut is only what nobody can call any more, so all stays as it is where a thread
of the recording is still under way, or a handler of ours is below us.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from torchglass.capture.transparency.ours import is_theirs
from torchglass.journal.layout import NONE
from torchglass.journal.writer import EXPECTED

if TYPE_CHECKING:
    from torchglass.capture.engine.log import ThreadLog
    from torchglass.capture.session import Session


class EndedSession:
    """What logs and modes refer to in place of their session when that is let go of: nothing is recorded there."""

    running = records_modules = records_functions = records_ops = records_calls = False
    in_backward = measurer = None
    is_theirs = staticmethod(is_theirs)

    def forgive(self, error: BaseException) -> None:
        """A fault of ours, which nobody reads any more; what is the program's own goes on."""
        if is_theirs(error):
            raise error

    fault = forgive


ENDED: Any = EndedSession()


def is_quiet(session: Session) -> bool:
    """Whether nothing of a session is under way: no call of the program's, no handler of ours, no other thread."""
    return all(_is_quiet(log) for log in session.logs)


def _is_quiet(log: ThreadLog) -> bool:
    return log.over or (log.ident == get_ident() and log.on and log.parent == NONE and not log.steps)


def let_go(session: Session) -> None:
    """Cut whatever leads from the parts of an ended session back to it."""
    for log in session.logs:
        log.session, log.engine, log.open_records = ENDED, None, list[int]
    EXPECTED.update(session.journal.expect())
    session.journal.let_go()
    for mode in (session.function_mode, session.op_mode):
        if mode is not None:
            _let_go_of_mode(mode)
    session.function_mode = session.op_mode = None
    for table in session.plans:
        table.clear()  # some plans are methods of their table
    if session.engine is not None:
        session.engine.end(ENDED, _ended)
    session.open_event = session.close_event = session.close_op = _ended
    session.values.let_go()
    session.forms.let_go()
    for measurer in session.measurers:  # it and its parts know each other, too
        if measurer.saver is not None:
            vars(measurer.saver).clear()
        measurer.devices.let_go()
        vars(measurer).clear()
    session.copies.on_forget.clear()
    session.measurer = session.in_backward = None
    for each in (session.plans, session.measurers, session.on_write, session.runs, session.listeners):
        each.clear()


def _ended(*_: Any) -> Any:
    raise RuntimeError("this recording has ended")


def _pass_on(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*args, **(kwargs or {}))


def _let_go_of_mode(mode: Any) -> None:
    """A class, where the session made one, is a circle of itself. Who still holds the mode calls what it is told of."""
    mode.session = ENDED
    for name in ("__torch_function__", "__torch_dispatch__"):
        if name in vars(type(mode)):
            setattr(type(mode), name, _pass_on)
