"""Shortens the paths of modules: relative to the module around, without layer numbers, or as ranges (``h.0–11``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from torchglass.events.types import Event


def relative_path(event: Event, around: Event | None) -> str:
    """Return the path of a module's call relative to the module ``around``: ``attn`` for ``h.0.attn`` inside ``h.0``.

    A root module has no path, so its label is returned. Below another root the path begins with the label.
    """
    path = event.module or ""
    label = event.root or event.name
    if around is None or around.root != event.root:
        if path:
            return f"{label}.{path}"
        return label
    if around.module:
        path = path.removeprefix(around.module + ".")
    return path or label


_LAYER_NUMBER = re.compile(r"(?:^|, )\w*(?:idx|index|layer|number|_id)\w*=(?P<number>\d+)(?=,|$)")


def settings_of(detail: str, path: str | None) -> str:
    """Return a module's settings without the layer number that its path has too: ``layer_idx=5`` in ``h.5.attn``."""
    if not detail or not path:
        return detail
    found = _LAYER_NUMBER.search(detail)
    if found is None or found["number"] not in path.split("."):
        return detail
    before = detail[: found.start()]
    after = detail[found.end() :]
    return (before + after).removeprefix(", ")


def split_index(path: str) -> tuple[str, int | None]:
    """Split ``blocks.11`` into ``("blocks.", 11)``; the number is None if the path does not end with one."""
    head, dot, last = path.rpartition(".")
    if last.isdecimal() and last.isascii():
        return (head + dot, int(last))
    return (path, None)


def range_label(paths: Iterable[str]) -> str:
    """Return one text for several paths::

    h.3, h.3            h.3
    h.0, h.1, h.2       h.0–2
    h.0, h.2            h.0, 2
    embed, h.0, norm    embed, h.0, norm
    """
    distinct = list(dict.fromkeys(paths))
    if len(distinct) == 1:
        return distinct[0]
    heads, numbers = zip(*map(split_index, distinct), strict=True)
    head = heads[0]
    first = numbers[0]
    if first is None or len(set(heads)) > 1:
        return _shortened_list(distinct, at_most=3)
    if list(numbers) == list(range(first, first + len(distinct))):
        return f"{head}{first}–{numbers[-1]}"
    return head + _shortened_list([str(number) for number in numbers], at_most=4)


def _shortened_list(texts: list[str], at_most: int) -> str:
    """Join texts with commas. Of more than ``at_most``, return the first two and the last."""
    if len(texts) > at_most:
        texts = [*texts[:2], "…", texts[-1]]
    return ", ".join(texts)


_LABEL_NUMBER = re.compile(r"#\d+$")


def without_label_number(name: str) -> str:
    """Return the name that several root modules of one class share: ``Loss`` for ``Loss#12``."""
    return _LABEL_NUMBER.sub("", name)


@lru_cache(maxsize=4096)
def numberless(path: str | None) -> str | None:
    """Return a module's path with ``#`` for the numbers of layers: ``blocks.#.fc`` for ``blocks.3.fc``."""
    if path is None:
        return None
    parts = path.split(".")
    for index, part in enumerate(parts):
        if part.isdecimal():
            parts[index] = "#"
    return ".".join(parts)


def paths_label(paths: Sequence[str]) -> str:
    """Return ``blocks.0–11.fc`` for paths that differ in one number, otherwise what ``range_label`` returns."""
    if len({numberless(path) for path in paths}) > 1:
        return range_label(paths)
    split = [path.split(".") for path in dict.fromkeys(paths)]
    columns = zip(*split, strict=True)
    different = [index for index, column in enumerate(columns) if len(set(column)) > 1]
    if len(different) != 1:
        return range_label(paths)
    end = different[0] + 1
    numbered = range_label(".".join(parts[:end]) for parts in split)
    return ".".join([numbered, *split[0][end:]])
