"""What a view needs of a trace: the few methods that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torchglass.events.types import Event, ModuleInfo


class Recorded(Protocol):
    """A trace as views see it."""

    @property
    def name(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def duration_ns(self) -> int: ...

    @property
    def complete(self) -> bool:
        """Whether the recording came to its end; a killed program's did not."""
        ...

    def __len__(self) -> int: ...

    def events(self) -> Iterator[Event]:
        """All events in the order of opening: ids from 0, parents before what they called."""
        ...

    def event(self, number: int, /) -> Event: ...

    def modules(self) -> tuple[ModuleInfo, ...]: ...

    def failure(self) -> Event | None:
        """The innermost event that the exception left which ended the block."""
        ...
