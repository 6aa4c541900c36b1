"""Which values have a copy, and where it lies, from the journal."""

from __future__ import annotations

from typing import NamedTuple

from torchglass.events.schema import NONE
from torchglass.journal.chunks import Streams
from torchglass.journal.layout import KEPT, KEPT_WORDS, read_place
from torchglass.settle.values import Values


class Kept(NamedTuple):
    """Some bytes, and where in them a value begins; values that share memory share them."""

    shard: int
    """Of the recording's folder; else the number of a piece of memory."""
    offset: int
    length: int
    first: int


def kept_values(streams: Streams, values: Values, *owners: int) -> list[dict[int, Kept]]:
    """By number in the tables, for each of the owners: NONE is memory, else it is the folder of that recording."""
    found: dict[int, dict[int, Kept]] = {owner: {} for owner in owners}
    for chunk in streams.of(KEPT):
        words = chunk.words(chunk.first, chunk.last).tolist()
        places = words[KEPT_WORDS - 1 :: KEPT_WORDS]
        for index in [index for index, place in enumerate(places) if place]:
            owner, shard = read_place(places[index])
            number = values.number(chunk.first + index)
            if owner in found and number != NONE:
                at = index * KEPT_WORDS
                found[owner][number] = Kept(shard, *words[at : at + KEPT_WORDS - 1])
    return list(found.values())
