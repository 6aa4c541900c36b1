"""Read the statistics and fingerprints of values from a journal. Values that were not measured get none."""

from __future__ import annotations

from array import array
from math import isnan
from typing import Any

from torchglass.events.schema import MEASURED_FIELDS, NONE, NOT_MEASURED
from torchglass.events.tables import Tables
from torchglass.events.types import SKETCH, Stats, without_hash
from torchglass.journal import layout
from torchglass.journal.layout import Chunk, Streams
from torchglass.settle.value_columns import ValueFiller

HOW = layout.MEASURED_WORDS - 1
"""The word of an entry that says how it was measured. The counts and then the doubles come before it."""


def fill_measured(streams: Streams, values: ValueFiller, tables: Tables) -> None:
    """Fill the columns of statistics. Values without a sound entry keep the entries in NOT_MEASURED."""
    columns: list[array[Any]] = []
    for chunk in streams.of(layout.MEASURED):
        last = end_of_written(chunk, layout.MEASURED_WORDS)
        words = chunk.words(chunk.first, last)
        doubles = words.cast("B").cast("d")
        how = words[HOW :: layout.MEASURED_WORDS].tolist()
        counts = [words[at :: layout.MEASURED_WORDS].tolist() for at in range(layout.COUNTS)]
        reals = [doubles[at :: layout.MEASURED_WORDS].tolist() for at in range(layout.COUNTS, HOW)]
        # The number of each soundly measured value, and its index in the chunk.
        sound: list[tuple[int, int]] = []
        numbers = values.numbers(chunk.first, last)
        for index, (number, *entry) in enumerate(zip(numbers, how, *counts, strict=True)):
            if number != NONE and _is_sound(*entry):
                sound.append((number, index))
        if sound and not columns:
            columns = _empty_columns(len(tables.value_meta))
        for column, entries in zip(columns, (how, *counts, *reals), strict=False):
            for number, index in sound:
                # Adding 0 turns -0.0 into 0.0. SQLite does not store the sign of zero, and a trace must be the same
                # before and after it was saved.
                column[number] = entries[index] + 0
    for name, column in zip(MEASURED_FIELDS, columns, strict=False):
        setattr(tables, name, column)


def _empty_columns(count: int) -> list[array[Any]]:
    """Return a column for each field of statistics, as of values that were not measured."""
    columns: list[array[Any]] = []
    for nothing in NOT_MEASURED:
        kind = "q"
        if isnan(nothing):
            kind = "d"
        columns.append(array(kind, [nothing]) * count)
    return columns


def stats_of(words: list[int]) -> Stats | None:
    """Return the statistics of a value from the words of its entry, or None if they are not sound."""
    how = words[HOW]
    counts = words[: layout.COUNTS]
    if not _is_sound(how, *counts):
        return None
    reals = array("q", words[layout.COUNTS : HOW]).tobytes()
    return Stats(*counts, *memoryview(reals).cast("d").tolist())


def fill_sketches(streams: Streams, values: ValueFiller, tables: Tables) -> None:
    """Read the fingerprints of values, if there are any."""
    for chunk in streams.of(layout.SKETCHED):
        raw = chunk.words(chunk.first, chunk.last).cast("B")
        versions = raw.cast("q")[layout.SKETCHED_WORDS - 1 :: layout.SKETCHED_WORDS].tolist()
        for index, version in enumerate(versions):
            if version not in (layout.WITH_OTHER_HASH, layout.SKETCHED_NOW):
                continue
            number = values.number(chunk.first + index)
            if number == NONE:
                continue
            sketch = bytes(raw[index * layout.SKETCHED_ENTRY :][: SKETCH.size])
            if version != layout.SKETCHED_NOW:
                sketch = without_hash(sketch)
            tables.sketches[number] = sketch


def end_of_written(chunk: Chunk, width: int) -> int:
    """Return the number after the last written entry, whose last word is not 0. Most of a chunk may be empty."""
    last_words = chunk.words(chunk.first, chunk.last)[width - 1 :: width].tolist()
    while last_words and not last_words[-1]:
        last_words.pop()
    return chunk.first + len(last_words)


def _is_sound(how: int, count: int, nan: int, posinf: int, neginf: int, zeros: int) -> bool:
    """Return whether statistics were written and their counts add up, since the journal may be damaged."""
    if (
        not layout.BY_NUMPY <= how <= layout.BY_KERNEL
        or nan < 0
        or posinf < 0
        or neginf < 0
        or zeros < 0
    ):
        return False
    return nan + posinf + neginf + zeros <= count
