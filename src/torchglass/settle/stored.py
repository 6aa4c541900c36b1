"""A journal that lies in a file, settled: of a process that is gone, or still at work."""

from __future__ import annotations

from torchglass.events.tables import Tables
from torchglass.journal.chunks import Streams
from torchglass.journal.reader import BadJournal
from torchglass.journal.rows import SavedRow
from torchglass.settle.interned import Interned
from torchglass.settle.kept import Kept, kept_values
from torchglass.settle.places import Texts
from torchglass.settle.settler import Settler, Source

FAULTS = (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, MemoryError, AttributeError)
"""What comes of numbers and texts that make no sense."""
Saved = list[tuple[int, int, SavedRow]]
"""The number of each saved tensor, that of its value in the tables (NONE: it is not there), and its row."""


def settle_stored(streams: Streams, recording: int, texts: Texts) -> tuple[Tables, Saved, dict[int, Kept]]:
    """The tables of one recording, and which tensors were kept, by rows or by values.

    ``BadJournal`` where there is nothing to be had.
    """
    interned = Interned(streams)
    try:
        interned.update()
        if recording not in interned.recordings:
            if interned.journal is not None:
                raise BadJournal("it does not say what was recorded")
            return Tables(complete=False), [], {}  # the process died before anything was in the file
        settler = Settler(streams, recording, Source(texts, is_here=False), interned)
        tables = settler.settle()
        saved = [
            (number, settler.values.number(row.value), row)
            for (owner, number), row in sorted(interned.saved.items())
            if owner == recording
        ]
        [kept] = kept_values(streams, settler.values, recording)
    except BadJournal:
        raise
    except FAULTS as fault:
        raise BadJournal(f"it makes no sense: {type(fault).__name__}: {fault}") from None
    return tables, saved, kept
