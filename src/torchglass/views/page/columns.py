"""Makes the data of the page as columns: events, values, boxes and edges. Equal events share one
sample.
"""

# Views may use what a trace keeps private from users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import inf, isfinite, prod
from typing import Any, Protocol

from torchglass.events.schema import NONE
from torchglass.events.tables import Tables
from torchglass.events.types import Event, Location, Stats
from torchglass.program.dedup import ById
from torchglass.program.flow import DataFlow
from torchglass.program.paths import settings_of
from torchglass.program.program import program_of
from torchglass.program.recorded import HasTables
from torchglass.views.graph.edges import BoxLevel, Edge
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.labels import BoxKind, Label, label_of
from torchglass.views.graph.outline import Box
from torchglass.views.graph.shapes import Shapes
from torchglass.views.graph.value_names import carried_word, outside_word, port_word
from torchglass.views.page.preview import preview
from torchglass.views.page.rounding import rounded
from torchglass.views.table import bytes_each, numbers_in
from torchglass.views.text.cells import class_word, expression_of
from torchglass.views.text.words import clean, shape_word

MOST_FRAMES = 12
MOST_HISTOGRAMS = 5_000
"""How many histograms the page has. With more it would be slow to make, and no one would look at
all of them.
"""
MOST_PICTURES = 300
"""How many kept tensors have a small map or picture."""
TICK_NS = 100
"""The unit of times in nanoseconds. A finer one would only keep the noise of the clock."""


class PageEvents:
    """Makes the columns of events and values."""

    def __init__(self, flow: Flow, texts: Texts, files: dict[str, int]) -> None:
        self._flow = flow
        self._texts = texts
        self._files = files
        self._digest = flow.outline.distinct
        self._trace = flow.outline.trace
        self._values: DataFlow = flow.values
        self._place = ById(self._make_place)

    def samples(self) -> list[list[Any]]:
        """Return one entry for each sample, which stands for all events of which the page shows the same."""
        samples = self._digest.samples
        first = {number: at for at, number in reversed([*enumerate(self._sample_numbers)])}
        return [self._said_of(samples[first[number]]) for number in range(len(first))]

    @cached_property
    def _sample_numbers(self) -> list[int]:
        """For each distinct event the number of its sample in the page.

        An optimizer with other numbers in each step has thousands of distinct events of which the page shows the same.
        """
        numbers: dict[tuple[Any, ...], int] = {}
        return [
            numbers.setdefault(_shown_of(event), len(numbers)) for event in self._digest.samples
        ]

    def _said_of(self, event: Event) -> list[Any]:
        number = self._texts.number
        name = ""
        if event.kind == "module":
            name = event.module or ""
        if event.kind == "module":
            settings = settings_of(event.detail, event.module)
        else:
            settings = event.detail
        return [
            number(event.kind), number(event.name), number(expression_of(event, name)),
            number(class_word(event.name, settings) if event.kind == "module" else settings),
            number(event.args if not event.inputs else ""), number(event.result if not event.outputs else ""),
            number(event.module or ""),
            self._place(event.location) if event.location else [], list(map(self._place, event.stack[-MOST_FRAMES:])),
            number(event.error or ""), number(event.note or ""), number(event.thread),
            self._texts.numbers(value.role for value in event.inputs),
            self._texts.numbers(value.role for value in event.outputs),
            self._texts.numbers(event.operands), self._texts.numbers(event.target), number(event.phase),
            event.process, number(event.root or ""),
        ]  # fmt: skip

    def _make_place(self, at: Location) -> list[int]:
        file = self._files.get(at.file, -1)
        name = 0
        if file < 0:
            name = self._texts.number(at.file)
        return [
            file,
            at.line,
            at.end_line,
            at.col,
            at.end_col,
            self._texts.number(at.function),
            name,
        ]

    def events(self) -> dict[str, Any]:
        """Return one entry for each event, in the order in which they began."""
        values, digest = self._values, self._digest
        starts = list(values.starts)
        ends = list(values.ends)
        begin = min(starts, default=0)
        io = [
            value
            for pair in zip(values.recorded_takes, values.recorded_gives, strict=True)
            for ids in pair
            for value in ids
        ]
        return {
            "sample": list(map(self._sample_numbers.__getitem__, digest.alike)),
            "up": [at - parent if parent >= 0 else 0 for at, parent in enumerate(digest.parents)],
            "start": differences([(start - begin) // TICK_NS for start in starts]),
            "spent": [
                -1 if end < 0 else (end - start) // TICK_NS
                for start, end in zip(starts, ends, strict=True)
            ],
            "takes": [len(ids) for ids in values.recorded_takes],
            "gives": [len(ids) for ids in values.recorded_gives],
            "io": newest_first(io),
            "within": self._within(),
        }

    def _within(self) -> list[int]:
        """Return the events that are drawn in a box that does not contain them.

        For example, ``zero_grad()`` is one box for many functions.
        """
        outline = self._flow.outline
        parents = self._digest.parents
        anchors = [anchor if anchor < 0 else outline.shown_as(anchor) for anchor in outline.anchors]
        odd = [
            at
            for at, anchor in enumerate(anchors)
            if anchor not in (at, anchors[parents[at]] if parents[at] >= 0 else -1)
        ]
        return [*differences(odd), *differences([anchors[at] for at in odd])]

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each value in the page. Values are in the order in which they first occur."""
        place: dict[int, int] = {}
        for pair in zip(self._values.recorded_takes, self._values.recorded_gives, strict=True):
            for ids in pair:
                for value in ids:
                    place.setdefault(value, len(place))
        return place

    def values(self) -> dict[str, Any]:
        """Return one entry for each value, in the order of ``places``: its word, maker and memory."""
        values = self._values
        place = self.places
        order = list(place)
        words = self._words()
        through: list[int] = []
        for event, (taken, followed) in enumerate(
            zip(values.recorded_takes, values.takes, strict=True)
        ):
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
            "sizes": self._sizes(),
            "device": self._devices(order),
        }

    def _words(self) -> dict[int, str]:
        tables = None
        if isinstance(self._trace, HasTables):
            tables = self._trace._tables
        if tables is not None:
            words = [shape_word(meta.dtype, meta.shape, meta.layout) for meta in tables.metas]
            return {value: words[meta] for value, meta in enumerate(tables.value_meta)}
        return {
            value.id: shape_word(value.dtype, value.shape, value.layout)
            for event in self._trace.events()
            for value in (*event.inputs, *event.outputs)
        }

    def _sizes(self) -> dict[str, list[int]]:
        """Return for the word of each tensor how many bytes and numbers it has."""
        tables = None
        if isinstance(self._trace, HasTables):
            tables = self._trace._tables
        if tables is None:
            metas = []
        else:
            metas = tables.metas
        found: dict[str, list[int]] = {}
        for meta in metas:
            if meta.shape is not None:
                numbers = prod(meta.shape)
                found[shape_word(meta.dtype, meta.shape, meta.layout)] = [
                    numbers * bytes_each(meta.dtype),
                    numbers,
                ]
        return found

    def _devices(self, order: Sequence[int]) -> list[int]:
        """Return the device of each value. Empty if all are on the CPU."""
        tables = None
        if isinstance(self._trace, HasTables):
            tables = self._trace._tables
        if tables is None or all(meta.device in ("cpu", "") for meta in tables.metas):
            return []
        names = [self._texts.number(clean(meta.device)) for meta in tables.metas]
        return [
            names[tables.value_meta[value]] if tables.value_meta[value] >= 0 else 0
            for value in order
        ]

    def _stats(self, place: dict[int, int]) -> dict[str, Any]:
        """Return the statistics of values that were measured, and the histograms of values that
        were kept.
        """
        tables = None
        if isinstance(self._trace, HasTables):
            tables = self._trace._tables
        if tables is None:
            return {}
        told = self._measured(tables, place)
        for value, bars in self._histograms(place):
            told[place[value]] = told.get(place[value], {}) | bars
        return {str(at): each for at, each in told.items() if each}

    @staticmethod
    def _measured(tables: Tables, place: dict[int, int]) -> dict[int, dict[str, Any]]:
        """Return the statistics of each value by its place, read from the columns without making
        records.
        """
        measured = tables.value_measured
        mean, std = tables.value_mean, tables.value_std
        least, most = tables.value_min, tables.value_max
        nan, zeros = tables.value_nan, tables.value_zeros
        above, below = tables.value_posinf, tables.value_neginf
        found: dict[int, dict[str, Any]] = {}
        known: dict[tuple[float, ...], dict[str, Any]] = {}
        for value, at in place.items():
            if value < len(measured) and measured[value] != NONE:
                moments = (mean[value], std[value], least[value], most[value])
                counts = (nan[value], above[value] + below[value], zeros[value])
                equal = (*moments, *counts)
                if equal not in known:
                    known[equal] = _plain(moments, counts)
                found[at] = known[equal]
        return found

    def _histograms(self, place: dict[int, int]) -> Iterator[tuple[int, dict[str, Any]]]:
        trace: Any = self._trace
        if not hasattr(trace, "kept"):  # tables made by hand
            return
        kept = islice((each for each in trace.kept() if each in place), MOST_HISTOGRAMS)
        for number, value in enumerate(kept):
            content = trace.tensor(value)
            yield value, spread(content) | preview(content, number < MOST_PICTURES)


def _shown_of(event: Event) -> tuple[Any, ...]:
    """Return what the page shows of an event apart from what is in its values, as a key.

    A trace has each place and each stack once.
    """
    return (
        event.kind, event.name, event.detail, event.module, event.root, id(event.location), id(event.stack),
        event.error, event.note, event.thread, event.process, event.phase, event.operator, event.operands, event.target,
        None if event.inputs else event.args,
        None if event.outputs else event.result,
        *[(value.role, value.dtype, value.shape) for value in event.inputs],
        None,
        *[(value.role, value.dtype, value.shape) for value in event.outputs],
    )  # fmt: skip


def plain(stats: Stats | None) -> dict[str, Any]:
    """Return statistics as the page shows them. Those that are not finite are left out."""
    if stats is None:
        return {}
    numbers = (stats.mean, stats.std, stats.min, stats.max)
    return _plain(numbers, (stats.nan, stats.posinf + stats.neginf, stats.zeros))


_MOMENTS = ("mean", "std", "min", "max")
FEW_DIGITS, DIGITS = 4, 6
"""How many digits the page has of a tensor's statistics, and of a number that is all that a tensor holds."""
LARGEST_WHOLE = 1e9
_NUMBERS = (*_MOMENTS, "nan", "inf", "zeros")
_KNOWN = frozenset(_NUMBERS)


def _plain(moments: tuple[float, ...], counts: tuple[int, int, int]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    _, _, least, most = moments
    digits = FEW_DIGITS
    if least == most:
        digits = DIGITS
    for name, number in zip(_MOMENTS, moments, strict=True):
        if isfinite(number):
            told[name] = _short(number, digits)
    told["nan"], told["inf"], told["zeros"] = counts
    return told


def _short(number: float, digits: int) -> float:
    """Return a number with few digits. A whole number, such as the largest index, keeps all of its own."""
    if number.is_integer() and abs(number) < LARGEST_WHOLE:
        return int(number)
    return rounded(number, digits)


def packed_stats(stats: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return statistics as columns, with equal ones stored once. This takes two thirds of the bytes
    of dictionaries.
    """
    rows: dict[tuple[Any, ...], int] = {}
    numbers: list[int] = []
    rest: dict[str, dict[str, Any]] = {}
    by_id: dict[int, int] = {}
    for place, known in stats.items():
        number = by_id.get(id(known))
        if number is None:
            row = tuple(map(known.get, _NUMBERS))
            number = by_id[id(known)] = rows.setdefault(row, len(rows))
        numbers.append(number)
        if not _KNOWN.issuperset(known):
            rest[place] = {name: value for name, value in known.items() if name not in _KNOWN}
    columns = [list(column) for column in zip(*rows, strict=True)]
    places = differences([int(place) for place in stats])
    return {
        "names": _NUMBERS,
        "columns": columns,
        "at": places,
        "row": differences(numbers),
        "rest": rest,
    }


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
    """Return the hue for the name of a layer or function; boxes that hold others have none."""
    if event.kind == "step":
        return TRAIN
    if kind == "container" or event.kind not in ("module", "function", "op"):
        return PLAIN
    name = "matmul"
    if event.operator != "@":
        name = event.name.removeprefix("aten::").rpartition(".")[2]
    return next((hue for hue, pattern in _PATTERNS if pattern.search(name)), PLAIN)


# ---------------------------------------------------------------- histogram

# How the numbers of a kept tensor are spread: a few bars, each as high as a digit says.

BARS = 24
HIGHEST = 9
MOST_NUMBERS = 65_536
"""Of larger tensors only every n-th number is counted: the picture is the same."""


def spread(content: Any) -> dict[str, Any]:
    """Return ``min`` and ``max`` of the finite numbers and the ``histogram`` between them; {} if there are none.

    The content is a tensor or an array, and asked only for what both can: this layer imports neither library.
    """
    if "complex" in str(content.dtype):  # they have no order
        return {}
    try:
        numbers = _sample(content)
        if not (isfinite(numbers.min()) and isfinite(numbers.max())):
            numbers = numbers[abs(numbers) < inf]
        low = float(numbers.min())
        high = float(numbers.max())
        if not low < high:
            return {}
        bars = _bars(numbers, low, high, _bar_count(str(content.dtype), low, high))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return {}  # nothing in it, or a layout that cannot be laid flat: sparse, nested
    ends = {"min": rounded(low, 4), "max": rounded(high, 4)}
    most = max(bars)
    if not most:  # the ends are further apart than a number can tell, as in memory that nothing was written to
        return ends
    digits = "".join(str(-(-HIGHEST * int(each) // int(most))) for each in bars)
    return {**ends, "histogram": digits}


def _sample(content: Any) -> Any:
    """Return an evenly spaced sample of the numbers, as floats."""
    flat = content.reshape(-1)
    flat = flat[:: -(-len(flat) // MOST_NUMBERS) or 1]
    if hasattr(flat, "astype"):
        return flat.astype("float64")
    return flat.detach().double().cpu()


def _bars(numbers: Any, low: float, high: float, bars: int) -> list[float]:
    if hasattr(numbers, "histc"):
        return numbers.histc(bars, low, high).tolist()
    return sys.modules["numpy"].histogram(numbers, bars, (low, high))[0].tolist()


def _bar_count(dtype: str, low: float, high: float) -> int:
    """Return the number of bars: one for each whole number if they lie close together."""
    is_whole = "int" in dtype or "bool" in dtype
    if is_whole and high - low < BARS:
        return int(high - low) + 1
    return BARS


# ---------------------------------------------------------------- columns

# Columns of numbers and a table of texts: what the page reads, made so that repetition costs next to nothing.

LONGEST_TEXT = 4000
LONGEST_SOURCE = 2_000_000


class Texts:
    """Stores each text once; everything else refers to it by number."""

    def __init__(self) -> None:
        self.all: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str, longest: int = LONGEST_TEXT) -> int:
        """Return the number of a text; a very long text is cut."""
        if not (len(text) <= longest):
            text = text[:longest] + "…"
        found = self._numbers.get(text)
        if found is None:
            # Half of a surrogate pair is no text in any encoding.
            found = self._numbers[text] = len(self.all)
            self.all.append(text.encode("utf-8", "replace").decode("utf-8"))
        return found

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self.number(text) for text in texts]


def differences(numbers: Sequence[int]) -> list[int]:
    """Return each number as its difference from the one before, so that equal rounds give equal bytes."""
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


def newest_first(ids: Iterable[int]) -> list[int]:
    """Encode value ids in the order of their mention: 0 for a new one, else how far back it was."""
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
IS_BACK, IS_BAD = 1, 2
"""Flags of an edge: it leads to a later round; its value is on the trail of a bad one."""


class Contents(Protocol):
    """What is not finite in a value, over all events that a box stands for."""

    def alarm(self, events: Sequence[int], value: int) -> str | None: ...

    def is_reached_at(self, events: Sequence[int], value: int) -> bool: ...


class Boxes:
    """Makes the columns of items and levels."""

    def __init__(self, flow: Flow, texts: Texts, bad: Contents | None = None) -> None:
        self._flow, self._texts, self._shapes = flow, texts, Shapes(flow)
        self._bad = bad
        self._labels = [label_of(flow, item) for item in flow.outline.items]
        dtypes = Counter(
            word.partition("[")[0]
            for label in self._labels
            for word in label.gives.split(", ")
            if word
        )
        self._usual = max(
            (dtype for dtype in dtypes if dtype.startswith(("f", "bf"))),
            key=dtypes.__getitem__,
            default="",
        )

    def items(self) -> dict[str, Any]:
        """Return one entry for each item, outermost first."""
        outline = self._flow.outline
        texts = self._texts
        labels = self._labels
        items = outline.items
        events = [outline.events_of(item) for item in outline.items]
        return {
            "parent": [item.number - item.parent for item in items],
            "most": [item.in_a_row()[1] for item in items],
            "times": [len(item.nodes) for item in items],
            "slots": differences([slot for item in items for slot in item.slots]),
            "count": [len(several) for several in events],
            "nodes": differences([event for several in events for event in several]),
            "rounds": [1 if item.runs else 0 for item in items],
            "often": texts.numbers(label.times for label in labels),
            "only": texts.numbers(label.rounds for label in labels),
            "kind": texts.numbers(label.kind for label in labels),
            "hue": texts.numbers(
                self._hue(item, label) for item, label in zip(items, labels, strict=True)
            ),
            "title": texts.numbers(label.title for label in labels),
            "detail": texts.numbers(label.detail for label in labels),
            "variable": texts.numbers(label.variable for label in labels),
            "gives": texts.numbers(label.gives for label in labels),
            "code": texts.numbers(label.code for label in labels),
            "parameters": self._parameters(events),
            "numbers": list(self._numbers(events)),
        }

    def _numbers(self, events: Sequence[Sequence[int]]) -> Iterator[list[Any]]:
        """Yield the loops of which the trace has only some iterations: the item, how many there were in the whole run,
        and the number of each that it has.

        A step that was in each iteration is counted.
        """
        outline = self._flow.outline
        totals = program_of(outline.trace).totals
        if not totals.is_needed:
            return
        for item in outline.items:
            every = range(len(item.nodes))
            child = next(
                (each for each in item.children if events[each.number] and [*every] == each.slots),
                None,
            )
            if not item.runs or child is None:
                continue
            numbers = totals.numbers(events[child.number])
            whole = totals.all_like(events[child.number][0])
            if numbers is not None and whole > len(numbers):
                yield [item.number, whole, differences(numbers)]

    def _parameters(self, events: Sequence[Sequence[int]]) -> list[int]:
        """Return how many numbers the parameters of each item's module and the modules inside it have, each counted
        once.
        """
        below: dict[tuple[str, str], dict[int, int]] = {}
        for info in self._flow.outline.trace.modules():
            own = {value.id: numbers_in(value) for value in info.parameters}
            path = info.path
            below.setdefault((info.root, path), {}).update(own)
            while path:
                path = path.rpartition(".")[0]
                below.setdefault((info.root, path), {}).update(own)
        totals = {key: sum(known.values()) for key, known in below.items()}
        samples = self._flow.outline.events
        firsts = [samples[several[0]] if several else None for several in events]
        return [
            0
            if event is None or event.kind != "module"
            else totals.get((event.root or "", event.module or ""), 0)
            for event in firsts
        ]

    def _hue(self, item: Box, label: Label) -> str:
        is_event = 0 <= item.nodes[0] < len(self._flow.outline.events)
        if is_event:
            return hue_of(self._flow.outline.events[item.nodes[0]], label.kind)
        return ""

    def levels(self) -> list[list[Any]]:
        """Return edges, outside values and port names of the outermost level, then of each item that holds others."""
        return [
            [number, *self._level(number, level)] for number, level in self._flow.levels.items()
        ]

    def _level(
        self, number: int, level: BoxLevel
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        edges = [part for edge in level.edges for part in self._edge(number, edge)]
        outside = [
            part
            for each in level.outside
            for part in (
                self._texts.number(outside_word(self._flow, each)),
                self._texts.number(
                    "" if each.times > 1 else self._without_usual(self._shapes.outside(each))
                ),
                IS_UNKNOWN if each.is_unknown else 0,
            )
        ]
        return edges, outside, self._ports_in(number, level), self._ports_out(number, level)

    def _edge(self, number: int, edge: Edge) -> tuple[int, ...]:
        """Return source, result, target, argument, and the shape and name if they are new.

        Behind the shape, what is not finite: a picture shows where it went.
        """
        word = name = ""
        if edge.source >= 0:
            if number >= 0:
                children = self._flow.outline.items[number].children
            else:
                children = self._flow.outline.top
            source = children[edge.source]
            word = self._changed(source, edge.value)
            alarm = self._alarm(source, edge.value)
            label = self._labels[source.number]
            name = ""
            if label.kind == BoxKind.SIGN:
                name = label.variable
            if edge.is_back:
                name = carried_word(self._flow, source, edge.value)
            word = f"{word} {alarm}".strip()
            if name:
                name = f"{name} {alarm}".strip()
            else:
                name = ""
        words = self._texts.number(word), self._texts.number(name)
        flags = 0
        if edge.is_back:
            flags = IS_BACK
        if self._is_bad(number, edge):
            flags |= IS_BAD
        return edge.source, edge.out, edge.target, edge.into, *words, flags

    def _alarm(self, source: Box, value: int) -> str:
        found = None
        if self._bad is not None:
            found = self._bad.alarm(self._flow.outline.events_of(source), value)
        if found is None:
            return self._shapes.contents(source, value)[1]
        return found

    def _is_bad(self, number: int, edge: Edge) -> bool:
        if self._bad is None:
            return False
        if edge.source < 0:
            return self._bad.is_reached_at((), edge.value)
        if number >= 0:
            children = self._flow.outline.items[number].children
        else:
            children = self._flow.outline.top
        return self._bad.is_reached_at(
            self._flow.outline.events_of(children[edge.source]), edge.value
        )

    def _changed(self, source: Box, value: int) -> str:
        """Return the shape of a result if none of the step's arguments has it."""
        word = self._shapes.result(source, value)
        if (
            self._flow.outline.scope(source) >= 0
            or source.runs
            or self._labels[source.number].kind == BoxKind.STEP
        ):
            return ""
        takes = self._flow.crossing.takes(source.nodes[0])
        if any(self._shapes.word(each) == word for each in takes):
            return ""
        return self._without_usual(word)

    def _without_usual(self, word: str) -> str:
        dtype, bracket, rest = word.partition("[")
        if dtype == self._usual and bracket:
            return bracket + rest
        return word

    def _ports_in(self, number: int, level: BoxLevel) -> list[int]:
        if number < 0:
            return [0] * len(level.takes)
        item = self._flow.outline.items[number]
        return self._texts.numbers(
            port_word(self._flow, item, port) for port in range(len(level.takes))
        )

    def _ports_out(self, number: int, level: BoxLevel) -> list[int]:
        outline = self._flow.outline
        events = ()
        if number >= 0:
            events = outline.events_of(outline.items[number])
        if not events:
            return [0] * len(level.gives)
        roles = {
            value.id: clean(value.role)
            for value in reversed(outline.trace.event(events[0]).outputs)
        }
        return self._texts.numbers(roles.get(value, "") for value in level.gives)
