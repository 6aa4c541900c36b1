"""What is in tensors, in a few words behind their shape: ``μ 0.01 σ 0.99 [−3.1, 2.9] 4 NaN``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from torchglass.events.types import Event, Stats, Value
from torchglass.views.row import GIVES, Cell
from torchglass.views.text.style import Page
from torchglass.views.text.words import count, cut, width_of

Cells = tuple[Cell, ...]
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
        first, last = round(min(shares)), round(max(shares))
        return f"{first} % True" if first == last else f"{first} … {last} % True"
    if low == high:
        return f"= {number_word(low)}" if all(each.count == 1 for each in known) else f"all {number_word(low)}"
    if all(each.count == 1 for each in known):
        return f"= {numbers_word([each.mean for each in known])}"
    mean, std = numbers_word([each.mean for each in known]), numbers_word([each.std for each in known])
    return f"μ {mean} σ {std} [{number_word(low)}, {number_word(high)}]"


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


def values_word(columns: Sequence[Sequence[Value]]) -> tuple[str, str]:
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
