"""Makes what is added to a journal when its recording ends, and what of it outlives the recording.

- ``place_rows`` and ``name_rows``: what was read from source texts, for files whose text is not stored: those of torch
  and the standard library and, with ``record(sources=False)``, all. A later reader could not read them any more.
- ``only_row``: which events ``record(only=…)`` keeps.
- ``without_texts``: the journal without the texts of code given to ``exec``.
- ``values_with_copies``: the values of a recording, and where the copies of their numbers are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from torchglass.events.schema import SiteNames
from torchglass.events.tables import Tables
from torchglass.journal import layout, rows
from torchglass.journal.layout import Chunk, Streams, rows_in
from torchglass.settle.copies import StoredCopy, stored_copies
from torchglass.settle.journal_rows import JournalRows
from torchglass.settle.places import OURS, PlaceTable
from torchglass.settle.settler import Settler
from torchglass.settle.sources import Sources, StoredText
from torchglass.settle.value_columns import ValueFiller

Row = tuple[int, int, bytes]
"""Kind, number and content of a row."""
_TEXT = rows.CodeRow._fields.index("text")


def place_rows(streams: Streams, stored_text: StoredText) -> Iterator[Row]:
    """Yield a row for each recorded place in a file of torch or the standard library."""
    journal_rows = JournalRows(streams)
    journal_rows.update()
    sources = Sources(journal_rows, stored_text, is_here=True)
    places = PlaceTable(journal_rows, sources, Tables())
    # A stack is (base, code, instruction, code, instruction, …).
    used_sites: set[tuple[int, int]] = set()
    for stack in journal_rows.stacks.values():
        used_sites.update(zip(stack[1::2], stack[2::2], strict=True))
    for code, instruction in sorted(used_sites):
        if _has_source_row(journal_rows, code) or sources.exec_text(code) is not None:
            continue
        origin = sources.origin(code)
        if origin not in (OURS, "user"):
            site = places.read_site(code, instruction, origin)
            content = _place_row(code, instruction, site, has_expression=False)
            yield layout.PLACE, code, content


def _has_source_row(journal_rows: JournalRows, code: int) -> bool:
    """Return whether the text of a code object's file is stored, or a row says why there is none."""
    row = journal_rows.sources.get(journal_rows.code_rows[code].file)
    return row is not None and (row.digest is not None or row.problem is not None)


def name_rows(settler: Settler) -> Iterator[Row]:
    """Yield rows with everything that a settled recording has read from source texts."""
    places = settler.columns.places
    columns = settler.columns
    for (code, instruction, has_expression), number in places.site_ids.items():
        site = settler.tables.sites[number]
        content = _place_row(code, instruction, site, has_expression=has_expression)
        yield layout.PLACE, code, content
    for call, is_direct, operands in columns.call_names():
        row = rows.CallNamesRow(list(call), is_direct, list(operands))
        yield layout.CALL_NAMES, 0, rows.encoded(row)


def _place_row(code: int, instruction: int, site: SiteNames, *, has_expression: bool) -> bytes:
    """Return the content of a row for a site. ``has_expression`` says that its expression was read too."""
    location = site.location
    place = [location.line, location.end_line, location.col, location.end_col]
    row = rows.PlaceRow(
        code, instruction, has_expression, place, location.function, location.source, location.origin,
        site.code, list(site.target), site.operator, site.problem,
    )  # fmt: skip
    return rows.encoded(row)


def only_row(recording: int, numbers: list[int]) -> Row:
    """Return a row that says which events a recording keeps."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return layout.ONLY, recording, rows.encoded(rows.OnlyRow(ranges))


def without_texts(streams: Streams) -> Streams:
    """Return the same journal without the texts of code given to ``exec``, which an outer recording may keep."""
    copy = Streams()
    copy.notes = streams.notes
    for key, chunks in streams.chunks.items():
        stream, _ = key
        if stream == layout.ROWS:
            copy.chunks[key] = [_without_texts(chunk) for chunk in chunks]
        else:
            copy.chunks[key] = list(chunks)
    return copy


def _without_texts(chunk: Chunk) -> Chunk:
    content = bytearray(layout.HEADER)
    for _, (kind, number, payload) in rows_in(chunk):
        if kind == layout.CODE:
            fields = json.loads(payload)
            fields[_TEXT] = None
            payload = rows.encoded(fields)
        checksum = layout.row_checksum(kind, number, payload)
        content += layout.ROW.pack(len(payload), checksum, kind, number)
        content += payload
    copy = Chunk(content, chunk.stream, chunk.owner, chunk.first)
    copy.begin()
    return copy


def values_with_copies(streams: Streams, recording: int) -> tuple[Tables, list[StoredCopy]]:
    """Return tables that describe the values of a recording, and the copies of values in the folder of its bundle."""
    journal_rows = JournalRows(streams)
    tables = Tables()
    journal_rows.update()
    values = ValueFiller(streams, journal_rows, tables)
    values.read([])
    [copies] = stored_copies(streams, values, recording)
    return tables, copies
