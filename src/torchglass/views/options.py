"""The options of views: what each takes and means, checked when they are made, and listed by the command's help.

A view's ``Options`` is a frozen dataclass of fields made here; a new option is one line in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, cast

from torchglass.errors import UsageError, WrongType, closest
from torchglass.events.selection import Selection

SWITCH, NUMBER, WORD, NAMES, SELECTION = "switch", "number", "word", "names", "selection"


class Option(NamedTuple):
    """One option as a reader of the help sees it."""

    name: str
    kind: str
    """A switch, a number, one of ``choices``, names, or a selection."""
    meaning: str
    choices: tuple[str, ...]
    default: object


@dataclass(frozen=True, slots=True)
class _Takes:
    kind: str
    meaning: str
    check: Callable[[str, object], object]
    """Name and value → the value as it is kept, or an error that says what is taken."""
    choices: tuple[str, ...] = ()


def options_of(options: type) -> Iterator[Option]:
    """The options of a view, by its class."""
    for each in fields(options):
        takes = cast("_Takes", each.metadata["takes"])
        yield Option(each.name, takes.kind, takes.meaning, takes.choices, each.default)


# ---------------------------------------------------------------- kinds of options


def _option(default: object, takes: _Takes) -> Any:
    return field(default=default, metadata={"takes": takes})


def switch(default: bool, meaning: str) -> Any:
    """True or False."""

    def check(name: str, value: object) -> object:
        if not isinstance(value, bool):
            raise WrongType(f"{name}= takes True or False, not {type(value).__name__}")
        return value

    return _option(default, _Takes(SWITCH, meaning, check))


def levels(meaning: str) -> Any:
    """None, or how many levels below the outermost one."""

    def check(name: str, value: object) -> object:
        if value is None:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise WrongType(f"{name}= takes a number of levels or None (all), not {type(value).__name__}")
        if value < 0:
            raise UsageError(f"{name}={value}: 0 shows the outermost level alone, 1 the one below it too")
        return value

    return _option(None, _Takes(NUMBER, meaning, check))


def word(default: str | None, choices: Sequence[str], meaning: str) -> Any:
    """One of a few words; None only where that is the default."""

    def check(name: str, value: object) -> object:
        if value is None and default is None:
            return value
        if not isinstance(value, str):
            raise WrongType(f"{name}= takes one of {', '.join(map(repr, choices))}, not {type(value).__name__}")
        if value not in choices:
            raise UsageError(f"{name}={value!r}: {closest(value, choices)}")
        return value

    return _option(default, _Takes(WORD, meaning, check, tuple(choices)))


def _check_selection(name: str, value: object) -> object:
    """None, or what ``select()`` gives."""
    if value is not None and not isinstance(value, Selection):
        kind = type(value).__name__
        raise WrongType(f'{name}= takes a selection, as in {name}=select(module="encoder.*"), not {kind}')
    return value


def several(meaning: str, example: str) -> Any:
    """One name or several, kept as a tuple; empty when none is given."""

    def check(name: str, value: object) -> object:
        given = cast("Sequence[object]", value) if isinstance(value, tuple | list) else (value,)
        if value is None:
            return ()
        if not all(isinstance(each, str) and each for each in given):
            kind = "an empty one" if value == "" else type(cast("object", value)).__name__
            raise WrongType(f"{name}= takes a name or a tuple of them, as in {example}, not {kind}")
        return tuple(given)

    return _option((), _Takes(NAMES, meaning, check))


# ---------------------------------------------------------------- what all views have

_ONLY = _Takes(SELECTION, "only what is selected, and what it is in", _check_selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """The options that every view has; they are checked when they are made."""

    own_filters: ClassVar[frozenset[str]] = frozenset()
    """Of ``path`` and ``hide`` those that a view takes in a way of its own."""

    only: Selection | None = field(default=None, metadata={"takes": _ONLY})
    """What was selected, with ``path`` and ``hide``: the one filter that views ask."""
    path: tuple[str, ...] = several("only what lines of these files did: parts of paths, or globs", "path='model.py'")
    hide: tuple[str, ...] = several("packages whose steps are not shown", "hide='transformers'")

    def __post_init__(self) -> None:
        for each in fields(self):
            takes = cast("_Takes", each.metadata["takes"])
            object.__setattr__(self, each.name, takes.check(each.name, getattr(self, each.name)))
        given = {name: getattr(self, name) for name in ("path", "hide") if name not in self.own_filters}
        if any(given.values()):
            merged = {name: (*getattr(self.only, name, ()), *value) for name, value in given.items()}
            object.__setattr__(self, "only", replace(self.only or Selection(), **merged))
