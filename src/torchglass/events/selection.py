"""The one filter language: which events are meant, by module path, by name, by kind or by a callable."""

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
    """Which events are meant: all criteria must hold, and of the three named kinds any."""

    module: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    op: tuple[str, ...] = ()
    variable: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    where: Callable[[Event], bool] | None = None

    def matches(self, event: Event) -> bool:
        """True when every criterion that was given holds for this event."""
        if self.module and (event.module is None or not self.fits_module(event.module)):
            return False
        if self.kind and event.kind not in self.kind:
            return False
        if self.names_calls and not self._named(event):
            return False
        if (self.path or self.hide) and not self._in_file(event):
            return False
        return self.where is None or bool(self.where(event))

    def fits_module(self, path: str) -> bool:
        """Whether a module is one of those that are meant, by its path."""
        return not self.module or _any_match(self.module, (path,))

    def patterns(self) -> dict[str, tuple[str, ...]]:
        """The criteria that are plain data; ``Selection(**…)`` has them again."""
        return {name: found for name in self.__slots__ if name != "where" and (found := getattr(self, name))}

    @property
    def names_calls(self) -> bool:
        """True when single functions, ops or variables are asked for by name."""
        return bool(self.function or self.op or self.variable)

    def _in_file(self, event: Event) -> bool:
        """By the file whose line made it; what has no line is in no file."""
        file = event.file
        if file is None:
            return not self.path
        if self.path and not any(fits_path(file, pattern) for pattern in self.path):
            return False
        return not any(in_package(file, package) for package in self.hide)

    def _named(self, event: Event) -> bool:
        wanted = {"function": self.function, "op": self.op, "variable": self.variable}.get(event.kind)
        return bool(wanted) and _any_match(wanted, _spellings(event.name))


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
    """Say which events are meant.

    Patterns are globs, one or a tuple of them. ``module="encoder"`` means that module itself,
    ``module="encoder.*"`` everything below it. ``function="softmax"`` also finds ``F.softmax`` and
    ``Tensor.softmax``. ``path="model.py"`` means what lines of that file did (part of a path, or a glob),
    ``hide="transformers"`` leaves out what lines of that package did. With several criteria an event must fit
    all, and any one of function, op and variable. Without criteria every event is meant.
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
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else ()
    words = tuple(each for each in several if isinstance(each, str))
    if several and len(words) == len(several):
        return words
    raise WrongType(
        f"select({criterion}=) takes a pattern such as 'encoder.*', or a tuple of them, "
        f"not {'an empty tuple' if given == () else type(cast('object', given)).__name__}"
    )


@lru_cache(maxsize=4096)
def _any_match(patterns: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(pattern.match(word) for pattern in map(_compiled, patterns) for word in words)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


@lru_cache(maxsize=4096)
def _spellings(name: str) -> tuple[str, ...]:
    """The ways people write one name: ``F.softmax`` and ``softmax``, ``aten::mul.Tensor`` and ``mul``."""
    plain = name.removeprefix("torch.")
    bare = plain.removeprefix("Tensor.").removeprefix("F.").removeprefix("aten::")
    overload = {bare.rpartition(".")[0], name.rpartition(".")[0]} - {""} if "::" in name else set[str]()
    return tuple(dict.fromkeys((name, plain, bare, f"torch.{plain}", *sorted(overload))))


# ---------------------------------------------------------------- files

# Which files are meant: by a part of a path or a glob, by a package, and whether somebody installed them.

PACKAGES = ("site-packages/", "dist-packages/")
"""Where an environment keeps what is installed."""
_SCRIPT = re.compile(r"/(bin|Scripts)/([^/.]+|[^/]+-script\.py)$")
"""What an installer writes to start a program: ``bin/pytest``."""


@lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Whether a file is part of an environment: of a package, or a script that starts one."""
    path = file.replace("\\", "/")
    return any(folder in path for folder in PACKAGES) or _SCRIPT.search(path) is not None


def base_name(file: str) -> str:
    """Without the folder; generated code may be named after where it comes from: ``<eval_with_key>.0 from …``."""
    return file.partition(" from ")[0] if file.startswith("<") else file.replace("\\", "/").rpartition("/")[2]


@lru_cache(maxsize=4096)
def fits_path(file: str, pattern: str) -> bool:
    """Whether a file is meant by a part of its path, or by a glob for all or the last of it."""
    return pattern in file or fnmatchcase(file, pattern) or fnmatchcase(base_name(file), pattern)


@lru_cache(maxsize=4096)
def in_package(file: str, package: str) -> bool:
    """Whether a file is in a package or module: ``transformers.utils``; also one that is not installed."""
    parts, wanted = module_parts(file), tuple(package.split("."))
    size = len(wanted)
    return any(parts[at : at + size] == wanted for at in range(len(parts) - size + 1))


def module_parts(file: str) -> tuple[str, ...]:
    """The folders and the name of a file, below the folder of installed packages where it is in one."""
    path = file.replace("\\", "/")
    for folder in PACKAGES:
        path = path.rpartition(folder)[2]
    return tuple(path.removesuffix(".py").split("/"))
