"""Producer → consumer at every level: for each box that holds others, the edges between them and its own border.

The boxes in one are walked in order, and for each value it is kept who gave it last: so an edge goes through what
only hands a value on (dropout in eval mode), which the producer alone would miss. Of a box that stands for several
events all are walked, and their edges laid over each other. The rounds of a loop are walked one after the other:
what one takes from one before it is carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchglass.events.tables import NONE
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.graph.edges import BORDER, BoxLevel, Outside, Ports, Source, Walk
from torchglass.views.graph.outline import Box, Outline, outline_of
from torchglass.views.graph.values import FlowValues, Ids, follow_writes, values_of
from torchglass.views.options import GraphOptions


@dataclass(slots=True)
class Flow:
    """The data flow of a trace."""

    outline: Outline
    values: FlowValues
    crossing: Crossing
    levels: dict[int, BoxLevel] = field(default_factory=dict[int, BoxLevel])
    """By the number of the item that holds them; -1: the outermost."""


MOST_OUTSIDE = 4
"""So many values from outside does one box take by name; of more only the number is told."""

Extent = tuple[int, int]
"""The places of the first and the last node of something."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution of what a box stands for: a call, or a loop with all of its rounds."""

    start: int
    """The first event in it."""
    takes: Ports
    gives: Ports


@dataclass(frozen=True, slots=True)
class _Step:
    """An execution of something that is in a box."""

    run: _Run
    child: int
    nodes: tuple[int, ...]


def flow_of(trace: Recorded, options: GraphOptions | None = None) -> Flow:
    """The data flow of a trace, at every level."""
    digest = digest_of(trace)
    values = values_of(trace)
    follow_writes(values, digest.parents)
    outline = outline_of(digest, options or GraphOptions())
    return flow_in(outline, values)


def flow_in(outline: Outline, values: FlowValues) -> Flow:
    """The data flow between boxes that are already chosen."""
    flow = Flow(outline, values, Crossing(outline, values))
    finder = _Levels(flow)
    found = {item.number: finder.level(item) for item in reversed(outline.items) if item.children}
    flow.levels[-1] = finder.level(None)
    flow.levels.update(reversed(found.items()))
    return flow


class _Levels:
    """Finds the edges of one level after the other, innermost first: a loop takes what is taken in it."""

    def __init__(self, flow: Flow) -> None:
        self._outline, self._values, self._crossing = flow.outline, flow.values, flow.crossing
        events = self._outline.events
        self._gaps = [at for at, event in enumerate(events) if event.kind == "unseen" and event.name == "gap"]
        self._boxed = {node for item in self._outline.items for node in item.nodes}
        self._hidden = self._hidden_steps()
        self._users = self._find_users()
        self._runs: dict[int, list[_Run]] = {}
        """Of each loop, repeat and open call, by its number."""

    def _hidden_steps(self) -> dict[int, list[int]]:
        """Events without a box, by the node with one that they are directly in."""
        found: dict[int, list[int]] = {}
        forest, around = self._outline.forest, self._outline.around
        for at, anchor in enumerate(self._outline.anchors):
            if anchor == at or (anchor != NONE and not forest.below(anchor)):
                continue
            node = forest.home(at)
            while node != NONE and (node not in self._boxed or node not in around):
                node = around.get(node, NONE)
            found.setdefault(node, []).append(at)
        return found

    def _find_users(self) -> dict[int, tuple[int, int]]:
        """For each value the first and the last place in the order of nesting of those that take or give it."""
        found: dict[int, tuple[int, int]] = {}
        crossing, first, takes = self._crossing, self._outline.first, self._values.takes
        solid = [node for node in first if self._outline.is_solid(node)]
        used = [(first[node], (*crossing.takes(node), *crossing.gives(node))) for node in solid]
        used += [(first.get(node, -1), takes[at]) for node, hidden in self._hidden.items() for at in hidden]
        for place, values in used:
            for value in values:
                low, high = found.get(value, (place, place))
                found[value] = min(low, place), max(high, place)
        return found

    # ------------------------------------------------------------ what is in a box

    def _steps(self, item: Box | None) -> list[list[_Step]]:
        """For each time that a box stands for what is in it, in order of opening."""
        found: list[list[_Step]] = [[] for _ in (item.nodes if item is not None else (NONE,))]
        for number, child in enumerate(self._outline.top if item is None else item.children):
            runs = self._runs.get(child.number) or map(self._one, child.nodes)
            for run, (slot, times) in zip(runs, child.executions(), strict=True):
                found[slot].append(_Step(run, number, tuple([child.nodes[at] for at in times])))
        for steps in found:
            steps.sort(key=lambda step: (step.run.start, step.child))
        return found

    def _one(self, node: int) -> _Run:
        """An event, or a call of which nothing is shown."""
        takes, gives = self._crossing.takes(node), self._crossing.gives(node)
        return _Run(self._outline.shown_as(node), _numbered(takes), _numbered(gives))

    # ------------------------------------------------------------ one level

    def level(self, item: Box | None) -> BoxLevel:
        """The edges of all times that a box stands for, laid over each other."""
        walk, steps = Walk(self._optimizers(item)), self._steps(item)
        if item is None:
            walk.begin({})
            self._walk(NONE, steps[0], walk)
        elif self._outline.events_of(item) and not self._is_call(item):
            for node, inside in zip(item.nodes, steps, strict=True):
                self._walk_event(node, inside, walk)
        else:
            runs = self._runs[item.number] = []
            for _, times in item.executions():
                runs.append(self._walk_rounds(item, times, steps, walk))
        return walk.level

    def _is_call(self, item: Box) -> bool:
        """Whether a box is of calls that were recorded as events: values go in and out as with other calls."""
        return self._outline.events[item.nodes[0]].kind == "call"

    def _returned(self, item: Box, at: int) -> Ids:
        """What is known to be returned by a call."""
        return self._values.gives[item.nodes[at]] if self._outline.events_of(item) else ()

    def _optimizers(self, item: Box | None) -> set[int]:
        """Which children are steps of optimizers."""
        children, events = self._outline.top if item is None else item.children, self._outline.events
        first = [(number, child.nodes[0]) for number, child in enumerate(children)]
        return {number for number, node in first if 0 <= node < len(events) and events[node].kind == "step"}

    def _walk_event(self, node: int, steps: Sequence[_Step], walk: Walk) -> None:
        """Ports are arguments and results, one by one; a later call may take more than the first."""
        takes, gives, level = self._crossing.takes(node), self._crossing.gives(node), walk.level
        level.takes += takes[len(level.takes) :]
        level.gives += gives[len(level.gives) :]
        walk.begin(_numbered(takes))
        self._walk(node, steps, walk)
        for port, value in enumerate(gives):
            for source in walk.sources(value) or self._later(value, steps):
                walk.add(source, BORDER, port, value)

    def _walk_rounds(self, item: Box, times: Sequence[int], steps: list[list[_Step]], walk: Walk) -> _Run:
        """What is made elsewhere comes in, what is used elsewhere goes out, of all rounds."""
        walk.begin({})
        low, high = item.extents[times[0]][0], max(item.extents[at][1] for at in times)
        for at, following in zip(times, [*times[1:], None], strict=True):
            walk.next_round()
            end = steps[at][-1].run.start if following is None else steps[following][0].run.start
            hidden = self._hidden_in_repeat(steps[at], end) if item.nodes[at] == NONE else None
            self._walk(item.nodes[at], steps[at], walk, (item, item.extents[at]), hidden)
        gives: Ports = {}
        for value, sources in walk.made().items():
            first, last = self._users.get(value, (low, low))
            if first < low or last > high:
                gives[value] = walk.leave(value, sources)
        for value in self._returned(item, times[0]):
            sources = walk.sources(value)
            if sources and value not in gives:  # an argument, or what nobody took
                gives[value] = walk.leave(value, sources)
        return _Run(steps[times[0]][0].run.start, walk.border, gives)

    def _hidden_in_repeat(self, steps: Sequence[_Step], end: int) -> list[int]:
        """Steps without a box between those that repeat together."""
        node = steps[0].nodes[0]
        while node != NONE and (node in steps[0].nodes or node not in self._boxed):
            node = self._outline.around[node]
        return [at for at in self._hidden.get(node, ()) if steps[0].run.start <= at < end]

    def _walk(
        self, node: int, steps: Sequence[_Step], walk: Walk, span: tuple[Box, Extent] | None = None,
        hidden: list[int] | None = None,
    ) -> None:  # fmt: skip
        passed, hidden = 0, self._hidden.get(node, []) if hidden is None else hidden
        for step in steps:
            while passed < len(hidden) and hidden[passed] < step.run.start:
                self._pass_on(hidden[passed], walk)
                passed += 1
            self._take(step, steps, walk, span)
            child = step.child
            walk.last.update({value: ((child, port, False),) for value, port in step.run.gives.items()})
        for at in hidden[passed:]:
            self._pass_on(at, walk)

    def _take(self, step: _Step, steps: Sequence[_Step], walk: Walk, span: tuple[Box, Extent] | None) -> None:
        unmade: list[tuple[int, int]] = []
        for value, port in step.run.takes.items():
            sources = walk.sources(value) or self._later(value, steps)
            if not sources:
                unmade.append((value, port))
            for source in sources:
                walk.add(source, step.child, port, value)
        several = len(unmade) if len(unmade) > MOST_OUTSIDE else 1
        for value, port in unmade:
            reader, place = step.run.start, (step.child, port if several == 1 else unmade[0][1])
            if span is not None and self._is_from_around(value, *span):
                walk.add(walk.enter(value, place, reader), *place, value)
            elif several == 1 or value == unmade[0][0]:
                walk.add(
                    walk.outside(value, place, Outside(value, reader, several, self._is_unknown(reader))), *place, value
                )

    def _is_from_around(self, value: int, item: Box, extent: Extent) -> bool:
        """Whether a value comes into a loop or call; what nothing made, and one round alone takes, is of that round."""
        producer = self._values.producers[value]
        if not item.runs or (producer != NONE and self._outline.anchors[producer] != NONE):
            return True
        first, last = self._users.get(value, extent)
        return first < extent[0] or last > extent[1]

    def _pass_on(self, hidden: int, walk: Walk) -> None:
        """A step without a box hands on what it took: the boxes around it are joined through it."""
        takes = self._values.takes[hidden]
        sources = {source for value in takes for source in walk.sources(value)}
        for value in self._values.gives[hidden]:
            if value not in takes and sources:
                walk.last[value] = tuple(sorted(sources))

    def _later(self, value: int, steps: Sequence[_Step]) -> tuple[Source, ...]:
        """The box that made a value, where it began after the one that takes it: another thread's."""
        producer = self._values.producers[value]
        node = NONE if producer == NONE else self._outline.anchors[producer]
        if node == NONE:
            return ()
        extents = self._outline.first, self._outline.last
        for step in steps:
            inside = value in step.run.gives and any(
                each != NONE and extents[0][each] <= extents[0][node] <= extents[1][each] for each in step.nodes
            )
            if inside:
                return ((step.child, step.run.gives[value], False),)
        return ()

    def _is_unknown(self, reader: int) -> bool:
        return bool(self._gaps) and self._gaps[0] < reader


def _numbered(values: Ids) -> Ports:
    return {value: port for port, value in enumerate(values)}


# ---------------------------------------------------------------- crossing

# What goes into a box and comes out of it: its arguments and results, and what crosses its border unlisted.


class Crossing:
    """For each event with a box, and each call of which nothing is shown, the values that enter and leave it."""

    def __init__(self, outline: Outline, values: FlowValues) -> None:
        self._outline, self._values = outline, values
        self._has_saved = any(values.backward[at] and outline.anchors[at] == at for at in range(len(values)))
        """Whether steps of a backward pass have boxes: then what they saved in the forward pass is drawn, too.

        Else backward is one box, and an edge from everything that it saved would say nothing.
        """
        self._first, self._last = outline.first, outline.last
        self._around = {node: _solid(outline, around) for node, around in outline.around.items()}
        self._enters: dict[int, dict[int, None]] = {}
        self._leaves: dict[int, dict[int, None]] = {}
        self._find()

    def takes(self, at: int) -> Ids:
        """The arguments that are no parameters, then what comes in unlisted: a closure's, a cache's."""
        listed = self._values.takes[at] if at < len(self._values) else ()
        return self._with_unlisted(listed, self._enters.get(at))

    def gives(self, at: int) -> Ids:
        """The results, then what goes out unlisted."""
        listed = self._values.gives[at] if at < len(self._values) else ()
        return self._with_unlisted(listed, self._leaves.get(at))

    def holds(self, at: int, other: int) -> bool:
        """Whether an event is another one, or around it; both have boxes."""
        return self._first[at] <= self._first[other] <= self._last[at]

    def _with_unlisted(self, listed: Ids, unlisted: dict[int, None] | None) -> Ids:
        parameters = self._values.parameters
        known = dict.fromkeys([value for value in listed if value not in parameters])
        if unlisted:
            known.update(unlisted)
        return tuple(known)

    def _find(self) -> None:
        """From each reader outwards until the event around it holds the writer too, and the other way round."""
        values, anchors = self._values, self._outline.anchors
        producers, parameters, backward = values.producers, values.parameters, values.backward
        for event, takes in enumerate(values.takes):
            reader = anchors[event]
            if backward[event] and not self._has_saved:
                continue
            for value in takes:
                producer = producers[value]
                if producer == NONE or value in parameters or reader == NONE:
                    continue
                writer = anchors[producer]
                if writer != NONE and writer != reader:
                    self._climb(self._enters, reader, writer, value)
                    self._climb(self._leaves, writer, reader, value)

    def _climb(self, found: dict[int, dict[int, None]], at: int, other: int, value: int) -> None:
        first, last, around = self._first, self._last, self._around
        place = first[other]
        while at != NONE and not first[at] <= place <= last[at]:
            there = found.get(at)
            if there is None:
                found[at] = {value: None}
            elif value in there:
                return  # an earlier reader has been through all that is around
            else:
                there[value] = None
            at = around[at]


def _solid(outline: Outline, node: int) -> int:
    """The nearest event around, or call of which nothing is shown; loops and other calls are looked through."""
    while node != NONE and not outline.is_solid(node):
        node = outline.around[node]
    return node
