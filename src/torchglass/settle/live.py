"""One record at a time, for those who listen while the program runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchglass.events.schema import EVENT_COLUMNS, NONE, Form
from torchglass.events.types import Event, Value
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
from torchglass.settle.columns import FIRST_CLASS, Batch, module_row
from torchglass.settle.settler import Settler, Source
from torchglass.settle.spans import LOST_ID

Record = tuple[int, int]
"""A thread, and the number of one of its records."""


Alike = tuple[int, int, int, int, int, bool]
"""The thread, what was called, the raw numbers of arguments and stack, the class of the module around, and whether in
backward: what events that are alike share."""
_PLACES = {name: place for place, name in enumerate(Event._fields)}
_ID, _PARENT, _START, _END = (_PLACES[name] for name in ("id", "parent", "start_ns", "end_ns"))
_MODULE, _ROOT, _CALL, _DETAIL = (_PLACES[name] for name in ("module", "root", "call", "detail"))
_ARGS, _RESULT, _INPUTS, _OUTPUTS = (_PLACES[name] for name in ("args", "result", "inputs", "outputs"))
_KEY, _ERROR = _PLACES["key"], _PLACES["error"]


Shown = tuple[str, tuple[Value, ...]]
Likeness = tuple[int | str, ...]
"""The same of calls in which nothing happened when they have ended: with the raw number of the result, the metadata of
all values and, of a module, which it is and its settings."""
MOST_KNOWN = 8192
"""Of texts, and of calls in which nothing happened."""
_NO_END = [NONE] * (START - RESULT)
"""What stands in a record until it is closed."""


class Sample(NamedTuple):
    """An event, the form of its arguments, how many values are in it, and the middle of its key: module to number."""

    event: Event
    form: int
    taken: int
    key: str


def _is_just_open(words: list[int]) -> bool:
    return words[RESULT] == words[ERROR] == words[END] == NONE and words[CALL] < 0


class LiveSettler(Settler):
    """Gives the event of a record at once.

    Where it is not ``keyed`` without what no line prints: its ``key``, and which its values are. Others of the same
    metadata, of events before it, then stand for them.
    """

    def __init__(self, streams: Streams, recording: int, source: Source, keyed: bool = True) -> None:
        super().__init__(streams, recording, source)
        self.open: dict[Record, tuple[Event, int]] = {}
        """Events that are open and their modules."""
        self.count = 0
        self._keyed = keyed
        self._samples: dict[Alike, Sample] = {}
        """Events that were worked out: a program makes the same few over and over."""
        self._texts: dict[tuple[int, ...], Shown] = {}
        """By the number of a form and the rows of metadata of its values."""
        self._results: dict[int, tuple[int, int]] = {}
        """By raw number: the form of a result, and how many values are in it."""
        self._wholes: dict[Likeness, Event] = {}
        """Calls in which nothing happened, when they had ended: a model's layers make the same ones over and over."""
        self._emptied = [*(getattr(self.tables, name) for name in EVENT_COLUMNS), self.tables.first_io, self.tables.io]
        """One row at a time is made and forgotten; what it refers to stays."""

    def opened(self, thread: int, at: int, words: list[int], in_backward: bool) -> Event:
        """The event of a record that has just been opened; its id is its place in the order of opening."""
        what, above = words[WHAT], self.open.get((thread, words[PARENT]))
        if what < 0:
            module = module_row(what)
        else:
            module = above[1] if above is not None else self._module_above(thread, words[PARENT])
        place = (NONE if above is None else above[0].id, module)
        event = Event._make(self._begun(words, place, self._alike(thread, words, module, in_backward)))
        self.open[thread, at] = (event, module)
        return event

    def _begun(self, words: list[int], place: tuple[int, int], alike: Alike) -> list[Any]:
        """The fields of an event when it opens, inside an event and a module."""
        sample = self._samples.get(alike) if _is_just_open(words) else None
        fields = self._first(words, place, alike) if sample is None else self._another(alike[0], words, place, sample)
        self.count += 1
        return fields

    def _alike(self, thread: int, words: list[int], module: int, in_backward: bool) -> Alike:
        what = words[WHAT]
        if module >= len(self.tables.modules):
            self._read_rows()
        cls = NONE if module == NONE else self.interned.modules[module].cls
        return thread, FIRST_CLASS - cls if what < 0 else what, words[ARGS], words[STACK], cls, in_backward

    def _read_rows(self) -> None:
        """Read what was written since the last time: asked where a record names what is not known, as few do."""
        self.interned.update()
        if len(self.interned.modules) != len(self.tables.modules):
            self.columns.add_modules(NONE)

    def _first(self, words: list[int], place: tuple[int, int], alike: Alike) -> list[Any]:
        """The first event of its kind: worked out as a row, from which it is read."""
        self._read_rows()
        self._append(alike[0], words, (*place, int(alike[-1])))
        event = self.tables.event(0, self.count)
        if _is_just_open(words):
            around = 0 if event.module is None else len(f"{event.root}/{event.module}")
            key = event.key[around:].rpartition("#")[0]
            self._samples[alike] = Sample(event, self.tables.args[0], len(event.inputs), key)
        for column in self._emptied:
            del column[:]
        fields: list[Any] = [*event]
        if not self._keyed:
            fields[_KEY] = ""
        return fields

    def _another(self, thread: int, words: list[int], place: tuple[int, int], sample: Sample) -> list[Any]:
        """An event that differs from one before only in what it took, when, and in which module."""
        (parent, module), form, is_module = place, sample.form, words[WHAT] < 0
        row = None if module == NONE else self.tables.modules[module]
        fields: list[Any] = [*sample.event]
        fields[_ID], fields[_PARENT], fields[_START] = self.count, None if parent < 0 else parent, words[START]
        fields[_ARGS], fields[_INPUTS] = self._shown(thread, words[INPUTS], form)
        fields[_KEY] = ""
        if row is not None:
            fields[_MODULE], fields[_ROOT] = row.path, row.root
        if row is not None and is_module:
            fields[_CALL], fields[_DETAIL] = self.columns.count_call(module), row.detail
        if self._keyed:
            stem = self.columns.fixed((words[WHAT], words[ARGS], words[STACK], module, words[RESULT])).stem
            times = self.columns.occurrences[stem]
            self.columns.occurrences[stem] += 1
            fields[_KEY] = f"{row.root}/{row.path}{sample.key}#{times}" if row else f"{sample.key}#{times}"
        return fields

    def closed(self, thread: int, at: int, words: list[int]) -> Event:
        """The same event with what is known at its end; nothing else can have changed."""
        event, module = self.open.pop((thread, at))
        if words[WHAT] < 0:
            self._read_rows()  # its first call may have shown its settings
        return self._ended([*event], module, thread, words)

    def _ended(self, fields: list[Any], module: int, thread: int, words: list[int]) -> Event:
        error, result = words[ERROR], words[RESULT]
        if words[WHAT] < 0 and self.interned.modules[module].settings != fields[_DETAIL]:
            self.columns.add_modules(module)
            fields[_DETAIL] = self.tables.modules[module].detail
        fields[_END] = words[END]
        if error != NONE:
            self._read_rows()
            fields[_ERROR] = self.interned.errors.get(error, "?")
        if result != NONE:
            fields[_RESULT], fields[_OUTPUTS] = self._shown(thread, words[OUTPUTS], self._result(result)[0])
        return Event._make(fields)

    def whole(self, thread: int, words: list[int], in_backward: bool) -> Event:
        """The event of a call inside another one, in which nothing happened, when it has ended.

        It may be one before that was alike: in all but its id, when it was, which call of its module it was or, of a
        function, in which module of the same class, and which its values were.
        """
        above, module = self.open[thread, words[PARENT]]
        if words[WHAT] < 0:
            module = module_row(words[WHAT])
            self._read_rows()
        alike = self._alike(thread, words, module, in_backward)
        likeness = self._likeness(alike, words, module)
        known = self._wholes.get(likeness)
        if known is None:
            return self._first_whole(words, (above.id, module), alike, likeness)
        self.count += 1
        if words[WHAT] < 0:
            self.columns.count_call(module)
        return known

    def _first_whole(self, words: list[int], place: tuple[int, int], alike: Alike, likeness: Likeness) -> Event:
        thread, module = alike[0], place[1]
        fields = self._begun([*words[:RESULT], *_NO_END, words[START]], place, alike)
        event = self._ended(fields, module, thread, words)
        if words[RESULT] != NONE:
            if len(self._wholes) >= MOST_KNOWN:
                self._wholes.clear()
            self._wholes[likeness or self._likeness(alike, words, module)] = event
        return event

    def _likeness(self, alike: Alike, words: list[int], module: int) -> Likeness:
        """What calls share that are alike from end to end; nothing as long as none like it has been opened."""
        sample, result, thread = self._samples.get(alike), words[RESULT], alike[0]
        if sample is None or result == NONE:
            return ()
        taken = self._metas(thread, words[INPUTS], sample.taken)
        given = self._metas(thread, words[OUTPUTS], self._result(result)[1])
        if words[WHAT] >= 0:
            return (*alike, result, *taken, NONE, *given)
        return (*alike, result, *taken, NONE, *given, module, self.interned.modules[module].settings)

    def _result(self, raw: int) -> tuple[int, int]:
        known = self._results.get(raw)
        if known is None:
            self._read_rows()
            form = self.columns.result(raw)
            known = self._results[raw] = (form, len(self.tables.forms[form].roles))
        return known

    def _shown(self, thread: int, first: int, form: int) -> Shown:
        """Arguments or a result as text, and the values in them."""
        shown = self.tables.forms[form]
        if not shown.roles:
            return shown.pieces[0], ()
        if self._keyed:
            return self._written(shown, self._values(thread, first, len(shown.roles)))
        alike = (form, *self._metas(thread, first, len(shown.roles)))
        known = self._texts.get(alike)
        if known is None:
            if len(self._texts) >= MOST_KNOWN:
                self._texts.clear()
            known = self._texts[alike] = self._written(shown, self._values(thread, first, len(shown.roles)))
        return known

    def _metas(self, thread: int, first: int, count: int) -> tuple[int, ...]:
        """The rows of metadata of values: as much as is printed of them."""
        return tuple([each >> NUMBER_BITS for each in self.streams.ids(thread, first, count)]) if count else ()

    def _written(self, shown: Form, numbers: list[int]) -> Shown:
        tables, values = self.tables, list[Value]()
        text = shown.pieces[0]
        for number, role, piece in zip(numbers, shown.roles, shown.pieces[1:], strict=True):
            text += tables.metas[tables.value_meta[number]].word + piece
            values.append(tables.value(number, role))
        return text, tuple(values)

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
        metas, versions = tables.value_meta, tables.value_version
        number = len(metas) if is_lost else packed & NUMBER_MASK
        if number < len(metas) and metas[number] != NONE and versions[number] != NONE:
            return number  # what was written of a value stays
        read = None if is_lost else self.values.read_one(number)
        version, _, _, meta = read or (NONE, 0, NONE, packed >> NUMBER_BITS)
        missing = number + 1 - len(metas)
        if missing > 0:
            for column in (metas, versions, tables.value_storage, tables.value_producer):
                column.extend([NONE] * missing)
        if meta not in self.interned.metas:
            self._read_rows()
        metas[number], versions[number] = self.values.meta(meta), version
        return number
