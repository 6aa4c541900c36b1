"""Shortens the paths of modules: relative to the module around, without layer numbers, or as ranges (``h.0–11``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from torchglass.events.types import Event


def relative_path(event: Event, around: Event | None) -> str:
    """Return a module's path as seen from the module that encloses the call; a root goes by its label."""
    path = event.module or ""
    if around is None or around.root != event.root:
        label = event.root or event.name
        if path:
            return f"{label}.{path}"
        return label
    outer = around.module or ""
    if outer and path.startswith(outer + "."):
        return path[len(outer) + 1 :]
    return path or event.root or event.name


_INDEX = re.compile(r"(?:^|, )\w*(?:idx|index|layer|number|_id)\w*=(\d+)(?=,|$)")


def settings_of(detail: str, path: str | None) -> str:
    """Return a module's settings without the layer number that its path has too: ``layer_idx=5`` in ``h.5.attn``."""
    found = None
    if detail and path:
        found = _INDEX.search(detail)
    if found is None or path is None or found[1] not in path.split("."):
        return detail
    return (detail[: found.start()] + detail[found.end() :]).removeprefix(", ")


def split_index(path: str) -> tuple[str, int | None]:
    """Split ``blocks.11`` into ``("blocks.", 11)``; the number is None if the path does not end with one."""
    head, dot, last = path.rpartition(".")
    if last.isdecimal() and last.isascii():
        return (head + dot, int(last))
    return (path, None)


def range_label(paths: Iterable[str]) -> str:
    """Return ``blocks.0–11`` for layers in a row, the path itself if all are the same, else the first few paths."""
    distinct = list(dict.fromkeys(paths))
    if len(distinct) == 1:
        return distinct[0]
    head, first = split_index(distinct[0])
    numbers = [split_index(path)[1] for path in distinct]
    if first is None or any(split_index(path)[0] != head for path in distinct):
        return ", ".join(distinct if len(distinct) <= 3 else [*distinct[:2], "…", distinct[-1]])
    if numbers == list(range(first, first + len(distinct))):
        return f"{head}{first}–{numbers[-1]}"
    rest = [str(number) for number in numbers]
    return head + ", ".join(rest if len(rest) <= 4 else [*rest[:2], "…", rest[-1]])


_LABEL_NUMBER = re.compile(r"#\d+$")


def without_label_number(name: str) -> str:
    """Return ``CrossEntropyLoss`` for ``CrossEntropyLoss#12``: the name that several roots of one class share."""
    return _LABEL_NUMBER.sub("", name)


@lru_cache(maxsize=4096)
def numberless(path: str | None) -> str | None:
    """Return a module's path with ``#`` for the numbers of layers: ``blocks.#.fc`` for ``blocks.3.fc``."""
    if path is None:
        return None
    return ".".join("#" if part.isdecimal() else part for part in path.split("."))


def paths_label(paths: Sequence[str]) -> str:
    """Return ``blocks.0–11.fc`` for paths that differ in one number, otherwise what ``range_label`` returns."""
    split = [path.split(".") for path in dict.fromkeys(paths)]
    different: list[int] = []
    for index in range(len(split[0])):
        parts_here = {tuple(parts[index : index + 1]) for parts in split}
        if len(parts_here) > 1:
            different.append(index)
    if len(different) != 1 or len({numberless(path) for path in paths}) > 1:
        return range_label(paths)
    end = different[0] + 1
    return ".".join([range_label([".".join(parts[:end]) for parts in split]), *split[0][end:]])
