"""What the numbers in a journal's records mean: its rows, read once and again when there are more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from torchglass.journal import layout, rows
from torchglass.journal.layout import Chunk, Streams, rows_in
from torchglass.source.codes import HERE, MOST_OPCODES, Code, Opcodes

Form = tuple[Any, ...]
NO_OPCODES = Opcodes((0, 0), ("",) * MOST_OPCODES)
"""As long as nobody has said which Python ran."""


@dataclass(slots=True)
class Module:
    """A module under one path, as far as it is known by now; ``parameters`` are (name, value)."""

    cls: int
    root: int
    path: str
    settings: str = ""
    parameters: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class RecordingState:
    """One of the recordings that wrote to the journal."""

    row: rows.RecordingRow
    windows: dict[int, rows.WindowRow] = field(default_factory=dict[int, rows.WindowRow])
    """By thread."""
    ended: rows.EndedRow | None = None


NO_ROW = bytes(4)
"""In the place of a row's length: there is none yet."""


def as_form(found: Any) -> Any:
    """Lists become tuples again, all the way down."""
    return tuple(map(as_form, cast("list[Any]", found))) if type(found) is list else found


def _keep(name: str) -> Callable[[Interned, int, Any], None]:
    """Rows of a kind that are only kept by their number."""

    def take(self: Interned, number: int, row: Any) -> None:
        getattr(self, name)[number] = row

    return take


class Interned:
    """All rows of a journal by kind and number."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._read: dict[int, tuple[int, int]] = {}
        """By stream: the first number of the last chunk that was read, and how far it was."""
        self.opcodes = NO_OPCODES
        self.journal: rows.JournalRow | None = None
        self.recordings: dict[int, RecordingState] = {}
        self.threads: dict[int, rows.ThreadRow] = {}
        self.code_rows: dict[int, rows.CodeRow] = {}
        self.codes: dict[int, Code] = {}
        self.stacks: dict[int, tuple[int, ...]] = {}
        self.forms: dict[int, Form] = {}
        self.metas: dict[int, rows.MetaRow] = {}
        self.whats: dict[int, rows.WhatRow] = {}
        self.classes: dict[int, rows.ClassRow] = {}
        self.modules: dict[int, Module] = {}
        self.errors: dict[int, str] = {}
        self.notes: dict[str, None] = {}
        self.faults: dict[str, int] = {}
        self.backward: dict[int, dict[int, int]] = {}
        """By thread: ranges of records while the autograd engine ran."""
        self.sources: dict[str, rows.SourceRow] = {}
        self.saved: dict[tuple[int, int], rows.SavedRow] = {}
        """By recording and number."""

    def update(self) -> None:
        """Read the rows that have been added."""
        for stream in (layout.ROWS, layout.PASSING):
            first, behind = self._read.get(stream, (-1, 0))
            chunks = self._streams.chunks.get((stream, 0))  # here: asked twice for each event that is seen live
            if chunks and chunks[-1].first == first and chunks[-1].buffer[behind : behind + 4] == NO_ROW:
                continue
            for chunk in self._streams.of(stream):
                if chunk.first >= first:
                    behind = self._read_chunk(chunk, behind if chunk.first == first else 0)
                    first = chunk.first
            self._read[stream] = (first, behind)

    def _read_chunk(self, chunk: Chunk, begin: int) -> int:
        behind = begin
        for behind, (kind, number, payload) in rows_in(chunk, begin):  # noqa: B007 (where it ends is what is returned)
            take = self._take.get(kind)
            if take is not None:
                take(self, number, rows.decoded(kind, payload))
        return behind

    def thread(self, number: int) -> rows.ThreadRow:
        """A thread; one whose row is damaged has no name."""
        return self.threads.get(number) or rows.ThreadRow(f"thread {number}", layout.NONE, layout.NONE)

    def code(self, number: int) -> Code:
        """A code object, ready to be read."""
        known = self.codes.get(number)
        if known is None:
            row = self.code_rows[number]
            known = self.codes[number] = Code(
                row.file, row.name, row.qualname, row.line, row.flags, rows.unpacked(row.instructions),
                rows.unpacked(row.positions), tuple(row.names), row.digest, self.opcodes,
            )  # fmt: skip
        return known

    # One kind of row each

    def _take_journal(self, number: int, row: rows.JournalRow) -> None:
        self.journal = row
        python = (row.python[0], row.python[1]) if len(row.python) > 1 else (0, 0)
        found = Opcodes(python, tuple([*row.opcodes, *[""] * MOST_OPCODES][:MOST_OPCODES]))
        self.opcodes = HERE if found == HERE else found

    def _take_recording(self, number: int, row: rows.RecordingRow) -> None:
        self.recordings[number] = RecordingState(row)

    def _take_window(self, number: int, row: rows.WindowRow) -> None:
        if number in self.recordings:
            self.recordings[number].windows.setdefault(row.thread, row)

    def _take_end(self, number: int, row: rows.EndedRow) -> None:
        if number in self.recordings:
            self.recordings[number].ended = row

    def _take_module(self, number: int, row: rows.ModuleRow) -> None:
        self.modules[number] = Module(row.cls, row.root, row.path)

    def _take_described(self, number: int, row: rows.DescribedRow) -> None:
        for which, cls, settings, *parameters in row.modules:
            module = self.modules.get(which)
            if module is not None and type(cls) is int:
                module.cls, module.settings = cls, str(settings)
                module.parameters = tuple(zip(map(str, parameters[::2]), map(int, parameters[1::2]), strict=True))

    def _take_stack(self, number: int, row: list[Any]) -> None:
        if len(row) % 2 == 0 or any(type(each) is not int for each in row):
            raise ValueError("a stack is not made of a base and of pairs of numbers")
        self.stacks[number] = tuple(row)

    def _take_note(self, number: int, text: str) -> None:
        self.notes[text] = None

    def _take_fault(self, number: int, text: str) -> None:
        self.faults[text] = max(self.faults.get(text, 0), 1)

    def _take_backward(self, number: int, row: rows.BackwardRow) -> None:
        """The end of a range is that of all which began within: it is begun again where what came before may go."""
        ranges = self.backward.setdefault(number, {})
        ranges.setdefault(row.begin, row.end)
        if row.end != layout.NONE:
            for begin in [begin for begin, end in ranges.items() if begin >= row.begin and end == layout.NONE]:
                ranges[begin] = row.end

    def _take_saved(self, number: int, row: rows.SavedRow) -> None:
        self.saved[row.recording, number] = row

    def _take_source(self, number: int, row: rows.SourceRow) -> None:
        self.sources[row.file] = row

    def _take_form(self, number: int, row: Any) -> None:
        self.forms[number] = as_form(row)

    _take: ClassVar[dict[int, Callable[[Interned, int, Any], None]]] = {
        layout.JOURNAL: _take_journal,
        layout.RECORDING: _take_recording,
        layout.WINDOW: _take_window,
        layout.ENDED: _take_end,
        layout.MODULE: _take_module,
        layout.DESCRIBED: _take_described,
        layout.STACK_ROW: _take_stack,
        layout.NOTE: _take_note,
        layout.FAULT: _take_fault,
        layout.BACKWARD: _take_backward,
        layout.SOURCE: _take_source,
        layout.FORM: _take_form,
        layout.THREAD: _keep("threads"),
        layout.CODE: _keep("code_rows"),
        layout.META: _keep("metas"),
        layout.WHAT_ROW: _keep("whats"),
        layout.CLASS: _keep("classes"),
        layout.ERROR_ROW: _keep("errors"),
        layout.SAVED: _take_saved,
    }
    """By kind; one of a later version is passed over."""
