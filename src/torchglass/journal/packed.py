"""Copy a journal without the unused room of its chunks when a recording ends, into memory or into a bundle."""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.journal.layout import IDS, PAGE, PASSING, ROWS, WIDTHS, Chunk, Streams, file_header


def pack(streams: Streams, id_ends: dict[int, int]) -> Streams:
    """Return a copy of everything written so far. ``id_ends`` has the number after the last id of each thread."""
    packed = Streams()
    packed.notes = dict(streams.notes)
    for (stream, owner), chunks in list(streams.chunks.items()):
        newest = None
        if chunks:
            newest = chunks[-1]
        for chunk in list(chunks):
            length = _used_bytes(chunk, chunk is newest, id_ends.get(owner, chunk.last))
            content = bytearray(memoryview(chunk.buffer)[:length])
            copy = Chunk(content, stream, owner, chunk.first, chunk.copies)
            copy.last = min(copy.last, chunk.last)
            copy.begin()
            packed.add(copy)
    return packed


def _used_bytes(chunk: Chunk, is_newest: bool, id_end: int) -> int:
    """Return the bytes of a chunk up to the end of its last entry.

    For the newest chunk of ids, that is known only from ``id_end``, the number after the last id of the thread.
    """
    width = WIDTHS[chunk.stream]
    if chunk.stream in (ROWS, PASSING) or (is_newest and chunk.stream != IDS):
        # The last word of an entry is never 0.
        used = len(bytes(memoryview(chunk.buffer)[chunk.start :]).rstrip(b"\0"))
        return chunk.start + -(-used // width) * width
    end = chunk.last
    if is_newest:
        end = min(id_end, end)
    return chunk.start + (end - chunk.first) * width


def file_content(streams: Streams, process: int) -> Iterator[bytes | bytearray]:
    """Yield the content of a journal's file, piece by piece. Each chunk begins on a page boundary."""
    yield file_header(process, streams.notes)
    for chunks in streams.chunks.values():
        for chunk in chunks:
            yield chunk.buffer
            yield bytes(-len(chunk.buffer) % PAGE)
