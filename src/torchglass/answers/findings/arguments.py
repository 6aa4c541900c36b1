"""Reads the arguments of a call as data, from the text that the trace keeps of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from torchglass.events.schema import Form

_TENSOR = "\0"
_OPENING, _CLOSING = "([{<", ")]}>"


@dataclass(frozen=True, slots=True)
class TensorAt:
    """A tensor among the arguments, by its index among the call's inputs."""

    number: int


@dataclass(slots=True)
class Arguments:
    """The arguments of a call.

    Tensors are ``TensorAt``. Literals (numbers, strings, None …) have their value. Everything else
    is text.
    """

    positional: list[Any] = field(default_factory=list[Any])
    named: dict[str, Any] = field(default_factory=dict[str, Any])

    def get(self, name: str, position: int | None = None, default: Any = None) -> Any:
        """Return an argument by its name, or by its position if it was not passed by name."""
        if name in self.named:
            return self.named[name]
        if position is not None and position < len(self.positional):
            return self.positional[position]
        return default


def arguments_of(form: Form) -> Arguments:
    """Read the arguments of a form."""
    found = Arguments()
    number = 0
    for part in _split(_TENSOR.join(form.pieces)):
        name, is_named, text = part.partition("=")
        if not is_named or not name.isidentifier():
            name, text = "", part
        tensors = text.count(_TENSOR)
        value = _value(text, number)
        number += tensors
        if name:
            found.named[name] = value
        else:
            found.positional.append(value)
    return found


def _value(text: str, number: int) -> Any:
    if text == _TENSOR:
        return TensorAt(number)
    if _TENSOR not in text:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass  # a name, a slice, or a list with such items
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return text
    items: list[Any] = []
    for part in _split(text[1:-1]):
        items.append(_value(part, number))
        number += part.count(_TENSOR)
    return tuple(items)


def _split(text: str) -> list[str]:
    """Split a text at the commas that are not inside brackets or quotes."""
    parts: list[str] = []
    depth = 0
    quote = ""
    begin = 0
    escaped = False
    for at, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    if last:
        return [*parts, last]
    return parts
