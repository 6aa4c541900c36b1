"""Finds the data flow at every level: the edges between the boxes inside each box, and those to its
border.

The boxes inside a box are walked in order (``edges.Walk``), and the walk knows which box gave each
value last. So an edge also passes through boxes that return what they took, such as dropout in eval
mode. The event that made the value would not show that.

If a box stands for several events, all of them are walked and their edges are merged. The iterations
of a loop are walked one after the other: a value that one takes from an earlier one is *carried*.

The file has two parts. ``Crossing``, at the end, finds for each event which values enter and leave
it. ``_Levels`` walks the levels, innermost first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchglass.events.tables import NONE
from torchglass.program.flow import DataFlow, Ids
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.views.graph.edges import BORDER, BoxLevel, GivenBy, Outside, Ports, TakenBy, Walk
from torchglass.views.graph.outline import Box, Outline, outline_of
from torchglass.views.options import GraphOptions


@dataclass(slots=True)
class Flow:
    """The data flow of a trace."""

    outline: Outline
    values: DataFlow
    crossing: Crossing
    levels: dict[int, BoxLevel] = field(default_factory=dict[int, BoxLevel])
    """Keyed by the number of the box that holds the level. -1 is the outermost level."""


MOST_OUTSIDE = 4
"""How many outside values of one box are named. If there are more, only their number is shown."""

Extent = tuple[int, int]
"""The places of the first and the last node of something, in nesting order."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution of a box: a call, or a loop with all its iterations."""

    start: int
    """The first event in the run."""
    takes: Ports
    gives: Ports


@dataclass(frozen=True, slots=True)
class _Step:
    """One execution of a child of a box."""

    run: _Run
    child: int
    """The index of the child."""
    nodes: tuple[int, ...]


def flow_of(trace: Recorded, options: GraphOptions | None = None) -> Flow:
    """Return the data flow of a trace, at every level."""
    outline = outline_of(trace, options or GraphOptions())
    return flow_in(outline, program_of(trace).flow)


def flow_in(outline: Outline, values: DataFlow) -> Flow:
    """Return the data flow between boxes that are already chosen."""
    flow = Flow(outline, values, Crossing(outline, values))
    finder = _Levels(flow)
    found = {item.number: finder.level(item) for item in reversed(outline.items) if item.children}
    flow.levels[-1] = finder.level(None)
    flow.levels.update(reversed(found.items()))
    return flow


class _Levels:
    """Finds the edges level by level, innermost first, because a loop takes what is taken inside
    it.
    """

    def __init__(self, flow: Flow) -> None:
        self._outline = flow.outline
        self._values = flow.values
        self._crossing = flow.crossing
        events = self._outline.events
        self._gaps = [
            at for at, event in enumerate(events) if event.kind == "unseen" and event.name == "gap"
        ]
        self._boxed = {node for item in self._outline.items for node in item.nodes}
        self._hidden = self._hidden_steps()
        self._users = self._find_users()
        self._runs: dict[int, list[_Run]] = {}
        """The runs of each loop, repeat and open call, keyed by the number of its box."""

    def _hidden_steps(self) -> dict[int, list[int]]:
        """Return the events without a box, keyed by the innermost surrounding node that has one."""
        found: dict[int, list[int]] = {}
        shown = self._outline.shown
        around = self._outline.around
        for at, anchor in enumerate(self._outline.anchors):
            if anchor == at or (anchor != NONE and not shown.children_of(anchor)):
                continue
            node = shown.home(at)
            while node != NONE and (node not in self._boxed or node not in around):
                node = around.get(node, NONE)
            found.setdefault(node, []).append(at)
        return found

    def _find_users(self) -> dict[int, tuple[int, int]]:
        """Return for each value the first and the last place, in nesting order, where it is taken
        or given.
        """
        found: dict[int, tuple[int, int]] = {}
        crossing = self._crossing
        first = self._outline.first
        takes = self._values.takes
        solid = [node for node in first if self._outline.is_solid(node)]
        used: list[tuple[int, Ids]] = []
        for node in solid:
            used.append((first[node], (*crossing.takes(node), *crossing.gives(node))))
        for node, hidden in self._hidden.items():
            for at in hidden:
                used.append((first.get(node, -1), takes[at]))
        for place, values in used:
            for value in values:
                low, high = found.get(value, (place, place))
                found[value] = min(low, place), max(high, place)
        return found

    # ------------------------------------------------------------ what is in a box

    def _steps(self, item: Box | None) -> list[list[_Step]]:
        """Return the steps for each execution that a box stands for, in the order in which they began."""
        if item is None:
            children = self._outline.top
            found: list[list[_Step]] = [[]]
        else:
            children = item.children
            found = [[] for _ in item.nodes]
        for number, child in enumerate(children):
            runs = self._runs.get(child.number) or map(self._one, child.nodes)
            for run, (slot, indices) in zip(runs, child.executions(), strict=True):
                nodes = tuple([child.nodes[at] for at in indices])
                found[slot].append(_Step(run, number, nodes))
        for steps in found:
            steps.sort(key=lambda step: (step.run.start, step.child))
        return found

    def _one(self, node: int) -> _Run:
        """Return the run of an event, or of a call whose inside is not shown."""
        takes = self._crossing.takes(node)
        gives = self._crossing.gives(node)
        return _Run(self._outline.shown_as(node), _numbered(takes), _numbered(gives))

    # ------------------------------------------------------------ one level

    def level(self, item: Box | None) -> BoxLevel:
        """Return the merged edges of all executions for which a box stands."""
        walk = Walk(self._optimizers(item))
        steps = self._steps(item)
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
        """Return whether a box stands for calls that were recorded as events. Values enter and
        leave as with other calls.
        """
        return self._outline.events[item.nodes[0]].kind == "call"

    def _returned(self, item: Box, at: int) -> Ids:
        """Return what a call is known to return."""
        if self._outline.events_of(item):
            return self._values.gives[item.nodes[at]]
        return ()

    def _optimizers(self, item: Box | None) -> set[int]:
        """Return the indices of the children that are optimizer steps."""
        if item is None:
            children = self._outline.top
        else:
            children = item.children
        events = self._outline.events
        found: set[int] = set()
        for number, child in enumerate(children):
            node = child.nodes[0]
            if 0 <= node < len(events) and events[node].kind == "step":
                found.add(number)
        return found

    def _walk_event(self, node: int, steps: Sequence[_Step], walk: Walk) -> None:
        """Walk one execution of an event. Its ports are its arguments and results, in order. Later
        calls may have more.
        """
        takes = self._crossing.takes(node)
        gives = self._crossing.gives(node)
        level = walk.level
        level.takes += takes[len(level.takes) :]
        level.gives += gives[len(level.gives) :]
        walk.begin(_numbered(takes))
        self._walk(node, steps, walk)
        for port, value in enumerate(gives):
            for source in walk.sources(value) or self._later(value, steps):
                walk.add(source, BORDER, port, value)

    def _walk_rounds(
        self, item: Box, times: Sequence[int], steps: list[list[_Step]], walk: Walk
    ) -> _Run:
        """Walk all iterations of a loop. Values made elsewhere enter, and values used elsewhere
        leave.
        """
        walk.begin({})
        low = item.extents[times[0]][0]
        high = max(item.extents[at][1] for at in times)
        for at, following in zip(times, [*times[1:], None], strict=True):
            walk.next_round()
            if item.library:
                walk.together = _places(steps[at])
            if following is None:
                end = steps[at][-1].run.start
            else:
                end = steps[following][0].run.start
            hidden = None
            if item.nodes[at] == NONE:
                hidden = self._hidden_in_repeat(steps[at], end)
            self._walk(item.nodes[at], steps[at], walk, (item, item.extents[at]), hidden)
        gives: Ports = {}
        for value, sources in walk.made().items():
            first, last = self._users.get(value, (low, low))
            if first < low or last > high:
                gives[value] = walk.leave(value, sources)
        for value in self._returned(item, times[0]):
            sources = walk.sources(value)
            if sources and value not in gives:  # an argument, or a value that is never used
                gives[value] = walk.leave(value, sources)
        return _Run(steps[times[0]][0].run.start, walk.border, gives)

    def _hidden_in_repeat(self, steps: Sequence[_Step], end: int) -> list[int]:
        """Return the steps without a box between those that repeat together."""
        node = steps[0].nodes[0]
        while node != NONE and (node in steps[0].nodes or node not in self._boxed):
            node = self._outline.around[node]
        return [at for at in self._hidden.get(node, ()) if steps[0].run.start <= at < end]

    def _walk(
        self,
        node: int,
        steps: Sequence[_Step],
        walk: Walk,
        span: tuple[Box, Extent] | None = None,
        hidden: list[int] | None = None,
    ) -> None:
        """Walk the steps inside a node in order, and the events without a box between them.

        ``span`` is the surrounding loop or call with the extent of this iteration; None inside an event.
        """
        if hidden is None:
            hidden = self._hidden.get(node, [])
        passed = 0
        for step in steps:
            while passed < len(hidden) and hidden[passed] < step.run.start:
                self._pass_on(hidden[passed], walk)
                passed += 1
            self._take(step, steps, walk, span)
            for value, port in step.run.gives.items():
                walk.last[value] = (GivenBy(step.child, port),)
        for at in hidden[passed:]:
            self._pass_on(at, walk)

    def _take(
        self, step: _Step, steps: Sequence[_Step], walk: Walk, span: tuple[Box, Extent] | None
    ) -> None:
        """Add the edges to one step."""
        unmade: list[tuple[int, TakenBy]] = []
        for value, port in step.run.takes.items():
            place = TakenBy(step.child, port)
            sources = walk.sources(value) or self._later(value, steps)
            if not sources and span is not None and self._is_from_around(value, *span):
                sources = (walk.enter(value, place, step.run.start),)
            if not sources:
                unmade.append((value, place))
            for source in sources:
                walk.add(source, place.child, place.into, value)
        if len(unmade) > MOST_OUTSIDE:
            # Draw the first one only, for all.
            self._take_outside(unmade[0], step, walk, len(unmade))
        else:
            for each in unmade:
                self._take_outside(each, step, walk, 1)

    def _take_outside(
        self, unmade: tuple[int, TakenBy], step: _Step, walk: Walk, times: int
    ) -> None:
        """Add the edge for a value that nothing in the trace made."""
        value, place = unmade
        reader = step.run.start
        outside = Outside(value, reader, times, self._is_unknown(reader))
        walk.add(walk.outside(value, place, outside), place.child, place.into, value)

    def _is_from_around(self, value: int, item: Box, extent: Extent) -> bool:
        """Return whether a value enters a loop or a call from outside of it.

        A value that nothing in the trace made and that only one iteration takes does not.
        """
        producer = self._values.producers[value]
        if not item.runs or (producer != NONE and self._outline.anchors[producer] != NONE):
            return True
        first, last = self._users.get(value, extent)
        return first < extent[0] or last > extent[1]

    def _pass_on(self, hidden: int, walk: Walk) -> None:
        """Treat a step without a box as handing on what it took, which connects the boxes before
        and after it.
        """
        takes = self._values.takes[hidden]
        sources = {source for value in takes for source in walk.sources(value)}
        for value in self._values.gives[hidden]:
            if value not in takes and sources:
                walk.last[value] = tuple(sorted(sources))

    def _later(self, value: int, steps: Sequence[_Step]) -> tuple[GivenBy, ...]:
        """Return the box of another thread that made a value, if it began after the one that takes it."""
        producer = self._values.producers[value]
        node = NONE
        if producer != NONE:
            node = self._outline.anchors[producer]
        if node == NONE:
            return ()
        for step in steps:
            if value in step.run.gives and self._contains(step, node):
                return (GivenBy(step.child, step.run.gives[value]),)
        return ()

    def _contains(self, step: _Step, node: int) -> bool:
        """Return whether a node is inside one of a step's nodes."""
        first = self._outline.first
        last = self._outline.last
        place = first[node]
        return any(each != NONE and first[each] <= place <= last[each] for each in step.nodes)

    def _is_unknown(self, reader: int) -> bool:
        return bool(self._gaps) and self._gaps[0] < reader


def _places(steps: Sequence[_Step]) -> dict[int, tuple[TakenBy, ...]]:
    """Return all places that take each value. A library's box merges two values only if they go to
    the same places.
    """
    found: dict[int, list[TakenBy]] = {}
    for step in steps:
        for value, port in step.run.takes.items():
            found.setdefault(value, []).append(TakenBy(step.child, port))
    return {value: tuple(places) for value, places in found.items()}


def _numbered(values: Ids) -> Ports:
    return {value: port for port, value in enumerate(values)}


# ---------------------------------------------------------------- crossing

# Values that cross the border of a box: its arguments and results, and values that are neither.


class Crossing:
    """The values that enter and leave each event that has a box, and each call whose inside is not
    shown.
    """

    def __init__(self, outline: Outline, values: DataFlow) -> None:
        self._outline = outline
        self._values = values
        self._has_saved = any(
            values.backward[at] and outline.anchors[at] == at for at in range(len(values))
        )
        """Whether steps of a backward pass have boxes.

        If so, edges from the values that they saved in forward are drawn. Otherwise backward is one
        box, and an edge from everything that it saved would show nothing.
        """
        self._first = outline.first
        self._last = outline.last
        self._around = {node: _solid(outline, around) for node, around in outline.around.items()}
        self._enters: dict[int, dict[int, None]] = {}
        self._leaves: dict[int, dict[int, None]] = {}
        self._find()

    def takes(self, at: int) -> Ids:
        """Return the arguments except parameters, then values that enter without being arguments,
        as from a closure or a cache.
        """
        listed = ()
        if at < len(self._values):
            listed = self._values.takes[at]
        return self._with_unlisted(listed, self._enters.get(at))

    def gives(self, at: int) -> Ids:
        """Return the results, then the values that leave without being results."""
        listed = ()
        if at < len(self._values):
            listed = self._values.gives[at]
        return self._with_unlisted(listed, self._leaves.get(at))

    def holds(self, at: int, other: int) -> bool:
        """Return whether an event is the other one or contains it. Both must have boxes."""
        return self._first[at] <= self._first[other] <= self._last[at]

    def _with_unlisted(self, listed: Ids, unlisted: dict[int, None] | None) -> Ids:
        parameters = self._values.parameters
        known = dict.fromkeys([value for value in listed if value not in parameters])
        if unlisted:
            known.update(unlisted)
        return tuple(known)

    def _find(self) -> None:
        """Find the values that cross borders.

        From each reader of a value, go outwards to the event that also holds the writer. Then do
        the same from the writer.
        """
        values = self._values
        anchors = self._outline.anchors
        producers = values.producers
        parameters = values.parameters
        backward = values.backward
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
        first = self._first
        last = self._last
        around = self._around
        place = first[other]
        while at != NONE and not first[at] <= place <= last[at]:
            there = found.get(at)
            if there is None:
                found[at] = {value: None}
            elif value in there:
                return  # an earlier reader already added it to all surrounding events
            else:
                there[value] = None
            at = around[at]


def _solid(outline: Outline, node: int) -> int:
    """Return the nearest surrounding event, or call whose inside is not shown, skipping loops and
    other calls.
    """
    while node != NONE and not outline.is_solid(node):
        node = outline.around[node]
    return node
