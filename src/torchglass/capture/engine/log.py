"""One thread's part of the journal, and where its open events stand."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.engine.host import Host
from torchglass.capture.engine.module_paths import ModuleAtPath
from torchglass.compiled import Log, slots
from torchglass.journal.layout import NONE, PARENT, RECORD, WHAT, unpack_word
from torchglass.journal.writer import ThreadWriter


@dataclass(frozen=True, slots=True)
class OpenStep:
    """An optimizer's step under way: its record, the state to go back to, and the frame of its wrapper."""

    at: int
    before: tuple[int, int, int]
    """The log's parent, anchor and base."""
    frame_id: int
    code: CodeType
    updates: Any = None
    """The parameters as they were before it, where values are measured (capture/statistics/updates.py)."""

    def runs_above(self, log: ThreadLog, frame: FrameType | None) -> bool:
        """Whether the wrapper stands on this stack; an id alone may be another frame's by now."""
        if log.parent != self.at:
            return False
        while frame is not None and (id(frame) != self.frame_id or frame.f_code is not self.code):
            frame = frame.f_back
        return frame is not None


class ThreadLog(ThreadWriter):
    """One thread's records and the state of its open events; only that thread writes to it."""

    __slots__ = slots(
        Log,
        "anchor base branched engine found has_mode has_op_mode ident last_error listening lost module name on over "
        "parent session spawned_by stack steps unread",
    )

    def __init__(self, session: Host, ident: int, name: str, spawned_by: tuple[ThreadLog, int] | None = None):
        super().__init__(session.journal)
        self.session: Any = session
        self.engine: Any = session.engine
        """The compiled one, which asks its logs for it; None where there is none."""
        self.ident = ident
        self.name = name
        self.over = False
        """The thread has come to its end, or to where it is not recorded any more."""
        self.on = True
        """False: this thread's calls pass through (stopped, or one of our own functions is at work)."""
        self.parent = NONE
        """The number of the innermost open record."""
        self.stack = NONE
        """The stack of the record that was opened last."""
        self.anchor = 0
        """``id`` of the frame at which a stack walk may stop …"""
        self.base = NONE
        """… and the stack that is known above that frame."""
        self.module = NONE
        """Row of the innermost module under way."""
        self.unread: list[ModuleAtPath] = []
        """Modules whose settings are still to be read (capture/torch/modules.py)."""
        self.found: list[int] = []
        """Where the values in an argument are collected; empty between events."""
        self.has_mode = False
        self.has_op_mode = False
        self.branched = False
        """An op ran whose backward formula would see our dispatch mode (capture/transparency/modes.py)."""
        self.lost = 0
        """Events not recorded because the limit was reached."""
        self.last_error: tuple[int, int] = (NONE, NONE)
        """The last record that an exception left, and the row of that exception."""
        self.listening = False
        self.steps: list[OpenStep] = []
        """Open optimizer steps, outermost first: hooks have no way out on an exception."""
        self.spawned_by = spawned_by
        """For autograd's own threads, which may have no frame below ours: the log and record that called backward."""
        self.open_records = self._open_records

    def more(self) -> bool:
        """Make room for records; the first ones are when the thread knows what it is for."""
        self.session.name_thread(self)
        if not super().more():
            return False
        calling = self.session.in_backward
        if self.journal.is_turning and calling is not None and calling[0] is self:
            self.session.backward_ran(self, self.at, NONE)  # what was said of it so far may go
        return True

    def word(self, at: int, word: int) -> int:
        """One word of a record that is kept."""
        if at >= self.first:
            return unpack_word(self.buffer, at * RECORD + self.shift + word * 8)[0]
        words = self.read(at)
        return words[word] if words else NONE

    def _open_records(self) -> list[int]:
        """The numbers of the records under way, outermost first."""
        found: list[int] = []
        at = self.parent
        while at != NONE:
            found.append(at)
            at = self.word(at, PARENT)
        return found[::-1]

    def module_under_way(self) -> int:
        """The row of the innermost module whose record is open."""
        for at in reversed(self._open_records()):
            what = self.word(at, WHAT)
            if what < 0:
                return -2 - what
        return NONE


LEAVING: list[bool] = []
"""Not empty once Python ends: then no other thread than the main one is recorded."""
LOGS: dict[int, ThreadLog] = {}
"""The logs of all threads that are recorded now, by thread identifier: what process-wide hooks ask first."""
