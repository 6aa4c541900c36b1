"""The data flow as rows: each step with the steps that its values come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchglass.events.types import Event, Location, Value
from torchglass.views import row as kinds
from torchglass.views.digest import Recorded, settings_of
from torchglass.views.fold import range_label
from torchglass.views.graph.edges import BORDER, BoxLevel, Edge, Outside
from torchglass.views.graph.flow import Flow, flow_of
from torchglass.views.graph.outline import Box
from torchglass.views.options import GraphOptions
from torchglass.views.row import Cell, Row, Sheet
from torchglass.views.text.cells import BINARY, class_word, expression, expression_of, is_summed_up, shape_words
from torchglass.views.text.spans import (
    MODULE_LEVEL,
    call_word,
    count_word,
    loop_place,
    loop_word,
    range_word,
    short_call,
)
from torchglass.views.text.tensors import contents_words, is_measured, values_words, with_stats
from torchglass.views.text.words import clean, cut, one_line, plural, shape_word

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


# ---------------------------------------------------------------- labels

# What is written on a box and on an edge: short names, the class of a layer, shapes.

LONGEST_TITLE = 40
LONGEST_LOOP = 60
QUIET = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze transpose permute contiguous expand expand_as view_as to type"
    " float half bfloat16 long int bool t T mT H mH data detach clone split chunk unbind narrow select __getitem__"
    " movedim swapaxes ravel dropout alias slice _unsafe_view lift_fresh".split()
)
"""Functions that move data about and compute nothing: drawn quietly."""

LAYER, CONTAINER, SIGN, FUNCTION, VIEW, STEP, MARK, UNSEEN, REPEAT, CALLED, ROUNDS = (
    "layer", "container", "sign", "function", "view", "step", "mark", "unseen", "repeat", "called", "loop"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Label:
    """What a box says."""

    kind: str
    title: str
    detail: str = ""
    """Of a layer its class and settings."""
    variable: str = ""
    """The names that the result is assigned to."""
    gives: str = ""
    """The shapes that come out."""
    code: str = ""
    """What was written, with the names it is assigned to."""
    often: str = ""
    """How often in a row, or how many rounds: ``× 12``."""
    rounds: str = ""
    """In which rounds, where not in all."""


def label_of(flow: Flow, item: Box) -> Label:
    """The label of a box."""
    outline = flow.outline
    span = outline.span(item)
    if item.loops:
        loops = [each for each in map(outline.forest.span, item.loops) if each is not None]
        title = cut(loop_word(loops[0]), LONGEST_LOOP)
        return Label(ROUNDS, title, code=title, often=count_word(loops), rounds=item.rounds)
    least, most = item.in_a_row()
    often = f"× {range_word((least, most))}" if most > 1 else ""
    if item.runs:
        return Label(REPEAT, _repeat_title(flow, item), f"{len(item.children)} steps each", often=often)
    if span is not None:
        code = call_word(span)
        title = code if span.function == MODULE_LEVEL else short_call(span.function)
        return Label(CALLED, title, code=code, often=often, rounds=item.rounds)
    return replace(_event_label(flow, item), often=often, rounds=item.rounds)


def _event_label(flow: Flow, item: Box) -> Label:
    outline, node = flow.outline, item.nodes[0]
    event = outline.events[node]
    is_helper = len(outline.forest.helpers.get(node, ())) > 1 and bool(event.code)  # one says its own name
    digest = outline.digest
    alike = [digest.samples[each] for each in dict.fromkeys(digest.alike[node] for node in item.nodes)]
    gives = "" if event.error or is_helper or is_summed_up(event) else ", ".join(_gives(alike))
    variable = ", ".join(clean(name.removeprefix("self.")) for name in event.target)
    if event.kind == "module":
        title = range_label(map(outline.layers.name, item.nodes))
        settings = {settings_of(each.detail, each.module) for each in alike}
        detail = class_word(event.name, settings.pop() if len(settings) == 1 else "")
        kind = CONTAINER if item.children else LAYER
        return Label(kind, clean(title), "" if detail == title else detail, variable, gives, _written(event, title))
    title = cut(one_line(event.code), LONGEST_TITLE) if is_helper else _title(event)
    return Label(_kind(event), title, "", variable, gives, title if is_helper else _written(event, ""))


def _gives(alike: Sequence[Event]) -> tuple[str, ...]:
    """The shapes that came out; where they differed from call to call, what they have in common."""
    several = dict.fromkeys(shape_words(each.outputs) for each in alike)
    return next(iter(several)) if len(several) == 1 else values_words([each.outputs for each in alike])


def _repeat_title(flow: Flow, item: Box) -> str:
    outline = flow.outline
    inside = [node for child in item.children for node in child.nodes if 0 <= node < len(outline.events)]
    names = [outline.layers.name(node) for node in inside if outline.events[node].kind == "module"]
    heads = {name.rpartition(".")[0] for name in names}
    return clean(range_label(names)) if len(heads) == 1 and names else ""


def short_name(event: Event) -> str:
    """``softmax`` of ``Tensor.softmax``, ``mm`` of ``aten::mm``; ``F.`` stays, as it is written so."""
    name = event.name.removeprefix("Tensor.").removeprefix("aten::")
    return clean(name)


def _kind(event: Event) -> str:
    if event.kind in ("step", "mark", "unseen"):
        return event.kind
    if event.kind == "call":
        return CALLED
    if event.operator in BINARY:
        return SIGN
    return VIEW if short_name(event).rpartition(".")[2].removeprefix("aten::") in QUIET else FUNCTION


def _title(event: Event) -> str:
    if event.operator in BINARY:
        return event.operator
    if event.kind == "mark":
        return f"▸ {clean(event.name)}"
    if event.kind == "step":
        return f"{clean(event.name)}.step"
    if event.kind == "call":
        return cut(short_call(event.name), LONGEST_TITLE)
    if event.operator == "[]" and event.code.endswith("]"):
        return cut(_subscript(event.code), LONGEST_TITLE)
    return cut(short_name(event) or "?", LONGEST_TITLE)


def _subscript(code: str) -> str:
    """``[:, -1]`` of ``model(x)[:, -1]``: from the bracket that the last one closes."""
    depth = 0
    for at in range(len(code) - 1, -1, -1):
        depth += (code[at] in "])}") - (code[at] in "[({")
        if depth == 0:
            return one_line(code[at:])
    return "[…]"


def _written(event: Event, name: str) -> str:
    if event.code and event.direct:
        return expression(event.target, event.code, event.operator)
    return expression_of(event, name)


# ---------------------------------------------------------------- edges


def role_in(event: Event, value: int) -> str:
    """Under which names an event takes a value."""
    return ", ".join(dict.fromkeys(clean(each.role) for each in event.inputs if each.id == value))


def outside_word(flow: Flow, outside: Outside) -> str:
    """What a value is called that nothing in the trace made: as it is written where it is first taken."""
    if outside.times > 1:
        return f"{outside.times} tensors"
    word = taken_word(flow, outside.reader, outside.value)
    return cut(f"{word} ?" if outside.is_unknown and word else word or "?", LONGEST_TITLE)


def taken_word(flow: Flow, reader: int, taken: int) -> str:
    """What a value is called where an event takes it; empty where that is not known."""
    event, followed = flow.outline.digest.trace.event(reader), flow.values.takes[reader]
    for index, value in enumerate(event.inputs):
        if taken in (value.id, followed[index] if index < len(followed) else None):
            written = event.operands[index] if index < len(event.operands) else ""
            word = "" if written.startswith("*") else one_line(written).removeprefix("self.")
            return word or clean(value.role)
    return ""


def port_word(flow: Flow, item: Box, port: int) -> str:
    """What comes in at a place is called: the name of the argument, or as it is written where it is first taken."""
    level = flow.levels[item.number]
    if level.readers:
        word = taken_word(flow, level.readers[port], level.takes[port])
        return "" if word == "self" else word
    return role_in(flow.outline.digest.trace.event(item.nodes[0]), level.takes[port])


class Shapes:
    """The words for shapes of values; a value is looked for in the event that made it, or that first takes it."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._known: dict[int, str] = {}
        self._is_measured = is_measured(flow.outline.digest.trace)
        self._readers: dict[int, int] = {}
        for event, takes in enumerate(flow.values.takes):
            for value in takes:
                self._readers.setdefault(value, event)

    def word(self, value: int) -> str:
        """``f32[8, 3]``; empty where nothing is known."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._word(value)
        return found

    def given(self, source: Box, value: int) -> str:
        """The same of a result of a box; where that differed from call to call, all of them: ``f32[2, 1–12]``."""
        outline = self._flow.outline
        if len(source.nodes) == 1 or source.runs or outline.span(source) is not None:
            return self.word(value)
        outputs = [sample.outputs for sample in self._alike(source.nodes)]
        ids = [each.id for each in outline.digest.trace.event(source.nodes[0]).outputs]
        return self._spread(outputs, ids.index(value)) if value in ids else self.word(value)

    def contents(self, source: Box | None, value: int) -> tuple[str, str]:
        """What was in it, over all calls of a box that gave it, and of that what is not finite; empty if not measured.

        ``None``: it comes from outside.
        """
        if not self._is_measured:
            return "", ""
        outline = self._flow.outline
        is_event = source is not None and not source.runs and outline.span(source) is None
        outputs = [outline.digest.trace.event(each).outputs for each in source.nodes] if is_event and source else []
        at = next((at for at, each in enumerate(outputs[0] if outputs else ()) if each.id == value), None)
        if at is None:
            return contents_words([[each for each in (self._value(value),) if each is not None]])
        return contents_words([[given[at] for given in outputs if at < len(given)]])

    def taken(self, outside: Outside) -> str:
        """The same of a value from outside, of which each round may take another one."""
        takes = self._flow.values.takes[outside.reader]
        if outside.value not in takes:
            return self.word(outside.value)
        return self._spread([each.inputs for each in self._alike(outside.readers)], takes.index(outside.value))

    def _alike(self, events: Sequence[int]) -> list[Event]:
        digest = self._flow.outline.digest
        return [digest.samples[each] for each in dict.fromkeys(digest.alike[event] for event in events)]

    @staticmethod
    def _spread(several: Sequence[tuple[Value, ...]], at: int) -> str:
        return ", ".join(values_words([values[at : at + 1] for values in several if at < len(values)]))

    def _word(self, value: int) -> str:
        found = self._value(value)
        return "" if found is None else shape_word(found.dtype, found.shape, found.layout)

    def _value(self, value: int) -> Value | None:
        trace, at = self._flow.outline.digest.trace, self._flow.values.producers[value]
        events = [trace.event(each) for each in (at, self._readers.get(value, -1)) if each >= 0]
        given = (each for event in events for each in (*event.outputs, *event.inputs))
        return next((each for each in given if each.id == value), None)
