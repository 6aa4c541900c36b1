"""The values of a journal as columns, numbered anew where some of them were dropped."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import isnan
from typing import Any, NamedTuple

from torchglass.events.schema import MEASURED_FIELDS, NONE, NOT_MEASURED, Meta
from torchglass.events.tables import Tables, form_sizes
from torchglass.events.types import SKETCH, without_hash
from torchglass.journal import layout
from torchglass.journal.layout import Chunk, Streams
from torchglass.journal.rows import MetaRow
from torchglass.settle.interned import Interned
from torchglass.settle.spans import LOST_ID

UNKNOWN = Meta.of(None, "?", "?", None, "?", False, "?")
"""Of a value that was met, and of which nothing was written before the process died."""
NOTHING = (NONE, 0, NONE)
"""Version, address and value before of the same."""


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
        """Read the values, and give those that events and modules refer to their numbers in the tables."""
        tables, packed, metas = self._tables, self._tables.io.tolist(), self._read_columns()
        numbers, named = [each & layout.NUMBER_MASK for each in packed], list(parameters)
        if self._place is None and 0 not in metas and max([*numbers, *map(_number, named)], default=0) < len(metas):
            tables.io = array("q", numbers)  # all are there, as a rule
        else:
            self._add_unwritten(metas, [*packed, *named])
            tables.io = array("q", [self._placed(each, metas) for each in packed])
        rows = {each: self.meta(each - 1) for each in set(metas)}
        tables.value_meta = array("q", [rows[each] for each in metas])
        nothing = array("q", [NONE]) * len(metas)
        tables.value_storage, tables.value_producer = nothing, nothing[:]

    def number(self, packed: int) -> int:
        """The number in the tables of a value; NONE where it is not there."""
        number = packed & layout.NUMBER_MASK
        if self._place is not None:
            return self._place.get(number, NONE)
        return number if number < len(self._tables.value_meta) else NONE

    def numbers(self, first: int, last: int) -> Iterable[int]:
        """The same of all values from one to before another."""
        if self._place is None and last <= len(self._tables.value_meta):
            return range(first, last)
        return map(self.number, range(first, last))

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
        for chunk in reversed(self._streams.of(layout.VALUES)):
            if chunk.first <= number < chunk.last:
                version, address, before, meta = chunk.words(number, number + 1).tolist()
                return (version, address, before, meta - 1) if meta else None
        return None

    def _read_columns(self) -> list[int]:
        """The columns as they stand in the journal; returns the rows of metadata, each + 1 (0: not written)."""
        tables, chunks = self._tables, self._streams.of(layout.VALUES)
        words: list[int] = []
        for chunk in chunks:
            words += chunk.words(chunk.first, chunk.last).tolist()
        metas = words[layout.META_AND_1 :: layout.VALUE_WORDS]
        while metas and not metas[-1]:
            metas.pop()
        count = len(metas)
        if any(chunk.first != (chunks[index - 1].last if index else 0) for index, chunk in enumerate(chunks)):
            places = [number for chunk in chunks for number in range(chunk.first, chunk.last)]
            self._place = {number: index for index, number in enumerate(places[:count])}
        tables.value_version = array("q", words[layout.VERSION :: layout.VALUE_WORDS][:count])
        self.addresses = array("q", words[layout.ADDRESS :: layout.VALUE_WORDS][:count])
        self.before = array("q", map(self._before, words[layout.BEFORE :: layout.VALUE_WORDS][:count]))
        for number in [number for number, meta in enumerate(metas) if not meta]:
            tables.value_version[number], self.addresses[number], self.before[number] = NOTHING
        return metas

    def _before(self, raw: int) -> int:
        """The value before, or -2 - the array that a value lies in; NONE where that was dropped."""
        if self._place is None or raw == NONE:
            return raw
        found = self._place.get(raw if raw >= 0 else -2 - raw, NONE)
        return found if raw >= 0 or found == NONE else -2 - found

    def _add_unwritten(self, metas: list[int], packed: list[int]) -> None:
        """Values that are referred to and not written: dropped, or the process died. Their shape stands with them."""
        place = self._place = self._place or {number: number for number in range(len(metas))}
        for each in packed:
            number, meta = _number(each), (each >> layout.NUMBER_BITS) + 1
            if each == LOST_ID:
                continue
            if number not in place:
                place[number] = self._add_nothing(metas, meta)
            elif not metas[place[number]]:
                metas[place[number]] = meta

    def _placed(self, packed: int, metas: list[int]) -> int:
        """The number in the tables; an id that was lost stands for a value of its own, of which nothing is known."""
        assert self._place is not None
        return self._add_nothing(metas, 0) if packed == LOST_ID else self._place[_number(packed)]

    def _add_nothing(self, metas: list[int], meta: int) -> int:
        metas.append(meta)
        for column, nothing in zip((self._tables.value_version, self.addresses, self.before), NOTHING, strict=True):
            column.append(nothing)
        return len(metas) - 1


def _number(packed: int) -> int:
    return packed & layout.NUMBER_MASK


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


# ---------------------------------------------------------------- measured

# What was in the values, from the journal into its columns; they stay empty where nothing was measured.

HOW = layout.MEASURED_WORDS - 1
"""The word of an entry that says how it was measured; counts come first, then the doubles."""


def fill_measured(streams: Streams, values: Values, tables: Tables) -> None:
    """Fill the columns for all values of the tables; those of which there is no sound entry have none."""
    columns: list[array[Any]] = []
    for chunk in streams.of(layout.MEASURED):
        last = _end_of_written(chunk, layout.MEASURED_WORDS)
        words = chunk.words(chunk.first, last)
        reals = words.cast("B").cast("d")
        how, *measured = (
            (words if at < layout.COUNTS or at == HOW else reals)[at :: layout.MEASURED_WORDS].tolist()
            for at in (HOW, *range(HOW))  # in the order of the columns
        )
        places = [
            (number, index)
            for index, (number, *entry) in enumerate(
                zip(values.numbers(chunk.first, last), how, *measured[: layout.COUNTS], strict=True)
            )
            if number != NONE and _is_sound(*entry)
        ]
        if places and not columns:
            empty = len(tables.value_meta)
            columns = [array("d" if isnan(nothing) else "q", [nothing]) * empty for nothing in NOT_MEASURED]
        for column, found in zip(columns, (how, *measured), strict=False):
            for number, index in places:
                # Adding 0 makes -0.0 into 0.0, since SQLite keeps no sign of it and a trace is to say the same
                # before and after it was saved.
                column[number] = found[index] + 0
    for name, column in zip(MEASURED_FIELDS, columns, strict=False):
        setattr(tables, name, column)


def fill_sketches(streams: Streams, values: Values, tables: Tables) -> None:
    """By what the numbers of values are known again, where that was asked for."""
    for chunk in streams.of(layout.SKETCHED):
        raw = chunk.words(chunk.first, chunk.last).cast("B")
        there = raw.cast("q")[layout.SKETCHED_WORDS - 1 :: layout.SKETCHED_WORDS].tolist()
        for index, which in enumerate(there):
            number = (
                values.number(chunk.first + index) if which in (layout.WITH_OTHER_HASH, layout.SKETCHED_NOW) else NONE
            )
            if number != NONE:
                sketch = bytes(raw[index * layout.SKETCHED_ENTRY :][: SKETCH.size])
                tables.sketches[number] = sketch if which == layout.SKETCHED_NOW else without_hash(sketch)


def _end_of_written(chunk: Chunk, width: int) -> int:
    """Behind the last entry that was written: its last word is not 0. Most of a chunk may be empty."""
    marks = chunk.words(chunk.first, chunk.last)[width - 1 :: width].tolist()
    while marks and not marks[-1]:
        marks.pop()
    return chunk.first + len(marks)


def _is_sound(how: int, count: int, nan: int, posinf: int, neginf: int, zeros: int) -> bool:
    """It was written, and its counts add up; of a damaged journal nothing is believed."""
    if not layout.BY_NUMPY <= how <= layout.BY_KERNEL or nan < 0 or posinf < 0 or neginf < 0 or zeros < 0:
        return False
    return nan + posinf + neginf + zeros <= count


# ---------------------------------------------------------------- kept

# Which values have a copy, and where it lies, from the journal.


class Kept(NamedTuple):
    """Some bytes, and where in them a value begins; values that share memory share them."""

    value: int
    """Its number in the tables."""
    shard: int
    """Of the recording's folder; else the number of a piece of memory."""
    offset: int
    length: int
    first: int


def kept_values(streams: Streams, values: Values, *owners: int) -> list[list[Kept]]:
    """In order of the values, for each of the owners: NONE is memory, else it is the folder of that recording."""
    found: dict[int, list[Kept]] = {owner: [] for owner in owners}
    for chunk in streams.of(layout.KEPT):
        last = _end_of_written(chunk, layout.KEPT_WORDS)
        words = chunk.words(chunk.first, last).tolist()
        columns = [words[column :: layout.KEPT_WORDS] for column in range(layout.KEPT_WORDS)]
        homes = {place: layout.read_place(place) for place in set(columns[-1]) if place}
        for number, offset, length, first, place in zip(values.numbers(chunk.first, last), *columns, strict=True):
            if place and number != NONE and (owner := homes[place][0]) in found:
                found[owner].append(Kept(number, homes[place][1], offset, length, first))
    return [sorted(each) for each in found.values()]


# ---------------------------------------------------------------- links

# How they hang together: which event made each value, which values share memory, what backward ran for whom.


def link_values(tables: Tables) -> None:
    """The producer of a value is the innermost event that gave it without having taken it.

    A variable's change and a mark tell of values, and make none.
    """
    producer, io, start_ns, end_ns = tables.value_producer, tables.io.tolist(), tables.start_ns, tables.end_ns
    counts = form_sizes(tables)
    tells = {number for number, what in enumerate(tables.whats) if what.kind in ("variable", "mark")}
    for number, (what, args, result, first) in enumerate(
        zip(tables.what, tables.args, tables.result, tables.first_io, strict=True)
    ):
        given = counts[result]
        if not given or what in tells:
            continue
        middle = first + counts[args]
        for value in io[middle : middle + given]:
            if value in io[first:middle]:
                continue
            earlier = producer[value]
            # Events come in order of opening: one that began before the earlier one ended is inside of it.
            if earlier == NONE or start_ns[number] < end_ns[earlier]:
                producer[value] = number


def inside(before: int) -> int:
    """The array in whose memory a tensor lies, where ``before`` says so (as -2 - number); else NONE."""
    return -2 - before if before < NONE else NONE


def link_storages(tables: Tables, addresses: Sequence[int], before: Sequence[int]) -> None:
    """A result shares memory with an argument at the same address: both were alive, so addresses do not lie.

    So does a tensor with what it was before a change. Between values that nothing joins nothing is claimed,
    because addresses are reused at once.
    """
    io, args, first_io, counts = tables.io, tables.args, tables.first_io, form_sizes(tables)
    address_of, storage = list(addresses), list[int]()
    for value, (event, address, earlier) in enumerate(zip(tables.value_producer, address_of, before, strict=True)):
        found = value if address else NONE
        if earlier < NONE and inside(earlier) < value:
            found = storage[inside(earlier)]  # a tensor over the memory of an array
        elif address and 0 <= earlier < value and address_of[earlier] == address:
            found = storage[earlier]
        elif address and event != NONE:
            first = first_io[event]
            for taken in io[first : first + counts[args[event]]]:
                if address_of[taken] == address and taken < value:
                    found = storage[taken]
                    break
        storage.append(found)
    tables.value_storage = array("q", storage)


class Nodes:
    """Which forward event an event of backward belongs to: by the numbers of the autograd nodes that each one made."""

    def __init__(self) -> None:
        self._made: dict[int, list[tuple[int, int, int]]] = {}
        """By thread: the first node of an event, the one behind its last, and the event; in order of opening."""
        self._ran: list[tuple[int, int, int]] = []
        """Thread, node and event."""

    def take(self, thread: int, words: list[int], events: list[int]) -> None:
        """What records say of nodes; NONE for those that are no events."""
        made, before = self._made.setdefault(thread, []), (0, 0)
        for call, nodes, event in zip(
            words[layout.CALL :: layout.RECORD_WORDS], words[layout.NODES :: layout.RECORD_WORDS], events, strict=True
        ):
            if call >= NONE or nodes < 0 or event == NONE:
                continue
            first = -2 - call
            count = ((nodes & layout.NODE_MASK) - first) & layout.NODE_MASK
            if count:
                made.append((first, first + count, event))
            node = (nodes >> layout.NODE_BITS) - 1
            if 0 <= node < layout.MOST_NODES:
                self._ran.append((thread, node, event))
                # Double backward: the node of an op is made before the op itself opens.
                since = before[1] if before[1] <= first else before[0]
                if since < first and before != (0, 0):
                    made.append((since, first, event))
            before = (first, first + count)

    def link(self, tables: Tables, callers: dict[int, int]) -> None:
        """Fill the column ``forward``; what the engine ran in a thread of its own has the nodes of its caller's."""
        if not self._ran:
            return
        wanted = {node for _, node, _ in self._ran}
        owners = {thread: _owners(made, wanted) for thread, made in self._made.items()}
        for thread, node, event in self._ran:
            caller = callers.get(thread, NONE)
            owner = owners.get(caller if caller != NONE else thread, {}).get(node, NONE)
            # An event is not its own reason; nor is one that came later, where numbers began anew.
            tables.forward[event] = owner if owner < event else NONE


def _owners(made: list[tuple[int, int, int]], wanted: set[int]) -> dict[int, int]:
    """By node: the innermost event that made it. Events come in order of opening, so the inner ones come last."""
    owners: dict[int, int] = {}
    for first, last, event in made:
        if last - first > len(wanted):
            owners.update((node, event) for node in wanted if first <= node < last)
        else:
            owners.update((node, event) for node in range(first, last) if node in wanted)
    return owners
