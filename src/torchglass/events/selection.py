"""Select events by module path, name, kind, file or a function.

This is the filter language of all views and answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import cast

from torchglass.errors import UnknownOption, UsageError, WrongType, closest
from torchglass.events.column import KINDS
from torchglass.events.types import Event

Patterns = str | tuple[str, ...]
CRITERIA = ("module", "function", "op", "variable", "kind", "path", "hide", "where")


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of events: all criteria must hold, except that function, op and variable are alternatives."""

    module: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    op: tuple[str, ...] = ()
    variable: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    where: Callable[[Event], bool] | None = None

    def matches(self, event: Event) -> bool:
        """Return whether every criterion that was given holds for this event."""
        if self.module:
            if event.module is None:
                return False
            if not self.fits_module(event.module, is_call=event.kind == "module"):
                return False
        if self.kind and event.kind not in self.kind:
            return False
        if self.names_calls and not self._fits_name(event):
            return False
        if (self.path or self.hide) and not self._in_file(event):
            return False
        return self.where is None or bool(self.where(event))

    def fits_module(self, path: str, is_call: bool = True) -> bool:
        """Return whether a module matches: its own call, or else what runs directly in it.

        ``encoder.*`` is everything below the encoder, so what runs directly in it matches and its own call does not.
        """
        if not self.module or _any_match(self.module, (path,)):
            return True
        return not is_call and _any_match(self.module, (f"{path}.",))

    def patterns(self) -> dict[str, tuple[str, ...]]:
        """Return the criteria that are plain data. ``Selection(**patterns)`` is a selection with the same ones."""
        criteria = {name: getattr(self, name) for name in self.__slots__ if name != "where"}
        return {name: patterns for name, patterns in criteria.items() if patterns}

    @property
    def names_calls(self) -> bool:
        """Return whether functions, ops or variables are selected by name."""
        return bool(self.function or self.op or self.variable)

    def _in_file(self, event: Event) -> bool:
        """Return whether the event's line is in a file that ``path`` and ``hide`` select."""
        file = event.file
        if file is None:
            return not self.path
        if self.path and not any(fits_path(file, pattern) for pattern in self.path):
            return False
        return not any(in_package(file, package) for package in self.hide)

    def _fits_name(self, event: Event) -> bool:
        patterns_of_kind = {
            "function": self.function,
            "op": self.op,
            "variable": self.variable,
        }.get(event.kind)
        return bool(patterns_of_kind) and _any_match(patterns_of_kind, _spellings(event.name))


def select(
    *,
    module: Patterns | None = None,
    function: Patterns | None = None,
    op: Patterns | None = None,
    variable: Patterns | None = None,
    kind: Patterns | None = None,
    path: Patterns | None = None,
    hide: Patterns | None = None,
    where: Callable[[Event], bool] | None = None,
    **unknown: object,
) -> Selection:
    """Select events.

    Patterns are globs, one or a tuple of them. ``module="encoder"`` selects that module itself,
    ``module="encoder.*"`` everything below it: its submodules, and what it calls directly.
    ``function="softmax"`` also finds ``F.softmax`` and ``Tensor.softmax``. ``path="model.py"`` selects
    what lines of that file did (the name of a file, a part of its path, or a glob),
    ``hide="transformers"`` leaves out what lines of that package did. An event must match all criteria, but of
    function, op and variable only one. Without criteria every event is selected.
    """
    for word in unknown:
        raise UnknownOption(f"select() has no criterion {word!r}: {closest(word, CRITERIA)}")
    if where is not None and not callable(where):
        raise WrongType(f"select(where=) takes a function of an event, not {type(where).__name__}")
    kinds = _patterns("kind", kind)
    for word in kinds:
        if word not in KINDS:
            raise UsageError(f"select(kind={word!r}): {closest(word, KINDS)}")
    return Selection(
        module=_patterns("module", module),
        function=_patterns("function", function),
        op=_patterns("op", op),
        variable=_patterns("variable", variable),
        kind=kinds,
        path=_patterns("path", path),
        hide=_patterns("hide", hide),
        where=where,
    )


def _patterns(criterion: str, given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    items = ()
    if isinstance(given, tuple):
        items = cast("tuple[object, ...]", given)
    words = tuple(item for item in items if isinstance(item, str))
    if items and len(words) == len(items):
        return words
    problem = type(cast("object", given)).__name__
    if given == ():
        problem = "an empty tuple"
    raise WrongType(
        f"select({criterion}=) takes a pattern such as 'encoder.*', or a tuple of them, not {problem}"
    )


@lru_cache(maxsize=4096)
def _any_match(patterns: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(pattern.match(word) for pattern in map(_compiled, patterns) for word in words)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


@lru_cache(maxsize=4096)
def _spellings(name: str) -> tuple[str, ...]:
    """Return the spellings of one name: ``F.softmax`` and ``softmax``, ``aten::mul.Tensor`` and ``mul``."""
    plain = name.removeprefix("torch.")
    bare = plain.removeprefix("Tensor.").removeprefix("F.").removeprefix("aten::")
    if "::" in name:
        overload = {bare.rpartition(".")[0], name.rpartition(".")[0]} - {""}
    else:
        overload = set[str]()
    return tuple(dict.fromkeys((name, plain, bare, f"torch.{plain}", *sorted(overload))))


# ---------------------------------------------------------------- files

PACKAGES = ("site-packages/", "dist-packages/")
"""The folders of an environment with its installed packages."""
_SCRIPT = re.compile(r"/(bin|Scripts)/([^/.]+|[^/]+-script\.py)$")
"""A script that an installer writes to start a program, such as ``bin/pytest``."""


@lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Return whether a file is part of an environment: of an installed package, or a script that starts one."""
    path = file.replace("\\", "/")
    return any(folder in path for folder in PACKAGES) or _SCRIPT.search(path) is not None


def base_name(file: str) -> str:
    """Return a file's name without the folder. Generated code may name its origin: ``<eval_with_key>.0 from …``."""
    if file.startswith("<"):
        return file.partition(" from ")[0]
    return file.replace("\\", "/").rpartition("/")[2]


@lru_cache(maxsize=4096)
def fits_path(file: str, pattern: str) -> bool:
    """Return whether a file matches its name, a part of its path, or a glob for all or the last part of it.

    The name of a file is a whole name: ``t5.py`` is not ``modeling_t5.py``.
    """
    if fnmatchcase(file, pattern) or fnmatchcase(base_name(file), pattern):
        return True
    is_name = pattern.endswith(".py") and base_name(pattern) == pattern
    return not is_name and pattern in file


def ends_with_path(file: str, end: str) -> bool:
    """Return whether a file's path ends with some folders and a name: ``train.py`` does not fit ``my_train.py``."""
    path = file.replace("\\", "/")
    wanted = end.replace("\\", "/")
    return path == wanted or path.endswith(f"/{wanted}")


@lru_cache(maxsize=4096)
def in_package(file: str, package: str) -> bool:
    """Return whether a file is in a package or module, such as ``transformers.utils``, installed or not."""
    parts = module_parts(file)
    names = tuple(package.split("."))
    size = len(names)
    return any(parts[begin : begin + size] == names for begin in range(len(parts) - size + 1))


def module_parts(file: str) -> tuple[str, ...]:
    """Return the folders and the name of a file, below the folder of installed packages if it is in one."""
    path = file.replace("\\", "/")
    for folder in PACKAGES:
        path = path.rpartition(folder)[2]
    return tuple(path.removesuffix(".py").split("/"))
