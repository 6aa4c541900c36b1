"""The interface of a trace: the few methods that the program tree, views and answers use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torchglass.events.tables import Tables
from torchglass.events.types import Event, Location, ModuleInfo


class Recorded(Protocol):
    """A trace: a recorded one, or one that a test or a view builds."""

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

    @property
    def measured(self) -> bool:
        """Whether it has statistics of values."""
        ...

    @property
    def sources(self) -> dict[str, str]:
        """The texts of the files that ran."""
        ...

    def __len__(self) -> int: ...

    def events(self) -> Iterator[Event]:
        """Return all events in the order of opening: ids from 0, parents before what they called."""
        ...

    def event(self, number: int, /) -> Event: ...

    def modules(self) -> tuple[ModuleInfo, ...]: ...

    @property
    def left_by(self) -> tuple[str, ...]:
        """The exception that ended the block, then those that it was raised from."""
        ...

    @property
    def _left_process(self) -> int:
        """The number of the process in which the exception ended the block."""
        ...

    @property
    def raised_at(self) -> tuple[Location, ...]:
        """The frames between the block and the place where that exception was raised, outermost first."""
        ...

    def failure(self) -> Event | None:
        """Return the innermost event that was ended by the exception that ended the block."""
        ...


@runtime_checkable
class HasTables(Protocol):
    """A trace that has its events as columns. Reading them takes a quarter of the time of making ``Event`` objects."""

    @property
    def _tables(self) -> Tables: ...


def tables_of(trace: Recorded) -> Tables:
    """Return the columns of a trace; raise TypeError for one that was put together event by event."""
    if isinstance(trace, HasTables):
        # Private means: not for users. The protocol above lets the package read it.
        return trace._tables  # pyright: ignore[reportPrivateUsage]
    raise TypeError(f"a {type(trace).__name__} has no columns")
