"""Turns the form of arguments or of a result into what is shown: the role of each tensor, and the text around them.

A form is what a call has beside its tensors. The journal has it nested (``RawForm``, written by ``journal/rows.py``)::

    raw  = (n, item, …, item, name, item, name, item, …)        n positional items, then those with a name
    item = None                                                 a tensor
         | 7 | "'sum'"                                          an int, or the text of anything else
         | (LIST, item, …) | (TUPLE, item, …)
         | (SLICE, start, stop, step)
         | (DICT, key, item, key, item, …)
         | (FIELDS, class, field, item, field, item, …)         an object with fields, such as a named tuple

``torch.cat([x, y], dim=0)`` has the form ``(1, (LIST, None, None), "dim", 0)``. It is shown with the roles
``tensors[0]`` and ``tensors[1]`` and the pieces of text ``"["``, ``", "`` and ``"], dim=0"``.
"""

from __future__ import annotations

from typing import Any, cast

from torchglass.events.schema import Form
from torchglass.events.spelling import int_word
from torchglass.journal.rows import DICT, FIELDS, LIST, SLICE, TUPLE
from torchglass.settle.journal_rows import RawForm
from torchglass.source.operands import Slot

Nested = tuple[Any, ...]
"""An item that is a container: a tag, then what is in it."""
ParameterNames = tuple[tuple[str, ...], str | None]
"""The names of a function's positional parameters, and that of its ``*args``."""
NO_NAMES: ParameterNames = ((), None)


def shown_form(raw: RawForm, names: ParameterNames) -> Form:
    """Return the arguments of a call as they are shown."""
    writer = _FormText()
    count = raw[0]
    for index in range(count):
        if index > 0:
            writer.separate()
        writer.item(raw[1 + index], _role(index, names))
    for position in range(1 + count, len(raw), 2):
        name = raw[position]
        item = raw[position + 1]
        # Arguments such as the _stacklevel of F.softmax are internal to torch.
        if name.startswith("_") and not _paths(item):
            continue
        if not writer.is_empty():
            writer.separate()
        writer.text(f"{name}=")
        writer.item(item, name)
    return writer.form()


def result_form(raw: RawForm) -> Form:
    """Return the result of a call as it is shown.

    The roles of its tensors are ``out``, ``out[0]`` or ``out.logits``.
    """
    writer = _FormText()
    writer.item(raw[1], "out")
    return writer.form()


def tensor_slots(raw: RawForm) -> tuple[Slot, ...]:
    """Return the slot of each tensor among the arguments, in order."""
    slots: list[Slot] = []
    count = raw[0]
    for index in range(count):
        slots += [Slot(index, None, path) for path in _paths(raw[1 + index])]
    for position in range(1 + count, len(raw), 2):
        slots += [Slot(None, raw[position], path) for path in _paths(raw[position + 1])]
    return tuple(slots)


def _paths(item: Any) -> list[tuple[int | str, ...]]:
    """Return the paths to the tensors in an argument. The path to the argument itself is ``()``."""
    if item is None:
        return [()]
    if type(item) is not tuple:
        return []
    nested = cast("Nested", item)
    tag = nested[0]
    keys: list[int | str]
    if tag in (DICT, FIELDS):
        begin = _begin_of_pairs(tag)
        keys = [_key(key) for key in nested[begin::2]]
        inner = nested[begin + 1 :: 2]
    else:
        if tag == SLICE:
            keys = ["start", "stop", "step"]
        else:
            keys = list(range(len(nested) - 1))
        inner = nested[1:]
    return [
        (key, *path) for key, element in zip(keys, inner, strict=True) for path in _paths(element)
    ]


def _begin_of_pairs(tag: str) -> int:
    """Return the index of the first key in a dict, or in an object, whose class comes before it."""
    if tag == FIELDS:
        return 2
    return 1


def _key(text: str) -> str:
    """Return the key of a dict without the quotes that a form has around it."""
    if text[:1] in "'\"":
        return text[1:-1]
    return text


def _role(index: int, names: ParameterNames) -> str:
    positional, rest = names
    if index < len(positional):
        return positional[index]
    return f"{rest or 'args'}[{index - len(positional)}]"


class _FormText:
    """Collects the text of a form, and begins a new piece at each tensor."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.pieces: list[str] = [""]

    def form(self) -> Form:
        return Form(tuple(self.roles), tuple(self.pieces))

    def text(self, text: str) -> None:
        self.pieces[-1] += text

    def is_empty(self) -> bool:
        """Return whether there is no tensor and no text yet."""
        return not self.roles and not self.pieces[-1]

    def separate(self) -> None:
        """Write the comma before another item."""
        self.text(", ")

    def item(self, item: Any, role: str) -> None:
        if item is None:
            self.roles.append(role)
            self.pieces.append("")
        elif type(item) is tuple:
            self._nested(cast("Nested", item), role)
        else:
            self._plain(item)

    def _plain(self, item: str | int) -> None:
        if isinstance(item, str):
            self.text(item)
        else:
            self.text(int_word(item))

    def _nested(self, item: Nested, role: str) -> None:
        """Write a container."""
        tag = item[0]
        if tag == SLICE:
            self._slice(item[1:], role)
        elif tag in (LIST, TUPLE):
            self.text(tag)
            for index, inner in enumerate(item[1:]):
                if index > 0:
                    self.separate()
                self.item(inner, f"{role}[{index}]")
            if tag == LIST:
                self.text("]")
            elif len(item) == 2:
                self.text(",)")
            else:
                self.text(")")
        else:
            self._named(item, role)

    def _named(self, item: Nested, role: str) -> None:
        """Write a dict as ``{key: …}``, or an object with fields as ``Class(field=…)``."""
        tag = item[0]
        if tag == DICT:
            self.text("{")
        else:
            self.text(f"{item[1]}(")
        begin = _begin_of_pairs(tag)
        for position in range(begin, len(item), 2):
            if position > begin:
                self.separate()
            key = item[position]
            if tag == DICT:
                self.text(f"{key}: ")
                self.item(item[position + 1], f"{role}[{key}]")
            else:
                self.text(f"{key}=")
                self.item(item[position + 1], f"{role}.{key}")
        if tag == DICT:
            self.text("}")
        else:
            self.text(")")

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
