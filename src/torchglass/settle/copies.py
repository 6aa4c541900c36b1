"""Read from a journal which values have a stored copy, and where it is."""

from __future__ import annotations

from typing import NamedTuple

from torchglass.events.schema import NONE
from torchglass.journal import layout
from torchglass.journal.layout import Streams
from torchglass.settle.measured import end_of_written
from torchglass.settle.value_columns import ValueFiller


class StoredCopy(NamedTuple):
    """Bytes that hold the content of a value. Values that share memory share the bytes."""

    value: int
    """The number of the value in the tables."""
    shard: int
    """The shard in the recording's folder, or the number of a piece of memory."""
    offset: int
    """Where the bytes begin."""
    length: int
    """How many bytes there are."""
    first: int
    """The offset of the value's first element in the bytes."""


def stored_copies(streams: Streams, values: ValueFiller, *owners: int) -> list[list[StoredCopy]]:
    """Return the copies that each owner has, in the order of their values.

    An owner is the number of a recording that has a folder, or NONE for memory.
    """
    copies: dict[int, list[StoredCopy]] = {owner: [] for owner in owners}
    for chunk in streams.of(layout.KEPT):
        last = end_of_written(chunk, layout.KEPT_WORDS)
        words = chunk.words(chunk.first, last).tolist()
        columns = [words[column :: layout.KEPT_WORDS] for column in range(layout.KEPT_WORDS)]
        numbers = values.numbers(chunk.first, last)
        for number, offset, length, first, place in zip(numbers, *columns, strict=True):
            if not place or number == NONE:
                continue
            owner, shard = layout.read_place(place)
            if owner in copies:
                copies[owner].append(StoredCopy(number, shard, offset, length, first))
    return [sorted(copies_of_owner) for copies_of_owner in copies.values()]
