"""The types that the engine, its sinks and its callers share: what to watch, and how changes are reported."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol, cast

from torchglass.capture.slots import UNBOUND as UNBOUND
from torchglass.capture.variables.scope import is_user_code
from torchglass.errors import UsageError

ARGUMENT, ASSIGNED, DELETED, CHANGED = "argument", "assigned", "deleted", "changed"
"""How a variable got, lost or changed its value; CHANGED means in place."""


class _Reported:
    """Stands for an old value that the sink remembers from an earlier report."""

    __slots__ = ()


REPORTED: Final = _Reported()


class PreviousValue(NamedTuple):
    """What is known of a value that no longer exists or has changed in place."""

    type: str
    id: int
    length: int | None = None
    stamp: Hashable = None


class VariableChange(NamedTuple):
    """One variable got, lost or changed its value."""

    name: str
    """The name as written: ``x``, ``self.cache``, ``batch["x"]``."""
    code: CodeType
    offset: int
    """The offset of the instruction that changed it; ``source.sites`` turns the offset into line and columns."""
    line: int
    scope: str
    """The qualified name of the function that owns the variable; ``f.<locals>.<listcomp>`` in a comprehension."""
    how: str
    """``argument``, ``assigned``, ``deleted`` or, for a change in place, ``changed``."""
    old: Any
    """The value before: the object while it is alive, otherwise a ``PreviousValue``, or ``UNBOUND`` without a value."""
    new: Any
    """The value now, or ``UNBOUND`` after a deletion."""
    serial: int
    """The number of the call, which distinguishes recursive and consecutive calls."""


Fields = tuple[str, CodeType, int, int, str, str, Any, Any, int]
"""The fields of a VariableChange in a plain tuple, which takes a fourth of the time to make."""


class Sink(Protocol):
    """Receives each change right after it happened, on the same thread, and never under a lock.

    A sink must not keep the frame, and must not keep a value longer than the program does.
    """

    def changed(self, change: VariableChange, frame: FrameType, /) -> None: ...


class RememberingSink(Protocol):
    """A faster sink, which remembers the last value of each variable of each call."""

    remembers: bool
    """Always True; it marks the sink as a remembering one."""

    def changed(self, change: Fields, frame: FrameType, /) -> bool:
        """Return whether the sink remembers the new value.

        If it does, and the variable is a local one, ``old`` is ``REPORTED`` in the next report of the variable.
        """
        ...

    def ended(self, serial: int, scope: str, name: str) -> None:
        """Handle the end of a comprehension that has no frame: its variable of this name is no longer bound."""
        ...


class CallSink(Protocol):
    """A sink that also receives the calls of watched code."""

    def entered(self, code: CodeType, serial: int, caller: int | None) -> None:
        """Handle the begin of a call; ``caller`` is the number of the nearest watched call that led to it."""
        ...

    def left(self, serial: int, error: BaseException | str | None) -> None:
        """Handle the end of a call; ``error`` is the exception or, if Python no longer has it, the name of its type."""
        ...


def call_sink(sink: object) -> CallSink | None:
    """Return the sink if it receives calls, else None.

    It does not use isinstance, which checks all members of a protocol each time.
    """
    if hasattr(sink, "entered") and hasattr(sink, "left"):
        return cast("CallSink", sink)
    return None


class PathStep(NamedTuple):
    """One step of a path: ``.cache`` or ``["x"]``."""

    is_item: bool
    key: Any


class Path(NamedTuple):
    """A variable and the steps from it, such as ``self.cache`` or ``batch["x"]``."""

    name: str
    root: str
    steps: tuple[PathStep, ...]

    def near(self, members: Iterable[str]) -> list[str]:
        """Return this path with its last step replaced by similar names out of ``members``, for suggestions."""
        is_item, key = self.steps[-1]
        if not isinstance(key, str):
            return []
        stem = self.name.strip().removesuffix(f".{key}")
        if is_item:
            stem = stem.rpartition("[")[0]
        alike = difflib.get_close_matches(key, sorted(set(members) - {key}), n=3)
        return [f"{stem}[{each!r}]" if is_item else f"{stem}.{each}" for each in alike]


@dataclass(frozen=True)
class Watch:
    """Which variables of which code to watch, and how closely."""

    names: tuple[str, ...] = ("*",)
    """Names (``x``), globs (``hidden_*``), attributes (``self.cache``) and items (``batch["x"]``).

    Globs do not match ``self``, ``cls`` and names like ``__this__``; those must be given exactly.
    """
    code: Callable[[CodeType], bool] = is_user_code
    depth: int = 2
    """How many containers deep changes are detected: 1 detects ``xs[0] = 1``, 2 also ``xs[0][0] = 1``."""
    in_place: bool = True
    """Whether to look for changes in place, in containers, arrays and values that have a ``stamp``."""
    stamp: Callable[[Any], Hashable | None] | None = None
    """Returns something cheap that differs after a value was changed in place, for types that the engine does not know.

    For a tensor that is its version, address and shape. The function returns None for a value of a type that it does
    not know either, and is called only once for such a type.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        # Parse the paths now, so that a malformed name is refused here and not in the middle of the program.
        _ = self.paths
        for name in self.names:
            if not _is_path(name) and not _GLOB.fullmatch(name):
                raise _refuse(name)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        return tuple(_path(name) for name in self.names if _is_path(name))

    @cached_property
    def is_general(self) -> bool:
        """Whether all names are globs, so that no variable is named exactly."""
        return not any(name.isidentifier() or _is_path(name) for name in self.names)

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(name for name in self.names if not _is_path(name))

    @cached_property
    def _globs(self) -> re.Pattern[str] | None:
        globs = [
            translate(name) for name in self.names if not name.isidentifier() and not _is_path(name)
        ]
        if globs:
            return re.compile("|".join(globs))
        return None

    def wants(self, name: str) -> bool:
        """Return whether a variable of this name is watched. Python's internal names, such as ``.0``, never are."""
        if name in self._exact:
            return True
        unasked = name in ("self", "cls") or (name.startswith("__") and name.endswith("__"))
        return not unasked and name[:1] != "." and bool(self._globs and self._globs.match(name))


def _is_path(name: str) -> bool:
    return (
        "." in name
        or ("[" in name and any(quote in name for quote in "\"'"))
        or bool(re.search(r"\w\[-?\d+\]", name))
    )


_GLOB = re.compile(r"(?!\w+\[[^\W\d]\w*\]$)(\w|[*?]|\[[\w!^-]+\])+")
"""Matches a name or a glob of names, but not ``d[k]``, which means an item."""


def _path(name: str) -> Path:
    try:
        node: ast.expr = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _refuse(name) from None
    steps: list[PathStep] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(PathStep(False, node.attr))
        elif isinstance(node, ast.Subscript):
            steps.append(PathStep(True, _item_key(node.slice, name)))
        else:
            raise _refuse(name)
        node = node.value
    return Path(name, node.id, tuple(reversed(steps)))


def _item_key(node: ast.expr, name: str) -> Any:
    """Return the key of an item, such as ``"x"``, ``0`` or ``-1``."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = None
        if isinstance(node.operand, ast.Constant):
            number = node.operand.value
        if type(number) is int:
            return -number
    raise _refuse(name)


def _refuse(name: str) -> UsageError:
    return UsageError(
        f"cannot watch the variable {name!r}: it is no name, no glob of names, no attribute such as "
        f"self.cache and no item such as batch['x'] or pair[0]; attributes and items take no globs"
    )
