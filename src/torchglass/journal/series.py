"""Sample the statistics of values in the records that the ring drops, so that a curve covers the whole run.

A chunk is sampled when it is dropped, so that this costs nothing while events are recorded. For each call site, every
n-th execution is kept. When there are too many points, n is doubled and every second point goes::

    executions 0 1 2 3 4 5 6 7    with room for 4 points: keep 0 1 2 3, then 0 2 4 6, then 0 4 8 12, ...
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from torchglass.journal import layout
from torchglass.journal.layout import Chunk, Streams
from torchglass.journal.rows import packed, unpacked

Site = tuple[int, int]
"""The numbers of a function and of a stack."""
MAX_POINTS = 128
"""Number of points of one call site, at most."""
MAX_POINTS_IN_ALL = 16_384
"""About the number of points of all call sites. With many sites, each gets fewer points."""
MIN_POINTS = 8
"""Number of points that a call site gets even if there are many sites."""
POINT_WORDS = 3 + layout.MEASURED_WORDS
"""Words of a point in a row: callee, stack, index of the execution (from 0), and statistics of its first output."""


@dataclass(slots=True)
class _Samples:
    """The points of one call site."""

    times: int = 0
    """How often it ran."""
    step: int = 1
    """Every ``step``-th execution is kept."""
    points: list[tuple[int, list[int]]] = field(default_factory=list[tuple[int, list[int]]])
    """The index of an execution, and the words of the statistics of its first output."""

    def thin(self, max_points: int) -> None:
        """Keep only every second point, as often as there are too many."""
        while len(self.points) > max_points:
            self.step *= 2
            self.points = self.points[::2]


@dataclass(slots=True)
class DroppedSeries:
    """The points of all call sites in consecutive records that were dropped."""

    samples: dict[Site, _Samples] = field(default_factory=dict[Site, _Samples])

    def add(self, chunk: Chunk, callees: list[int], stacks: list[int], streams: Streams) -> None:
        """Add points of the records of a chunk that is being dropped."""
        if not streams.of(layout.MEASURED):
            return
        words = chunk.words(chunk.first, chunk.last)
        outputs = words[layout.OUTPUTS :: layout.RECORD_WORDS].tolist()
        outputs_by_site: dict[Site, list[int]] = {}
        for callee, stack, output in zip(callees, stacks, outputs, strict=True):
            outputs_by_site.setdefault((callee, stack), []).append(output)
        for site, outputs_of_site in outputs_by_site.items():
            site_samples = self.samples.setdefault(site, _Samples())
            begin = site_samples.times
            site_samples.times += len(outputs_of_site)
            for offset in range(
                -begin % site_samples.step, len(outputs_of_site), site_samples.step
            ):
                measured = []
                if outputs_of_site[offset] >= 0:
                    measured = _statistics_of_output(streams, chunk.owner, outputs_of_site[offset])
                if measured:
                    site_samples.points.append((begin + offset, measured))
            site_samples.thin(self._max_points())

    def join(self, later: DroppedSeries) -> None:
        """Add the points of records that follow."""
        for site, more in later.samples.items():
            samples = self.samples.setdefault(site, _Samples())
            samples.points += [(samples.times + index, words) for index, words in more.points]
            samples.times += more.times
            samples.step = max(samples.step, more.step)
            samples.thin(self._max_points())

    def thin(self, ranges: int) -> bool:
        """Keep so few points that all ranges together have as many as one may. Return whether there are any."""
        for samples in self.samples.values():
            samples.thin(max(self._max_points() // ranges, 1))
        return any(samples.points for samples in self.samples.values())

    def _max_points(self) -> int:
        return max(min(MAX_POINTS, MAX_POINTS_IN_ALL // len(self.samples)), MIN_POINTS)

    def text(self) -> str:
        """Return all points as the text of a row."""
        words = array("q")
        for (callee, stack), site_samples in self.samples.items():
            for number, measured in site_samples.points:
                words.extend((callee, stack, number, *measured))
        return packed(zlib.compress(words.tobytes(), 1))


def points_in(text: str) -> Iterator[tuple[Site, int, list[int]]]:
    """Yield the points of a text: the call site, the index of the execution, and the words of the statistics.

    Raise ValueError if the text holds something else.
    """
    try:
        raw = zlib.decompress(unpacked(text))
    except zlib.error:
        raise ValueError("points of values are damaged") from None
    words = array("q")
    words.frombytes(raw)
    if len(words) % POINT_WORDS:
        raise ValueError("points of values are cut off")
    for begin in range(0, len(words), POINT_WORDS):
        callee, stack, number, *measured = words[begin : begin + POINT_WORDS]
        yield (callee, stack), number, measured


def _statistics_of_output(streams: Streams, thread: int, output: int) -> list[int]:
    """Return the words of the statistics of an event's first output, or an empty list if it was not measured."""
    (word,) = streams.ids(thread, output, 1) or [0]
    if not word:
        return []
    number = word & layout.NUMBER_MASK
    for chunk in streams.of(layout.MEASURED):
        if chunk.first <= number < chunk.last:
            words = chunk.words(number, number + 1).tolist()
            if words[-1]:
                return words
            return []
    return []
