"""Find the chunks of records in which a call site returns or takes NaN or infinity for the first time.

The ring keeps such chunks. A program may make such values on purpose in each iteration, so only the first event with a
bad value counts for each function and stack. The check costs nothing while events are recorded: it is done when a
chunk would be dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from torchglass.journal import layout
from torchglass.journal.layout import Chunk, Streams


class IndexRange(NamedTuple):
    """Consecutive numbers of a stream: from ``first`` on, up to but without ``end``."""

    first: int
    end: int


class Extent(NamedTuple):
    """The entries of other streams to which the records of a chunk may refer."""

    ids: IndexRange
    values: IndexRange
    passing: IndexRange


class BadSite(NamedTuple):
    """A function at a stack that has returned or taken a value that is not finite."""

    callee: int
    stack: int
    is_output: bool
    """Whether the value was returned; else it was taken."""
    has_nan: bool


class IdGroup(NamedTuple):
    """The consecutive ids of the inputs or of the outputs of one event."""

    first: int
    callee: int
    stack: int
    is_output: bool


class BadSites:
    """Remembers at which call sites a value was not finite."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._known: set[BadSite] = set()

    def has_new(self, chunk: Chunk, extent: Extent) -> bool:
        """Return whether a value of a chunk is bad at a call site where none was bad before. Remember those sites."""
        new_sites = set(self._sites(chunk, extent)) - self._known
        self._known |= new_sites
        return bool(new_sites)

    def _sites(self, chunk: Chunk, extent: Extent) -> Iterator[BadSite]:
        bad = self._bad_values(extent.values)
        if not bad:
            return
        groups = _id_groups(chunk)
        starts = [group.first for group in groups]
        for number, word in self._ids(chunk.owner, extent.ids):
            # A word of 0 is unused room.
            has_nan = None
            if word:
                has_nan = bad.get(word & layout.NUMBER_MASK)
            if has_nan is None:
                continue
            index = bisect_right(starts, number) - 1
            if index >= 0:
                group = groups[index]
                yield BadSite(group.callee, group.stack, group.is_output, has_nan)

    def _bad_values(self, values: IndexRange) -> dict[int, bool]:
        """Return the values that are not finite, each with whether it has a NaN.

        Masks have -inf on purpose, so -inf counts only in a value of one element.
        """
        bad: dict[int, bool] = {}
        for chunk in self._streams.of(layout.MEASURED):
            begin = max(values.first, chunk.first)
            end = min(values.end, chunk.last)
            if begin >= end:
                continue
            words = chunk.words(begin, end)
            width = layout.MEASURED_WORDS
            counts = words[0::width].tolist()
            nans = words[1::width].tolist()
            positive = words[2::width].tolist()
            negative = words[3::width].tolist()
            last_words = words[width - 1 :: width].tolist()
            if not (any(nans) or any(positive) or any(negative)):
                continue
            for offset, count in enumerate(counts):
                if not last_words[offset]:
                    # The entry was not written. Reused memory may have any content.
                    continue
                is_single_minus_inf = negative[offset] and count == 1
                if nans[offset] or positive[offset] or is_single_minus_inf:
                    bad[begin + offset] = bool(nans[offset])
        return bad

    def _ids(self, thread: int, ids: IndexRange) -> Iterator[tuple[int, int]]:
        """Yield the number and the word of each id of a thread in a range."""
        for chunk in self._streams.of(layout.IDS, thread):
            begin = max(ids.first, chunk.first)
            end = min(ids.end, chunk.last)
            if begin < end:
                yield from enumerate(chunk.words(begin, end).tolist(), begin)


def _id_groups(chunk: Chunk) -> list[IdGroup]:
    """Return where the ids of the inputs and outputs of each event in a chunk begin, in order."""
    words = chunk.words(chunk.first, chunk.written())
    callees = words[layout.WHAT :: layout.RECORD_WORDS].tolist()
    stacks = words[layout.STACK :: layout.RECORD_WORDS].tolist()
    inputs = words[layout.INPUTS :: layout.RECORD_WORDS].tolist()
    outputs = words[layout.OUTPUTS :: layout.RECORD_WORDS].tolist()
    columns = zip(callees, stacks, inputs, outputs, strict=True)
    groups: list[IdGroup] = []
    for callee, stack, first_input, first_output in columns:
        if first_input >= 0:
            groups.append(IdGroup(first_input, callee, stack, is_output=False))
        if first_output >= 0:
            groups.append(IdGroup(first_output, callee, stack, is_output=True))
    groups.sort(key=lambda group: group.first)
    return groups
