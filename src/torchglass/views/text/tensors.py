"""What is said of tensors at one place of several calls: ``f32[2, 1–12, 64]``, and what was in them.

Behind a shape, where that was measured: ``μ 0.01 σ 0.99 [−3.1, 2.9] 4 NaN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torchglass.events.types import Event, Stats, Value
from torchglass.views.row import GIVES, Cell, Cells
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, dtype_word, width_of

MOST = 4
LONGEST_TEXT = 24
_PART = re.compile(r"(?P<dtype>\b[a-z]\w*)\[(?P<sizes>[\d, ]*)\]|(?<![\w.])-?\d[\w.+-]*|'[^']*'")
"""What may differ between texts of one place: a shape, a number, a string."""
_NUMBER = re.compile(r"(\[[^\[\]]*\])|…|(?<![\w.])-?\d[\w.+-]*")
"""Shapes and flat lists, which matter, or a number that stands alone."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Tensors that stood at one place in several calls: every dtype, and for each dimension every size."""

    role: str
    dtypes: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...] | None
    """Sorted; None when the shape is not known."""
    layout: str
    devices: tuple[str, ...] = ()
    stats: tuple[Stats, ...] = ()
    """What was in them, where that was measured."""


def sizes_word(sizes: tuple[int, ...]) -> str:
    """``64``; ``1–12`` for sizes in a row; ``{1–11, 15}`` for others."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    if len(runs) == 1:
        return _run(runs[0])
    words = [word for run in runs for word in ([_run(run)] if len(run) > 2 else [_run([size]) for size in run])]
    return "{" + ", ".join(words if len(words) <= MOST else [*words[:2], "…", words[-1]]) + "}"


def _run(sizes: list[int]) -> str:
    first, last = (str(size) if size >= 0 else "?" for size in (sizes[0], sizes[-1]))
    return first if len(sizes) == 1 else f"{first}–{last}"


def spread_of(values: Sequence[Value]) -> Spread:
    """Tensors of one rank laid over each other."""
    shapes = [value.shape for value in values if value.shape is not None]
    sizes = tuple(tuple(sorted(set(column))) for column in zip(*shapes, strict=True)) if shapes else None
    dtypes, devices = (dict.fromkeys(getattr(value, name) for value in values) for name in ("dtype", "device"))
    return Spread(values[0].role, tuple(dtypes), sizes, values[0].layout, tuple(devices))


def values_words(several: Sequence[tuple[Value, ...]], device: bool = False) -> tuple[str, ...]:
    """One word for each tensor that several calls took or gave; one for all where their number differed."""
    several = list(dict.fromkeys(several))
    by_number: dict[int, list[tuple[Value, ...]]] = {}
    for values in several:
        by_number.setdefault(len(values), []).append(values)
    words = [tuple(_position(column, device) for column in zip(*same, strict=True)) for same in by_number.values()]
    if len(words) == 1:
        return words[0]
    return (" | ".join(", ".join(each) or "—" for each in words[:MOST]),)


def _position(values: Sequence[Value], device: bool) -> str:
    """The word for tensors that stood at one place; those of another rank or layout by themselves."""
    forms: dict[tuple[object, ...], list[Value]] = {}
    for value in values:
        rank = None if value.shape is None else len(value.shape)
        forms.setdefault((rank, value.layout, value.kind), []).append(value)
    return " | ".join(spread_word(spread_of(same), device) for same in list(forms.values())[:MOST])


def spread_word(spread: Spread, device: bool = False) -> str:
    """``f32[2, 1–12, 64]``; ``f32|bf16[…]`` where the dtype differed."""
    dtypes = "|".join(dtype_word(dtype) for dtype in spread.dtypes)
    if spread.sizes is None:
        sizes = "?"
    else:
        shown = spread.sizes if len(spread.sizes) <= 4 * MOST else spread.sizes[:MOST]
        sizes = ", ".join(map(sizes_word, shown))
        sizes += f", … {len(spread.sizes)} dimensions" if len(shown) < len(spread.sizes) else ""
    layout = spread.layout.removeprefix("torch.")
    word = f"{dtypes}[{sizes}]" + ("" if layout in ("strided", "") else f" {clean(layout)}")
    return f"{word} @ {clean('|'.join(spread.devices))}" if device and any(spread.devices) else word


def texts_word(texts: Sequence[str]) -> str:
    """Results that are no tensors: all of a few short ones, else the first and the last."""
    words = [_number(text) or cut(clean(text), LONGEST_TEXT) for text in texts]
    if len(words) <= 2:
        return "|".join(words)
    return f"{words[0]} … {words[-1]}"


def _number(text: str) -> str:
    """``3.951`` of a number with many digits behind the point."""
    whole, point, digits = text.removeprefix("-").partition(".")
    plain = point and whole.isdecimal() and digits.isdecimal() and len(digits) > 4
    return f"{float(text):.4g}" if plain else ""


def paths_word(paths: Sequence[str | None]) -> str:
    """``h.0–11.attn`` for paths that differ in one number; else the first few."""
    words = ["no module" if path is None else clean(path) for path in paths]
    split = [word.split(".") for word in words]
    if len(words) > 1 and len({len(parts) for parts in split}) == 1:
        columns = list(zip(*split, strict=True))
        apart = [at for at, column in enumerate(columns) if len(set(column)) > 1]
        if len(apart) == 1 and all(part.isdecimal() for part in columns[apart[0]]):
            numbers = tuple(sorted(map(int, columns[apart[0]])))
            return ".".join([*split[0][: apart[0]], sizes_word(numbers), *split[0][apart[0] + 1 :]])
    return ", ".join(words if len(words) <= 3 else [*words[:2], f"… {len(words)} modules"])


def blurred(args: str) -> str:
    """Arguments without plain numbers: an index, a rate or a seed that changes does not keep a loop apart."""
    return _NUMBER.sub(lambda found: found[1] or "…", args)


def args_in_common(texts: Sequence[str]) -> str:
    """Several texts as one: shapes laid over each other, ``…`` for numbers that differ; else ``…`` for all."""
    different = list(dict.fromkeys(texts))
    if len(different) == 1:
        return different[0]
    found = [list(_PART.finditer(text)) for text in different]
    around = {tuple(_PART.split(text)[:: _PART.groups + 1]) for text in different}
    if len(around) > 1:
        return "…"
    parts = [_common_part([each[0] for each in column], column) for column in zip(*found, strict=True)]
    pieces = around.pop()
    return "".join(piece + part for piece, part in zip(pieces, [*parts, ""], strict=True))


def _common_part(texts: Sequence[str], matches: Sequence[re.Match[str]]) -> str:
    if len(set(texts)) == 1:
        return texts[0]
    shapes = [
        tuple(int(size) for size in each["sizes"].split(",") if size.strip())
        for each in matches
        if each["sizes"] is not None
    ]
    if len(shapes) < len(texts) or len(set(map(len, shapes))) > 1:
        return "…"
    dtypes = "|".join(dict.fromkeys(each["dtype"] for each in matches))
    sizes = [sizes_word(tuple(sorted(set(column)))) for column in zip(*shapes, strict=True)]
    return f"{dtypes}[{', '.join(sizes)}]"


# ---------------------------------------------------------------- what was in them

# A few words behind their shape: ``μ 0.01 σ 0.99 [−3.1, 2.9] 4 NaN``.

MOST_WORDS = 2
"""Of more tensors than this only what is not finite is told."""
WHOLE = 1e7
"""Whole numbers below this are written out: two digits of an index or of a count say nothing."""
ROUNDED = 99.5, 1e5
"""Between these the two digits would need an exponent, which is longer than the number and harder to read."""
_ALARM = re.compile(r"[\d,]+ (?:NaN|[+−]Inf)(?:, [\d,]+ [+−]Inf)*")


@runtime_checkable
class Measured(Protocol):
    """A trace that knows whether it has statistics."""

    @property
    def measured(self) -> bool: ...


def is_measured(trace: object) -> bool:
    """Whether a trace has statistics of any value."""
    return isinstance(trace, Measured) and trace.measured


def number_word(number: float) -> str:
    """``0.013``, ``−3.1``, ``1.2e7``: two digits that count, or all before the point; no index or count is rounded."""
    size = abs(number)
    written_out = (size < WHOLE and number == int(number)) or ROUNDED[0] <= size < ROUNDED[1]
    text = f"{number:.0f}" if written_out else f"{number:.2g}"
    whole, exponent, power = text.partition("e")
    return (whole + (f"e{int(power)}" if exponent else "")).replace("-", "−")


def stats_word(stats: Stats, dtype: str = "") -> str:
    """All that is told of one value; ``""`` of one that is empty."""
    return " ".join(filter(None, (range_word([stats], dtype), alarm_word([stats]))))


def range_word(several: Sequence[Stats], dtype: str = "") -> str:
    """Mean, deviation and ends of what is finite, over several values that stood at one place."""
    known = [each for each in several if each.finite]
    if not known:
        return ""
    low, high = min(each.min for each in known), max(each.max for each in known)
    if dtype == "bool":
        shares = [100 * (each.count - each.zeros) / each.count for each in known]
        first, last = _percent_word(min(shares)), _percent_word(max(shares))
        return f"{first} % True" if first == last else f"{first} … {last} % True"
    if low == high:
        return f"= {number_word(low)}" if all(each.count == 1 for each in known) else f"all {number_word(low)}"
    if all(each.count == 1 for each in known):
        return f"= {numbers_word([each.mean for each in known])}"
    mean, std = numbers_word([each.mean for each in known]), numbers_word([each.std for each in known])
    return f"μ {mean} σ {std} [{number_word(low)}, {number_word(high)}]"


def _percent_word(share: float) -> str:
    """``0`` and ``100`` are said of none and of all alone: a mask that lets three numbers through is not empty."""
    rounded = round(share)
    if rounded in (0, 100) and rounded != share:
        return ">99" if rounded else "<1"
    return str(rounded)


def alarm_word(several: Sequence[Stats]) -> str:
    """How many numbers are not finite: ``4 NaN, 1 −Inf``; ``""`` when all are."""
    kinds = (("NaN", "nan"), ("+Inf", "posinf"), ("−Inf", "neginf"))
    totals = [(sum(getattr(each, field) for each in several), word) for word, field in kinds]
    return ", ".join(f"{count(total)} {word}" for total, word in totals if total)


def numbers_word(numbers: Sequence[float]) -> str:
    """``0.041 … 0.072``; ``""`` of none."""
    if not numbers:
        return ""
    first, last = number_word(min(numbers)), number_word(max(numbers))
    return first if first == last else f"{first} … {last}"


def with_stats(cells: Cells, events: Iterable[Event]) -> Cells:
    """The cells of a row, with what was in the outputs of the events that it stands for behind their shapes."""
    columns = list(zip(*(event.outputs for event in events), strict=False))
    found = [([each.stats for each in column if each.stats], column[0].dtype) for column in columns]
    return tuple([behind(cell, found) if cell.kind == GIVES and cell.text else cell for cell in cells])


def behind(cell: Cell, tensors: Sequence[tuple[Sequence[Stats], str]]) -> Cell:
    """The shapes of tensors with what was in each: its statistics at one place over several calls, and its dtype."""
    alarm = alarm_word([stats for several, _ in tensors for stats in several])
    words = [range_word(several, dtype) for several, dtype in tensors] if len(tensors) <= MOST_WORDS else []
    return _behind(cell, words, alarm)


def alarms_in(text: str) -> list[tuple[int, int]]:
    """Where a text that was put together says what is not finite."""
    return [found.span() for found in _ALARM.finditer(text)]


def painted(text: str, style: str, page: Page) -> str:
    """A text in a style, and what is not finite in it as an error is."""
    parts, done = list[str](), 0
    for first, last in alarms_in(text):
        parts += (page.paint(style, text[done:first]), page.paint("error", text[first:last]))
        done = last
    return "".join([*parts, page.paint(style, text[done:])])


def narrowed(text: str, room: int) -> str:
    """A text in that room: rather without a figure than with one of which digits are missing."""
    end = len(text) if "μ " in text else 0
    for sign in (" [", " σ ", " μ ") if width_of(text) > room else ():
        end = max(text.rfind(sign, 0, end), 0)
        if end and width_of(text[:end]) + 2 <= room:
            return f"{text[:end]} …"
    return cut(text, room)


def contents_words(columns: Sequence[Sequence[Value]]) -> tuple[str, str]:
    """What is told of tensors that stood at one place in several calls, and of it what is not finite."""
    found = [[each.stats for each in column if each.stats] for column in columns]
    alarm = alarm_word([stats for several in found for stats in several])
    words = [range_word(several, column[0].dtype) for several, column in zip(found, columns, strict=True) if several]
    return ", ".join(filter(None, words[:MOST_WORDS])), alarm


def _behind(cell: Cell, words: Sequence[str], alarm: str) -> Cell:
    """What is not finite comes first: on a narrow page the end is cut."""
    if len(words) == 1:
        begin = len(cell.text) + 1
        text = " ".join(filter(None, (cell.text, alarm, words[0])))
    else:
        shapes = _split(cell.text) if words else []
        begin = 0
        text = cell.text
        if len(shapes) == len(words) and words:
            text = ", ".join(f"{shape} {word}".rstrip() for shape, word in zip(shapes, words, strict=True))
        text = f"{alarm} in {text}" if alarm else text
    return cell._replace(text=text, mark=(begin, begin + len(alarm)) if alarm else None)


def _split(shapes: str) -> list[str]:
    """``f32[2, 3], f32[4]`` as two; a comma inside of brackets is none between shapes."""
    return [each if each.endswith("]") else f"{each}]" for each in shapes.split("], ")]
