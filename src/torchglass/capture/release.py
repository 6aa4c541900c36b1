"""Breaks reference cycles when a recording ends, so its memory is freed at once.

A session and its parts refer to each other, and the garbage collector finds such cycles late; until then a discarded
trace would still hold its journal. The references are still needed while a thread of the recording is running or one of
our handlers is on the stack, so then nothing is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchglass.capture.transparency.ours import is_theirs
from torchglass.journal.layout import NONE
from torchglass.journal.writer import EXPECTED_BYTES
from torchglass.system import get_ident

if TYPE_CHECKING:
    from torchglass.capture.engine.log import ThreadLog
    from torchglass.capture.session import Session


class EndedSession:
    """Replaces the session in logs and modes after its release, and records nothing."""

    running = records_modules = records_functions = records_ops = records_calls = False
    in_backward = measurer = None
    is_theirs = staticmethod(is_theirs)

    def forgive(self, error: BaseException) -> None:
        """Ignore a fault of our code, which can no longer be noted; raise an exception of the program again."""
        if is_theirs(error):
            raise error

    fault = forgive


ENDED: Any = EndedSession()


def is_idle(session: Session) -> bool:
    """Return whether nothing of a session is running: no recorded call, none of our handlers, no other thread."""
    return all(_is_idle(log) for log in session.logs)


def _is_idle(log: ThreadLog) -> bool:
    return log.over or (
        log.ident == get_ident() and log.on and log.parent == NONE and not log.steps
    )


def release(session: Session) -> None:
    """Remove the references from the parts of an ended session back to the session."""
    for log in session.logs:
        log.session = ENDED
        log.engine = None
        log.open_records = list[int]
    EXPECTED_BYTES.update(session.journal.expect())
    session.journal.release()
    for mode in (session.function_mode, session.op_mode):
        if mode is not None:
            _release_mode(mode)
    session.function_mode = session.op_mode = None
    for table in session.plans:
        table.clear()  # some plans are methods of their table, which makes a cycle
    if session.engine is not None:
        session.engine.end(ENDED, _ended)
    session.open_event = session.close_event = session.close_op = _ended
    session.values.release()
    session.forms.release()
    # A measurer and its parts refer to each other, too.
    for measurer in session.measurers:
        if measurer.saver is not None:
            vars(measurer.saver).clear()
        measurer.devices.release()
        vars(measurer).clear()
    session.copies.on_forget.clear()
    session.measurer = session.in_backward = None
    for each in (
        session.plans,
        session.measurers,
        session.on_write,
        session.runs,
        session.listeners,
    ):
        each.clear()


def _ended(*_: Any) -> Any:
    raise RuntimeError("this recording has ended")


def _pass_on(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*args, **(kwargs or {}))


def _release_mode(mode: Any) -> None:
    """Detach a mode from its ended session; a mode that is still active only calls the torch function."""
    mode.session = ENDED
    for name in ("__torch_function__", "__torch_dispatch__"):
        if name in vars(type(mode)):
            setattr(type(mode), name, _pass_on)
