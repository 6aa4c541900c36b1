"""What the hot path asks of the session that it writes for: the session imports the hot path, which so need not it."""

from __future__ import annotations

from typing import Any, Protocol

from torchglass.journal.writer import Journal


class Host(Protocol):
    """A session (capture/session.py). Its tables write to the logs that ask here, so they stand without their types."""

    journal: Journal
    engine: Any
    """The compiled one; None where all is done in Python."""
    stacks: Any
    values: Any
    forms: Any
    copies: Any
    measurer: Any
    in_backward: tuple[Any, int, int] | None

    def tell(self, log: Any, at: int, edge: str) -> None: ...

    def note(self, text: str) -> None: ...

    def name_thread(self, log: Any) -> None: ...

    def backward_ran(self, log: Any, begin: int, end: int) -> None: ...
