"""Holds the log of one thread: its part of the journal, and its open events."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.engine.host import SessionLike
from torchglass.capture.engine.module_paths import ModuleAtPath
from torchglass.compiled import Log, slots
from torchglass.journal.layout import NONE, PARENT, RECORD, WHAT, unpack_word
from torchglass.journal.writer import ThreadWriter


@dataclass(frozen=True, slots=True)
class OpenStep:
    """An open optimizer step: its record, the state to return to, and the frame of its wrapper."""

    at: int
    """The number of its record."""
    before: tuple[int, int, int]
    """The log's parent, anchor and base before the step."""
    frame_id: int
    code: CodeType
    updates: Any = None
    """The parameters before the step, if values are measured (capture/statistics/updates.py)."""

    def runs_above(self, log: ThreadLog, frame: FrameType | None) -> bool:
        """Return whether the wrapper's frame is on this stack.

        The code is compared too, because a new frame may have got the same ``id``.
        """
        if log.parent != self.at:
            return False
        while frame is not None and (id(frame) != self.frame_id or frame.f_code is not self.code):
            frame = frame.f_back
        return frame is not None


class ThreadLog(ThreadWriter):
    """One thread's records and the state of its open events; only that thread writes to it."""

    __slots__ = slots(
        Log,
        "anchor base branched engine found has_mode has_op_mode ident last_error listening looked_at_rounds lost "
        "module name on op_error parent rounds session spawned_by stack steps undescribed",
    )

    def __init__(
        self,
        session: SessionLike,
        ident: int,
        name: str,
        spawned_by: tuple[ThreadLog, int] | None = None,
    ):
        super().__init__(session.journal)
        self.session: Any = session
        self.engine: Any = session.engine
        """The compiled engine, or None. C code reads this attribute."""
        self.ident = ident
        self.name = name
        self.on = True
        """Whether calls in this thread are recorded. False after the recording and while a function of ours runs."""
        self.parent = NONE
        """The number of the innermost open record."""
        self.stack = NONE
        """The stack of the record that was opened last."""
        self.anchor = 0
        """The ``id`` of the frame at which a stack walk may stop."""
        self.base = NONE
        """The number of the stack at the anchor. A stack walk adds to it the frames below the anchor."""
        self.module = NONE
        """The row of the innermost running module."""
        self.rounds: dict[Any, tuple[list[int], int]] = {}
        """What the heads of outer loops had assigned, and the newest record at which that was so (rounds.py)."""
        self.looked_at_rounds: list[Any] = []
        """The keys in ``rounds`` of the look before."""
        self.undescribed: list[ModuleAtPath] = []
        """Modules whose settings have not been read yet (capture/torch/modules.py)."""
        self.found: list[int] = []
        """A buffer for the value ids of one argument. It is empty between events."""
        self.has_mode = False
        self.has_op_mode = False
        self.branched = False
        """Whether an op ran whose backward formula would see our dispatch mode (capture/transparency/modes.py)."""
        self.lost = 0
        """How many events were not recorded because the limit was reached."""
        self.last_error: tuple[int, int] = (NONE, NONE)
        """The last record that ended by an exception, and the row of that exception."""
        self.op_error: tuple[int, str] | None = None
        """The last op that ended by an exception, and the text of that exception (capture/transparency/scripts.py)."""
        self.listening = False
        self.steps: list[OpenStep] = []
        """Open optimizer steps, outermost first. A step that raises leaves its entry here: torch calls no hook then."""
        self.spawned_by = spawned_by
        """For a thread of the autograd engine, whose stack may not show who called backward: that log and record."""
        self.open_records = self._open_records

    def more(self) -> bool:
        """Make room for more records and return whether that was possible.

        Also update the thread's name: when the first records come, the thread usually has its final name.
        """
        self.session.name_thread(self)
        if not super().more():
            return False
        backward = self.session.in_backward
        if self.journal.is_dropping and backward is not None and backward.log is self:
            # Write again that this backward pass is running, because the earlier row may be dropped.
            self.session.backward_ran(self, self.at, NONE)
        return True

    def word(self, at: int, word: int) -> int:
        """Return one word of a record, or NONE if the record has been dropped."""
        if at >= self.first:
            return unpack_word(self.buffer, at * RECORD + self.shift + word * 8)[0]
        words = self.read(at)
        if words:
            return words[word]
        return NONE

    def _open_records(self) -> list[int]:
        """Return the numbers of the open records, outermost first."""
        found: list[int] = []
        at = self.parent
        while at != NONE:
            found.append(at)
            at = self.word(at, PARENT)
        return found[::-1]

    def module_under_way(self) -> int:
        """Return the row of the innermost module whose record is open."""
        for at in reversed(self._open_records()):
            what = self.word(at, WHAT)
            if what < 0:
                return -2 - what
        return NONE


LEAVING: list[bool] = []
"""Not empty once Python is exiting. From then on, only the main thread is recorded."""
LOGS: dict[int, ThreadLog] = {}
"""The logs of all threads that are recorded now, keyed by thread identifier. Process-wide hooks look here first."""
