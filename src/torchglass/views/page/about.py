"""Summarises the run for the page: model, loss, gradients, slowest modules, memory, and what was
recorded or not.
"""

# Views may use the tables of a trace, which are private to users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from typing import Any

from torchglass._version import __version__
from torchglass.events.gradients import BACKWARD, TENSOR_BACKWARD, Gradients
from torchglass.events.schema import NONE
from torchglass.events.types import Location, Value
from torchglass.program.dedup import DistinctEvents
from torchglass.program.program import program_of
from torchglass.program.recorded import HasTables, Recorded
from torchglass.program.series import Series, series_of_event
from torchglass.views.gradients import recorded_gradients
from torchglass.views.page.rounding import rounded
from torchglass.views.page.training import largest_gradient
from torchglass.views.table import bytes_each, numbers_in
from torchglass.views.text.tensors import number_word
from torchglass.views.text.words import clean, count, plural, shape_word, share, size, versions_word

MOST_ROOTS = 3
MOST_MODULES = 4
MOST_LOSSES = 3
LONGEST_NAME = 60
"""How many characters of the name of a module or loss are shown."""
NO_BREAK = "\u00a0"
MOST_POINTS = 80
"""How many points the sparkline of the loss has at most."""

Part = list[Any]
"""A part of a line: its text and the event that it leads to (-1 if none). A point is an event and a number."""


def about_lines(trace: Recorded, gradients: Gradients | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines that are not empty: a label, parts that lead to events, and the points of the
    loss.
    """
    if not len(trace):
        return
    distinct = program_of(trace).distinct
    lines = [
        _line("model", _model(trace, distinct)),
        *_losses(trace, distinct),
        _line("gradients", _gradients(gradients or recorded_gradients(trace))),
        _line("slowest", _slowest(distinct)),
        _line("memory", _memory(trace)),
        _line("recorded", [[_recorded(trace), -1]]),
        _line("not seen", _not_recorded(trace, distinct)),
    ]
    yield from (line for line in lines if line["parts"])


def _line(label: str, parts: list[Part]) -> dict[str, Any]:
    return {"label": label, "parts": parts, "between": " · ", "points": []}


# ---------------------------------------------------------------- model


def _model(trace: Recorded, distinct: DistinctEvents) -> list[Part]:
    """Return each model that was called, with the number of its parameters. Shared parameters count
    once.
    """
    parameters: dict[str, dict[int, Value]] = {}
    for info in trace.modules():
        own = parameters.setdefault(info.root, {})
        own.update((value.id, value) for value in info.parameters)
    first: dict[str, int] = {}
    for number, alike in enumerate(distinct.alike):
        sample = distinct.samples[alike]
        if sample.kind == "module" and sample.root and not sample.module:
            first.setdefault(sample.root, number)
    parts = [
        [_model_words(root, list(values.values())), first.get(root, -1)]
        for root, values in parameters.items()
    ]
    more = len(parts) - MOST_ROOTS
    return [*parts[:MOST_ROOTS], *([[f"and {more} more", -1]] if more > 0 else [])]


def _model_words(root: str, parameters: list[Value]) -> str:
    numbers = sum(map(numbers_in, parameters))
    frozen = sum(numbers_in(value) for value in parameters if not value.requires_grad)
    words = f"{_clipped(clean(root))}, {count(numbers)} parameters"
    return words + (f", {count(frozen)} of them frozen" if frozen else "")


# ---------------------------------------------------------------- loss


def _losses(trace: Recorded, distinct: DistinctEvents) -> Iterator[dict[str, Any]]:
    """Yield a line for each loss, with the points of its curve.

    Each place that calls backward has a loss of its own: a GAN has one of the generator and one of the discriminator.
    """
    runs: dict[Location | None, list[int]] = {}
    for event in _backward_runs(distinct):
        runs.setdefault(distinct.sample(event).location, []).append(event)
    for events in islice(runs.values(), MOST_LOSSES):
        label = "loss"
        if len(runs) > 1:
            label = clean(", ".join(distinct.sample(events[0]).operands)) or label
        parts, points = _loss(trace, events)
        yield _line(_clipped(label), parts) | {"between": " ", "points": points}


def _loss(trace: Recorded, runs: Sequence[int]) -> tuple[list[Part], list[Part]]:
    """Return the text about a loss, the value on which backward was called in these events, and the points of its
    curve.

    The curve covers the whole run if the trace summarises events that were not kept. Otherwise it
    has the kept events.
    """
    known = _measured(trace, runs)
    times = program_of(trace).totals.times(runs[0], len(runs))
    often = f"backward ran {plural(times, 'time')}"
    if not known:
        return [[f"{often}; its value was not measured", runs[0]]], []
    steps = len(known)
    whole = _whole_run(trace, known[0][0])
    if whole is not None and whole.times > steps:
        known = list(_kept_and_not(whole))
        steps = whole.times
    first = known[0]
    last = known[-1]
    parts: list[Part] = [[_number(first[1]), first[0]]]
    if len(known) > 1:
        parts += [["→", -1], [_number(last[1]), last[0]], [f"in {plural(steps, 'step')}", -1]]
    step = -(-len(known) // MOST_POINTS)
    if (len(known) - 1) % step == 0:
        chosen = known[::step]
    else:
        chosen = [*known[::step], known[-1]]
    points = [[event, rounded(number, 6) if isfinite(number) else None] for event, number in chosen]
    return parts, points if len(points) > 1 else []


def _whole_run(trace: Recorded, backward: int) -> Series | None:
    """Return the series of the value on which backward was called. It also covers events that were
    not kept.
    """
    taken = trace.event(backward).inputs
    if not taken or taken[0].producer is None or not isinstance(trace, HasTables):
        return None
    return series_of_event(trace._tables, taken[0].producer)


def _kept_and_not(series: Series) -> Iterator[tuple[int, float]]:
    """Yield each number with the event that gave it, or with the last kept event before if that one
    was not kept.
    """
    last = series.points[0].event
    for point in series.points:
        if point.event is not None:
            last = point.event
        if last is not None:
            yield last, point.value


def losses(trace: Recorded, distinct: DistinctEvents) -> list[tuple[int, float]]:
    """Return each event that ran backward, with the value on which it was called, if that was
    measured.
    """
    return _measured(trace, _backward_runs(distinct))


def _measured(trace: Recorded, events: Iterable[int]) -> list[tuple[int, float]]:
    numbers = ((event, _scalar(trace, event)) for event in events)
    return [(event, number) for event, number in numbers if number is not None]


def _backward_runs(distinct: DistinctEvents) -> Iterator[int]:
    names = (BACKWARD, TENSOR_BACKWARD)
    is_run = [event.kind == "function" and event.name in names for event in distinct.samples]
    for number, alike in enumerate(distinct.alike):
        parent = distinct.parents[number]
        if is_run[alike] and not (parent >= 0 and is_run[distinct.alike[parent]]):
            yield number


def _scalar(trace: Recorded, event: int) -> float | None:
    for value in trace.event(event).inputs[:1]:
        stats = value.stats
        if stats is None or stats.count != 1:
            return None
        if stats.nan:
            return float("nan")
        if stats.posinf or stats.neginf:
            if stats.posinf:
                return float("inf")
            return float("-inf")
        return stats.mean
    return None


def _number(number: float) -> str:
    if not isfinite(number):
        if number != number:
            return "NaN"
        if number > 0:
            return "+Inf"
        return "−Inf"
    if 1e-3 <= abs(number) < 1e5:
        return f"{number:.4g}".replace("-", "−")
    return number_word(number)


def _gradients(found: Gradients) -> list[Part]:
    """Return the largest gradient, and how many parameters got none."""
    parts: list[Part] = []
    largest = largest_gradient(found)
    if largest is not None:
        name, event, norm = largest
        parts.append([f"largest {_number(norm)} in {_clipped(clean(name))}", event])
    if found.missed:
        parts.append([f"none for {plural(len(found.missed), 'parameter')}", -1])
    return parts


# ---------------------------------------------------------------- time, memory


def _slowest(distinct: DistinctEvents) -> list[Part]:
    """Return the modules whose own code took the most host time, without the modules inside them."""
    is_module = [event.kind == "module" for event in distinct.samples]
    own: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    around: list[int] = []
    whole = 0
    for number, alike in enumerate(distinct.alike):
        parent = distinct.parents[number]
        if parent < 0:
            outer = -1
        elif is_module[distinct.alike[parent]]:
            outer = parent
        else:
            outer = around[parent]
        around.append(outer)
        if not is_module[alike]:
            continue
        sample = distinct.samples[alike]
        key = (sample.root or "", sample.module or "")
        first.setdefault(key, number)
        spent = distinct.spent_ns[number]
        own[key] += spent
        if outer < 0:
            whole += spent
        else:
            sample = distinct.sample(outer)
            own[sample.root or "", sample.module or ""] -= spent
    found = [(key, spent) for key, spent in own.most_common(MOST_MODULES) if spent > 0]
    roots = {root for root, _ in own}
    parts: list[Part] = []
    for (root, path), spent in found:
        percent = share(spent, whole).replace(" ", NO_BREAK)
        parts.append([f"{_module_words(root, path, len(roots))} {percent}", first[root, path]])
    return parts


def _module_words(root: str, path: str, roots: int) -> str:
    """Return the path of a module, after the name of its model if there are several models."""
    if roots == 1 or not path:
        return _clipped(clean(path or root))
    return _clipped(f"{clean(root)}.{clean(path)}")


def _clipped(name: str) -> str:
    """Return a name without its middle if it is very long: its ends tell more of a module's path."""
    if len(name) <= LONGEST_NAME:
        return name
    half = LONGEST_NAME // 2
    return f"{name[:half]}…{name[-half:]}"


def _memory(trace: Recorded) -> list[Part]:
    """Return the bytes of all values, counting shared memory once, and the largest value that was made."""
    if not isinstance(trace, HasTables):
        return []
    tables = trace._tables
    each = [numbers_of(meta.shape) * bytes_each(meta.dtype) for meta in tables.metas]
    whole: dict[int, int] = {}
    largest = -1
    for value, meta in enumerate(tables.value_meta):
        if meta == NONE:
            continue
        storage = tables.value_storage[value]
        if storage >= 0:
            key = storage
        else:
            key = -2 - value
        whole[key] = max(whole.get(key, 0), each[meta])
        is_made = tables.value_producer[value] >= 0
        if is_made and (largest < 0 or each[meta] > each[tables.value_meta[largest]]):
            largest = value
    if not whole:
        return []
    parts: list[Part] = [[f"{size(sum(whole.values()))} in {plural(len(whole), 'tensor')}", -1]]
    if largest >= 0:
        meta = tables.metas[tables.value_meta[largest]]
        word = shape_word(meta.dtype, meta.shape, meta.layout)
        made = tables.value_producer[largest]
        parts.append([f"largest {word} {size(each[tables.value_meta[largest]])}", made])
    return parts


def numbers_of(shape: tuple[int, ...] | None) -> int:
    """Return how many numbers a shape has, or 0 if it is not known."""
    product = 1
    if shape is None:
        product = 0
    for length in shape or ():
        product *= length
    return product


# ---------------------------------------------------------------- how


def _recorded(trace: Recorded) -> str:
    """Return how many events were recorded, when, and by which engine, with which versions."""
    words = [f"{plural(len(trace), 'event')}"]
    tables = None
    if isinstance(trace, HasTables):
        tables = trace._tables
    if tables is not None and tables.started_at:
        words.append(f"on {_moment(tables.started_at)}")
    engine = str(getattr(trace, "engine", "")).partition(" ")[0].rstrip(":;,")
    if engine:
        words.append(f"{engine} engine")
    if tables is not None and versions_word(tables):
        words.append(versions_word(tables))
    words.append(f"page by torchglass {__version__}")
    return ", ".join(words)


def _moment(seconds: float) -> str:
    """Return ``3 May 2026 14:05 UTC``."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{at.day} {at:%B %Y %H:%M} UTC"


def _not_recorded(trace: Recorded, distinct: DistinctEvents) -> list[Part]:
    kinds = {event.kind for event in distinct.samples}
    parts: list[Part] = []
    if not trace.measured:
        parts.append(["what is in the tensors (values='stats')", -1])
    if "op" not in kinds:
        parts.append(["ops and the inside of backward (ops=True)", -1])
    if "variable" not in kinds:
        parts.append(["variables (variables=True)", -1])
    if not trace.complete:
        parts.append(["the end of the run", -1])
    if trace.notes:
        parts.append([plural(len(trace.notes), "note") + " below", -1])
    return parts
