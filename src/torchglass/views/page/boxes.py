"""The steps and boxes of the page: items with what is said of them, and the edges between them at every level."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchglass.views.graph.edges import BoxLevel, Edge
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.labels import SIGN, STEP, Label, Shapes, label_of, outside_word, port_word
from torchglass.views.graph.outline import Box
from torchglass.views.page.events import Texts, differences, hue_of
from torchglass.views.text.words import clean

IS_UNKNOWN = 1


class Boxes:
    """Makes the columns of items and levels."""

    def __init__(self, flow: Flow, texts: Texts) -> None:
        self._flow, self._texts, self._shapes = flow, texts, Shapes(flow)
        self._labels = [label_of(flow, item) for item in flow.outline.items]
        dtypes = Counter(word.partition("[")[0] for label in self._labels for word in label.gives.split(", ") if word)
        self._usual = max(
            (dtype for dtype in dtypes if dtype.startswith(("f", "bf"))), key=dtypes.__getitem__, default=""
        )

    def items(self) -> dict[str, Any]:
        """One entry an item, outermost first."""
        outline, texts, labels = self._flow.outline, self._texts, self._labels
        items, events = outline.items, [outline.events_of(item) for item in outline.items]
        return {
            "parent": [item.number - item.parent for item in items],
            "most": [item.in_a_row()[1] for item in items],
            "times": [len(item.nodes) for item in items],
            "slots": differences([slot for item in items for slot in item.slots]),
            "count": [len(several) for several in events],
            "nodes": differences([event for several in events for event in several]),
            "rounds": [1 if item.runs else 0 for item in items],
            "often": texts.numbers(label.often for label in labels),
            "only": texts.numbers(label.rounds for label in labels),
            "kind": texts.numbers(label.kind for label in labels),
            "hue": texts.numbers(self._hue(item, label) for item, label in zip(items, labels, strict=True)),
            "title": texts.numbers(label.title for label in labels),
            "detail": texts.numbers(label.detail for label in labels),
            "variable": texts.numbers(label.variable for label in labels),
            "gives": texts.numbers(label.gives for label in labels),
            "code": texts.numbers(label.code for label in labels),
        }

    def _hue(self, item: Box, label: Label) -> str:
        is_event = 0 <= item.nodes[0] < len(self._flow.outline.events)
        return hue_of(self._flow.outline.events[item.nodes[0]], label.kind) if is_event else ""

    def levels(self) -> list[list[Any]]:
        """Of the outermost level, then of each item that holds others: edges, values from outside, names of ports."""
        return [[number, *self._level(number, level)] for number, level in self._flow.levels.items()]

    def _level(self, number: int, level: BoxLevel) -> tuple[list[int], list[int], list[int], list[int]]:
        edges = [part for edge in level.edges for part in self._edge(number, edge)]
        outside = [
            part
            for each in level.outside
            for part in (
                self._texts.number(outside_word(self._flow, each)),
                self._texts.number("" if each.times > 1 else self._without_usual(self._shapes.taken(each))),
                IS_UNKNOWN if each.is_unknown else 0,
            )
        ]
        return edges, outside, self._ports_in(number, level), self._ports_out(number, level)

    def _edge(self, number: int, edge: Edge) -> tuple[int, ...]:
        """Source, its result, target, its argument, the shape where that is news, the name where that is.

        Behind the shape, what is not finite: a picture shows where it went.
        """
        word = name = ""
        if edge.source >= 0:
            children = self._flow.outline.items[number].children if number >= 0 else self._flow.outline.top
            source = children[edge.source]
            word, alarm = self._changed(source, edge.value), self._shapes.contents(source, edge.value)[1]
            label = self._labels[source.number]
            name = label.variable if label.kind == SIGN or edge.is_back else ""
            word, name = f"{word} {alarm}".strip(), f"{name} {alarm}".strip() if name else ""
        words = self._texts.number(word), self._texts.number(name)
        return edge.source, edge.out, edge.target, edge.into, *words, int(edge.is_back)

    def _changed(self, source: Box, value: int) -> str:
        """The shape of a result, where none of the step's arguments has it."""
        word = self._shapes.given(source, value)
        if self._flow.outline.span(source) is not None or source.runs or self._labels[source.number].kind == STEP:
            return ""
        takes = self._flow.crossing.takes(source.nodes[0])
        return "" if any(self._shapes.word(each) == word for each in takes) else self._without_usual(word)

    def _without_usual(self, word: str) -> str:
        dtype, bracket, rest = word.partition("[")
        return bracket + rest if dtype == self._usual and bracket else word

    def _ports_in(self, number: int, level: BoxLevel) -> list[int]:
        if number < 0:
            return [0] * len(level.takes)
        item = self._flow.outline.items[number]
        return self._texts.numbers(port_word(self._flow, item, port) for port in range(len(level.takes)))

    def _ports_out(self, number: int, level: BoxLevel) -> list[int]:
        outline = self._flow.outline
        events = outline.events_of(outline.items[number]) if number >= 0 else ()
        if not events:
            return [0] * len(level.gives)
        roles = {value.id: clean(value.role) for value in reversed(outline.digest.trace.event(events[0]).outputs)}
        return self._texts.numbers(roles.get(value, "") for value in level.gives)
