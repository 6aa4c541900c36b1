"""What the rows of a journal say: plain tuples, written as JSON, and checked when they are read.

JSON, because it holds whatever a program may name (any text, any int), runs nothing when it is read, and can be
looked at with the naked eye. A row's place in its stream is its only header; its number stands outside, so that the
same bytes can be written into many journals.
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
    """What ran: opcodes differ from one Python to the next."""

    python: list[int]
    opcodes: Names
    process: int
    process_start: float
    engine: str
    torch: str | None


class RecordingRow(NamedTuple):
    """One recording; its number is the row's."""

    name: str
    process: int
    started_at: float
    started_ns: int
    options: dict[str, Any]


class WindowRow(NamedTuple):
    """From which record on a thread belongs to a recording, and the module that was under way there."""

    thread: int
    begin: int
    module: int


class EndedRow(NamedTuple):
    """How a recording ended: when, by which exception, where in each thread; the frames from the block to
    where the exception was raised (file, line, function, origin), which older journals do not have.
    """

    stopped_ns: int
    left_by: Names
    ends: list[list[int]]
    lost: int
    faults: list[list[Any]]
    raised: list[list[Any]]


class ThreadRow(NamedTuple):
    """A thread; one of the autograd engine's own says which record of which thread called backward."""

    name: str
    caller: int
    record: int


class CodeRow(NamedTuple):
    """Of a code object all that is needed to say what is written at one of its instructions.

    ``digest`` tells it from the code of a changed file, where that is in doubt; ``text`` is what was given to ``exec``.
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
    """What tensors of one kind have in common; None where torch would not say."""

    kind: str
    shape: list[int] | None
    dtype: str
    device: str
    stride: list[int] | None
    layout: str
    requires_grad: bool
    type: str


class WhatRow(NamedTuple):
    """What was called, unless it was a module: kind, name, a note, and the names of its parameters."""

    kind: str
    name: str
    note: str | None
    detail: str
    parameters: Names
    rest: str | None
    is_read: bool


class ClassRow(NamedTuple):
    """A class of modules: the parameters of ``forward``, its ancestors, and methods that bear another name inside."""

    name: str
    parameters: Names
    rest: str | None
    ancestors: list[Names]
    others: list[list[Any]]


class ModuleRow(NamedTuple):
    """A module under one path of its root (-1: it is one itself)."""

    cls: int
    root: int
    path: str


class DescribedRow(NamedTuple):
    """What is known of modules when their first calls have ended.

    Of each its number, class and settings, and the name and value of each of its parameters.
    """

    modules: list[list[Any]]


class SourceRow(NamedTuple):
    """The text of a file: under which digest it is kept, or why there is none; ``unproven``: what to say in doubt.

    ``state``: its time and size, of a file whose text is not kept.
    """

    file: str
    digest: str | None
    problem: str | None
    unproven: str | None
    state: list[int]


class SavedRow(NamedTuple):
    """The content of a value: which bytes of which shard of which recording's folder."""

    recording: int
    name: str
    value: int
    shard: int
    offset: int
    length: int
    dtype: str
    shape: list[int]


class BackwardRow(NamedTuple):
    """The autograd engine ran from this record of a thread on, up to that one (-1: it still runs)."""

    begin: int
    end: int


LIST, TUPLE, DICT, FIELDS, SLICE = "[", "(", "{", ".", ":"
"""Tags of what is nested in a form. DICT and FIELDS alternate key and item; FIELDS has the class's name first.

A form begins with the number of positional arguments; then these, then names and arguments in turn. None stands for a
tensor, an int for itself, a text for what is shown, a list for something nested: a tag, then its items."""

KINDS: dict[int, type[Any]] = {
    layout.JOURNAL: JournalRow, layout.RECORDING: RecordingRow, layout.WINDOW: WindowRow, layout.ENDED: EndedRow,
    layout.THREAD: ThreadRow, layout.CODE: CodeRow, layout.META: MetaRow, layout.WHAT_ROW: WhatRow,
    layout.CLASS: ClassRow, layout.MODULE: ModuleRow, layout.DESCRIBED: DescribedRow, layout.SOURCE: SourceRow,
    layout.SAVED: SavedRow, layout.BACKWARD: BackwardRow,
}  # fmt: skip
"""Rows of other kinds are a text (errors, notes, faults), a list of ints (stacks) or a nested list (forms)."""
LATER: dict[int, list[Any]] = {layout.ENDED: [[]]}
"""What stands for the last fields of a row in journals that do not have them yet."""
TEXTS = frozenset([layout.ERROR_ROW, layout.NOTE, layout.FAULT])

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encoded(fields: Any) -> bytes:
    """The bytes of a row."""
    return _encode(fields).encode("ascii")


quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""A text as it stands in a row."""


def encoded_ints(numbers: list[Any]) -> bytes:
    """The same for plain ints, also in lists of their own, in a third of the time."""
    return str(numbers).encode("ascii")


def encoded_recording(name: str, process: int, started_at: float, started_ns: int, options: str) -> bytes:
    """The same for the row of a recording, whose options are spelt already."""
    return f"[{quoted(name)},{process},{started_at!r},{started_ns},{options}]".encode("ascii")


def encoded_module(cls: int, root: int, path: str) -> bytes:
    """The same for the row of a module: a model has hundreds."""
    if path.isascii() and path.isprintable() and '"' not in path and "\\" not in path:
        return b'[%d,%d,"%b"]' % (cls, root, path.encode("ascii"))
    return encoded(ModuleRow(cls, root, path))


def encoded_described(modules: list[str]) -> bytes:
    """The same for the row that describes modules, each of them spelt already: lists of lists are for the collector."""
    return f"[[{','.join(modules)}]]".encode("ascii")


def packed(raw: bytes) -> str:
    """Bytes as text."""
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def unpacked(text: str) -> bytes:
    """The bytes again; ValueError where that is no such text."""
    return binascii.a2b_base64(text, strict_mode=True)


def decoded(kind: int, payload: bytes) -> Any:
    """A row as it was written, not to be changed; ValueError where it is none of this kind."""
    return _remembered(kind, payload) if len(payload) <= SHORT else _decoded(kind, payload)


def _decoded(kind: int, payload: bytes) -> Any:
    try:
        found = _DECODER.decode(payload.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("a row is nested too deeply") from None
    if kind in TEXTS:
        if type(found) is not str:
            raise ValueError("a text is missing")
        return found
    if type(found) is not list:
        raise ValueError("a row is no list")
    fields, row = cast("list[Any]", found), KINDS.get(kind)
    if row is None:
        return fields
    checks = _CHECKS[row]
    if len(fields) < len(checks):
        fields += LATER.get(kind, [])
    if len(fields) != len(checks) or not all(map(_fits, checks, fields)):
        raise ValueError(f"a row of kind {kind} does not have the fields that it must have")
    return row(*fields)


SHORT = 512
"""Bytes of a row that is remembered, as those of modules, forms and metadata are: the next block writes them again."""
_remembered = lru_cache(maxsize=4096)(_decoded)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
"""Made once: ``json.loads`` makes one a call where it is given an option."""


Check = Callable[[Any], bool]


def _fits(check: Check, found: Any) -> bool:
    return check(found)


def _is_int(found: Any) -> bool:
    return type(found) is int and -(2**63) <= found < 2**63


def _is_text(found: Any) -> bool:
    return type(found) is str


def _is_number(found: Any) -> bool:
    return _is_int(found) or (type(found) is float and isfinite(found))


def _is(kind: type) -> Check:
    return lambda found: type(found) is kind


def _or_none(check: Check) -> Check:
    return lambda found: found is None or check(found)


def _list_of(check: Check) -> Check:
    return lambda found: type(found) is list and all(map(check, cast("list[Any]", found)))


_BY_ANNOTATION: dict[str, Check] = {
    "int": _is_int,
    "str": _is_text,
    "bool": _is(bool),
    "float": _is_number,
    "str | None": _or_none(_is_text),
    "list[int]": _list_of(_is_int),
    "list[int] | None": _or_none(_list_of(_is_int)),
    "Names": _list_of(_is_text),
    "dict[str, Any]": _is(dict),
    "list[Names]": _list_of(_list_of(_is_text)),
    "list[list[int]]": _list_of(_list_of(_is_int)),
    "list[list[Any]]": _list_of(_is(list)),
}
_CHECKS: dict[Any, list[Check]] = {
    row: [_BY_ANNOTATION[getattr(each, "__forward_arg__", each)] for each in row.__annotations__.values()]
    for row in KINDS.values()
}
