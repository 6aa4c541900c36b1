"""The data flow as rows: each step with the steps that its values come from."""

from __future__ import annotations

from torchglass.events.types import Location
from torchglass.views import row as kinds
from torchglass.views.digest import Recorded
from torchglass.views.graph.edges import BORDER, BoxLevel, Edge
from torchglass.views.graph.flow import Flow, flow_of
from torchglass.views.graph.labels import Label, label_of, outside_word, port_word
from torchglass.views.graph.outline import Box
from torchglass.views.options import GraphOptions
from torchglass.views.row import Cell, Row, Sheet
from torchglass.views.text.spans import loop_place
from torchglass.views.text.tensors import is_measured, with_stats
from torchglass.views.text.words import clean, plural

MOST_SOURCES = 4


def sheet(trace: Recorded, options: GraphOptions) -> Sheet:
    """One row a box, its sources in the place of what it takes."""
    return _Rows(flow_of(trace, options), options).sheet()


class _Rows:
    def __init__(self, flow: Flow, options: GraphOptions) -> None:
        self._flow, self._options = flow, options
        self._labels: dict[int, Label] = {}
        self._is_measured = is_measured(flow.outline.digest.trace)

    def sheet(self) -> Sheet:
        """Depth first, with a stack of our own: traces nest deeper than Python may."""
        top, rows = self._flow.outline.top, list[Row]()
        pending = [(item, number, -1, 0) for number, item in enumerate(top)][::-1]
        while pending:
            item, number, around, depth = pending.pop()
            rows.append(self._row(item, number, around, depth))
            if self._options.depth is None or depth < self._options.depth:
                inside = enumerate(item.children)
                pending += [(child, at, item.number, depth + 1) for at, child in inside][::-1]
        events = plural(len(self._flow.outline.events), "event")
        return Sheet(rows, [Cell(kinds.COUNT, f"{plural(len(rows), 'step')} of {events}")])

    def _label(self, item: Box) -> Label:
        if item.number not in self._labels:
            self._labels[item.number] = label_of(self._flow, item)
        return self._labels[item.number]

    def _row(self, item: Box, number: int, around: int, depth: int) -> Row:
        label, outline = self._label(item), self._flow.outline
        rounds, span = Cell(kinds.ROUNDS, label.rounds), outline.span(item)
        takes, fold = Cell(kinds.TAKES, ", ".join(self._sources(number, around))), f"{label.title} {label.often}"
        if item.loops:
            (at,) = {loop_place(each) for each in map(outline.forest.span, item.loops[:1]) if each is not None}
            return _row(
                depth,
                kinds.LOOP,
                [Cell(kinds.EXPRESSION, label.title), Cell(kinds.TIMES, label.often), takes, rounds],
                at,
            )
        if item.runs:
            often = f"{label.title} {label.often}".lstrip()
            return _row(depth, kinds.REPEAT, [Cell(kinds.FOLD, often), Cell(kinds.COUNT, f", {label.detail}:")], None)
        if span is not None:
            cells = [Cell(kinds.FOLD, label.often), Cell(kinds.EXPRESSION, label.code), takes, rounds]
            return _row(depth, kinds.CALL, cells, span.at, span.first)
        event = outline.events[item.nodes[0]]
        cells = [
            Cell(kinds.FOLD, fold) if label.often else Cell(kinds.NAME, label.title),
            Cell(kinds.CLASS, label.detail or label.variable),
            takes,
            Cell(kinds.ERROR, "✗ " + clean(event.error)) if event.error else Cell(kinds.GIVES, label.gives),
            rounds,
        ]
        if self._is_measured:
            cells = [*with_stats(tuple(cells), map(outline.digest.trace.event, item.nodes))]
        row = _row(depth, kinds.EVENT, cells, event.location, item.nodes[0])
        row.times, row.each = item.in_a_row()[1], len(item.nodes)
        return row

    def _sources(self, number: int, around: int) -> list[str]:
        level = self._flow.levels[around]
        edges = [edge for edge in level.edges if edge.target == number]
        words = list(dict.fromkeys(self._source(edge, level, around) for edge in edges))
        more = len(words) - MOST_SOURCES
        return [*words[:MOST_SOURCES], f"+{more} more"] if more > 0 else words

    def _source(self, edge: Edge, level: BoxLevel, around: int) -> str:
        children = self._flow.outline.items[around].children if around >= 0 else self._flow.outline.top
        if edge.source >= 0:
            name = self._name(children[edge.source], edge)
            return f"{name} before" if edge.is_back else name
        if edge.source != BORDER:
            return outside_word(self._flow, level.outside[-2 - edge.source])
        return self._port(around, edge.out)

    def _name(self, item: Box, edge: Edge) -> str:
        """A variable says more than the function that made it."""
        label, outline = self._label(item), self._flow.outline
        if not outline.events_of(item) or outline.span(item) is not None:
            return label.title.removesuffix(":") or "the repeat"
        event = outline.events[item.nodes[0]]
        if event.kind == "module":
            return label.title
        if len(event.target) > edge.out and len(event.target) == len(event.outputs):
            return clean(event.target[edge.out].removeprefix("self."))
        return label.variable or f"{label.title} #{item.nodes[0]}"

    def _port(self, around: int, port: int) -> str:
        return port_word(self._flow, self._flow.outline.items[around], port) or "outside"


def _row(depth: int, kind: str, cells: list[Cell], at: Location | None, event: int = -1) -> Row:
    place = (Cell(kinds.PLACE, at=at),) if at is not None else ()
    return Row(depth, kind, (*[cell for cell in cells if cell.text], *place), event)
