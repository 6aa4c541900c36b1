"""The values of a journal as columns, numbered anew where some of them were dropped."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from torchglass.events.tables import NONE, Meta, Tables
from torchglass.journal.chunks import Streams
from torchglass.journal.layout import (
    ADDRESS,
    BEFORE,
    META_AND_1,
    NUMBER_BITS,
    NUMBER_MASK,
    VALUE_WORDS,
    VALUES,
    VERSION,
)
from torchglass.journal.rows import MetaRow
from torchglass.settle.interned import Interned

UNKNOWN = Meta.of(None, "?", "?", None, "?", False, "?")
"""Of a value that was met, and of which nothing was written before the process died."""


class Values:
    """Fills the value columns of one ``Tables``, once the events are there."""

    def __init__(self, streams: Streams, interned: Interned, tables: Tables) -> None:
        self._streams = streams
        self._interned = interned
        self._tables = tables
        self._metas: dict[int, int] = {}
        """By row: the number in the tables."""
        self.addresses = array("q")
        """Of the storages, by value."""
        self.before = array("q")
        """The value that the same tensor was before, by value."""
        self._place: dict[int, int] | None = None
        """By number in the journal: the number in the tables, where that is another."""

    def take(self, parameters: Iterable[int]) -> None:
        """Read the values, and give those that events refer to their numbers in the tables."""
        tables, packed = self._tables, self._tables.io.tolist()
        metas = self._read_columns()
        count = len(metas)
        numbers = [each & NUMBER_MASK for each in packed]
        known = range(count) if self._place is None else self._place
        if 0 in metas or self._place is not None or max(numbers, default=0) >= count:
            metas = self._add_unwritten(metas, [*packed, *parameters], known)
        tables.io = array("q", numbers if self._place is None else [self._place[each] for each in numbers])
        rows = {each: self.meta(each - 1) for each in set(metas)}
        tables.value_meta = array("q", [rows[each] for each in metas])
        nothing = array("q", [NONE]) * len(metas)
        tables.value_storage, tables.value_producer = nothing, nothing[:]

    def number(self, packed: int) -> int:
        """The number in the tables of a value."""
        number = packed & NUMBER_MASK
        return number if self._place is None else self._place.get(number, NONE)

    def meta(self, row: int) -> int:
        """The number in the tables of a row of metadata."""
        known = self._metas.get(row)
        if known is None:
            known = self._metas[row] = len(self._tables.metas)
            found = self._interned.metas.get(row)
            self._tables.metas.append(UNKNOWN if found is None else meta_of(found))
        return known

    def read_one(self, number: int) -> tuple[int, int, int, int] | None:
        """Version, address, value before and row of metadata of one value; None where it is not written."""
        for chunk in reversed(self._streams.of(VALUES)):
            if chunk.first <= number < chunk.last:
                version, address, before, meta = chunk.words(number, number + 1).tolist()
                return (version, address, before, meta - 1) if meta else None
        return None

    def _read_columns(self) -> list[int]:
        """The columns as they stand in the journal; returns the rows of metadata, each + 1 (0: not written)."""
        tables, chunks = self._tables, self._streams.of(VALUES)
        words: list[int] = []
        for chunk in chunks:
            words += chunk.words(chunk.first, chunk.last).tolist()
        metas = words[META_AND_1::VALUE_WORDS]
        while metas and not metas[-1]:
            metas.pop()
        count = len(metas)
        if any(chunk.first != (chunks[index - 1].last if index else 0) for index, chunk in enumerate(chunks)):
            places = [number for chunk in chunks for number in range(chunk.first, chunk.last)]
            self._place = {number: index for index, number in enumerate(places[:count])}
        tables.value_version = array("q", words[VERSION::VALUE_WORDS][:count])
        self.addresses = array("q", words[ADDRESS::VALUE_WORDS][:count])
        self.before = array("q", map(self._before, words[BEFORE::VALUE_WORDS][:count]))
        return metas

    def _before(self, raw: int) -> int:
        """The value before, or -2 - the array that a value lies in; NONE where that was dropped."""
        if self._place is None or raw == NONE:
            return raw
        found = self._place.get(raw if raw >= 0 else -2 - raw, NONE)
        return found if raw >= 0 or found == NONE else -2 - found

    def _add_unwritten(self, metas: list[int], packed: list[int], known: range | dict[int, int]) -> list[int]:
        """Values that are referred to and not written: dropped, or the process died. Their shape stands with them."""
        missing = {each & NUMBER_MASK: (each >> NUMBER_BITS) + 1 for each in packed if each & NUMBER_MASK not in known}
        if missing and self._place is None:
            self._place = {number: number for number in range(len(metas))}
        for number, meta in sorted(missing.items()):
            assert self._place is not None
            self._place[number] = len(metas)
            metas.append(meta)
            for column, nothing in ((self._tables.value_version, NONE), (self.addresses, 0), (self.before, NONE)):
                column.append(nothing)
        if 0 in metas:
            told = {each & NUMBER_MASK: (each >> NUMBER_BITS) + 1 for each in packed}
            back = {index: number for number, index in self._place.items()} if self._place else None
            metas = [meta or told.get(back[at] if back else at, 0) for at, meta in enumerate(metas)]
        return metas


def meta_of(row: MetaRow) -> Meta:
    """Metadata as a trace has it."""
    return Meta.of(
        None if row.shape is None else tuple(row.shape),
        row.dtype,
        row.device,
        None if row.stride is None else tuple(row.stride),
        row.layout,
        row.requires_grad,
        row.type,
        row.kind,
    )
