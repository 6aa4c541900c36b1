"""The last line of a long view: which options show less of it or more, and which view shows it in another way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

LONG = 60
"""Lines from which on a view says how to see less of it; on the terminal of the command it always does."""
_LESS: dict[str, tuple[tuple[str, object], ...]] = {
    "listing": (("path", "model.py"),),
    "variables": (("names", "loss"),),
    "calls": (("hide", "transformers"),),
}
_MORE = (("fold", False), ("inner", True))


def hint(view: str, options: Any, command: bool) -> str:
    """``less: depth=1 · more: fold=False · another view: show(trace, "listing")``; "" where there is nothing to say."""
    if view == "failure":
        return ""
    parts = [
        f"{word}: {', '.join(_spelt(name, value, command) for name, value in found)}"
        for word, found in (("less", list(_less(view, options))), ("more", list(_more(options))))
        if found
    ]
    other = ("listing", "your lines with shapes") if view != "listing" else ("tree", "every call")
    parts.append(f"{other[1]}: " + (f"--view {other[0]}" if command else f"show(trace, {other[0]!r})"))
    return " · ".join(parts)


def _less(view: str, options: Any) -> Iterator[tuple[str, object]]:
    if any(each.name == "depth" for each in fields(options)):
        if options.depth is None or options.depth > 1:
            yield "depth", 1 if options.depth is None else options.depth - 1
        return
    yield from ((name, value) for name, value in _LESS.get(view, ()) if not getattr(options, name))


def _more(options: Any) -> Iterator[tuple[str, object]]:
    known = {each.name for each in fields(options)}
    yield from ((name, value) for name, value in _MORE if name in known and getattr(options, name) is not value)
    if getattr(options, "depth", None) is not None:
        yield "depth", options.depth + 1


def _spelt(name: str, value: object, command: bool) -> str:
    """As it is given to ``show()``, or to the command."""
    if not command:
        return f"{name}={value!r}"
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"
