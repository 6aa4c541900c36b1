"""One record at a time, for those who listen while the program runs."""

from __future__ import annotations

from typing import NamedTuple

from torchglass.events.schema import EVENT_COLUMNS, NONE
from torchglass.events.types import Event
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
    Streams,
)
from torchglass.settle.columns import MODULE, Batch, Fixed, module_row
from torchglass.settle.settler import Settler, Source
from torchglass.settle.spans import LOST_ID

Record = tuple[int, int]
"""A thread, and the number of one of its records."""


Alike = tuple[int, tuple[int, ...], bool]
"""The thread, the columns but times and values, and whether in backward: what events that are alike share."""


class Sample(NamedTuple):
    """An event, the form of its arguments, and what its key says between the module and the number."""

    event: Event
    form: int
    key: str


def _is_just_open(words: list[int]) -> bool:
    return words[RESULT] == words[ERROR] == words[END] == NONE and words[CALL] < 0


class LiveSettler(Settler):
    """Gives the event of a record at once."""

    def __init__(self, streams: Streams, recording: int, source: Source) -> None:
        super().__init__(streams, recording, source)
        self.open: dict[Record, tuple[Event, int]] = {}
        """Events that are open and their modules."""
        self.count = 0
        self._samples: dict[Alike, Sample] = {}
        """Events that were worked out: a program makes the same few over and over."""
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
        parent = NONE if above is None else above[0].id
        fixed = self.columns.fixed((what, words[ARGS], words[STACK], module, words[RESULT]))
        alike = (thread, fixed.columns, in_backward)
        sample = self._samples.get(alike) if _is_just_open(words) else None
        if sample is None:
            event = self._first(thread, words, (parent, module, int(in_backward)), alike)
        else:
            event = self._another(thread, words, (parent, module), (fixed, sample))
        self.count += 1
        self.open[thread, at] = (event, module)
        return event

    def _first(self, thread: int, words: list[int], place: tuple[int, int, int], alike: Alike) -> Event:
        """The first event of its kind: worked out as a row, from which it is read."""
        self._append(thread, words, place)
        event = self.tables.event(0, self.count)
        if _is_just_open(words):
            around = 0 if event.module is None else len(f"{event.root}/{event.module}")
            self._samples[alike] = Sample(event, self.tables.args[0], event.key[around:].rpartition("#")[0])
        for column in self._emptied:
            del column[:]
        return event

    def _another(self, thread: int, words: list[int], place: tuple[int, int], like: tuple[Fixed, Sample]) -> Event:
        """An event that differs from one before only in what it took, when, and in which module."""
        (parent, module), (fixed, sample) = place, like
        columns, tables, is_module = self.columns, self.tables, words[WHAT] < 0
        row = None if module == NONE else tables.modules[module]
        times = columns.occurrences[fixed.stem]
        columns.occurrences[fixed.stem] += 1
        tables.io.extend(self._values(thread, words[INPUTS], fixed.taken))
        made = sample.event._replace(
            id=self.count,
            parent=None if parent < 0 else parent,
            start_ns=words[START],
            module=row.path if row else None,
            root=row.root if row else None,
            call=columns.count_call(module) if is_module else None,
            detail=row.detail if row and is_module else sample.event.detail,
            args=tables.text_of(sample.form, 0),
            inputs=tables.values_of(sample.form, 0),
            key=f"{row.root}/{row.path}{sample.key}#{times}" if row else f"{sample.key}#{times}",
        )
        del tables.io[:]
        return made

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
