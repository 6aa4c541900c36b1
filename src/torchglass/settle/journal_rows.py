"""Reads the rows of a journal, to which its records refer by number, and keeps them by kind.

A *row* describes something that many events share: a function, a code object, a stack, a form of arguments. A record
has the number of the row instead. New rows can be read while the journal is being written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from torchglass.events.schema import ORIGINS
from torchglass.journal import layout, rows
from torchglass.journal.layout import Chunk, Streams, rows_in
from torchglass.source.codes import HERE, OPCODE_COUNT, Code, Opcodes

RawForm = tuple[Any, ...]
"""The form of arguments or of a result as the journal has it (journal/rows.py)."""
NO_OPCODES = Opcodes((0, 0), ("",) * OPCODE_COUNT)
"""Used until a row says which version of Python ran."""


@dataclass(slots=True)
class Module:
    """A module under one path, as far as rows describe it until now."""

    cls: int
    root: int
    path: str
    settings: str = ""
    parameters: tuple[tuple[str, int], ...] = ()
    """Name and value of each parameter."""


@dataclass(slots=True)
class RecordingState:
    """One of the recordings that wrote to the journal."""

    row: rows.RecordingRow
    windows: dict[int, rows.WindowRow] = field(default_factory=dict[int, rows.WindowRow])
    """Keyed by thread."""
    ended: rows.EndedRow | None = None
    """None while the recording runs, or if its process died."""


NO_ROW = bytes(4)
"""A row begins with its length in four bytes. These bytes there mean that the row is not written yet."""


def to_tuples(item: Any) -> Any:
    """Turn lists into tuples at every level, since JSON has only lists."""
    if type(item) is list:
        return tuple(map(to_tuples, cast("list[Any]", item)))
    return item


class ReadTo(NamedTuple):
    """How far a stream of rows has been read."""

    chunk: int
    """The first number of the last chunk that was read; -1 for none."""
    offset: int
    """The offset in that chunk up to which it was read."""


class JournalRows:
    """All rows of a journal by kind and number."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._read_to: dict[int, ReadTo] = {}
        """By stream."""

        # The process, its recordings and threads.
        self.journal: rows.JournalRow | None = None
        self.opcodes = NO_OPCODES
        """Those of the Python version that ran."""
        self.recordings: dict[int, RecordingState] = {}
        self.threads: dict[int, rows.ThreadRow] = {}
        self.notes: dict[str, None] = {}
        """In order, each once."""
        self.faults: dict[str, int] = {}
        """How often each error of ours happened."""

        # What events refer to by number.
        self.callees: dict[int, rows.WhatRow] = {}
        self.stacks: dict[int, tuple[int, ...]] = {}
        """(stack below it, code, instruction, code, instruction, …), innermost frame first."""
        self.forms: dict[int, RawForm] = {}
        self.metas: dict[int, rows.MetaRow] = {}
        self.classes: dict[int, rows.ClassRow] = {}
        self.modules: dict[int, Module] = {}
        self.errors: dict[int, str] = {}

        # Code and its sources.
        self.code_rows: dict[int, rows.CodeRow] = {}
        self._codes: dict[int, Code] = {}
        """The same, decoded when they are first asked for."""
        self.sources: dict[str, rows.SourceRow] = {}
        """By file."""

        # What was read from sources that a reader will not have.
        self.places: dict[tuple[int, int, bool], rows.PlaceRow] = {}
        """By code object, instruction, and whether the expression was read."""
        self.origins: dict[int, str] = {}
        """The origin of the code objects that have rows in ``places``."""
        self.call_names: dict[tuple[int, ...], rows.CallNamesRow] = {}
        """The names of the arguments of calls; see ``rows.CallNamesRow.call``."""

        # Ranges of records, and which events and values are kept.
        self.backward: dict[int, dict[int, int]] = {}
        """By thread, the ranges of records during which the autograd engine ran, as beginning and end."""
        self._unfinished_backward: dict[int, set[int]] = {}
        """By thread, the beginnings of those whose end is not known yet."""
        self.rounds: dict[int, set[rows.RoundRow]] = {}
        """By thread, where outer loops began new rounds that no stack shows."""
        self.only: dict[int, rows.OnlyRow] = {}
        """By recording."""
        self.dropped: dict[tuple[int, int], rows.DroppedRow] = {}
        """Counts of dropped records, by thread and first record."""
        self.series: dict[tuple[int, int], rows.SeriesRow] = {}
        """Statistics of values in dropped records, by thread and first record."""
        self.saved: dict[tuple[int, int], rows.SavedRow] = {}
        """By recording and number."""

        self._by_number: dict[int, dict[int, Any]] = {
            layout.THREAD: self.threads,
            layout.CODE: self.code_rows,
            layout.META: self.metas,
            layout.WHAT_ROW: self.callees,
            layout.CLASS: self.classes,
            layout.ERROR_ROW: self.errors,
            layout.ONLY: self.only,
        }
        """By kind, where rows are stored that are only looked up by their number."""
        self._adders: dict[int, Callable[[int, Any], None]] = {
            layout.JOURNAL: self._add_journal,
            layout.RECORDING: self._add_recording,
            layout.WINDOW: self._add_window,
            layout.ENDED: self._add_ended,
            layout.MODULE: self._add_module,
            layout.DESCRIBED: self._describe_modules,
            layout.STACK_ROW: self._add_stack,
            layout.FORM: self._add_form,
            layout.NOTE: self._add_note,
            layout.FAULT: self._add_fault,
            layout.BACKWARD: self._add_backward,
            layout.SAVED: self._add_saved,
            layout.SOURCE: self._add_source,
            layout.PLACE: self._add_place,
            layout.CALL_NAMES: self._add_call_names,
            layout.DROPPED: self._add_dropped,
            layout.SERIES: self._add_series,
            layout.ROUND: self._add_round,
        }
        """By kind, the method that stores a row of any other kind, with its number."""

    def update(self) -> None:
        """Read the rows that have been added since the last time."""
        for stream in (layout.ROWS, layout.PASSING):
            chunk_read, offset = self._read_to.get(stream, ReadTo(-1, 0))
            # Live output calls this twice for each event, so check quickly whether there is a new row at all.
            chunks = self._streams.chunks.get((stream, 0))
            if (
                chunks
                and chunks[-1].first == chunk_read
                and chunks[-1].buffer[offset : offset + len(NO_ROW)] == NO_ROW
            ):
                continue
            for chunk in self._streams.of(stream):
                if chunk.first > chunk_read:
                    offset = 0
                if chunk.first >= chunk_read:
                    offset = self._read_chunk(chunk, offset)
                    chunk_read = chunk.first
            self._read_to[stream] = ReadTo(chunk_read, offset)

    def _read_chunk(self, chunk: Chunk, begin: int) -> int:
        """Read the rows of a chunk from an offset on, and return the offset at which they end."""
        end = begin
        for row_end, (kind, number, payload) in rows_in(chunk, begin):
            end = row_end
            if kind in self._by_number:
                self._by_number[kind][number] = rows.decoded(kind, payload)
            elif kind in self._adders:
                self._adders[kind](number, rows.decoded(kind, payload))
            # A later version may have written rows of other kinds.
        return end

    def thread(self, number: int) -> rows.ThreadRow:
        """Return the row of a thread, or one with a default name if the row is damaged."""
        return self.threads.get(number) or rows.ThreadRow(
            f"thread {number}", layout.NONE, layout.NONE
        )

    def code(self, number: int) -> Code:
        """Return a code object, decoded from its row."""
        code = self._codes.get(number)
        if code is None:
            row = self.code_rows[number]
            code = Code(
                row.file, row.name, row.qualname, row.line, row.flags, rows.unpacked(row.instructions),
                rows.unpacked(row.positions), tuple(row.names), row.digest, self.opcodes,
            )  # fmt: skip
            self._codes[number] = code
        return code

    # ------------------------------------------------------------ the process, its recordings and threads

    def _add_journal(self, number: int, row: rows.JournalRow) -> None:
        self.journal = row
        python = (0, 0)
        if len(row.python) > 1:
            python = (row.python[0], row.python[1])
        names = [*row.opcodes, *[""] * OPCODE_COUNT][:OPCODE_COUNT]
        opcodes = Opcodes(python, tuple(names))
        if opcodes == HERE:
            # Use the same object, so that comparing with HERE is fast.
            opcodes = HERE
        self.opcodes = opcodes

    def _add_recording(self, number: int, row: rows.RecordingRow) -> None:
        self.recordings[number] = RecordingState(row)

    def _add_window(self, number: int, row: rows.WindowRow) -> None:
        if number in self.recordings:
            self.recordings[number].windows.setdefault(row.thread, row)

    def _add_ended(self, number: int, row: rows.EndedRow) -> None:
        if number in self.recordings:
            self.recordings[number].ended = row

    def _add_note(self, number: int, row: str) -> None:
        self.notes[row] = None

    def _add_fault(self, number: int, row: str) -> None:
        self.faults[row] = max(self.faults.get(row, 0), 1)

    # ------------------------------------------------------------ what events refer to

    def _add_module(self, number: int, row: rows.ModuleRow) -> None:
        self.modules[number] = Module(row.cls, row.root, row.path)

    def _add_stack(self, number: int, row: list[int]) -> None:
        if len(row) % 2 == 0 or any(type(word) is not int for word in row):
            raise ValueError("a stack is not made of a base and of pairs of numbers")
        self.stacks[number] = tuple(row)

    def _add_form(self, number: int, row: list[Any]) -> None:
        self.forms[number] = to_tuples(row)

    def _describe_modules(self, number: int, row: rows.DescribedRow) -> None:
        """Add to modules what is only known after they were called."""
        for described, cls, settings, *parameters in row.modules:
            module = self.modules.get(described)
            if module is not None and type(cls) is int:
                module.cls = cls
                module.settings = str(settings)
                names = map(str, parameters[::2])
                values = map(int, parameters[1::2])
                module.parameters = tuple(zip(names, values, strict=True))

    # ------------------------------------------------------------ code and its sources

    def _add_source(self, number: int, row: rows.SourceRow) -> None:
        self.sources[row.file] = row

    def _add_place(self, number: int, row: rows.PlaceRow) -> None:
        if len(row.place) != 4 or row.origin not in ORIGINS:
            raise ValueError("a place in the code has no line, column or origin")
        self.places[row.code, row.instruction, row.has_expression] = row
        self.origins[row.code] = row.origin

    def _add_call_names(self, number: int, row: rows.CallNamesRow) -> None:
        self.call_names[tuple(row.call)] = row

    # ------------------------------------------------------------ ranges of records, and what is kept

    def _add_saved(self, number: int, row: rows.SavedRow) -> None:
        self.saved[row.recording, number] = row

    def _add_dropped(self, number: int, row: rows.DroppedRow) -> None:
        self.dropped[row.thread, row.first] = row

    def _add_series(self, number: int, row: rows.SeriesRow) -> None:
        self.series[row.thread, row.first] = row

    def _add_round(self, number: int, row: rows.RoundRow) -> None:
        self.rounds.setdefault(number, set()).add(row)

    def _add_backward(self, number: int, row: rows.BackwardRow) -> None:
        """Note the beginning or the end of a range of records during which the autograd engine ran; by thread.

        The end of a range also ends all unfinished ranges that began within it::

            begin 5             {5: NONE}
            begin 9             {5: NONE, 9: NONE}      in the first range
            begin 5, end 20     {5: 20, 9: 20}          both have ended

        Where chunks may be dropped, the beginning of one and the same range is written several times. If that comes
        after its end was read, the range stays as it is.
        """
        ranges = self.backward.setdefault(number, {})
        unfinished = self._unfinished_backward.setdefault(number, set())
        if row.begin not in ranges:
            ranges[row.begin] = row.end
        if row.end == layout.NONE:
            if ranges[row.begin] == layout.NONE:
                unfinished.add(row.begin)
            return
        ended = [begin for begin in unfinished if begin >= row.begin]
        for begin in ended:
            ranges[begin] = row.end
            unfinished.discard(begin)
