"""Records the user's marks (``tg.mark``): named events with a copy of the value as it is now."""

from __future__ import annotations

import sys
from typing import Any

from torchglass.capture.contents import refuse
from torchglass.capture.engine.edges import has_room, hold, stack_at, write_note
from torchglass.capture.engine.jit import TRACES, pause_trace, resume_trace
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import MARK
from torchglass.capture.torch.names import no_functions
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK
from torchglass.system import get_ident


def write_mark(log: ThreadLog, name: str, value: Any, depth: int) -> None:
    """Record a mark at the line of the caller ``depth`` frames up; a fault of our code costs only the mark."""
    frame = sys._getframe(depth + 1)
    traced = None
    if TRACES:
        traced = pause_trace()
    # Do not record what we copy here.
    was_on = log.on
    log.on = False
    try:
        with no_functions():
            _write(log, name, value, frame)
    except BaseException as fault:
        log.session.forgive(fault)
    finally:
        # First, because a signal handler may raise an exception in any call.
        log.on = was_on
        if traced is not None:
            resume_trace(traced)


def _write(log: ThreadLog, name: str, value: Any, frame: Any) -> None:
    if not has_room(log):
        return
    session = log.session
    values = session.values
    copies = session.copies

    def kept(tensor: Any) -> int:
        number = values.value_of(tensor)
        if copies.names.get(number & NUMBER_MASK):
            # Some writes cannot be seen (through .data, or numpy), so an earlier copy may differ from the value now.
            values.mark_all_changed(tensor)
            number = values.value_of(tensor)
        try:
            copies.keep(name, number, tensor, len(session.recorders))
        except Exception as reason:  # keep the mark, even without its content
            foreign(reason)
            refuse(session, name, "kept", f"{type(reason).__name__}: {reason}")
        return number

    ids: list[int] = []
    described = session.forms.describing(kept)(value, ids)
    stack = stack_at(log, frame, frame.f_lasti)
    write_note(log, session.what(MARK, name), stack, hold(log, described, ids))


def recording_log() -> ThreadLog | None:
    """Return the log of the calling thread, or None if the thread is not recorded now."""
    log = LOGS.get(get_ident())
    if log is not None and log.on:
        return log
    return None
