"""Writes the shapes and statistics of the values on edges."""

from __future__ import annotations

from collections.abc import Sequence

from torchglass.events.types import Value
from torchglass.views.graph.edges import Outside
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.outline import Box
from torchglass.views.text.tensors import contents_words, is_measured, values_words
from torchglass.views.text.words import shape_word


class Shapes:
    """Writes the shapes of values. A value is looked up in the event that made it, or that first
    takes it.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._words: dict[int, str] = {}
        """The shapes that were already written, by value."""
        self._is_measured = is_measured(flow.outline.trace)
        self._readers: dict[int, int] = {}
        """For each value the first event that takes it."""
        for event, takes in enumerate(flow.values.takes):
            for value in takes:
                self._readers.setdefault(value, event)

    def word(self, value: int) -> str:
        """Return the shape of a value, such as ``f32[8, 3]``, or "" if it is not known."""
        word = self._words.get(value)
        if word is None:
            word = self._words[value] = self._make_word(value)
        return word

    def result(self, source: Box, value: int) -> str:
        """Return the shape of a box's result, or a range such as ``f32[2, 1–12]`` if it differed
        between calls.
        """
        outline = self._flow.outline
        if len(source.nodes) == 1 or not self._stands_for_events(source):
            return self.word(value)
        ids = [each.id for each in outline.event(source.nodes[0]).outputs]
        if value not in ids:
            return self.word(value)
        outputs = [sample.outputs for sample in outline.samples(source.nodes)]
        return _range_at(outputs, ids.index(value))

    def outside(self, outside: Outside) -> str:
        """Return the shape of an outside value, which may be another one in each iteration."""
        takes = self._flow.values.takes[outside.reader]
        if outside.value not in takes:
            return self.word(outside.value)
        inputs = [sample.inputs for sample in self._flow.outline.samples(outside.readers)]
        return _range_at(inputs, takes.index(outside.value))

    def contents(self, source: Box | None, value: int) -> tuple[str, str]:
        """Return the statistics of a result over all calls of a box, and how many of its numbers
        are not finite.

        Both are empty if they were not measured. ``source`` is None for a value from outside.
        """
        if not self._is_measured:
            return "", ""
        column: list[Value] = []
        if source is not None and self._stands_for_events(source):
            column = self._results_in_all_calls(source, value)
        if not column:
            found = self._value(value)
            if found is not None:
                column = [found]
        return contents_words([column])

    def _stands_for_events(self, box: Box) -> bool:
        """Return whether a box stands for events, not for a loop, a repeat or a call."""
        return not box.runs and self._flow.outline.scope(box) < 0

    def _results_in_all_calls(self, source: Box, value: int) -> list[Value]:
        """Return what all calls of a box gave at the place where the first one gave a value; empty
        if it gave no such value.
        """
        trace = self._flow.outline.trace
        outputs = [trace.event(node).outputs for node in source.nodes]
        ids = [each.id for each in outputs[0]]
        if value not in ids:
            return []
        at = ids.index(value)
        return [several[at] for several in outputs if at < len(several)]

    def _make_word(self, value: int) -> str:
        found = self._value(value)
        if found is None:
            return ""
        return shape_word(found.dtype, found.shape, found.layout)

    def _value(self, value: int) -> Value | None:
        """Return a value as the event has it that made it, or that first takes it."""
        outline = self._flow.outline
        for event in (self._flow.values.producers[value], self._readers.get(value, -1)):
            if event < 0:
                continue
            recorded = outline.event(event)
            for each in (*recorded.outputs, *recorded.inputs):
                if each.id == value:
                    return each
        return None


def _range_at(several: Sequence[tuple[Value, ...]], at: int) -> str:
    """Return the shape that several calls have at one place, as a range if it differs."""
    return ", ".join(values_words([values[at : at + 1] for values in several if at < len(values)]))
