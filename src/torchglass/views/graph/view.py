"""The data flow as rows: each step with the steps that its values come from."""

from __future__ import annotations

from torchglass.views.digest import Recorded
from torchglass.views.graph import Options
from torchglass.views.graph.flow import BORDER, Edge, Flow, Level, flow_of
from torchglass.views.graph.labels import Label, label_of, outside_word, role_in
from torchglass.views.graph.outline import Item
from torchglass.views.row import CLASS, COUNT, ERROR, EVENT, FOLD, GIVES, NAME, PLACE, REPEAT, TAKES, Cell, Row, Sheet
from torchglass.views.text.words import clean, count, plural

MOST_SOURCES = 4


def sheet(trace: Recorded, options: Options) -> Sheet:
    """One row a box, its sources in the place of what it takes."""
    return _Rows(flow_of(trace, options), options).sheet()


class _Rows:
    def __init__(self, flow: Flow, options: Options) -> None:
        self._flow, self._options = flow, options
        self._labels: dict[int, Label] = {}

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
        return Sheet(rows, [Cell(COUNT, f"{plural(len(rows), 'step')} of {events}")])

    def _label(self, item: Item) -> Label:
        if item.number not in self._labels:
            self._labels[item.number] = label_of(self._flow, item)
        return self._labels[item.number]

    def _row(self, item: Item, number: int, around: int, depth: int) -> Row:
        label = self._label(item)
        if item.is_repeat:
            often = f"{label.title} × {count(item.times)}".lstrip()
            return Row(depth, REPEAT, (Cell(FOLD, often), Cell(COUNT, f", {label.detail}:")), times=item.times)
        node = item.nodes[0]
        event = self._flow.outline.events[node]
        fold = f"{label.title} × {count(item.times)}" if item.times > 1 else ""
        cells = [
            Cell(FOLD if fold else NAME, fold or label.title),
            Cell(CLASS, label.detail or label.variable),
            Cell(TAKES, ", ".join(self._sources(number, around))),
            Cell(ERROR, "✗ " + clean(event.error)) if event.error else Cell(GIVES, label.gives),
        ]
        shown = tuple(cell for cell in cells if cell.text)
        place = (Cell(PLACE, at=event.location),) if event.location else ()
        return Row(depth, EVENT, (*shown, *place), node, item.times, len(item.nodes))

    def _sources(self, number: int, around: int) -> list[str]:
        level = self._flow.levels[around]
        edges = [edge for edge in level.edges if edge.target == number]
        words = list(dict.fromkeys(self._source(edge, level, around, number) for edge in edges))
        more = len(words) - MOST_SOURCES
        return [*words[:MOST_SOURCES], f"+{more} more"] if more > 0 else words

    def _source(self, edge: Edge, level: Level, around: int, number: int) -> str:
        children = self._flow.outline.items[around].children if around >= 0 else self._flow.outline.top
        if edge.source >= 0:
            name = self._name(children[edge.source], edge)
            return f"{name} before" if edge.source >= number else name
        if edge.source != BORDER:
            return outside_word(self._flow, level.outside[-2 - edge.source])
        return self._port(around, level.takes[edge.out])

    def _name(self, item: Item, edge: Edge) -> str:
        """A variable says more than the function that made it."""
        label, event = self._label(item), self._flow.outline.events[item.nodes[0]] if item.nodes else None
        if event is None:
            return label.title or "the repeat"
        if event.kind == "module":
            return label.title
        if len(event.target) > edge.out and len(event.target) == len(event.outputs):
            return clean(event.target[edge.out].removeprefix("self."))
        return label.variable or f"{label.title} #{item.nodes[0]}"

    def _port(self, around: int, value: int) -> str:
        item = self._flow.outline.items[around]
        if item.is_repeat:
            return "before"
        return role_in(self._flow.outline.digest.trace.event(item.nodes[0]), value) or "outside"
