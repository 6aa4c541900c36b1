"""Read the values of a journal into columns. If some were dropped, the others get consecutive new numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from torchglass.events.schema import NONE, Meta
from torchglass.events.tables import Tables
from torchglass.journal import layout
from torchglass.journal.layout import Chunk, Streams
from torchglass.journal.rows import MetaRow
from torchglass.settle.journal_rows import JournalRows
from torchglass.settle.spans import LOST_ID

UNKNOWN = Meta.of(None, "?", "?", None, "?", False, "?")
"""The metadata of a value that occurred, but was not described before the process died."""
UNKNOWN_ENTRIES = (NONE, 0, NONE)
"""Version, address and previous value of such a value."""


class ValueEntry(NamedTuple):
    """What the journal has of one value."""

    version: int
    address: int
    previous: int
    meta: int
    """Its row of metadata."""


class ValueFiller:
    """Fills the value columns of one ``Tables``, after its events.

    An *id* here is a value as a record has it: the value's number, with its row of metadata in the bits above.
    """

    def __init__(self, streams: Streams, journal_rows: JournalRows, tables: Tables) -> None:
        self._streams = streams
        self._journal_rows = journal_rows
        self._tables = tables
        self._metas: dict[int, int] = {}
        """The number in the tables of each row of metadata."""
        self.addresses = array("q")
        """The address of the storage of each value."""
        self.previous = array("q")
        """For each value the one that the same tensor had before, or -2 - the array that it is a part of."""
        self._new_numbers: dict[int, int] | None = None
        """The number in the tables of each number in the journal. None if both are equal."""

    def read(self, parameters: Iterable[int]) -> None:
        """Read the values, and convert the ids of events to numbers in the tables.

        ``parameters`` are ids of modules.
        """
        tables = self._tables
        ids = self._tables.io.tolist()
        metas = self._read_columns()
        numbers = [_number(id_) for id_ in ids]
        parameter_ids = list(parameters)
        largest = max([*numbers, *map(_number, parameter_ids)], default=0)
        if self._new_numbers is None and 0 not in metas and largest < len(metas):
            # All values are in the journal, as they nearly always are.
            tables.io = array("q", numbers)
        else:
            self._add_unwritten_values(metas, [*ids, *parameter_ids])
            tables.io = array("q", [self._number_in_tables(id_, metas) for id_ in ids])
        new_rows = {row_and_1: self.meta(row_and_1 - 1) for row_and_1 in set(metas)}
        tables.value_meta = array("q", [new_rows[row_and_1] for row_and_1 in metas])
        nothing = array("q", [NONE]) * len(metas)
        tables.value_storage = nothing
        tables.value_producer = nothing[:]

    def number(self, id_: int) -> int:
        """Return the number of a value in the tables, or NONE if it is missing."""
        number = _number(id_)
        if self._new_numbers is not None:
            return self._new_numbers.get(number, NONE)
        if number < len(self._tables.value_meta):
            return number
        return NONE

    def numbers(self, first: int, last: int) -> Iterable[int]:
        """Return the numbers in the tables of the values ``first`` up to but without ``last`` of the journal."""
        if self._new_numbers is None and last <= len(self._tables.value_meta):
            return range(first, last)
        return map(self.number, range(first, last))

    def meta(self, row: int) -> int:
        """Return the number of a row of metadata in the tables."""
        number = self._metas.get(row)
        if number is None:
            number = self._metas[row] = len(self._tables.metas)
            meta_row = self._journal_rows.metas.get(row)
            if meta_row is None:
                self._tables.metas.append(UNKNOWN)
            else:
                self._tables.metas.append(meta_of(meta_row))
        return number

    def read_one(self, number: int) -> ValueEntry | None:
        """Return the entry of one value, or None if it is not written."""
        for chunk in reversed(self._streams.of(layout.VALUES)):
            if chunk.first <= number < chunk.last:
                version, address, previous, meta_and_1 = chunk.words(number, number + 1).tolist()
                if meta_and_1:
                    return ValueEntry(version, address, previous, meta_and_1 - 1)
                return None
        return None

    def _read_columns(self) -> list[int]:
        """Read the columns from the journal.

        Return 1 + the row of metadata of each value, or 0 if it is not written.
        """
        tables = self._tables
        chunks = self._streams.of(layout.VALUES)
        words: list[int] = []
        for chunk in chunks:
            words += chunk.words(chunk.first, chunk.last).tolist()
        metas = words[layout.META_AND_1 :: layout.VALUE_WORDS]
        while metas and not metas[-1]:
            metas.pop()
        count = len(metas)
        if not _is_contiguous(chunks):
            numbers = [number for chunk in chunks for number in range(chunk.first, chunk.last)]
            self._new_numbers = {number: index for index, number in enumerate(numbers[:count])}
        tables.value_version = array("q", words[layout.VERSION :: layout.VALUE_WORDS][:count])
        self.addresses = array("q", words[layout.ADDRESS :: layout.VALUE_WORDS][:count])
        self.previous = array(
            "q", map(self._previous_value, words[layout.BEFORE :: layout.VALUE_WORDS][:count])
        )
        for number in [number for number, meta in enumerate(metas) if not meta]:
            tables.value_version[number], self.addresses[number], self.previous[number] = (
                UNKNOWN_ENTRIES
            )
        return metas

    def _previous_value(self, raw: int) -> int:
        """Convert an entry of ``previous`` to numbers in the tables. It is NONE if that value was dropped."""
        if self._new_numbers is None or raw == NONE:
            return raw
        array_number = array_of(raw)
        if array_number is None:
            return self._new_numbers.get(raw, NONE)
        number = self._new_numbers.get(array_number, NONE)
        if number == NONE:
            return NONE
        return -2 - number

    def _add_unwritten_values(self, metas: list[int], ids: list[int]) -> None:
        """Add values that are referred to but not written, since they were dropped or the process died.

        Their ids have their metadata.
        """
        new_numbers = self._new_numbers or {number: number for number in range(len(metas))}
        self._new_numbers = new_numbers
        for id_ in ids:
            if id_ == LOST_ID:
                continue
            number = _number(id_)
            meta_and_1 = (id_ >> layout.NUMBER_BITS) + 1
            if number not in new_numbers:
                new_numbers[number] = self._add_unknown(metas, meta_and_1)
            elif not metas[new_numbers[number]]:
                metas[new_numbers[number]] = meta_and_1

    def _number_in_tables(self, id_: int, metas: list[int]) -> int:
        """Return the number of a value in the tables. A lost id stands for a new, unknown value."""
        assert self._new_numbers is not None
        if id_ == LOST_ID:
            return self._add_unknown(metas, 0)
        return self._new_numbers[_number(id_)]

    def _add_unknown(self, metas: list[int], meta_and_1: int) -> int:
        """Add a value of which at most the metadata is known, and return its number in the tables."""
        metas.append(meta_and_1)
        for column, nothing in zip(
            (self._tables.value_version, self.addresses, self.previous),
            UNKNOWN_ENTRIES,
            strict=True,
        ):
            column.append(nothing)
        return len(metas) - 1


def _number(id_: int) -> int:
    return id_ & layout.NUMBER_MASK


def array_of(previous: int) -> int | None:
    """Return the array that a value is a part of, if an entry of ``previous`` says so as -2 - its number."""
    if previous < NONE:
        return -2 - previous
    return None


def _is_contiguous(chunks: list[Chunk]) -> bool:
    """Return whether no chunk was dropped."""
    end = 0
    for chunk in chunks:
        if chunk.first != end:
            return False
        end = chunk.last
    return True


def meta_of(row: MetaRow) -> Meta:
    """Return metadata in the form of the tables."""
    shape = None
    if row.shape is not None:
        shape = tuple(row.shape)
    stride = None
    if row.stride is not None:
        stride = tuple(row.stride)
    return Meta.of(
        shape,
        row.dtype,
        row.device,
        stride,
        row.layout,
        row.requires_grad,
        row.type,
        row.kind,
    )
