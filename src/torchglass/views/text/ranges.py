"""What differed between several calls, as one word: ``f32[2, 1–12, 64]``, ``f32|bf16[…]``, ``2.31 … 0.04``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchglass.events.types import Stats, Value
from torchglass.views.text.words import clean, cut, dtype_word

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
