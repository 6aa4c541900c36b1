"""Raw argument forms turned into what is shown: the role of each tensor and the text around them."""

from __future__ import annotations

from typing import Any, cast

from torchglass.events.schema import Form
from torchglass.events.spelling import int_word
from torchglass.journal.rows import DICT, FIELDS, LIST, SLICE, TUPLE
from torchglass.source.sites import Slot

Nested = tuple[Any, ...]
"""A tag, then items."""
Names = tuple[tuple[str, ...], str | None]
NO_NAMES: Names = ((), None)


def shown_form(raw: tuple[Any, ...], names: Names) -> Form:
    """The arguments of a call; ``names`` are its parameters and the name of its ``*args``."""
    writer = _FormText()
    count = raw[0]
    for index in range(count):
        writer.separate(index)
        writer.item(raw[1 + index], _role(index, names))
    for position in range(1 + count, len(raw), 2):
        name, item = raw[position], raw[position + 1]
        if name.startswith("_") and not _paths(item):
            continue  # torch's own business, as the _stacklevel of F.softmax
        writer.separate(len(writer.roles) or len(writer.pieces[-1]))
        writer.text(f"{name}=")
        writer.item(item, name)
    return writer.form()


def result_form(raw: tuple[Any, ...]) -> Form:
    """The result of a call: its tensors are ``out``, ``out[0]``, ``out.logits``."""
    writer = _FormText()
    writer.item(raw[1], "out")
    return writer.form()


def tensor_slots(raw: tuple[Any, ...]) -> tuple[Slot, ...]:
    """Where each tensor stood, in order."""
    slots: list[Slot] = []
    count = raw[0]
    for index in range(count):
        slots += [Slot(index, None, path) for path in _paths(raw[1 + index])]
    for position in range(1 + count, len(raw), 2):
        slots += [Slot(None, raw[position], path) for path in _paths(raw[position + 1])]
    return tuple(slots)


def _paths(item: Any) -> list[tuple[int | str, ...]]:
    """The ways to the tensors inside an argument; ``()`` is the argument itself."""
    if item is None:
        return [()]
    if type(item) is not tuple:
        return []
    nested = cast("Nested", item)
    tag = nested[0]
    if tag in (DICT, FIELDS):
        first = 1 if tag == DICT else 2
        keys: list[int | str] = [_key(key) for key in nested[first::2]]
        inner = nested[first + 1 :: 2]
    else:
        keys = ["start", "stop", "step"] if tag == SLICE else list(range(len(nested) - 1))
        inner = nested[1:]
    return [(key, *path) for key, each in zip(keys, inner, strict=True) for path in _paths(each)]


def _key(text: str) -> str:
    """Keys of dicts are kept as they are shown, in quotes."""
    return text[1:-1] if text[:1] in "'\"" else text


def _role(index: int, names: Names) -> str:
    positional, rest = names
    if index < len(positional):
        return positional[index]
    return f"{rest or 'args'}[{index - len(positional)}]"


class _FormText:
    """Collects text, and breaks it wherever a tensor stands."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.pieces: list[str] = [""]

    def form(self) -> Form:
        return Form(tuple(self.roles), tuple(self.pieces))

    def text(self, text: str) -> None:
        self.pieces[-1] += text

    def separate(self, index: int) -> None:
        if index:
            self.text(", ")

    def item(self, item: Any, role: str) -> None:
        if item is None:
            self.roles.append(role)
            self.pieces.append("")
        elif type(item) is tuple:
            self._nested(cast("Nested", item), role)
        else:
            self.text(item if type(item) is str else int_word(item))

    def _nested(self, item: Nested, role: str) -> None:
        tag = item[0]
        if tag == SLICE:
            self._slice(item[1:], role)
        elif tag in (LIST, TUPLE):
            self.text(tag)
            for index, inner in enumerate(item[1:]):
                self.separate(index)
                self.item(inner, f"{role}[{index}]")
            self.text("]" if tag == LIST else ",)" if len(item) == 2 else ")")
        else:
            self._named(item, role)

    def _named(self, item: Nested, role: str) -> None:
        tag = item[0]
        first = 1 if tag == DICT else 2
        self.text("{" if tag == DICT else f"{item[1]}(")
        for position in range(first, len(item), 2):
            self.separate(position - first)
            key = item[position]
            self.text(f"{key}: " if tag == DICT else f"{key}=")
            self.item(item[position + 1], f"{role}[{key}]" if tag == DICT else f"{role}.{key}")
        self.text("}" if tag == DICT else ")")

    def _slice(self, parts: tuple[Any, ...], role: str) -> None:
        start, stop, step = parts
        if start != "None":
            self.item(start, f"{role}.start")
        self.text(":")
        if stop != "None":
            self.item(stop, f"{role}.stop")
        if step != "None":
            self.text(":")
            self.item(step, f"{role}.step")
