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
            if stream in (ROWS, PASSING) or (stream != IDS and chunk is newest):
                length = _used_bytes(chunk)
            else:
                end = chunk.last
                if chunk is newest:
                    end = min(id_ends.get(owner, chunk.last), chunk.last)
                length = chunk.start + (end - chunk.first) * WIDTHS[stream]
            copy = Chunk(
                bytearray(memoryview(chunk.buffer)[:length]),
                stream,
                owner,
                chunk.first,
                chunk.copies,
            )
            copy.last = min(copy.last, chunk.last)
            copy.begin()
            packed.add(copy)
    return packed


def _used_bytes(chunk: Chunk) -> int:
    """Return the bytes of a chunk up to the end of its last entry. The last word of an entry is never 0."""
    width = WIDTHS[chunk.stream]
    used = len(bytes(memoryview(chunk.buffer)[chunk.start :]).rstrip(b"\0"))
    return chunk.start + -(-used // width) * width


def file_content(streams: Streams, process: int) -> Iterator[bytes | bytearray]:
    """Yield the content of a journal's file, piece by piece. Each chunk begins on a page boundary."""
    yield file_header(process, streams.notes)
    for chunks in streams.chunks.values():
        for chunk in chunks:
            yield chunk.buffer
            yield bytes(-len(chunk.buffer) % PAGE)
