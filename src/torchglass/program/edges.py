"""Finds the iterations that were kept only in part, so that views can leave them out.

Where events were dropped, the kept ones end within an iteration, and begin again within another one::

    iteration 10: a b c     iteration 11: a b     (dropped)     iteration 57: c     iteration 58: a b c
                                          ↑ partial                           ↑ partial

With these two, ``c`` would seem to have run in fewer iterations than ``a``, and so in most of them only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from torchglass.events.missing import is_gap, missing_of
from torchglass.program.dedup import DistinctEvents
from torchglass.program.tree import ITERATION, ProgramTree

MAX_SHARE_LEFT_OUT = 4
"""At each end of a stretch at most a quarter of its events is left out."""


class _Stretch(NamedTuple):
    """Events of one thread with nothing missing between them."""

    events: Sequence[int]
    is_after_gap: bool
    """Whether events are missing before it."""
    is_before_gap: bool
    """Whether events are missing after it."""


def partial_iterations(tree: ProgramTree, distinct: DistinctEvents) -> bytearray:
    """Return 1 for each event that views leave out: those of partial iterations, and the gaps themselves.

    Only gaps whose dropped events were all counted are left out. A partial iteration stays if something in it happened
    in no other iteration.
    """
    left_out = bytearray(len(distinct))
    is_counted_gap = [
        is_gap(sample) and missing_of(sample).is_complete for sample in distinct.samples
    ]
    if not any(is_counted_gap):
        return left_out
    partial: list[Sequence[int]] = []
    for stretch in _stretches(distinct, is_counted_gap):
        if stretch.is_before_gap:
            partial.append(_last_iteration(tree, stretch.events))
        if stretch.is_after_gap:
            partial.append(_first_iteration(tree, stretch.events))
    for events in partial:
        for event in events:
            left_out[event] = 1
    _keep_unique(partial, distinct, left_out)
    for event, sample in enumerate(distinct.alike):
        if is_counted_gap[sample]:
            left_out[event] = 1
    return left_out


def _keep_unique(
    partial: Sequence[Sequence[int]], distinct: DistinctEvents, left_out: bytearray
) -> None:
    """Clear the mark of each partial iteration that has a call which no kept event has."""
    calls = [(sample.name, id(sample.stack), sample.error) for sample in distinct.samples]
    kept_calls: set[tuple[str, int, str | None]] = set()
    for sample, is_left_out in zip(distinct.alike, left_out, strict=True):
        if not is_left_out:
            kept_calls.add(calls[sample])
    for events in partial:
        if not kept_calls.issuperset(calls[distinct.alike[event]] for event in events):
            for event in events:
                left_out[event] = 0


def _stretches(distinct: DistinctEvents, is_gap_sample: Sequence[bool]) -> Iterator[_Stretch]:
    """Yield the kept events of each thread between its gaps."""
    events_of_thread: dict[str, list[int]] = {}
    threads_after_gap: set[str] = set()
    for event, sample in enumerate(distinct.alike):
        thread = distinct.samples[sample].thread
        events = events_of_thread.setdefault(thread, [])
        if is_gap_sample[sample]:
            yield _Stretch(events, thread in threads_after_gap, is_before_gap=True)
            threads_after_gap.add(thread)
            events_of_thread[thread] = []
        else:
            events.append(event)
    for thread, events in events_of_thread.items():
        yield _Stretch(events, thread in threads_after_gap, is_before_gap=False)


def _last_iteration(tree: ProgramTree, events: Sequence[int]) -> Sequence[int]:
    """Return the events of the last iteration, if they are a small part of the stretch.

    If that holds for several loops, one in another, take the outermost.
    """
    last_iteration: Sequence[int] = ()
    most = len(events) // MAX_SHARE_LEFT_OUT
    for node in _iterations(tree, events[-1:]):
        part = [event for event in events[-most - 1 :] if event >= tree.first(node)]
        if len(part) > most:
            break
        last_iteration = part
    return last_iteration


def _first_iteration(tree: ProgramTree, events: Sequence[int]) -> Sequence[int]:
    """Return the events of the first iteration by the same rule, without calls that were open in the gap."""
    if not events:
        return ()
    first_iteration: Sequence[int] = ()
    most = len(events) // MAX_SHARE_LEFT_OUT
    for node in _iterations(tree, [_first_inside(tree, events)]):
        part = [
            event for event in events[: most + 1] if tree.first(node) <= event <= tree.last(node)
        ]
        if len(part) > most:
            break
        first_iteration = part
    return first_iteration


def _first_inside(tree: ProgramTree, events: Sequence[int]) -> int:
    """Return the first event that the next one is not in."""
    for event, following in pairwise(events):
        if event not in tree.around(following):
            return event
    return events[-1]


def _iterations(tree: ProgramTree, events: Sequence[int]) -> Iterator[int]:
    """Yield the iterations around an event, innermost first."""
    for event in events:
        for node in tree.around(event):
            if not tree.is_event(node) and tree.kind(node) == ITERATION:
                yield node
