"""What goes into a box and comes out of it: its arguments and results, and what crosses its border unlisted."""

from __future__ import annotations

from torchglass.events.tables import NONE
from torchglass.views.graph.outline import Outline
from torchglass.views.graph.values import FlowValues, Ids


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
