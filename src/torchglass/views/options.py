"""The options of all views: what each takes and means, checked when they are made, and listed by the command's help.

Those of a view are a frozen dataclass; a new option is one line in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, cast

from torchglass.errors import UsageError, WrongType, closest
from torchglass.events.selection import Selection

SWITCH, NUMBER, WORD, NAMES, SELECTION = "switch", "number", "word", "names", "selection"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: what the help says of it, and how what is given is checked."""

    kind: str
    """A switch, a number, one of ``choices``, names, or a selection."""
    meaning: str
    default: object
    check: Callable[[str, object], object]
    """Name and value → the value as it is kept, or an error that says what is taken."""
    choices: tuple[str, ...] = ()

    def field(self) -> Any:
        """As it stands in the class of a view's options."""
        return field(default=self.default, metadata={"option": self})


def options_of(options: type[ViewOptions]) -> dict[str, Option]:
    """The options of a view by name, from its class."""
    return {each.name: each.metadata["option"] for each in fields(options)}


# ---------------------------------------------------------------- kinds of options


def switch(default: bool, meaning: str) -> Any:
    """True or False."""

    def check(name: str, value: object) -> object:
        if not isinstance(value, bool):
            raise WrongType(f"{name}= takes True or False, not {type(value).__name__}")
        return value

    return Option(SWITCH, meaning, default, check).field()


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

    return Option(NUMBER, meaning, None, check).field()


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

    return Option(WORD, meaning, default, check, tuple(choices)).field()


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

    return Option(NAMES, meaning, (), check).field()


# ---------------------------------------------------------------- what all views have

_ONLY = Option(SELECTION, "only what is selected, and what it is in", None, _check_selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """The options that every view has; they are checked when they are made."""

    own_filters: ClassVar[frozenset[str]] = frozenset()
    """Of ``path`` and ``hide`` those that a view takes in a way of its own."""

    only: Selection | None = field(default=None, metadata={"option": _ONLY})
    """What was selected, with ``path`` and ``hide``: the one filter that views ask."""
    path: tuple[str, ...] = several("only what lines of these files did: parts of paths, or globs", "path='model.py'")
    hide: tuple[str, ...] = several("packages whose steps are not shown", "hide='transformers'")

    def __post_init__(self) -> None:
        for name, option in options_of(type(self)).items():
            object.__setattr__(self, name, option.check(name, getattr(self, name)))
        given = {name: getattr(self, name) for name in ("path", "hide") if name not in self.own_filters}
        if any(given.values()):
            merged = {name: (*getattr(self.only, name, ()), *value) for name, value in given.items()}
            object.__setattr__(self, "only", replace(self.only or Selection(), **merged))


# ---------------------------------------------------------------- what each view has

_DEPTH = "levels below the outermost one; all by default"
_LOOPS_ONCE = "show rounds of loops and repeated layers once"
_LAYERS_ONCE = "show repeated layers once"
_MADE = "show also what was computed while objects were made, as in Net()"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsOptions(ViewOptions):
    """What the list of calls shows."""

    shapes: bool = switch(False, "show what each call took and gave")
    fold: bool = switch(True, _LOOPS_ONCE)
    order: str = word("begin", ("begin", "end"), "as calls begin, or as they return: a module after those it called")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOptions(ViewOptions):
    """What the code view shows."""

    own_filters: ClassVar[frozenset[str]] = frozenset({"hide"})

    steps: str = word(
        "auto", ("auto", "ops", "functions"), "what stands under the lines; auto: ops where there are any"
    )
    frames: str = word(
        "user",
        ("user", "own", "all"),
        "whose lines; user: all but torch's and the standard library's; own: no installed packages",
    )
    hide: tuple[str, ...] = several("packages whose lines are not shown", 'hide=("transformers", "transformers.utils")')
    depth: int | None = levels("levels of lines below the outermost; all by default")
    times: bool = switch(False, "show how long each line and step took")
    inner: bool = switch(False, "show also the ops of optimizer steps")
    constructors: bool = switch(False, "show also what was computed while modules were made, as in Net()")
    backward: bool = switch(False, "show what backward ran under the line whose gradient it was")
    fold: bool = switch(True, "show loops and equal layers once")
    succinct: bool = switch(True, "one line for all that is computed on it; off: one for each expression")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOptions(ViewOptions):
    """What the story of a failure shows."""

    depth: int | None = levels("steps back from each input; 2 by default")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsOptions(ViewOptions):
    """What is shown of gradients."""

    depth: int | None = levels("levels of modules below the outermost; their parameters are taken together")
    fold: bool = switch(True, _LAYERS_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions(ViewOptions):
    """What the data flow shows, and the files that are exported of it."""

    depth: int | None = levels(_DEPTH)
    functions: bool = switch(True, "show functions, not only modules")
    fold: bool = switch(True, _LOOPS_ONCE)
    inner: bool = switch(False, "show also what torch does inside its own layers, functions and optimizer steps")
    constructors: bool = switch(False, _MADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingOptions(ViewOptions):
    """What the listing shows."""

    own_filters: ClassVar[frozenset[str]] = frozenset({"path"})

    path: tuple[str, ...] = several(
        "parts of paths, or globs; by default your own files, and of installed ones those with most steps",
        "path='model.py'",
    )
    functions: str = word("ran", ("all", "ran"), "ran: only functions with a step; all: whole files")
    by: str | None = word(None, ("module",), "tell the calls of a line apart by the module they ran in")
    backward: bool = switch(False, "show below each line the gradient of what it gave, and what backward ran for it")
    times: bool = switch(False, "show how long each line took")
    style: str = word("margin", ("comments", "margin"), "comments: a copy of one file with the shapes as comments")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(ViewOptions):
    """What the table shows."""

    depth: int | None = levels("levels below the outermost module; all by default")
    fold: bool = switch(True, _LAYERS_ONCE)
    times: bool = switch(True, "show shares of time, and the whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions(GraphOptions):
    """What the tree shows."""

    times: bool = switch(False, "show how long each call took, and its share")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesOptions(ViewOptions):
    """What the variables view shows."""

    names: tuple[str, ...] = several("only variables that fit one of these globs", "names=('h*', 'self.cache')")
    by: str = word("variable", ("variable", "time"), "one block a variable, or all in program order as a tree of calls")
    fold: bool = switch(True, "show equal changes and equal calls once, and of very long lives both ends")
    times: bool = switch(False, "show when each change happened, since the recording began")


OPTIONS: dict[str, type[ViewOptions]] = {
    "calls": CallsOptions,
    "code": CodeOptions,
    "failure": FailureOptions,
    "gradients": GradientsOptions,
    "graph": GraphOptions,
    "listing": ListingOptions,
    "table": TableOptions,
    "tree": TreeOptions,
    "variables": VariablesOptions,
}
"""By the name of a view, which is that of its file or folder."""
