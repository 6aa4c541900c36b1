"""Define the rows of a journal: plain tuples that are written as JSON, and checked when they are read.

JSON can hold any text and any int, runs no code when it is read, and is readable for people. The number of a row is not
part of its JSON, so that the same bytes can be written into many journals.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, cast

from torchglass.journal import layout

Names = list[str]


class JournalRow(NamedTuple):
    """The process that was recorded."""

    python: list[int]
    """Major and minor version."""
    opcodes: Names
    """The names of the opcodes, which differ between versions of Python."""
    process: int
    process_start: float
    engine: str
    torch: str | None


class RecordingRow(NamedTuple):
    """One recording. Its number is the number of the row."""

    name: str
    process: int
    started_at: float
    started_ns: int
    options: dict[str, Any]


class WindowRow(NamedTuple):
    """The beginning of a recording in one thread."""

    thread: int
    begin: int
    """The number of its first record there."""
    module: int
    """The module that was running there."""


class EndedRow(NamedTuple):
    """How a recording ended."""

    stopped_ns: int
    left_by: Names
    """The exception that left the block."""
    ends: list[list[int]]
    """The end of the records of each thread."""
    lost: int
    """The number of events that were lost."""
    faults: list[list[Any]]
    """The text of each error of ours, and how often it happened."""
    raised: list[list[Any]]
    """The frames from the block to where the exception was raised: file, line, function, origin of each.

    Older journals lack this field.
    """


class ThreadRow(NamedTuple):
    """A thread."""

    name: str
    caller: int
    """For a thread of the autograd engine, the thread that called backward."""
    record: int
    """For a thread of the autograd engine, the record of that call."""


class CodeRow(NamedTuple):
    """The part of a code object that is needed to find the source text of its instructions.

    If the file may have changed, ``digest`` identifies the code to compare it with the text. ``text`` is the source of
    code that was given to ``exec``.
    """

    file: str
    name: str
    qualname: str
    line: int
    flags: int
    names: Names
    instructions: str
    positions: str
    digest: str | None
    origin: str
    module: str | None
    owner: str | None
    text: str | None


class MetaRow(NamedTuple):
    """The metadata that tensors of one kind have in common. It is None where torch has none."""

    kind: str
    shape: list[int] | None
    dtype: str
    device: str
    stride: list[int] | None
    layout: str
    requires_grad: bool
    type: str


class WhatRow(NamedTuple):
    """A callee that is not a module. The first four fields are those of ``Callee`` (events/schema.py)."""

    kind: str
    name: str
    note: str | None
    detail: str
    parameters: Names
    """The names of its positional parameters."""
    rest: str | None
    """The name of its ``*args``."""
    is_read: bool
    """Whether it reads a property, such as ``x.shape``. Such a call is an event only if it returns a tensor."""


class ClassRow(NamedTuple):
    """A class of modules."""

    name: str
    parameters: Names
    """The parameters of ``forward``."""
    rest: str | None
    """The name of its ``*args`` parameter."""
    ancestors: list[Names]
    others: list[list[Any]]
    """Methods whose code has another name."""


class ModuleRow(NamedTuple):
    """A module under one path of its root."""

    cls: int
    root: int
    """The module that is the root, or -1 if this one is a root itself."""
    path: str


class DescribedRow(NamedTuple):
    """Details of modules, written after their first calls.

    For each module: its number, class and settings, and the name and value of each of its parameters.
    """

    modules: list[list[Any]]


class SourceRow(NamedTuple):
    """The text of a file."""

    file: str
    digest: str | None
    """The digest under which the text is stored."""
    problem: str | None
    """Why there is no text."""
    doubt: str | None
    """If the text may have changed, the problem of code that does not compile from it (``SourceText.doubt``)."""
    state: list[int]
    """The time and size of a file whose text is not stored."""


class SavedRow(NamedTuple):
    """Where the content of a value is stored: which bytes of which shard in the folder of which recording."""

    recording: int
    name: str
    value: int
    shard: int
    offset: int
    length: int
    dtype: str
    shape: list[int]


class BackwardRow(NamedTuple):
    """The records of a thread during which the autograd engine ran."""

    begin: int
    end: int
    """The number after the last record, or -1 if the engine is still running."""


class RoundRow(NamedTuple):
    """A record of a thread in the first round of an outer loop that it shows, where all rounds have one stack."""

    record: int
    before: int
    """The record before at which the loop was looked at: that one was in the last round."""
    code: int
    line: int
    column: int
    """Where the head of the loop assigns its first name; the column in bytes."""


class PlaceRow(NamedTuple):
    """What was read at an instruction when the recording ended, because the folder will not have the source text."""

    code: int
    instruction: int
    has_expression: bool
    """Whether the expression was read, too."""
    place: list[int]
    function: str
    source: str
    origin: str
    expression: str
    target: Names
    operator: str | None
    problem: str | None


class CallNamesRow(NamedTuple):
    """The names of arguments, written for the same reason as PlaceRow."""

    call: list[int]
    """Callee, arguments, stack and class; see settle/columns.py."""
    is_direct: bool
    operands: Names


class OnlyRow(NamedTuple):
    """The events that a recording kept."""

    events: list[list[int]]
    """Ranges: the first event, and the one after the last."""


class DroppedRow(NamedTuple):
    """The counts of records that were dropped.

    A later row for records that begin at the same one replaces it.
    """

    thread: int
    first: int
    last: int
    counts: list[list[int]]
    """Callee, stack and number of records, for each callee and stack."""


class SeriesRow(NamedTuple):
    """Statistics of some values in records that were dropped, packed by journal/series.py.

    A later row for records that begin at the same one replaces it.
    """

    thread: int
    first: int
    last: int
    points: str


LIST, TUPLE, DICT, FIELDS, SLICE = "[", "(", "{", ".", ":"
"""Tags of containers in a form.

A form describes the arguments of a call. It begins with the number of positional arguments. These follow, and then the
names and values of keyword arguments in turn. None stands for a tensor, an int for itself, and a text for what is shown
of any other value. A list stands for a container: a tag, then its items. DICT and FIELDS alternate keys and items, and
FIELDS begins with the name of the class. ``f(x, [y, 2], dim=0)`` has the form ``[2, None, ["[", None, 2], "dim", 0]``.
"""

KINDS: dict[int, type[Any]] = {
    layout.JOURNAL: JournalRow, layout.RECORDING: RecordingRow, layout.WINDOW: WindowRow, layout.ENDED: EndedRow,
    layout.THREAD: ThreadRow, layout.CODE: CodeRow, layout.META: MetaRow, layout.WHAT_ROW: WhatRow,
    layout.CLASS: ClassRow, layout.MODULE: ModuleRow, layout.DESCRIBED: DescribedRow, layout.SOURCE: SourceRow,
    layout.SAVED: SavedRow, layout.BACKWARD: BackwardRow, layout.PLACE: PlaceRow,
    layout.CALL_NAMES: CallNamesRow, layout.ONLY: OnlyRow, layout.DROPPED: DroppedRow,
    layout.SERIES: SeriesRow, layout.ROUND: RoundRow,
}  # fmt: skip
"""The class of each kind of row.

Rows of other kinds are a text (errors, notes, faults), a list of ints (stacks) or a nested list (forms).
"""
MISSING_FIELDS: dict[int, list[Any]] = {layout.ENDED: [[]]}
"""The last fields of rows in older journals, which do not have them."""
TEXTS = frozenset([layout.ERROR_ROW, layout.NOTE, layout.FAULT])

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encoded(fields: Any) -> bytes:
    """Return the bytes of a row."""
    return _encode(fields).encode("ascii")


quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""Returns a text as it is written in a row."""


def encoded_ints(numbers: list[Any]) -> bytes:
    """Return the bytes of a row of ints and lists of ints. This takes a third of the time of ``encoded``."""
    return str(numbers).encode("ascii")


def encoded_recording(
    name: str, process: int, started_at: float, started_ns: int, options: str
) -> bytes:
    """Return the bytes of the row of a recording, whose options are JSON already."""
    return f"[{quoted(name)},{process},{started_at!r},{started_ns},{options}]".encode("ascii")


def encoded_module(cls: int, root: int, path: str) -> bytes:
    """Return the bytes of the row of a module. This is fast, because a model has hundreds."""
    if path.isascii() and path.isprintable() and '"' not in path and "\\" not in path:
        return b'[%d,%d,"%b"]' % (cls, root, path.encode("ascii"))
    return encoded(ModuleRow(cls, root, path))


def encoded_described(modules: list[str]) -> bytes:
    """Return the bytes of the row that describes modules. Each is a JSON text, which is less work for the collector."""
    return f"[[{','.join(modules)}]]".encode("ascii")


def packed(raw: bytes) -> str:
    """Return bytes as text."""
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def unpacked(text: str) -> bytes:
    """Return the bytes that ``packed`` made a text of. Raise ValueError for any other text."""
    return binascii.a2b_base64(text, strict_mode=True)


def decoded(kind: int, payload: bytes) -> Any:
    """Return a row, which must not be changed since it may be cached. Raise ValueError if it is not of this kind."""
    if len(payload) <= MAX_REMEMBERED_BYTES:
        return _decoded_cached(kind, payload)
    return _decoded(kind, payload)


def _decoded(kind: int, payload: bytes) -> Any:
    try:
        value = _DECODER.decode(payload.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("a row is nested too deeply") from None
    if kind in TEXTS:
        if type(value) is not str:
            raise ValueError("a text is missing")
        return value
    if type(value) is not list:
        raise ValueError("a row is not a list")
    fields = cast("list[Any]", value)
    row = KINDS.get(kind)
    if row is None:
        return fields
    checks = _CHECKS[row]
    if len(fields) < len(checks):
        fields += MISSING_FIELDS.get(kind, [])
    if len(fields) != len(checks) or not all(map(_fits, checks, fields)):
        raise ValueError(f"a row of kind {kind} lacks fields that it must have")
    return row(*fields)


MAX_REMEMBERED_BYTES = 512
"""Rows up to this size are cached, such as those of modules, forms and metadata: the next recording has them, too."""
_decoded_cached = lru_cache(maxsize=4096)(_decoded)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
"""Created once, since ``json.loads`` creates a decoder in each call that has an option."""


Check = Callable[[Any], bool]


def _fits(check: Check, value: Any) -> bool:
    return check(value)


def _is_int(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_number(value: Any) -> bool:
    return _is_int(value) or (type(value) is float and isfinite(value))


def _is_instance_of(kind: type) -> Check:
    return lambda value: type(value) is kind


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: type(value) is list and all(map(check, cast("list[Any]", value)))


_BY_ANNOTATION: dict[str, Check] = {
    "int": _is_int,
    "str": _is_text,
    "bool": _is_instance_of(bool),
    "float": _is_number,
    "str | None": _or_none(_is_text),
    "list[int]": _list_of(_is_int),
    "list[int] | None": _or_none(_list_of(_is_int)),
    "Names": _list_of(_is_text),
    "dict[str, Any]": _is_instance_of(dict),
    "list[Names]": _list_of(_list_of(_is_text)),
    "list[list[int]]": _list_of(_list_of(_is_int)),
    "list[list[Any]]": _list_of(_is_instance_of(list)),
}
_CHECKS: dict[Any, list[Check]] = {
    row: [
        _BY_ANNOTATION[getattr(each, "__forward_arg__", each)]
        for each in row.__annotations__.values()
    ]
    for row in KINDS.values()
}
