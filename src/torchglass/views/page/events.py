"""The events of the page: for each a look (what is equal for all that are alike), its times, and its values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf, isfinite
from typing import Any

from torchglass.events.types import Event, Location, Stats
from torchglass.views.digest import settings_of
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.values import FlowValues
from torchglass.views.text.cells import class_word, expression_of
from torchglass.views.text.words import shape_word

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
        self._places: dict[int, list[int]] = {}

    def looks(self) -> list[list[Any]]:
        """One entry for each way of saying an event."""
        return [self._look(event) for event in self._digest.samples]

    def _look(self, event: Event) -> list[Any]:
        number = self._texts.number
        name = (event.module or "") if event.kind == "module" else ""
        settings = settings_of(event.detail, event.module) if event.kind == "module" else event.detail
        return [
            number(event.kind), number(event.name), number(expression_of(event, name)),
            number(class_word(event.name, settings) if event.kind == "module" else settings),
            number(event.args), number(event.result if not event.outputs else ""), number(event.module or ""),
            self._place(event.location), [self._place(at) for at in event.stack[-MOST_FRAMES:]],
            number(event.error or ""), number(event.note or ""), number(event.thread),
            self._texts.numbers(value.role for value in event.inputs),
            self._texts.numbers(value.role for value in event.outputs),
            self._texts.numbers(event.operands), self._texts.numbers(event.target), number(event.phase),
            event.process,
        ]  # fmt: skip

    def _place(self, at: Location | None) -> list[int]:
        if at is None:
            return []
        found = self._places.get(id(at))  # the samples, which live as long as this, share them
        if found is None:
            file = self._files.get(at.file, -1)
            name = self._texts.number(at.file) if file < 0 else 0
            found = [file, at.line, at.end_line, at.col, at.end_col, self._texts.number(at.function), name]
            self._places[id(at)] = found
        return found

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
            "look": digest.alike,
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
