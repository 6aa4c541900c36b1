"""Settle one record at a time, for live output while the program runs.

Most events are like an earlier one: the same callee, arguments and stack. So the first event of a *kind* is settled as
usual, and later ones are copies of it with another id, time, values and module.
"""

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


EventKind = tuple[int, int, int, int, int, bool]
"""What events have in common that differ only in their values, time and module.

These are the thread, the callee, the rows of arguments and stack, the class of the innermost module, and whether the
autograd engine was running.
"""
_INDICES = {name: place for place, name in enumerate(Event._fields)}
_ID, _PARENT, _START, _END = (_INDICES[name] for name in ("id", "parent", "start_ns", "end_ns"))
_MODULE, _ROOT, _CALL, _DETAIL = (_INDICES[name] for name in ("module", "root", "call", "detail"))
_ARGS, _RESULT, _INPUTS, _OUTPUTS = (
    _INDICES[name] for name in ("args", "result", "inputs", "outputs")
)
_KEY, _ERROR = _INDICES["key"], _INDICES["error"]


TextAndValues = tuple[str, tuple[Value, ...]]
"""Arguments or a result as text, and the values in them."""
CallKind = tuple[int | str, ...]
"""What calls without events inside have in common that look the same when they have ended.

That is their EventKind, the row of the result, the metadata of all values and, for a module, its number and settings.
"""
MAX_CACHED = 8192
"""Number of texts, and of calls without events inside, that are cached."""
_OPEN_WORDS = [NONE] * (START - RESULT)
"""The closing words of a record whose event has not ended."""


class Sample(NamedTuple):
    """The first event of a kind, from which others are copied."""

    event: Event
    form: int
    """The form of its arguments."""
    input_count: int
    """The number of values in its arguments."""
    key: str
    """The part of its key between the module and the number of the occurrence."""


def _is_just_open(words: list[int]) -> bool:
    """Return whether a record has no closing words yet, and is not a variable's."""
    return words[RESULT] == words[ERROR] == words[END] == NONE and words[CALL] < 0


class LiveSettler(Settler):
    """Returns the event of a record as soon as the record is written.

    With ``keyed=False`` it leaves out what printed lines do not need: the event's ``key``, and which values it has. Its
    values are then any earlier values with the same metadata.
    """

    def __init__(
        self, streams: Streams, recording: int, source: Source, keyed: bool = True
    ) -> None:
        super().__init__(streams, recording, source)
        self.open: dict[Record, tuple[Event, int]] = {}
        """The events that have not ended, each with the row of its module."""
        self.count = 0
        """The number of events so far."""
        self._keyed = keyed
        self._samples: dict[EventKind, Sample] = {}
        """The first event of each kind. A program makes the same few kinds over and over."""
        self._texts: dict[tuple[int, ...], TextAndValues] = {}
        """Keyed by the number of a form and the rows of metadata of its values."""
        self._results: dict[int, tuple[int, int]] = {}
        """Keyed by the row of a result: its form, and the number of values in it."""
        self._leaf_calls: dict[CallKind, Event] = {}
        """Ended calls without events inside. The layers of a model make the same ones over and over."""
        self._emptied = [
            *(getattr(self.tables, name) for name in EVENT_COLUMNS),
            self.tables.first_io,
            self.tables.io,
        ]
        """The event columns, which are emptied after each row. The tables that a row refers to stay."""

    def opened(self, thread: int, at: int, words: list[int], in_backward: bool) -> Event:
        """Return the event of a record that has just started. Its id is its number in the order of starting."""
        what = words[WHAT]
        parent = self.open.get((thread, words[PARENT]))
        if parent is None:
            parent_id = NONE
            module = self._module_around(thread, words[PARENT])
        else:
            parent_event, module = parent
            parent_id = parent_event.id
        if what < 0:
            module = module_row(what)
        kind = self._kind_of(thread, words, module, in_backward)
        event = Event._make(self._fields_at_start(words, (parent_id, module), kind))
        self.open[thread, at] = (event, module)
        return event

    def _fields_at_start(
        self, words: list[int], place: tuple[int, int], kind: EventKind
    ) -> list[Any]:
        """Return the fields of an event when it starts. ``place`` is its parent event and the row of its module."""
        sample = None
        if _is_just_open(words):
            sample = self._samples.get(kind)
        if sample is None:
            fields = self._first_of_kind(words, place, kind)
        else:
            fields = self._like_sample(kind[0], words, place, sample)
        self.count += 1
        return fields

    def _kind_of(self, thread: int, words: list[int], module: int, in_backward: bool) -> EventKind:
        what = words[WHAT]
        if module >= len(self.tables.modules):
            self._read_rows()
        cls = NONE
        if module != NONE:
            cls = self.journal_rows.modules[module].cls
        callee = what
        if what < 0:
            callee = FIRST_CLASS - cls
        return (thread, callee, words[ARGS], words[STACK], cls, in_backward)

    def _read_rows(self) -> None:
        """Read the rows that were written since the last time. Called where a record may refer to a new one."""
        self.journal_rows.update()
        if len(self.journal_rows.modules) != len(self.tables.modules):
            self.columns.add_modules(NONE)

    def _first_of_kind(
        self, words: list[int], place: tuple[int, int], kind: EventKind
    ) -> list[Any]:
        """Return the fields of the first event of its kind, by settling it as a row of the tables."""
        self._read_rows()
        self._append(kind[0], words, (*place, int(kind[-1])))
        event = self.tables.event(0, self.count)
        if _is_just_open(words):
            module_length = 0
            if event.module is not None:
                module_length = len(f"{event.root}/{event.module}")
            key = event.key[module_length:].rpartition("#")[0]
            self._samples[kind] = Sample(event, self.tables.args[0], len(event.inputs), key)
        for column in self._emptied:
            del column[:]
        fields: list[Any] = [*event]
        if not self._keyed:
            fields[_KEY] = ""
        return fields

    def _like_sample(
        self, thread: int, words: list[int], place: tuple[int, int], sample: Sample
    ) -> list[Any]:
        """Return the fields of an event that differs from a sample only in its inputs, time and module."""
        parent, module = place
        form = sample.form
        is_module = words[WHAT] < 0
        row = None
        if module != NONE:
            row = self.tables.modules[module]
        fields: list[Any] = [*sample.event]
        fields[_ID] = self.count
        fields[_PARENT] = None
        if parent >= 0:
            fields[_PARENT] = parent
        fields[_START] = words[START]
        fields[_ARGS], fields[_INPUTS] = self._text_and_values(thread, words[INPUTS], form)
        fields[_KEY] = ""
        if row is not None:
            fields[_MODULE] = row.path
            fields[_ROOT] = row.root
        if row is not None and is_module:
            fields[_CALL] = self.columns.count_call(module)
            fields[_DETAIL] = row.detail
        if self._keyed:
            combination = (words[WHAT], words[ARGS], words[STACK], module, words[RESULT])
            stem = self.columns.fixed(combination).stem
            occurrence = self.columns.occurrences[stem]
            self.columns.occurrences[stem] += 1
            if row:
                fields[_KEY] = f"{row.root}/{row.path}{sample.key}#{occurrence}"
            else:
                fields[_KEY] = f"{sample.key}#{occurrence}"
        return fields

    def closed(self, thread: int, at: int, words: list[int]) -> Event:
        """Return the event of a record that has ended, with its end, result and error."""
        event, module = self.open.pop((thread, at))
        # The settings of a module are written after its first call.
        if words[WHAT] < 0:
            self._read_rows()
        return self._event_at_end([*event], module, thread, words)

    def _event_at_end(self, fields: list[Any], module: int, thread: int, words: list[int]) -> Event:
        error = words[ERROR]
        result = words[RESULT]
        if words[WHAT] < 0 and self.journal_rows.modules[module].settings != fields[_DETAIL]:
            self.columns.add_modules(module)
            fields[_DETAIL] = self.tables.modules[module].detail
        fields[_END] = words[END]
        if error != NONE:
            self._read_rows()
            fields[_ERROR] = self.journal_rows.errors.get(error, "?")
        if result != NONE:
            fields[_RESULT], fields[_OUTPUTS] = self._text_and_values(
                thread, words[OUTPUTS], self._result(result)[0]
            )
        return Event._make(fields)

    def leaf_call(self, thread: int, words: list[int], in_backward: bool) -> Event:
        """Return the event of an ended call that was made in another call and has no events inside.

        It may be an earlier event that is printed in the same way. That one differs in its id, its time, its values,
        the index of the module's call or, for a function, which module of the same class it is in.
        """
        parent_event, module = self.open[thread, words[PARENT]]
        if words[WHAT] < 0:
            module = module_row(words[WHAT])
            self._read_rows()
        kind = self._kind_of(thread, words, module, in_backward)
        call_kind = self._call_kind_of(kind, words, module)
        earlier = self._leaf_calls.get(call_kind)
        if earlier is None:
            return self._first_leaf_call(words, (parent_event.id, module), kind, call_kind)
        self.count += 1
        if words[WHAT] < 0:
            self.columns.count_call(module)
        return earlier

    def _first_leaf_call(
        self, words: list[int], place: tuple[int, int], kind: EventKind, call_kind: CallKind
    ) -> Event:
        thread = kind[0]
        module = place[1]
        fields = self._fields_at_start([*words[:RESULT], *_OPEN_WORDS, words[START]], place, kind)
        event = self._event_at_end(fields, module, thread, words)
        if words[RESULT] != NONE:
            if len(self._leaf_calls) >= MAX_CACHED:
                self._leaf_calls.clear()
            self._leaf_calls[call_kind or self._call_kind_of(kind, words, module)] = event
        return event

    def _call_kind_of(self, kind: EventKind, words: list[int], module: int) -> CallKind:
        """Return the kind of an ended call, or () until an event of its EventKind has started."""
        sample = self._samples.get(kind)
        result = words[RESULT]
        thread = kind[0]
        if sample is None or result == NONE:
            return ()
        _, output_count = self._result(result)
        inputs = self._metas(thread, words[INPUTS], sample.input_count)
        outputs = self._metas(thread, words[OUTPUTS], output_count)
        call_kind = (*kind, result, *inputs, NONE, *outputs)
        if words[WHAT] >= 0:
            return call_kind
        return (*call_kind, module, self.journal_rows.modules[module].settings)

    def _result(self, raw: int) -> tuple[int, int]:
        """Return the form of a result, and the number of values in it."""
        form_and_count = self._results.get(raw)
        if form_and_count is None:
            self._read_rows()
            form = self.columns.result(raw)
            form_and_count = self._results[raw] = (form, len(self.tables.forms[form].roles))
        return form_and_count

    def _text_and_values(self, thread: int, first: int, form: int) -> TextAndValues:
        """Return arguments or a result as text, and the values in them."""
        shown = self.tables.forms[form]
        count = len(shown.roles)
        if not count:
            return shown.pieces[0], ()
        if self._keyed:
            return self._write_text(shown, self._values(thread, first, count))
        key = (form, *self._metas(thread, first, count))
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= MAX_CACHED:
                self._texts.clear()
            text = self._texts[key] = self._write_text(shown, self._values(thread, first, count))
        return text

    def _metas(self, thread: int, first: int, count: int) -> tuple[int, ...]:
        """Return the rows of metadata of values, which is all that is printed of them."""
        if count:
            return tuple([id_ >> NUMBER_BITS for id_ in self.streams.ids(thread, first, count)])
        return ()

    def _write_text(self, shown: Form, numbers: list[int]) -> TextAndValues:
        tables = self.tables
        values = list[Value]()
        text = shown.pieces[0]
        for number, role, piece in zip(numbers, shown.roles, shown.pieces[1:], strict=True):
            text += tables.metas[tables.value_meta[number]].word + piece
            values.append(tables.value(number, role))
        return text, tuple(values)

    def _module_around(self, thread: int, parent: int) -> int:
        """Return the innermost running module around a record whose parent is not an event of this recording."""
        chunks = self.streams.of(RECORDS, thread)
        while parent != NONE:
            chunk = next((chunk for chunk in chunks if chunk.first <= parent < chunk.last), None)
            if chunk is None:
                return NONE
            words = chunk.words(parent, parent + 1)
            if words[WHAT] < 0:
                return module_row(words[WHAT])
            parent = words[PARENT]
        return NONE

    def _append(self, thread: int, words: list[int], place: tuple[int, int, int]) -> None:
        parent, module, backward = place
        columns = self.columns
        batch = Batch(0)
        what = words[WHAT]
        fixed = columns.fixed((what, words[ARGS], words[STACK], module, words[RESULT]))
        call = NONE
        if what < 0:
            call = columns.count_call(module)
        batch.fixed.append(fixed.columns)
        batch.varying += (
            parent, backward, words[START], words[END], module, call, 0, columns.occurrences[fixed.stem],
            columns.error(words[ERROR]), columns.python_call(words[CALL]), NONE,
        )  # fmt: skip
        columns.occurrences[fixed.stem] += 1
        batch.io += self._values(thread, words[INPUTS], fixed.input_count)
        batch.io += self._values(thread, words[OUTPUTS], fixed.output_count)
        columns.extend(thread, batch)

    def _values(self, thread: int, first: int, count: int) -> list[int]:
        """Return the numbers in the tables of the values of an event. Read new ones from the journal."""
        if not count:
            return []
        ids = self.streams.ids(thread, first, count)
        ids += [LOST_ID] * (count - len(ids))
        return [self._value(id_) for id_ in ids]

    def _value(self, id_: int) -> int:
        """Return the number in the tables of a value, given its id. Read it from the journal if it is new."""
        is_lost = id_ == LOST_ID
        tables = self.tables
        metas = tables.value_meta
        versions = tables.value_version
        if is_lost:
            number = len(metas)
        else:
            number = id_ & NUMBER_MASK
        # A value that was read once does not change.
        if number < len(metas) and metas[number] != NONE and versions[number] != NONE:
            return number
        version = NONE
        meta = id_ >> NUMBER_BITS
        if not is_lost:
            entry = self.values.read_one(number)
            if entry is not None:
                version = entry.version
                meta = entry.meta
        missing = number + 1 - len(metas)
        if missing > 0:
            for column in (metas, versions, tables.value_storage, tables.value_producer):
                column.extend([NONE] * missing)
        if meta not in self.journal_rows.metas:
            self._read_rows()
        metas[number] = self.values.meta(meta)
        versions[number] = version
        return number
