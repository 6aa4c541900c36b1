"""What the page reads, as columns: events (a sample for all that are alike, and times), values, boxes and edges."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf, isfinite
from typing import Any

from torchglass.events.types import Event, Location, Stats
from torchglass.views.digest import ById, settings_of
from torchglass.views.graph.edges import BoxLevel, Edge
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.outline import Box
from torchglass.views.graph.values import FlowValues
from torchglass.views.graph.view import SIGN, STEP, Label, Shapes, label_of, outside_word, port_word
from torchglass.views.text.cells import class_word, expression_of
from torchglass.views.text.words import clean, shape_word

MOST_FRAMES = 12
MOST_HISTOGRAMS = 5_000
"""Beyond that the page would be slow to make, and nobody looks at all of them."""
TICK_NS = 100
"""Times are told in tenths of a microsecond: a clock's noise need not be kept."""


class PageEvents:
    """Makes the columns of events and values."""

    def __init__(self, flow: Flow, texts: Texts, files: dict[str, int]) -> None:
        self._flow, self._texts, self._files = flow, texts, files
        self._digest, self._trace = flow.outline.digest, flow.outline.digest.trace
        self._values: FlowValues = flow.values
        self._place = ById(self._make_place)

    def samples(self) -> list[list[Any]]:
        """One entry for all events that are alike."""
        return [self._said_of(event) for event in self._digest.samples]

    def _said_of(self, event: Event) -> list[Any]:
        number = self._texts.number
        name = (event.module or "") if event.kind == "module" else ""
        settings = settings_of(event.detail, event.module) if event.kind == "module" else event.detail
        return [
            number(event.kind), number(event.name), number(expression_of(event, name)),
            number(class_word(event.name, settings) if event.kind == "module" else settings),
            number(event.args), number(event.result if not event.outputs else ""), number(event.module or ""),
            self._place(event.location) if event.location else [], list(map(self._place, event.stack[-MOST_FRAMES:])),
            number(event.error or ""), number(event.note or ""), number(event.thread),
            self._texts.numbers(value.role for value in event.inputs),
            self._texts.numbers(value.role for value in event.outputs),
            self._texts.numbers(event.operands), self._texts.numbers(event.target), number(event.phase),
            event.process,
        ]  # fmt: skip

    def _make_place(self, at: Location) -> list[int]:
        file = self._files.get(at.file, -1)
        name = self._texts.number(at.file) if file < 0 else 0
        return [file, at.line, at.end_line, at.col, at.end_col, self._texts.number(at.function), name]

    def events(self) -> dict[str, Any]:
        """One entry an event, in order of opening."""
        values, digest = self._values, self._digest
        starts, ends = list(values.starts), list(values.ends)
        begin = min(starts, default=0)
        io = [
            value
            for pair in zip(values.recorded_takes, values.recorded_gives, strict=True)
            for ids in pair
            for value in ids
        ]
        return {
            "sample": digest.alike,
            "up": [at - parent if parent >= 0 else 0 for at, parent in enumerate(digest.parents)],
            "start": differences([(start - begin) // TICK_NS for start in starts]),
            "spent": [-1 if end < 0 else (end - start) // TICK_NS for start, end in zip(starts, ends, strict=True)],
            "takes": [len(ids) for ids in values.recorded_takes],
            "gives": [len(ids) for ids in values.recorded_gives],
            "io": newest_first(io),
            "within": self._within(),
        }

    def _within(self) -> list[int]:
        """Events that are drawn in a box that is not around them: ``zero_grad()`` is one for many functions."""
        outline, parents = self._flow.outline, self._digest.parents
        anchors = [anchor if anchor < 0 else outline.shown_as(anchor) for anchor in outline.anchors]
        odd = [
            at
            for at, anchor in enumerate(anchors)
            if anchor not in (at, anchors[parents[at]] if parents[at] >= 0 else -1)
        ]
        return [*differences(odd), *differences([anchors[at] for at in odd])]

    def values(self) -> dict[str, Any]:
        """One entry a value, in the order of their mention: a word, its maker, its memory."""
        values = self._values
        order = list(
            dict.fromkeys(
                v
                for pair in zip(values.recorded_takes, values.recorded_gives, strict=True)
                for ids in pair
                for v in ids
            )
        )
        place = {value: at for at, value in enumerate(order)}
        words = self._words()
        through: list[int] = []
        for event, (taken, followed) in enumerate(zip(values.recorded_takes, values.takes, strict=True)):
            for index, (value, source) in enumerate(zip(taken, followed, strict=True)):
                if value != source:
                    through += [event, index, place[source]]
        producers = [values.producers[value] for value in order]
        return {
            "word": [self._texts.number(words.get(value, "")) for value in order],
            "maker": differences(producers),
            "parameter": [at for at, value in enumerate(order) if value in values.parameters],
            "through": through,
            "stats": self._stats(place),
        }

    def _words(self) -> dict[int, str]:
        tables = getattr(self._trace, "tables", None)
        if tables is not None:
            words = [shape_word(meta.dtype, meta.shape, meta.layout) for meta in tables.metas]
            return {value: words[meta] for value, meta in enumerate(tables.value_meta)}
        return {
            value.id: shape_word(value.dtype, value.shape, value.layout)
            for event in self._trace.events()
            for value in (*event.inputs, *event.outputs)
        }

    def _stats(self, place: dict[int, int]) -> dict[str, Any]:
        """What is in the values, where that was measured, and how it is spread, where the numbers were kept."""
        tables = getattr(self._trace, "tables", None)
        if tables is None:
            return {}
        measured = len(tables.value_measured)
        told = {at: plain(tables.stats(value)) for value, at in place.items() if value < measured}
        for value, bars in self._histograms(place):
            told[place[value]] = told.get(place[value], {}) | bars
        return {str(at): each for at, each in told.items() if each}

    def _histograms(self, place: dict[int, int]) -> Iterator[tuple[int, dict[str, Any]]]:
        trace: Any = self._trace
        if not hasattr(trace, "kept"):  # tables made by hand
            return
        for value in islice((each for each in trace.kept() if each in place), MOST_HISTOGRAMS):
            yield value, spread(trace.tensor(value))


def plain(stats: Stats | None) -> dict[str, Any]:
    """What the page tells of a value: of numbers that are none, only how many there are."""
    if stats is None:
        return {}
    numbers = {"mean": stats.mean, "std": stats.std, "min": stats.min, "max": stats.max}
    told = {name: float(f"{number:.4g}") for name, number in numbers.items() if isfinite(number)}
    return {**told, "nan": stats.nan, "inf": stats.posinf + stats.neginf, "zeros": stats.zeros}


# ---------------------------------------------------------------- hues

# What a step is good for, as one word that the page has a colour for.

WEIGHTS, NORM, ACTIVATION, ATTENTION, POOL, DROPOUT, LOSS, TRAIN, PLAIN = (
    "weights", "norm", "activation", "attention", "pool", "dropout", "loss", "train", ""
)  # fmt: skip

_WORDS = [
    (TRAIN, r"backward$|\.step$|zero_grad|clip_grad"),
    (LOSS, r"loss|cross_entropy|nll|mse|kl_div"),
    (ATTENTION, r"attention|attn"),
    (DROPOUT, r"dropout"),
    (NORM, r"norm|rms"),
    (POOL, r"pool|upsample|interpolate|pad"),
    (ACTIVATION, r"relu|gelu|silu|swish|sigmoid|tanh|softmax|elu|mish|softplus|activation"),
    (WEIGHTS, r"linear|conv|embedding|bilinear|addmm|matmul|bmm|^mm|einsum|lstm|gru|rnn"),
]
_PATTERNS = [(hue, re.compile(words, re.IGNORECASE)) for hue, words in _WORDS]


def hue_of(event: Event, kind: str) -> str:
    """By the name of the layer or function; boxes that hold others have none."""
    if event.kind == "step":
        return TRAIN
    if kind == "container" or event.kind not in ("module", "function", "op"):
        return PLAIN
    name = "matmul" if event.operator == "@" else event.name.removeprefix("aten::").rpartition(".")[2]
    return next((hue for hue, pattern in _PATTERNS if pattern.search(name)), PLAIN)


# ---------------------------------------------------------------- histogram

# How the numbers of a kept tensor are spread: a few bars, each as high as a digit says.

BARS = 24
HIGHEST = 9
MOST_NUMBERS = 65_536
"""Of larger tensors every so manieth number is counted: the picture is the same."""


def spread(content: Any) -> dict[str, Any]:
    """``min`` and ``max`` of the finite numbers and the ``histogram`` between them; nothing where there is none.

    The content is a tensor or an array, and asked only for what both can: this layer imports neither library.
    """
    if "complex" in str(content.dtype):  # they have no order
        return {}
    try:
        numbers = _sample(content)
        if not (isfinite(numbers.min()) and isfinite(numbers.max())):
            numbers = numbers[abs(numbers) < inf]
        low, high = float(numbers.min()), float(numbers.max())
        if not low < high:
            return {}
        bars = _bars(numbers, low, high)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return {}  # nothing in it, or a layout that cannot be laid flat: sparse, nested
    most = max(bars)
    digits = "".join(str(-(-HIGHEST * int(each) // int(most))) for each in bars)
    return {"min": float(f"{low:.4g}"), "max": float(f"{high:.4g}"), "histogram": digits}


def _sample(content: Any) -> Any:
    """Some of the numbers in a row, as floats."""
    flat = content.reshape(-1)
    flat = flat[:: -(-len(flat) // MOST_NUMBERS) or 1]
    return flat.astype("float64") if hasattr(flat, "astype") else flat.detach().float().cpu()


def _bars(numbers: Any, low: float, high: float) -> list[float]:
    if hasattr(numbers, "histc"):
        return numbers.histc(BARS, low, high).tolist()
    return sys.modules["numpy"].histogram(numbers, BARS, (low, high))[0].tolist()


# ---------------------------------------------------------------- columns

# Columns of numbers and a table of texts: what the page reads, made so that repetition costs next to nothing.

LONGEST_TEXT = 4000
LONGEST_SOURCE = 2_000_000


class Texts:
    """Each text once; elsewhere it is a number."""

    def __init__(self) -> None:
        self.all: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str, longest: int = LONGEST_TEXT) -> int:
        """The number of a text; a very long one is cut."""
        text = text if len(text) <= longest else text[:longest] + "…"
        found = self._numbers.get(text)
        if found is None:
            # Half of a surrogate pair is no text in any encoding.
            found = self._numbers[text] = len(self.all)
            self.all.append(text.encode("utf-8", "replace").decode("utf-8"))
        return found

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self.number(text) for text in texts]


def differences(numbers: Sequence[int]) -> list[int]:
    """Each number as how much it is more than the one before: equal rounds give equal bytes."""
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


def newest_first(ids: Iterable[int]) -> list[int]:
    """Numbers of values in the order of their mention: 0 for one that is new, else how far it lies back."""
    found: list[int] = []
    place: dict[int, int] = {}
    for value in ids:
        at = place.get(value)
        if at is None:
            place[value] = len(place)
            found.append(0)
        else:
            found.append(len(place) - at)
    return found


# ---------------------------------------------------------------- items and levels

# Boxes with what is said of them, and the edges between them at every level.

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
