"""One record at a time, for those who listen while the program runs."""

from __future__ import annotations

from torchglass.events.schema import EVENT_COLUMNS, NONE
from torchglass.events.types import Event
from torchglass.journal.chunks import Streams
from torchglass.journal.layout import (
    ARGS,
    CALL,
    END,
    ERROR,
    INPUTS,
    NUMBER_BITS,
    NUMBER_MASK,
    OUTPUTS,
    PARENT,
    RECORDS,
    RESULT,
    STACK,
    START,
    WHAT,
)
from torchglass.settle.columns import MODULE, Batch, module_row
from torchglass.settle.settler import Settler, Source
from torchglass.settle.spans import LOST_ID

Record = tuple[int, int]
"""A thread, and the number of one of its records."""


class LiveSettler(Settler):
    """Gives the event of a record at once."""

    def __init__(self, streams: Streams, recording: int, source: Source) -> None:
        super().__init__(streams, recording, source)
        self.open: dict[Record, tuple[Event, int]] = {}
        """Events that are open and their modules."""
        self.count = 0
        self._emptied = [*(getattr(self.tables, name) for name in EVENT_COLUMNS), self.tables.first_io, self.tables.io]
        """One row at a time is made and forgotten; what it refers to stays."""

    def opened(self, thread: int, at: int, words: list[int], in_backward: bool) -> Event:
        """The event of a record that has just been opened; its id is its place in the order of opening."""
        self.interned.update()
        what, above = words[WHAT], self.open.get((thread, words[PARENT]))
        self.columns.add_modules(NONE)
        if what < 0:
            module = module_row(what)
        else:
            module = above[1] if above is not None else self._module_above(thread, words[PARENT])
        self._append(thread, words, (NONE if above is None else above[0].id, module, int(in_backward)))
        event = self.tables.event(0, self.count)
        for column in self._emptied:
            del column[:]
        self.count += 1
        self.open[thread, at] = (event, module)
        return event

    def closed(self, thread: int, at: int, words: list[int]) -> Event:
        """The same event with what is known at its end; nothing else can have changed."""
        self.interned.update()
        event, module = self.open.pop((thread, at))
        if event.kind == MODULE:
            self.columns.add_modules(module)
        error, raw_result, tables = words[ERROR], words[RESULT], self.tables
        result = NONE if raw_result == NONE else self.columns.result(raw_result)
        if result != NONE:
            tables.io.extend(self._values(thread, words[OUTPUTS], len(tables.forms[result].roles)))
        closed = event._replace(
            end_ns=words[END],
            detail=tables.modules[module].detail if event.kind == MODULE else "",
            result=tables.text_of(result, 0),
            outputs=tables.values_of(result, 0),
            error=None if error == NONE else self.interned.errors.get(error, "?"),
        )
        del tables.io[:]
        return closed

    def _module_above(self, thread: int, parent: int) -> int:
        """The innermost module under way above a record of which no event was asked for."""
        chunks = self.streams.of(RECORDS, thread)
        while parent != NONE:
            chunk = next((each for each in chunks if each.first <= parent < each.last), None)
            if chunk is None:
                return NONE
            words = chunk.words(parent, parent + 1)
            if words[WHAT] < 0:
                return module_row(words[WHAT])
            parent = words[PARENT]
        return NONE

    def _append(self, thread: int, words: list[int], place: tuple[int, int, int]) -> None:
        parent, module, backward = place
        columns, batch, what = self.columns, Batch(0), words[WHAT]
        fixed = columns.fixed((what, words[ARGS], words[STACK], module, words[RESULT]))
        call = columns.count_call(module) if what < 0 else NONE
        batch.fixed.append(fixed.columns)
        batch.varying += (
            parent, backward, words[START], words[END], module, call, 0, columns.occurrences[fixed.stem],
            columns.error(words[ERROR]), columns.python_call(words[CALL]), NONE,
        )  # fmt: skip
        columns.occurrences[fixed.stem] += 1
        batch.io += self._values(thread, words[INPUTS], fixed.taken)
        batch.io += self._values(thread, words[OUTPUTS], fixed.given)
        columns.extend(thread, batch)

    def _values(self, thread: int, first: int, count: int) -> list[int]:
        """Values as they are now, with their numbers in the tables."""
        if not count:
            return []
        found = self.streams.ids(thread, first, count)
        found += [LOST_ID] * (count - len(found))
        return [self._value(each) for each in found]

    def _value(self, packed: int) -> int:
        is_lost, tables = packed == LOST_ID, self.tables
        number = len(tables.value_meta) if is_lost else packed & NUMBER_MASK
        read = None if is_lost else self.values.read_one(number)
        version, _, _, meta = read or (NONE, 0, NONE, packed >> NUMBER_BITS)
        missing = number + 1 - len(tables.value_meta)
        for column in (tables.value_meta, tables.value_version, tables.value_storage, tables.value_producer):
            if missing > 0:
                column.extend([NONE] * missing)
        tables.value_meta[number], tables.value_version[number] = self.values.meta(meta), version
        return number
