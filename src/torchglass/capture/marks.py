"""The user's own marks: a named event with a copy of the value as it is now."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any

from torchglass.capture.contents import refuse
from torchglass.capture.engine.edges import has_room, hold, stack_at, write_note
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import MARK
from torchglass.capture.torch.names import no_functions
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK


def write_mark(log: ThreadLog, name: str, value: Any, depth: int) -> None:
    """Record a mark at the place of the caller ``depth`` frames up; a fault of ours costs the mark only."""
    frame = sys._getframe(depth + 1)
    was_on, log.on = log.on, False  # what is copied here is not the program's doing
    try:
        with no_functions():
            _write(log, name, value, frame)
    except BaseException as fault:
        log.session.forgive(fault)
    finally:
        log.on = was_on


def _write(log: ThreadLog, name: str, value: Any, frame: Any) -> None:
    if not has_room(log):
        return
    session = log.session
    values, copies = session.values, session.copies

    def kept(tensor: Any) -> int:
        number = values.value_of(tensor)
        if copies.names.get(number & NUMBER_MASK):
            # Some writes leave no trace (through .data, or numpy): what was copied before may differ.
            values.forget_all(tensor)
            number = values.value_of(tensor)
        try:
            copies.keep(name, number, tensor, len(session.recorders))
        except Exception as reason:  # the mark itself says enough to be kept
            foreign(reason)
            refuse(session, name, "kept", f"{type(reason).__name__}: {reason}")
        return number

    ids: list[int] = []
    described = session.forms.describing(kept)(value, ids)
    stack = stack_at(log, frame, frame.f_lasti)
    write_note(log, session.what(MARK, name), stack, hold(log, described, ids))


def recording_log() -> ThreadLog | None:
    """The log of the calling thread, if it is recorded now."""
    log = LOGS.get(get_ident())
    return log if log is not None and log.on else None
