"""The options of all views: their types, checks and help texts.

The options of a view are a frozen dataclass; a new option is one line in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, cast

from torchglass.errors import UsageError, WrongType, closest
from torchglass.events.selection import Selection
from torchglass.events.types import Stats

SWITCH, NUMBER, WORD, NAMES, SELECTION, TEXT = (
    "switch",
    "number",
    "word",
    "names",
    "selection",
    "text",
)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its help text, and how its value is checked."""

    kind: str
    """A switch, a number, one of ``choices``, names, a selection, or a text."""
    meaning: str
    default: object
    check: Callable[[str, object], object]
    """Name and value → the value as it is kept, or an error that says what is allowed."""
    choices: tuple[str, ...] = ()

    def field(self) -> Any:
        """Return the dataclass field for this option."""
        return field(default=self.default, metadata={"option": self})


def options_of(options: type[ViewOptions]) -> dict[str, Option]:
    """Return the options of a view by name, from its class."""
    return {each.name: each.metadata["option"] for each in fields(options)}


# ---------------------------------------------------------------- kinds of options


def switch(default: bool, meaning: str) -> Any:
    """Declare an option that is True or False."""

    def check(name: str, value: object) -> object:
        if not isinstance(value, bool):
            raise WrongType(f"{name}= takes True or False, not {type(value).__name__}")
        return value

    return Option(SWITCH, meaning, default, check).field()


def levels(meaning: str) -> Any:
    """Declare an option that is None, or a number of levels."""

    def check(name: str, value: object) -> object:
        if value is None:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise WrongType(
                f"{name}= takes a number of levels or None (all), not {type(value).__name__}"
            )
        if value < 0:
            raise UsageError(
                f"{name}={value}: 0 shows the outermost level alone, 1 the one below it too"
            )
        return value

    return Option(NUMBER, meaning, None, check).field()


def word(default: str | None, choices: Sequence[str], meaning: str) -> Any:
    """Declare an option that is one of a few words; None only if that is the default."""

    def check(name: str, value: object) -> object:
        if value is None and default is None:
            return value
        if not isinstance(value, str):
            raise WrongType(
                f"{name}= takes one of {', '.join(map(repr, choices))}, not {type(value).__name__}"
            )
        if value not in choices:
            raise UsageError(f"{name}={value!r}: {closest(value, choices)}")
        return value

    return Option(WORD, meaning, default, check, tuple(choices)).field()


def _check_selection(name: str, value: object) -> object:
    """Check that a value is None or comes from ``select()``."""
    if value is not None and not isinstance(value, Selection):
        kind = type(value).__name__
        raise WrongType(
            f'{name}= takes a selection, as in {name}=select(module="encoder.*"), not {kind}'
        )
    return value


def several(meaning: str, example: str) -> Any:
    """Declare an option that takes one name or several, kept as a tuple; empty by default."""

    def check(name: str, value: object) -> object:
        if isinstance(value, tuple | list):
            given = cast("Sequence[object]", value)
        else:
            given = (value,)
        if value is None:
            return ()
        if not all(isinstance(each, str) and each for each in given):
            kind = "an empty one"
            if value != "":
                kind = type(cast("object", value)).__name__
            raise WrongType(f"{name}= takes a name or a tuple of them, as in {example}, not {kind}")
        return tuple(given)

    return Option(NAMES, meaning, (), check).field()


# ---------------------------------------------------------------- what all views have

_ONLY = Option(SELECTION, "only what is selected, and what it is in", None, _check_selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """The options that every view has, checked when they are created."""

    own_filters: ClassVar[frozenset[str]] = frozenset()
    """Which of ``path`` and ``hide`` a view handles in its own way."""

    only: Selection | None = field(default=None, metadata={"option": _ONLY})
    """What was selected, with ``path`` and ``hide``: the one filter that views ask."""
    path: tuple[str, ...] = several(
        "only what lines of these files did (parts of paths, or globs)", "path='model.py'"
    )
    hide: tuple[str, ...] = several("leave out the steps of these packages", "hide='transformers'")

    def __post_init__(self) -> None:
        for name, option in options_of(type(self)).items():
            object.__setattr__(self, name, option.check(name, getattr(self, name)))
        given = {
            name: getattr(self, name) for name in ("path", "hide") if name not in self.own_filters
        }
        if any(given.values()):
            merged = {
                name: (*getattr(self.only, name, ()), *value) for name, value in given.items()
            }
            object.__setattr__(self, "only", replace(self.only or Selection(), **merged))


# ---------------------------------------------------------------- what each view has

_WHEN = Option(
    TEXT,
    "what counts as bad: nonfinite, or a condition such as abs>1e4, std<1e-6 or nan>0",
    "nonfinite",
    lambda name, value: value,  # the answer says which conditions there are
)
_DEPTH = "how many levels to show below the outermost one; all by default"
_LOOPS_ONCE = "show each loop and repeated layers once"
_LAYERS_ONCE = "show repeated layers once"
_FINDINGS = "mark what looks wrong at its line, as torchglass check finds it"
_MADE = "also show what was computed while objects were made, as in Net()"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsOptions(ViewOptions):
    """The options of the list of calls."""

    shapes: bool = switch(False, "show the shapes of each call's inputs and outputs")
    fold: bool = switch(True, _LOOPS_ONCE)
    order: str = word(
        "begin", ("begin", "end"), "in the order in which calls begin, or in which they return"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOptions(ViewOptions):
    """The options of the code view."""

    own_filters: ClassVar[frozenset[str]] = frozenset({"hide"})

    frames: str = word(
        "user",
        ("user", "all"),
        "whose lines to show; user: all but those of torch and the standard library",
    )
    hide: tuple[str, ...] = several(
        "leave out the lines of these packages", 'hide=("transformers", "transformers.utils")'
    )
    depth: int | None = levels(
        "how many levels of lines to show below the outermost; all by default"
    )
    times: bool = switch(False, "show how long each line and step took")
    inner: bool = switch(False, "also show the ops of optimizer steps")
    constructors: bool = switch(
        False, "also show what was computed while modules were made, as in Net()"
    )
    backward: bool = switch(
        False, "show what backward ran under the line whose gradient it computed"
    )
    fold: bool = switch(True, "show loops and equal layers once")
    findings: bool = switch(True, _FINDINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOptions(ViewOptions):
    """The options of the failure view."""

    back: int | None = levels("how many steps to go back from each input; 2 by default")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBadOptions(ViewOptions):
    """The options that say what counts as bad."""

    when: str | Callable[[Stats], bool] = field(default="nonfinite", metadata={"option": _WHEN})
    allow: tuple[str, ...] = several(
        "functions and places whose results are never bad", "allow=('log', 'model.py:12')"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsOptions(ViewOptions):
    """The options of the gradients view."""

    depth: int | None = levels(
        "how many levels of modules to show below the outermost; parameters below them are summed up"
    )
    fold: bool = switch(True, _LAYERS_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions(ViewOptions):
    """The options of the data flow, and of the files exported from it."""

    depth: int | None = levels(_DEPTH)
    functions: bool = switch(True, "show functions, not only modules")
    fold: bool = switch(True, _LOOPS_ONCE)
    inner: bool = switch(
        False, "also show what torch does inside its own layers, functions and optimizer steps"
    )
    constructors: bool = switch(False, _MADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingOptions(ViewOptions):
    """The options of the listing."""

    own_filters: ClassVar[frozenset[str]] = frozenset({"path"})

    path: tuple[str, ...] = several(
        "files to show (parts of paths, or globs); by default your own, and those installed files that have most steps",
        "path='model.py'",
    )
    whole: bool = switch(False, "show whole files, not only functions with steps")
    by: str | None = word(
        None, ("module",), "show the calls of a line separately for each module that they ran in"
    )
    backward: bool = switch(
        False, "show below each line the gradient of its result, and what backward ran for it"
    )
    times: bool = switch(False, "show how long each line took")
    style: str = word(
        "margin",
        ("comments", "margin"),
        "comments: print a copy of one file with the shapes as comments",
    )
    findings: bool = switch(True, _FINDINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(ViewOptions):
    """The options of the table."""

    depth: int | None = levels("how many levels to show below the outermost module; all by default")
    fold: bool = switch(True, _LAYERS_ONCE)
    times: bool = switch(True, "show shares of time, and the total")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions(GraphOptions):
    """The options of the tree."""

    times: bool = switch(False, "show how long each call took, and its share of the total")
    findings: bool = switch(True, _FINDINGS)
    series: bool = switch(
        False, "show how a measured number, as the loss, went on over the iterations, as a curve"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesOptions(ViewOptions):
    """The options of the variables view."""

    names: tuple[str, ...] = several(
        "only variables that match one of these globs", "names=('h*', 'self.cache')"
    )
    order: str = word(
        "variable",
        ("variable", "time"),
        "one block for each variable, or all changes in order, as a tree of calls",
    )
    fold: bool = switch(
        True, "show equal changes and equal calls once, and only both ends of very long lives"
    )
    times: bool = switch(
        False, "show when each change happened, counted from the start of the recording"
    )


OPTIONS: dict[str, type[ViewOptions]] = {
    "calls": CallsOptions,
    "code": CodeOptions,
    "failure": FailureOptions,
    "first_bad": FirstBadOptions,
    "gradients": GradientsOptions,
    "graph": GraphOptions,
    "listing": ListingOptions,
    "table": TableOptions,
    "tree": TreeOptions,
    "variables": VariablesOptions,
}
"""All views: the name of each, which is that of its file or folder, and the class of its options."""
