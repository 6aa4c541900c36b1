"""Writes tensors at one place of several calls as text, with their statistics::

    f32[2, 1–12, 64] 4 NaN μ 0.01 σ 0.99 [−3.1, 2.9]
    shape            alarm mean   deviation  least and largest number

An *alarm* says how many numbers are not finite. A *result* is anything that a call returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from torchglass.events.types import Event, Stats, Value
from torchglass.program.merge import (
    MergedTensor,
    NumberRange,
    by_form,
    count_not_finite,
    merge_numbers,
    merge_shapes,
    merge_stats,
    merge_tensors,
)
from torchglass.program.series import Series
from torchglass.views.row import GIVES, Cell, Cells
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, dtype_word, width_of

MAX_ALTERNATIVES = 4
"""How many alternatives (sizes, shapes, forms) are listed before the rest is left out."""
MAX_DIMENSIONS = 16
"""How many dimensions of a shape are written in full."""
MAX_PATHS = 3
"""How many paths of modules are listed before the rest is only counted."""
MAX_TEXT_LENGTH = 24
"""How many characters of a result that is not a tensor are shown."""
_PART = re.compile(
    r"(?P<dtype>\b[a-z]\w*)\[(?P<sizes>[\d, ]*)\]|(?<![\w.])-?\d[\w.+-]*|'[^']*'|\b(?:True|False|None)\b"
)
"""Matches what may differ between texts of one place: a shape, a number, a string, True, False or
None.
"""
_SWITCHES = frozenset(("True", "False", "None"))
_NUMBER = re.compile(r"(\[[^\[\]]*\])|…|(?<![\w.])-?\d[\w.+-]*")
"""Matches a shape or a flat list, which is kept, or a number by itself, which is masked."""


def sizes_word(sizes: tuple[int, ...]) -> str:
    """Return the sizes of one axis as text: ``64``, ``1–12`` for consecutive ones, ``{1–11, 15}``
    for others.
    """
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    if len(runs) == 1:
        return _run(runs[0])
    words: list[str] = []
    for run in runs:
        if len(run) > 2:
            words.append(_run(run))
        else:
            words += [_run([size]) for size in run]
    if len(words) > MAX_ALTERNATIVES:
        words = [*words[:2], "…", words[-1]]
    return "{" + ", ".join(words) + "}"


def _run(sizes: list[int]) -> str:
    """Return consecutive sizes as ``5`` or ``1–12``. An unknown size is negative: ``?``."""
    first, last = (str(size) if size >= 0 else "?" for size in (sizes[0], sizes[-1]))
    if len(sizes) == 1:
        return first
    return f"{first}–{last}"


def values_words(several: Sequence[tuple[Value, ...]], device: bool = False) -> tuple[str, ...]:
    """Return one word for each tensor that several calls took or returned: ``f32[1–12], f32[3]``.

    If the number of tensors differed, there is one word for all of them: ``f32[2] | f32[2], f32[3]``.
    """
    several = list(dict.fromkeys(several))
    by_number: dict[int, list[tuple[Value, ...]]] = {}
    for values in several:
        by_number.setdefault(len(values), []).append(values)
    words: list[tuple[str, ...]] = []
    for alike in by_number.values():
        columns = zip(*alike, strict=True)
        words.append(tuple([_position(column, device) for column in columns]))
    if len(words) == 1:
        return words[0]
    return (" | ".join(", ".join(each) or "—" for each in words[:MAX_ALTERNATIVES]),)


def _position(values: Sequence[Value], device: bool) -> str:
    """Return the word for tensors at one place. Tensors of another rank or layout are written
    separately.
    """
    forms = by_form(values, lambda value: value.kind)[:MAX_ALTERNATIVES]
    merged = [merge_tensors(same, devices=[value.device for value in same]) for same in forms]
    return " | ".join(merged_word(each, device) for each in merged)


def merged_word(tensor: MergedTensor, device: bool = False) -> str:
    """Return merged tensors as text, such as ``f32[2, 1–12, 64]``, or ``f32|bf16[…]`` if the dtype
    differed.
    """
    dtypes = "|".join(dtype_word(dtype) for dtype in tensor.dtypes)
    if tensor.sizes is None:
        sizes = "?"
    elif len(tensor.sizes) <= MAX_DIMENSIONS:
        sizes = ", ".join(map(sizes_word, tensor.sizes))
    else:
        first = ", ".join(map(sizes_word, tensor.sizes[:MAX_ALTERNATIVES]))
        sizes = f"{first}, … {len(tensor.sizes)} dimensions"
    word = f"{dtypes}[{sizes}]"
    layout = tensor.layout.removeprefix("torch.")
    if layout not in ("strided", ""):
        word = f"{word} {clean(layout)}"
    if device and any(tensor.devices):
        return f"{word} @ {clean('|'.join(tensor.devices))}"
    return word


def texts_word(texts: Sequence[str]) -> str:
    """Return results that are not tensors: both if there are at most two, otherwise the first and
    the last.
    """
    words = [_short_number(text) or cut(clean(text), MAX_TEXT_LENGTH) for text in texts]
    if len(words) <= 2:
        return "|".join(words)
    return f"{words[0]} … {words[-1]}"


def _short_number(text: str) -> str:
    """Return ``3.951`` for a number with more than four decimal digits, or "" for anything else."""
    whole, _, digits = text.removeprefix("-").partition(".")
    if whole.isdecimal() and digits.isdecimal() and len(digits) > 4:
        return f"{float(text):.4g}"
    return ""


def paths_word(paths: Sequence[str | None]) -> str:
    """Return paths that differ in one number as ``h.0–11.attn``. Of others, return the first few."""
    words = ["no module" if path is None else clean(path) for path in paths]
    split = [word.split(".") for word in words]
    if len(words) > 1 and len({len(parts) for parts in split}) == 1:
        columns = list(zip(*split, strict=True))
        differing = [at for at, column in enumerate(columns) if len(set(column)) > 1]
        if len(differing) == 1 and all(part.isdecimal() for part in columns[differing[0]]):
            (at,) = differing
            numbers = tuple(sorted(map(int, columns[at])))
            return ".".join([*split[0][:at], sizes_word(numbers), *split[0][at + 1 :]])
    if len(words) > MAX_PATHS:
        words = [*words[: MAX_PATHS - 1], f"… {len(words)} modules"]
    return ", ".join(words)


def mask_numbers(args: str) -> str:
    """Replace single numbers in arguments by ``…``.

    Iterations of a loop then stay equal even if an index, a rate or a seed changes.
    """
    return _NUMBER.sub(lambda match: match[1] or "…", args)


def args_in_common(texts: Sequence[str]) -> str:
    """Merge several texts into one: ``f32[2–3], dim=…`` for ``f32[2], dim=0`` and ``f32[3], dim=1``.

    If the texts differ in anything but shapes, numbers, strings and None, return ``…``.
    """
    different = list(dict.fromkeys(texts))
    if len(different) == 1:
        return different[0]
    # What is between the parts that may differ. ``split`` also returns the groups of each match.
    between = {tuple(_PART.split(text)[:: _PART.groups + 1]) for text in different}
    if len(between) > 1:
        return "…"
    matches = [list(_PART.finditer(text)) for text in different]
    parts = [_part_in_common(column) for column in zip(*matches, strict=True)]
    (pieces,) = between
    return "".join(piece + part for piece, part in zip(pieces, [*parts, ""], strict=True))


def _part_in_common(matches: Sequence[re.Match[str]]) -> str:
    """Return one part of several texts: as it is if it is equal in all, a range of shapes, or ``…``."""
    texts = [match[0] for match in matches]
    if len(set(texts)) == 1:
        return texts[0]
    if _SWITCHES.issuperset(texts):
        return "|".join(dict.fromkeys(texts))
    shapes: list[tuple[int, ...]] = []
    for match in matches:
        if match["sizes"] is None:
            return "…"
        sizes = [int(size) for size in match["sizes"].split(",") if size.strip()]
        shapes.append(tuple(sizes))
    if len(set(map(len, shapes))) > 1:
        return "…"
    dtypes = "|".join(dict.fromkeys(each["dtype"] for each in matches))
    return f"{dtypes}[{', '.join(map(sizes_word, merge_shapes(shapes)))}]"


# ---------------------------------------------------------------- statistics

MAX_TENSORS_WITH_STATS = 2
"""For more tensors than this, only what is not finite is shown."""
MAX_EXACT_WHOLE = 1e7
"""Whole numbers below this are written in full, because two digits of an index or a count are of no
use.
"""
WITHOUT_EXPONENT = 99.5, 1e5
"""Between these, numbers are written without digits after the point: with two digits they would
need an exponent, which is harder to read.
"""
_ALARM = re.compile(r"[\d,]+ (?:NaN|[+−]Inf)(?:, [\d,]+ [+−]Inf)*")


@runtime_checkable
class Measured(Protocol):
    """A trace that knows whether it has statistics."""

    @property
    def measured(self) -> bool: ...


def is_measured(trace: object) -> bool:
    """Return whether a trace has statistics."""
    return isinstance(trace, Measured) and trace.measured


def number_word(number: float) -> str:
    """Return a number as text, such as ``0.013``, ``−3.1`` or ``1.2e7``.

    It has two significant digits, or all digits before the point. Whole numbers below ten million
    are exact.
    """
    size = abs(number)
    is_exact_whole = size < MAX_EXACT_WHOLE and number == int(number)
    lowest, highest = WITHOUT_EXPONENT
    if is_exact_whole or lowest <= size < highest:
        text = f"{number:.0f}"
    else:
        text = f"{number:.2g}"
    digits, _, power = text.partition("e")
    if power:
        text = f"{digits}e{int(power)}"  # ``e7`` for ``e+07``
    return text.replace("-", "−")


def stats_word(stats: Stats, dtype: str = "") -> str:
    """Return the statistics of one value as text, or "" if it is empty."""
    return " ".join(filter(None, (range_word([stats], dtype), alarm_word([stats]))))


def range_word(several: Sequence[Stats], dtype: str = "") -> str:
    """Return mean, deviation and ends of the finite numbers, over several values at one place.

    That is ``= 2.3`` for one number each, ``all 1`` if all are equal, ``12 % True`` for booleans,
    and else ``μ 0.01 σ 0.99 [−3.1, 2.9]``. Return "" if there are no finite numbers.
    """
    merged = merge_stats(several)
    if merged is None:
        return ""
    if dtype == "bool":
        first, last = map(_percent_word, merged.percent_nonzero)
        if first == last:
            return f"{first} % True"
        return f"{first} … {last} % True"
    low, high = map(number_word, merged.values)
    if merged.values.low == merged.values.high:
        if merged.are_single:
            return f"= {low}"
        return f"all {low}"
    if merged.are_single:
        return f"= {_ends_word(merged.mean)}"
    return f"μ {_ends_word(merged.mean)} σ {_ends_word(merged.std)} [{low}, {high}]"


def _percent_word(share: float) -> str:
    """Round a percentage, but return ``<1`` and ``>99`` for all but 0 and 100: a mask that lets three numbers through
    is not empty.
    """
    rounded = round(share)
    if rounded in (0, 100) and rounded != share:
        if rounded:
            return ">99"
        return "<1"
    return str(rounded)


def alarm_word(several: Sequence[Stats]) -> str:
    """Return how many numbers are not finite, as in ``4 NaN, 1 −Inf``, or "" if all are finite."""
    totals = zip(count_not_finite(several), ("NaN", "+Inf", "−Inf"), strict=True)
    return ", ".join(f"{count(total)} {word}" for total, word in totals if total)


def numbers_word(numbers: Sequence[float]) -> str:
    """Return the range of numbers as text, such as ``0.041 … 0.072``, or "" if there are none."""
    if numbers:
        return _ends_word(merge_numbers(numbers))
    return ""


def _ends_word(ends: NumberRange) -> str:
    first, last = map(number_word, ends)
    if first == last:
        return first
    return f"{first} … {last}"


def with_stats(cells: Cells, events: Iterable[Event]) -> Cells:
    """Return the cells of a row, with the statistics of its outputs after their shapes."""
    columns = list(zip(*(event.outputs for event in events), strict=False))
    tensors = [(_stats_of(column), column[0].dtype) for column in columns]
    found: list[Cell] = []
    for cell in cells:
        if cell.kind == GIVES and cell.text:
            cell = append_stats(cell, tensors)
        found.append(cell)
    return tuple(found)


def _stats_of(values: Iterable[Value]) -> list[Stats]:
    """Return the statistics of those values that were measured."""
    return [value.stats for value in values if value.stats]


def with_curve(cells: Cells, series: Series | None) -> Cells:
    """Return the cells of a row with a curve instead of the ends of its numbers: ``f32[] = 2.3 ▇▅▃▂▁ 0.04``."""
    if series is None or len(series) < 2:
        return cells
    ends = range_word([point.stats for point in series.points if point.event is not None])
    if not ends.startswith("="):  # not one number each
        return cells
    numbers = series.numbers()
    curve = f"= {number_word(numbers[0])} {series.sparkline()} {number_word(numbers[-1])}"
    result: list[Cell] = []
    for cell in cells:
        if cell.kind == GIVES:
            cell = cell._replace(text=cell.text.replace(ends, curve))
        result.append(cell)
    return tuple(result)


def append_stats(cell: Cell, tensors: Sequence[tuple[Sequence[Stats], str]]) -> Cell:
    """Append statistics to the shapes in a cell.

    ``tensors`` has for each tensor its statistics in several calls and its dtype.
    """
    alarm = alarm_word([stats for several, _ in tensors for stats in several])
    if len(tensors) == 1:
        (tensor,) = tensors
        # What is not finite comes first, because a narrow page cuts the end.
        text = " ".join(filter(None, (cell.text, alarm, range_word(*tensor))))
        begin = len(cell.text) + 1
    else:
        text = cell.text
        if len(tensors) <= MAX_TENSORS_WITH_STATS:
            text = _with_ranges(text, [range_word(*tensor) for tensor in tensors])
        if alarm:
            text = f"{alarm} in {text}"
        begin = 0
    mark = None
    if alarm:
        mark = (begin, begin + len(alarm))
    return cell._replace(text=text, mark=mark)


def _with_ranges(text: str, ranges: Sequence[str]) -> str:
    """Return ``f32[2, 3] μ 0.1 …, f32[4] all 1`` for the text ``f32[2, 3], f32[4]``.

    If the text has another number of shapes, return it unchanged.
    """
    shapes = _split_shapes(text)
    if not ranges or len(shapes) != len(ranges):
        return text
    pairs = zip(shapes, ranges, strict=True)
    return ", ".join(f"{shape} {numbers}".rstrip() for shape, numbers in pairs)


def alarms_in(text: str) -> list[tuple[int, int]]:
    """Return the parts of a text about numbers that are not finite, as pairs of begin and end."""
    return [match.span() for match in _ALARM.finditer(text)]


def painted(text: str, style: str, page: Page) -> str:
    """Paint a text in a style, with the parts about numbers that are not finite as errors."""
    parts = list[str]()
    done = 0
    for first, last in alarms_in(text):
        parts += (page.paint(style, text[done:first]), page.paint("error", text[first:last]))
        done = last
    return "".join([*parts, page.paint(style, text[done:])])


def narrowed(text: str, room: int) -> str:
    """Cut a text to a width. A statistic is dropped as a whole rather than cut between its digits."""
    if width_of(text) > room and "μ " in text:
        end = len(text)
        for sign in (" [", " σ ", " μ "):
            end = max(text.rfind(sign, 0, end), 0)
            if end and width_of(text[:end]) + len(" …") <= room:
                return f"{text[:end]} …"
    return cut(text, room)


def contents_words(columns: Sequence[Sequence[Value]]) -> tuple[str, str]:
    """Return the statistics of tensors in several calls, and how many of their numbers are not
    finite.
    """
    stats = [_stats_of(column) for column in columns]
    alarm = alarm_word([each for several in stats for each in several])
    words = [
        range_word(several, column[0].dtype)
        for several, column in zip(stats, columns, strict=True)
        if several
    ]
    return ", ".join(filter(None, words[:MAX_TENSORS_WITH_STATS])), alarm


def _split_shapes(shapes: str) -> list[str]:
    """Split a text such as ``f32[2, 3], f32[4]`` into shapes. Commas inside brackets do not
    separate.
    """
    return [each if each.endswith("]") else f"{each}]" for each in shapes.split("], ")]
