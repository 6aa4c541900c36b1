"""What was in the values, from the journal into its columns; they stay empty where nothing was measured."""

from __future__ import annotations

from array import array
from math import isnan

from torchglass.events.schema import MEASURED_FIELDS, NONE, NOT_MEASURED
from torchglass.events.tables import Tables
from torchglass.events.types import SKETCH
from torchglass.journal.chunks import Streams
from torchglass.journal.layout import (
    BY_KERNEL,
    BY_NUMPY,
    COUNTS,
    MEASURED,
    MEASURED_WORDS,
    SKETCHED,
    SKETCHED_ENTRY,
    SKETCHED_WORDS,
)
from torchglass.settle.values import Values

Entry = tuple[int | float, ...]
"""How, then the counts and the doubles: in the order of the columns."""


def fill_measured(streams: Streams, values: Values, tables: Tables) -> None:
    """Fill the columns for all values of the tables; those of which there is no sound entry have none."""
    found: dict[int, Entry] = {}
    for chunk in streams.of(MEASURED):
        words = chunk.words(chunk.first, chunk.last)
        reals = words.cast("B").cast("d")
        how = words[MEASURED_WORDS - 1 :: MEASURED_WORDS].tolist()
        for index in [index for index, each in enumerate(how) if each]:
            number = values.number(chunk.first + index)
            at = index * MEASURED_WORDS
            entry = (how[index], *words[at : at + COUNTS], *reals[at + COUNTS : at + MEASURED_WORDS - 1])
            if number != NONE and _is_sound(entry):
                found[number] = entry
    if not found:
        return
    for index, (name, nothing) in enumerate(zip(MEASURED_FIELDS, NOT_MEASURED, strict=True)):
        column = array("d" if isnan(nothing) else "q", [nothing]) * len(tables.value_meta)
        for number, entry in found.items():
            # Whole numbers come first; adding 0 makes -0.0 into 0.0, since SQLite keeps no sign of it and a trace
            # is to say the same before and after it was saved.
            column[number] = entry[index] + 0  # type: ignore[assignment]
        setattr(tables, name, column)


def fill_sketches(streams: Streams, values: Values, tables: Tables) -> None:
    """By what the numbers of values are known again, where that was asked for."""
    for chunk in streams.of(SKETCHED):
        raw = chunk.words(chunk.first, chunk.last).cast("B")
        there = raw.cast("q")[SKETCHED_WORDS - 1 :: SKETCHED_WORDS].tolist()
        for index in [index for index, each in enumerate(there) if each == 1]:
            number = values.number(chunk.first + index)
            if number != NONE:
                at = index * SKETCHED_ENTRY
                tables.sketches[number] = bytes(raw[at : at + SKETCH.size])


def _is_sound(entry: Entry) -> bool:
    """Counts add up; of a damaged journal nothing is believed."""
    how, count, *kinds = entry[: COUNTS + 1]
    return BY_NUMPY <= how <= BY_KERNEL and min(kinds) >= 0 and sum(kinds) <= count
