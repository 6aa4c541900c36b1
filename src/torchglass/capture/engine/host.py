"""The parts of a session that the hot path uses, as a Protocol.

capture/session.py imports the hot path, so the hot path cannot import it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torchglass.journal.writer import Journal


class BackwardPass(NamedTuple):
    """A run of the autograd engine."""

    log: Any
    """The log of the thread that called it."""
    caller: int
    """The record that it was called in."""
    first: int
    """The number of its first record."""


class SessionLike(Protocol):
    """The parts of a session (capture/session.py) that the hot path uses.

    The classes of its tables are in modules that import the hot path too, so here they are Any.
    """

    journal: Journal
    engine: Any
    """The compiled engine; None if everything is done in Python."""
    stacks: Any
    """StackTable (stack.py)."""
    values: Any
    """ValueTable (value_table.py)."""
    forms: Any
    """Forms (forms.py)."""
    copies: Any
    """Copies of tensors that marks keep (capture/contents.py)."""
    measurer: Any
    """Measures values (statistics/measurer.py). None if the recording does not measure values."""
    in_backward: BackwardPass | None
    """The backward pass that is running now."""

    def tell(self, log: Any, at: int, edge: str) -> None:
        """Report to live views that the event of record ``at`` has begun ("open") or ended ("close")."""

    def note(self, text: str) -> None:
        """Add a note to the trace."""

    def name_thread(self, log: Any) -> None:
        """Write the name of a thread if it is new or has changed."""

    def backward_ran(self, log: Any, begin: int, end: int) -> None:
        """Write which range of records a backward pass made; ``end`` is NONE when it begins."""
