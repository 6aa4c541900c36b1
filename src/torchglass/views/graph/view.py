"""Makes the rows of the graph view: each step with the steps from which its values come."""

from __future__ import annotations

from torchglass.events.types import Location
from torchglass.program.recorded import Recorded
from torchglass.views import row as kinds
from torchglass.views.graph.edges import BORDER, Edge
from torchglass.views.graph.flow import Flow, flow_of
from torchglass.views.graph.labels import Label, label_of
from torchglass.views.graph.outline import Box
from torchglass.views.graph.value_names import carried_word, outside_word, port_word
from torchglass.views.options import GraphOptions
from torchglass.views.row import Cell, Row, Sheet
from torchglass.views.text.scopes import loop_place
from torchglass.views.text.tensors import is_measured, with_stats
from torchglass.views.text.words import clean, plural

MAX_SOURCES = 4
"""How many sources of a step are listed before the rest is only counted."""


def sheet(trace: Recorded, options: GraphOptions) -> Sheet:
    """Return one row for each box, with its sources in place of its inputs."""
    return _Rows(flow_of(trace, options), options).sheet()


class _Rows:
    """Makes the rows of one data flow.

    ``parent`` is the number of the box around a row's box, or -1; ``index`` is the index of the box
    among the children of that box, by which edges refer to it.
    """

    def __init__(self, flow: Flow, options: GraphOptions) -> None:
        self._flow = flow
        self._options = options
        self._labels: dict[int, Label] = {}
        self._is_measured = is_measured(flow.outline.trace)

    def sheet(self) -> Sheet:
        """Return all rows, depth first. It does not recurse, because traces nest deeper than Python
        allows.
        """
        rows = list[Row]()
        pending = [(box, index, 0) for index, box in enumerate(self._flow.outline.top)][::-1]
        while pending:
            box, index, depth = pending.pop()
            rows.append(self._row(box, index, depth))
            if self._options.depth is None or depth < self._options.depth:
                children = [(child, at, depth + 1) for at, child in enumerate(box.children)]
                pending += reversed(children)
        events = plural(len(self._flow.outline.events), "event")
        return Sheet(rows, [Cell(kinds.COUNT, f"{plural(len(rows), 'step')} of {events}")])

    def _label(self, box: Box) -> Label:
        if box.number not in self._labels:
            self._labels[box.number] = label_of(self._flow, box)
        return self._labels[box.number]

    # ------------------------------------------------------------ one row

    def _row(self, box: Box, index: int, depth: int) -> Row:
        takes = Cell(kinds.TAKES, ", ".join(self._sources(index, box.parent)))
        if box.loops:
            return self._loop_row(box, takes, depth)
        if box.runs:
            return self._repeat_row(box, depth)
        if self._flow.outline.scope(box) >= 0:
            return self._call_row(box, takes, depth)
        return self._event_row(box, takes, depth)

    def _loop_row(self, box: Box, takes: Cell, depth: int) -> Row:
        label = self._label(box)
        cells = [
            Cell(kinds.EXPRESSION, label.title),
            Cell(kinds.TIMES, label.times),
            takes,
            Cell(kinds.ROUNDS, label.rounds),
        ]
        site = self._flow.outline.shown.tree.site(box.loops[0])
        return _row(depth, kinds.LOOP, cells, loop_place(site))

    def _repeat_row(self, box: Box, depth: int) -> Row:
        label = self._label(box)
        cells = [
            Cell(kinds.FOLD, label.title_and_times),
            Cell(kinds.COUNT, f", {label.detail}:"),
        ]
        return _row(depth, kinds.REPEAT, cells, None)

    def _call_row(self, box: Box, takes: Cell, depth: int) -> Row:
        label = self._label(box)
        cells = [
            Cell(kinds.FOLD, label.times),
            Cell(kinds.EXPRESSION, label.code),
            takes,
            Cell(kinds.ROUNDS, label.rounds),
        ]
        tree = self._flow.outline.shown.tree
        scope = self._flow.outline.scope(box)
        return _row(depth, kinds.CALL, cells, tree.site(scope).at, tree.first(scope))

    def _event_row(self, box: Box, takes: Cell, depth: int) -> Row:
        outline = self._flow.outline
        label = self._label(box)
        event = outline.events[box.nodes[0]]
        name = Cell(kinds.NAME, label.title)
        if label.times:
            name = Cell(kinds.FOLD, label.title_and_times)
        gives = Cell(kinds.GIVES, label.gives)
        if event.error:
            gives = Cell(kinds.ERROR, "✗ " + clean(event.error))
        cells = [
            name,
            Cell(kinds.CLASS, label.detail or label.variable),
            takes,
            gives,
            Cell(kinds.ROUNDS, label.rounds),
        ]
        if self._is_measured:
            cells = list(with_stats(tuple(cells), map(outline.trace.event, box.nodes)))
        row = _row(depth, kinds.EVENT, cells, event.location, box.nodes[0])
        _, row.times = box.in_a_row()
        row.each = len(box.nodes)
        return row

    # ------------------------------------------------------------ where its values come from

    def _sources(self, index: int, parent: int) -> list[str]:
        """Return the names of the sources of a box: ``fc1``, ``x``, ``h before`` …"""
        edges = [edge for edge in self._flow.levels[parent].edges if edge.target == index]
        words = list(dict.fromkeys(self._source(edge, parent) for edge in edges))
        more = len(words) - MAX_SOURCES
        if more > 0:
            return [*words[:MAX_SOURCES], f"+{more} more"]
        return words

    def _source(self, edge: Edge, parent: int) -> str:
        if edge.source == BORDER:
            box = self._flow.outline.items[parent]
            return port_word(self._flow, box, edge.out) or "outside"
        if edge.source < 0:
            return outside_word(self._flow, self._flow.levels[parent].outside[edge.outside])
        source = self._flow.outline.children(parent)[edge.source]
        if edge.is_back:
            variable = carried_word(self._flow, source, edge.value)
            return f"{variable or self._name(source, edge)} before"
        return self._name(source, edge)

    def _name(self, source: Box, edge: Edge) -> str:
        """Return the name of the source of an edge. A variable is more informative than the
        function that made the value.
        """
        label = self._label(source)
        outline = self._flow.outline
        if not outline.events_of(source) or outline.scope(source) >= 0:
            return label.title.removesuffix(":") or "the repeat"
        event = outline.events[source.nodes[0]]
        if event.kind == "module":
            return label.title
        if len(event.target) > edge.out and len(event.target) == len(event.outputs):
            return clean(event.target[edge.out].removeprefix("self."))
        return label.variable or f"{label.title} #{source.nodes[0]}"


def _row(depth: int, kind: str, cells: list[Cell], at: Location | None, event: int = -1) -> Row:
    """Return a row with the cells that are not empty, and the place if there is one."""
    shown = [cell for cell in cells if cell.text]
    if at is not None:
        shown.append(Cell(kinds.PLACE, at=at))
    return Row(depth, kind, tuple(shown), event)
