"""Producer → consumer at every level: for each box that holds others, the edges between them and its own border.

The boxes in one are walked in order, and for each value it is kept who gave it last: so an edge goes through what
only hands a value on (dropout in eval mode), which the producer alone would miss. Of a box that stands for several
events all are walked, and their edges laid over each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.tables import NONE
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.graph import Options
from torchglass.views.graph.crossing import Crossing
from torchglass.views.graph.memory import follow_writes
from torchglass.views.graph.outline import Item, Outline, outline_of
from torchglass.views.graph.values import Ids, Values, values_of

BORDER = -1
"""As the end of an edge: the border of the box that holds it."""


@dataclass(slots=True)
class Edge:
    """One value on its way between two boxes, or a box and the border of the one around."""

    source: int
    """Which child; BORDER: it comes in; from -2 down: a value that nothing in the trace made (``Level.outside``)."""
    out: int
    """Which of the source's results; of the border which argument."""
    target: int
    """Which child; BORDER: it goes out."""
    into: int
    value: int
    """The value, in the first of the events that the boxes stand for."""
    times: int = 1
    """In how many of them."""


@dataclass(slots=True)
class Outside:
    """Values that were there before, or were made out of sight."""

    value: int
    reader: int
    """The first event that takes it."""
    times: int = 1
    """How many of them one box takes."""
    is_unknown: bool = False
    """Whether events are missing that may have made it."""


@dataclass(slots=True)
class Level:
    """What is directly in one box, or outermost."""

    edges: list[Edge] = field(default_factory=list[Edge])
    outside: list[Outside] = field(default_factory=list[Outside])
    takes: Ids = ()
    """What comes in through the border, in the first of the events."""
    gives: Ids = ()


@dataclass(slots=True)
class Flow:
    """The data flow of a trace."""

    outline: Outline
    values: Values
    crossing: Crossing
    levels: dict[int, Level] = field(default_factory=dict[int, Level])
    """By the number of the item that holds them; -1: the outermost."""

    def source_of(self, value: int) -> int:
        """The event that made a value; NONE: none in this trace."""
        return self.values.producers[value]


@dataclass(slots=True)
class _Member:
    """One of the events that a box stands for: what is in it, in order."""

    event: int
    steps: list[tuple[int, tuple[int, ...]]]
    """Which child, and the events of it: one, or those of one round of a repeat."""
    takes: Ids = ()
    gives: Ids = ()


MOST_OUTSIDE = 4
"""So many values from outside does one box take by name; of more only the number is told."""


def flow_of(trace: Recorded, options: Options | None = None) -> Flow:
    """The data flow of a trace, at every level."""
    digest = digest_of(trace)
    values = values_of(trace)
    follow_writes(values, digest.parents)
    outline = outline_of(digest, options or Options())
    return flow_in(outline, values)


def flow_in(outline: Outline, values: Values) -> Flow:
    """The data flow between boxes that are already chosen."""
    flow = Flow(outline, values, Crossing(outline, values))
    finder = _Levels(flow)
    top = _Member(-1, list(_steps(outline.top, 0, 1)))
    flow.levels[-1] = finder.level([top])
    for item in outline.items:
        if item.children:
            flow.levels[item.number] = finder.level(list(finder.members(item)))
    return flow


def _steps(children: Sequence[Item], member: int, members: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What is in one of the events that a box stands for, in order of opening."""
    found: list[tuple[int, int, tuple[int, ...]]] = []
    for number, child in enumerate(children):
        for nodes in _rounds(child, member, members):
            found.append((nodes[0], number, nodes))
    found.sort()
    return ((number, nodes) for _, number, nodes in found)


def _rounds(item: Item, member: int, members: int) -> Iterator[tuple[int, ...]]:
    """The events of an item in one of the events around it: one by one, or of a repeat round by round."""
    if not item.is_repeat:
        share = len(item.nodes) // members
        yield from ((node,) for node in item.nodes[member * share : (member + 1) * share])
        return
    for round_ in range(item.times):
        nodes = [
            node
            for child in item.children
            for each in _rounds(child, member * item.times + round_, members * item.times)
            for node in each
        ]
        yield tuple(sorted(nodes))


class _Levels:
    """Finds the edges of one level after the other."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self._outline, self._values = flow, flow.outline, flow.values
        self._crossing = flow.crossing
        events = self._outline.events
        self._gaps = [at for at, event in enumerate(events) if event.kind == "unseen" and event.name == "gap"]
        self._hidden: dict[int, list[int]] = {}
        for at, anchor in enumerate(self._outline.anchors):
            if anchor != at:
                self._hidden.setdefault(anchor, []).append(at)
        self._readers = _readers(self._values)

    def members(self, item: Item) -> Iterator[_Member]:
        """The events, or rounds, that a box stands for, with what is in each."""
        if not item.is_repeat:
            for number, node in enumerate(item.nodes):
                steps = list(_steps(item.children, number, len(item.nodes)))
                yield _Member(node, steps, self._crossing.takes(node), self._crossing.gives(node))
            return
        total = _count(item, self._outline)
        for number in range(total):
            steps = list(_steps(item.children, number, total))
            nodes = [node for _, several in steps for node in several]
            around = self._around(nodes[0])
            yield _Member(around, steps, *self.of_several(nodes))

    def _around(self, node: int) -> int:
        parent = self._outline.digest.parents[node]
        return -1 if parent < 0 else self._outline.anchors[parent]

    def of_several(self, nodes: Sequence[int]) -> tuple[Ids, Ids]:
        """What several boxes together take from others, and give to others."""
        if len(nodes) == 1:
            return self._crossing.takes(nodes[0]), self._crossing.gives(nodes[0])
        made: dict[int, None] = {}
        takes: dict[int, None] = {}
        for node in nodes:
            takes.update(dict.fromkeys(value for value in self._crossing.takes(node) if value not in made))
            made.update(dict.fromkeys(self._crossing.gives(node)))
        own, around = set(nodes), self._around(nodes[0])
        out = self._crossing.gives(around) if around >= 0 else ()
        gives = [value for value in made if value in out or self._is_read_elsewhere(value, own, around)]
        return tuple(takes), tuple(gives)

    def _is_read_elsewhere(self, value: int, own: set[int], around: int) -> bool:
        return any(
            self._crossing.child_with(around, self._outline.anchors[reader]) not in own
            for reader in self._readers.get(value, ())
            if self._outline.anchors[reader] != NONE
        )

    # ------------------------------------------------------------ one level

    def level(self, members: Sequence[_Member]) -> Level:
        """The edges of all members, laid over each other."""
        level = Level(takes=_longest(m.takes for m in members), gives=_longest(m.gives for m in members))
        walk = _Walk(level)
        for member in members:
            self._walk(member, walk)
        return level

    def _walk(self, member: _Member, walk: _Walk) -> None:
        walk.begin(member.takes)
        hidden = [at for at in self._hidden.get(member.event, ()) if self._outline.children.get(member.event)]
        passed = 0
        self._places = {node: child for child, nodes in member.steps for node in nodes}
        for child, nodes in member.steps:
            while passed < len(hidden) and hidden[passed] < nodes[0]:
                self._pass_on(hidden[passed], walk)
                passed += 1
            takes, gives = self.of_several(nodes)
            self._take(child, takes, nodes[0], member.event, walk)
            walk.last.update({value: ((child, port),) for port, value in enumerate(gives)})
        for at in hidden[passed:]:
            self._pass_on(at, walk)
        for port, value in enumerate(member.gives):
            for source in walk.last.get(value) or self._later(value, member.event):
                walk.add(source, BORDER, port, value)

    def _take(self, child: int, takes: Ids, reader: int, around: int, walk: _Walk) -> None:
        unmade: list[tuple[int, int]] = []
        for port, value in enumerate(takes):
            sources = walk.last.get(value) or self._later(value, around)
            if not sources:
                unmade.append((port, value))
            for source in sources:
                walk.add(source, child, port, value)
        if len(unmade) > MOST_OUTSIDE:
            source = walk.outside(unmade[0][1], reader, self._is_unknown(reader), len(unmade))
            walk.add(source, child, unmade[0][0], unmade[0][1])
            return
        for port, value in unmade:
            walk.add(walk.outside(value, reader, self._is_unknown(reader)), child, port, value)

    def _pass_on(self, hidden: int, walk: _Walk) -> None:
        """A step without a box hands on what it took: the boxes around it are joined through it."""
        sources = {source for value in self._values.takes[hidden] for source in walk.last.get(value, ())}
        takes = self._values.takes[hidden]
        for value in self._values.gives[hidden]:
            if value not in takes and sources:
                walk.last[value] = tuple(sorted(sources))

    def _later(self, value: int, around: int) -> tuple[tuple[int, int], ...]:
        """The box that made a value, where it began after the one that takes it: another thread's."""
        producer = self._values.producers[value]
        anchor = NONE if producer == NONE else self._outline.anchors[producer]
        node = NONE if anchor == NONE else self._crossing.child_with(around, anchor)
        if node == NONE or node not in self._places:
            return ()
        gives = self._crossing.gives(node)
        return ((self._places[node], gives.index(value) if value in gives else 0),)

    def _is_unknown(self, reader: int) -> bool:
        return bool(self._gaps) and self._gaps[0] < reader


def _longest(several: Iterable[Ids]) -> Ids:
    """The ports of the first, and those that only others have: a later round may take more than the first."""
    found: Ids = ()
    for ids in several:
        found += ids[len(found) :]
    return found


def _count(item: Item, outline: Outline) -> int:
    """How many rounds of a repeat there were in all."""
    total = 1
    while item.is_repeat:
        total *= item.times
        if item.parent < 0:
            return total
        item = outline.items[item.parent]
    return total * len(item.nodes)


def _readers(values: Values) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for event, takes in enumerate(values.takes):
        for value in takes:
            found.setdefault(value, []).append(event)
    return found


class _Walk:
    """Who gave each value last, while the boxes of a level are walked."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self._edges: dict[tuple[int, int, int, int], Edge] = {}
        self._outside: dict[int, int] = {}
        self.last: dict[int, tuple[tuple[int, int], ...]] = {}
        self._counted: set[tuple[int, int, int, int]] = set()

    def begin(self, takes: Ids) -> None:
        """The next of the events that the box stands for; outermost there is only one."""
        self.last = {value: ((BORDER, port),) for port, value in enumerate(takes)}
        self._counted.clear()
        self._taken = 0
        self._ports: dict[int, int] = {}

    def add(self, source: tuple[int, int], target: int, into: int, value: int) -> None:
        key = (*source, target, into)
        edge = self._edges.get(key)
        if edge is None:
            edge = self._edges[key] = Edge(*source, target, into, value, 0)
            self._level.edges.append(edge)
        if key not in self._counted:
            self._counted.add(key)
            edge.times += 1

    def outside(self, value: int, reader: int, is_unknown: bool, times: int = 1) -> tuple[int, int]:
        """A value that nothing in the trace made; the n-th of each event is drawn as one."""
        if value not in self._ports:
            self._ports[value] = len(self._ports)
            if len(self._ports) > len(self._level.outside):
                self._level.outside.append(Outside(value, reader, times, is_unknown))
        return -2 - self._ports[value], 0
