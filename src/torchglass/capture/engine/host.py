"""What the hot path asks of the session that it writes for: the session imports the hot path, which so need not it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Protocol

from torchglass.journal.writer import Journal


@dataclass(slots=True)
class ModuleAtPath:
    """One module under one path."""

    number: int
    module: weakref.ref[Any]
    """Checked with ``is``, because ids are reused."""
    cls: int
    """The row of its class; the class itself must be able to go."""
    root: int
    path: str
    other: ModuleAtPath | None
    """The row of a module with the same ``id``: this one under another path, or one that is gone."""
    parameters: str = ""
    """Names and values by turns, as they stand in a row: ``,"weight",12,"bias",13``."""
    described: bool = False
    below: dict[int, list[str]] | None = None
    """Of a root: the paths of the modules below it, by id; checked when used, since models change."""


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
