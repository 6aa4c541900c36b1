"""What the numbers in a journal's records mean: its rows, read once and again when there are more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from torchglass.events.schema import Form
from torchglass.events.spelling import int_word
from torchglass.journal import layout, rows
from torchglass.journal.layout import Chunk, Streams, rows_in
from torchglass.journal.rows import DICT, FIELDS, LIST, SLICE, TUPLE
from torchglass.source.codes import HERE, MOST_OPCODES, Code, Opcodes
from torchglass.source.sites import Slot

RawForm = tuple[Any, ...]
"""Arguments or a result as they were written down (journal/rows.py)."""
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
        self.forms: dict[int, RawForm] = {}
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
        self._by_number: dict[int, dict[int, Any]] = {
            layout.THREAD: self.threads, layout.CODE: self.code_rows, layout.META: self.metas,
            layout.WHAT_ROW: self.whats, layout.CLASS: self.classes, layout.ERROR_ROW: self.errors,
        }  # fmt: skip
        """Rows that are only kept by their number."""

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
            if kind in self._by_number:
                self._by_number[kind][number] = rows.decoded(kind, payload)
            elif kind in _OTHERS:  # one of a later version is passed over
                self._take(kind, number, rows.decoded(kind, payload))
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

    def _take(self, kind: int, number: int, row: Any) -> None:
        """A row that says more than what its number means."""
        recording = self.recordings.get(number)
        if kind == layout.JOURNAL:
            self._take_journal(row)
        elif kind == layout.RECORDING:
            self.recordings[number] = RecordingState(row)
        elif kind == layout.WINDOW and recording is not None:
            recording.windows.setdefault(row.thread, row)
        elif kind == layout.ENDED and recording is not None:
            recording.ended = row
        elif kind == layout.MODULE:
            self.modules[number] = Module(row.cls, row.root, row.path)
        elif kind == layout.DESCRIBED:
            self._take_described(row)
        elif kind == layout.STACK_ROW:
            if len(row) % 2 == 0 or any(type(each) is not int for each in row):
                raise ValueError("a stack is not made of a base and of pairs of numbers")
            self.stacks[number] = tuple(row)
        elif kind == layout.FORM:
            self.forms[number] = as_form(row)
        elif kind == layout.NOTE:
            self.notes[row] = None
        elif kind == layout.FAULT:
            self.faults[row] = max(self.faults.get(row, 0), 1)
        elif kind == layout.BACKWARD:
            self._take_backward(number, row)
        elif kind == layout.SAVED:
            self.saved[row.recording, number] = row
        elif kind == layout.SOURCE:
            self.sources[row.file] = row

    def _take_journal(self, row: rows.JournalRow) -> None:
        self.journal = row
        python = (row.python[0], row.python[1]) if len(row.python) > 1 else (0, 0)
        found = Opcodes(python, tuple([*row.opcodes, *[""] * MOST_OPCODES][:MOST_OPCODES]))
        self.opcodes = HERE if found == HERE else found

    def _take_described(self, row: rows.DescribedRow) -> None:
        for which, cls, settings, *parameters in row.modules:
            module = self.modules.get(which)
            if module is not None and type(cls) is int:
                module.cls, module.settings = cls, str(settings)
                module.parameters = tuple(zip(map(str, parameters[::2]), map(int, parameters[1::2]), strict=True))

    def _take_backward(self, number: int, row: rows.BackwardRow) -> None:
        """The end of a range is that of all which began within: it is begun again where what came before may go."""
        ranges = self.backward.setdefault(number, {})
        ranges.setdefault(row.begin, row.end)
        if row.end != layout.NONE:
            for begin in [begin for begin, end in ranges.items() if begin >= row.begin and end == layout.NONE]:
                ranges[begin] = row.end


_OTHERS = range(layout.JOURNAL, layout.SAVED + 1)
"""The kinds of rows that there are."""


# ---------------------------------------------------------------- forms

# Arguments and results turned into what is shown: the role of each tensor and the text around them.

Nested = tuple[Any, ...]
"""A tag, then items."""
Names = tuple[tuple[str, ...], str | None]
NO_NAMES: Names = ((), None)


def shown_form(raw: RawForm, names: Names) -> Form:
    """The arguments of a call; ``names`` are its parameters and the name of its ``*args``."""
    writer = _FormText()
    count = raw[0]
    for index in range(count):
        writer.separate(index)
        writer.item(raw[1 + index], _role(index, names))
    for position in range(1 + count, len(raw), 2):
        name, item = raw[position], raw[position + 1]
        if name.startswith("_") and not _paths(item):
            continue  # torch's own business, as the _stacklevel of F.softmax
        writer.separate(len(writer.roles) or len(writer.pieces[-1]))
        writer.text(f"{name}=")
        writer.item(item, name)
    return writer.form()


def result_form(raw: RawForm) -> Form:
    """The result of a call: its tensors are ``out``, ``out[0]``, ``out.logits``."""
    writer = _FormText()
    writer.item(raw[1], "out")
    return writer.form()


def tensor_slots(raw: RawForm) -> tuple[Slot, ...]:
    """Where each tensor stood, in order."""
    slots: list[Slot] = []
    count = raw[0]
    for index in range(count):
        slots += [Slot(index, None, path) for path in _paths(raw[1 + index])]
    for position in range(1 + count, len(raw), 2):
        slots += [Slot(None, raw[position], path) for path in _paths(raw[position + 1])]
    return tuple(slots)


def _paths(item: Any) -> list[tuple[int | str, ...]]:
    """The ways to the tensors inside an argument; ``()`` is the argument itself."""
    if item is None:
        return [()]
    if type(item) is not tuple:
        return []
    nested = cast("Nested", item)
    tag = nested[0]
    if tag in (DICT, FIELDS):
        first = 1 if tag == DICT else 2
        keys: list[int | str] = [_key(key) for key in nested[first::2]]
        inner = nested[first + 1 :: 2]
    else:
        keys = ["start", "stop", "step"] if tag == SLICE else list(range(len(nested) - 1))
        inner = nested[1:]
    return [(key, *path) for key, each in zip(keys, inner, strict=True) for path in _paths(each)]


def _key(text: str) -> str:
    """Keys of dicts are kept as they are shown, in quotes."""
    return text[1:-1] if text[:1] in "'\"" else text


def _role(index: int, names: Names) -> str:
    positional, rest = names
    if index < len(positional):
        return positional[index]
    return f"{rest or 'args'}[{index - len(positional)}]"


class _FormText:
    """Collects text, and breaks it wherever a tensor stands."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.pieces: list[str] = [""]

    def form(self) -> Form:
        return Form(tuple(self.roles), tuple(self.pieces))

    def text(self, text: str) -> None:
        self.pieces[-1] += text

    def separate(self, index: int) -> None:
        if index:
            self.text(", ")

    def item(self, item: Any, role: str) -> None:
        if item is None:
            self.roles.append(role)
            self.pieces.append("")
        elif type(item) is tuple:
            self._nested(cast("Nested", item), role)
        else:
            self.text(item if type(item) is str else int_word(item))

    def _nested(self, item: Nested, role: str) -> None:
        tag = item[0]
        if tag == SLICE:
            self._slice(item[1:], role)
        elif tag in (LIST, TUPLE):
            self.text(tag)
            for index, inner in enumerate(item[1:]):
                self.separate(index)
                self.item(inner, f"{role}[{index}]")
            self.text("]" if tag == LIST else ",)" if len(item) == 2 else ")")
        else:
            self._named(item, role)

    def _named(self, item: Nested, role: str) -> None:
        tag = item[0]
        first = 1 if tag == DICT else 2
        self.text("{" if tag == DICT else f"{item[1]}(")
        for position in range(first, len(item), 2):
            self.separate(position - first)
            key = item[position]
            self.text(f"{key}: " if tag == DICT else f"{key}=")
            self.item(item[position + 1], f"{role}[{key}]" if tag == DICT else f"{role}.{key}")
        self.text("}" if tag == DICT else ")")

    def _slice(self, parts: tuple[Any, ...], role: str) -> None:
        start, stop, step = parts
        if start != "None":
            self.item(start, f"{role}.start")
        self.text(":")
        if stop != "None":
            self.item(stop, f"{role}.stop")
        if step != "None":
            self.text(":")
            self.item(step, f"{role}.step")
