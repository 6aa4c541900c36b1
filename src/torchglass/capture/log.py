"""What one thread has recorded so far: flat lists of atoms, and where its open events stand.

A record is ``WIDTH`` consecutive entries of ``ThreadLog.records``; it is written when an event opens and
filled in when it closes. Only ints go in: a list of ints costs the garbage collector nothing, a tuple of
objects six times as much as all the rest (docs/decisions/0001-flat-records.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchglass.capture.session import ModuleRow, Session

WHAT, PARENT, STACK, START, END, ARGS, INPUTS, RESULT, OUTPUTS, ERROR = range(10)
WIDTH = 10
NONE = -1
"""In any field: nothing there (yet)."""


@dataclass(frozen=True, slots=True)
class OpenStep:
    """An optimizer's step under way: its record, the state to go back to, and the frame of its wrapper."""

    at: int
    before: tuple[int, int, int]
    """The log's parent, anchor and base."""
    frame_id: int
    code: CodeType

    def runs_above(self, log: ThreadLog, frame: FrameType | None) -> bool:
        """Whether the wrapper stands on this stack; an id alone may be another frame's by now."""
        if log.parent != self.at:
            return False
        while frame is not None and (id(frame) != self.frame_id or frame.f_code is not self.code):
            frame = frame.f_back
        return frame is not None


class ThreadLog:
    """One thread's records and the state of its open events; only that thread writes to it."""

    __slots__ = (
        "anchor", "backward_spans", "base", "branched", "has_mode", "has_op_mode", "ident", "limit", "listening",
        "lost", "module", "name", "on", "parent", "records", "session", "spawned_by", "steps", "unread", "values",
    )  # fmt: skip

    def __init__(self, session: Session, ident: int, name: str, spawned_by: tuple[ThreadLog, int] | None = None):
        self.session = session
        self.ident = ident
        self.name = name
        self.on = True
        """False: this thread's calls pass through (stopped, or one of our own functions is at work)."""
        self.records: list[int] = []
        self.values: list[int] = []
        """Value ids of inputs and outputs; a record's INPUTS and OUTPUTS are offsets into it."""
        self.parent = NONE
        """Offset of the innermost open record."""
        self.anchor = 0
        """``id`` of the frame at which a stack walk may stop …"""
        self.base = NONE
        """… and the stack that is known above that frame."""
        self.module = NONE
        """Row of the innermost module under way."""
        self.unread: list[ModuleRow] = []
        """Modules whose settings are still to be read (capture/modules.py)."""
        self.limit = session.max_records * WIDTH
        self.has_mode = False
        self.has_op_mode = False
        self.branched = False
        """An op ran whose backward formula would see our dispatch mode (capture/cures.py)."""
        self.lost = 0
        """Events not recorded because the limit was reached."""
        self.listening = False
        self.steps: list[OpenStep] = []
        """Open optimizer steps, outermost first: hooks have no way out on an exception."""
        self.backward_spans: list[tuple[int, int]] = []
        """Ranges of records made while the autograd engine ran."""
        self.spawned_by = spawned_by
        """For autograd's own threads, which may have no frame below ours: the log and record that called backward."""


LEAVING: list[bool] = []
"""Not empty once Python ends: then no other thread than the main one is recorded."""
LOGS: dict[int, ThreadLog] = {}
"""The logs of all threads that are recorded now, by thread identifier: what process-wide hooks ask first."""
