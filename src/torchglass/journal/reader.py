"""Reads the file of a journal, of a living process or of a dead one, and trusts nothing in it."""

from __future__ import annotations

import sys

from torchglass.journal.chunks import COPY, Chunk, Streams
from torchglass.journal.layout import (
    FORMAT,
    HEADER,
    IDS,
    MAGIC,
    PAGE,
    PASSING,
    RECORDS,
    ROWS,
    VALUES,
    read_chunk_header,
)

STREAMS = (RECORDS, IDS, VALUES, ROWS, PASSING)


class BadJournal(ValueError):
    """The file is no journal that can be read here; the text says why."""


def read_journal(content: bytes) -> Streams:
    """The chunks of a journal's file, as far as they are there."""
    if not any(content[:PAGE]):
        return Streams()  # the process died before it had written anything
    _check_head(content[:PAGE])
    found: list[Chunk] = []
    whole, at = memoryview(content), PAGE
    while at + HEADER <= len(content):
        head = read_chunk_header(whole[at : at + HEADER])
        if head is None:
            at += PAGE  # given back, or not begun when the process died
            continue
        stream, owner, first, size, copies = head
        if stream in STREAMS and first >= 0 and HEADER + copies * COPY <= size:
            cut = whole[at : at + size]
            if len(cut) >= HEADER + copies * COPY:
                found.append(Chunk(cut, stream, owner, first, copies))
        at += max(-(-size // PAGE) * PAGE, PAGE)
    return _in_order(found)


def _check_head(head: bytes) -> None:
    if not head.startswith(MAGIC):
        raise BadJournal("it does not begin as a journal does")
    lines = head[len(MAGIC) :].split(b"\0")[0].decode("ascii", "replace").splitlines()
    said = dict(line.rsplit(" ", 1) for line in lines if " " in line)
    number = said.get("format", "")
    if not number.isdecimal():
        raise BadJournal("it does not say which format it has")
    if int(number) > FORMAT:
        raise BadJournal(
            f"it has format {number}, and up to {FORMAT} is read here: update torchglass (pip install -U torchglass)"
        )
    if said.get("byte order") != sys.byteorder:
        raise BadJournal("it was written on a machine with the other byte order: read it on such a machine")


def _in_order(found: list[Chunk]) -> Streams:
    """Chunks by their first number; where two claim the same numbers, the later one's are its own."""
    streams = Streams()
    for chunk in sorted(found, key=lambda each: each.first):
        before = streams.chunks.get((chunk.stream, chunk.owner), [])
        if before and before[-1].last > chunk.first:
            before[-1].last = chunk.first
        streams.add(chunk)
    return streams
