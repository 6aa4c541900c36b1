"""What to watch and what is told of it: the few types that the engine, its sinks and its callers share."""

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

from torchglass.capture.variables.scope import is_user_code
from torchglass.errors import UsageError

ARGUMENT, ASSIGNED, DELETED, CHANGED = "argument", "assigned", "deleted", "changed"


class _Unbound:
    """What a name holds that holds nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND: Final = _Unbound()


class _Told:
    """Stands for a value before that the sink was told of, and remembers."""

    __slots__ = ()


TOLD: Final = _Told()


class Past(NamedTuple):
    """What was kept of a value that is gone, or that is no longer what it was."""

    type: str
    id: int
    length: int | None = None
    stamp: Hashable = None


class VariableChange(NamedTuple):
    """One variable got, lost or changed its value."""

    name: str
    """As written: ``x``, ``self.cache``, ``batch["x"]``."""
    code: CodeType
    offset: int
    """Of the instruction that did it; ``source.sites`` turns it into line and columns."""
    line: int
    scope: str
    """Qualified name of the function that owns the variable; ``f.<locals>.<listcomp>`` in a comprehension."""
    how: str
    """``argument``, ``assigned``, ``deleted`` or, in place, ``changed``."""
    old: Any
    """The value before: the object itself while it lives, else a ``Past``; ``UNBOUND`` when there was none."""
    new: Any
    """The value now; ``UNBOUND`` when deleted."""
    serial: int
    """Number of the activation of the code: tells recursion, and one call from the next."""


Fields = tuple[str, CodeType, int, int, str, str, Any, Any, int]
"""The same as a plain tuple, which is made in a fourth of the time."""


class Sink(Protocol):
    """Is told of each change, on the thread where it happened, right after it, never under a lock.

    It must not keep the frame, nor a value longer than the program does.
    """

    def changed(self, change: VariableChange, frame: FrameType, /) -> None: ...


class RememberingSink(Protocol):
    """The same in less time, for a sink that knows what it was told last of each variable of each call."""

    remembers: bool
    """True."""

    def changed(self, change: Fields, frame: FrameType, /) -> bool:
        """Whether it took note. Of a local variable of which it has, ``old`` is ``TOLD`` the next time."""
        ...

    def ended(self, serial: int, scope: str, name: str) -> None:
        """A comprehension without a frame of its own has ended, in this call: its variable holds nothing any more."""
        ...


class CallSink(Protocol):
    """A sink that has these two is told of the calls too."""

    def entered(self, code: CodeType, serial: int, caller: int | None) -> None:
        """A call begins; ``caller`` is the nearest watched activation below it on the stack."""
        ...

    def left(self, serial: int, error: BaseException | str | None) -> None:
        """The call ended; ``error`` is the exception or, where Python no longer tells, the name of its type."""
        ...


def call_sink(sink: object) -> CallSink | None:
    """The sink, if it is one. Not by isinstance: Python works out anew each time what belongs to a protocol."""
    return cast("CallSink", sink) if hasattr(sink, "entered") and hasattr(sink, "left") else None


class PathStep(NamedTuple):
    """One step of a path: ``.cache`` or ``["x"]``."""

    is_item: bool
    key: Any


class Path(NamedTuple):
    """``self.cache`` or ``batch["x"]``: a variable and the steps from it."""

    name: str
    root: str
    steps: tuple[PathStep, ...]

    def near(self, members: Iterable[str]) -> list[str]:
        """The same path with a last step that looks like this one's, out of these."""
        is_item, key = self.steps[-1]
        if not isinstance(key, str):
            return []
        stem = self.name.strip().removesuffix(f".{key}")
        stem = stem.rpartition("[")[0] if is_item else stem
        alike = difflib.get_close_matches(key, sorted(set(members) - {key}), n=3)
        return [f"{stem}[{each!r}]" if is_item else f"{stem}.{each}" for each in alike]


@dataclass(frozen=True)
class Watch:
    """Which variables of which code, and how closely."""

    names: tuple[str, ...] = ("*",)
    """Exact (``x``), globs (``hidden_*``; ``self``, ``cls`` and names like ``__this__`` only when exact), attributes
    (``self.cache``) and items (``batch["x"]``)."""
    code: Callable[[CodeType], bool] = is_user_code
    depth: int = 2
    """How many containers deep a change is noticed: 1 sees ``xs[0] = 1``, 2 also ``xs[0][0] = 1``."""
    in_place: bool = True
    """Whether changes in place are looked for, in containers, arrays and what ``stamp`` knows."""
    stamp: Callable[[Any], Hashable | None] | None = None
    """Something cheap that differs after a value was changed in place, for types the engine does not know
    (for a tensor: version, address and shape). None for a value of a type that it does not know either;
    asked of such a type once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        # A name that cannot be read is refused here, not in the middle of the program.
        _ = self.paths
        for name in self.names:
            if not _is_path(name) and not _GLOB.fullmatch(name):
                raise _refuse(name)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        return tuple(_path(name) for name in self.names if _is_path(name))

    @cached_property
    def is_general(self) -> bool:
        """Whether no variable is named exactly: only globs."""
        return not any(name.isidentifier() or _is_path(name) for name in self.names)

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(name for name in self.names if not _is_path(name))

    @cached_property
    def _globs(self) -> re.Pattern[str] | None:
        globs = [translate(name) for name in self.names if not name.isidentifier() and not _is_path(name)]
        return re.compile("|".join(globs)) if globs else None

    def wants(self, name: str) -> bool:
        """Whether a variable of this name is watched; never Python's own ones, such as ``.0``."""
        if name in self._exact:
            return True
        unasked = name in ("self", "cls") or (name.startswith("__") and name.endswith("__"))
        return not unasked and name[:1] != "." and bool(self._globs and self._globs.match(name))


def _is_path(name: str) -> bool:
    return (
        "." in name or ("[" in name and any(quote in name for quote in "\"'")) or bool(re.search(r"\w\[-?\d+\]", name))
    )


_GLOB = re.compile(r"(?!\w+\[[^\W\d]\w*\]$)(\w|[*?]|\[[\w!^-]+\])+")
"""Of what a name or a glob of names is made; but not ``d[k]``, which means an item."""


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
    """``"x"``, ``0`` or ``-1``."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if type(number) is int:
            return -number
    raise _refuse(name)


def _refuse(name: str) -> UsageError:
    return UsageError(
        f"cannot watch the variable {name!r}: it is no name, no glob of names, no attribute such as "
        f"self.cache and no item such as batch['x'] or pair[0]; attributes and items take no globs"
    )
