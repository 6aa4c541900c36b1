"""Which changes are the life of one variable: locals by call, closures with their owner, attributes by class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from torchglass.views.fold import range_label
from torchglass.views.variables.changes import NOTHING, PAST, TEXT, UNBOUND, Change, Side

MODULE_LEVEL = "<module>"
OWNERS = ("self.", "cls.")
MOST_LOOKED_AT = 64
"""Lives that are compared to find the one that a change goes on with."""


@dataclass(slots=True, eq=False)
class Life:
    """One variable in one call; an attribute over all calls."""

    name: str
    scope: str
    changes: list[Change] = field(default_factory=list[Change])
    now: Side = UNBOUND
    module: tuple[str, str] | None = None
    """Root and path of the module that it was changed in."""
    thread: str = ""

    def add(self, change: Change) -> None:
        """Go on with a change; what was not kept of the value before is known from here."""
        if self.changes and _is_past(change.old) and self.now.kind != NOTHING:
            change.old = self.now
        elif change.old is PAST:
            change.old = UNBOUND
        self.changes.append(change)
        self.now = change.new
        self.module = self.module or _module_of(change)


@dataclass(slots=True, eq=False)
class Variable:
    """All lives of a name in one function, or of an attribute in one class."""

    name: str
    scope: str
    file: str
    lives: list[Life] = field(default_factory=list[Life])

    @property
    def is_attribute(self) -> bool:
        return self.name.startswith(OWNERS)


class Lives:
    """Puts each change into the life that it belongs to."""

    def __init__(self) -> None:
        self.variables: dict[tuple[str, str, str], Variable] = {}
        self._by_call: dict[tuple[int, str], Life] = {}

    def life_of(self, change: Change) -> Life:
        """The life of the variable that changed, with the change in it."""
        event = change.event
        key = (id(change.call), event.name)
        life = self._by_call.get(key)
        if life is None:
            life = self._found(change) or self._begun(change)
            self._by_call[key] = life  # calls live as long as their changes, so that their ids stay theirs
        life.add(change)
        return life

    def _found(self, change: Change) -> Life | None:
        """A life that began in another call: of an attribute, a generator, a closure or a global."""
        name = change.event.name
        if change.old.kind == NOTHING and change.how != "deleted":
            return None
        if change.old is PAST and not name.startswith(OWNERS):
            return None  # it may be another call of the same function
        for scope in _scopes(name, change.at.function):
            variable = self.variables.get((change.at.file, scope, name))
            if variable is not None:
                life = _continued(variable, change)
                if life is not None:
                    return life
        return None

    def _begun(self, change: Change) -> Life:
        event = change.event
        at = change.at
        scope = next(_scopes(event.name, at.function))
        variable = self.variables.get((at.file, scope, event.name))
        if variable is None:
            variable = self.variables[at.file, scope, event.name] = Variable(event.name, scope, at.file)
        life = Life(event.name, scope, thread=event.thread)
        variable.lives.append(life)
        return life


def _scopes(name: str, function: str) -> Iterator[str]:
    """Where a variable may live: an attribute in the class, others in the function or around it."""
    if name.startswith(OWNERS) and "." in function:
        owner = function.rpartition(".")[0]
        if not owner.endswith("<locals>"):
            yield owner
            return
    yield function
    while "." in function:
        function = function.rpartition(".")[0]
        if not function.endswith("<locals>"):
            yield function
    if function != MODULE_LEVEL:
        yield MODULE_LEVEL


def _continued(variable: Variable, change: Change) -> Life | None:
    """The latest life that ended with what the change begins with; of an attribute one of the same module."""
    module = _module_of(change)
    fitting = [life for life in reversed(variable.lives[-MOST_LOOKED_AT:]) if _fits(life.now, change.old)]
    if module is not None and "." in variable.name:
        own = [life for life in fitting if life.module == module]
        return own[0] if own else next((life for life in reversed(fitting) if life.module is None), None)
    return fitting[0] if fitting else None


def _fits(now: Side, old: Side) -> bool:
    if now.kind == NOTHING:
        return False
    return _is_past(old) or (now.form == old.form if now.value is not None else now.text == old.text)


def _is_past(side: Side) -> bool:
    """Whether no more than the type was kept."""
    return side.kind == TEXT and side.text.startswith("<") and side.text.endswith(">")


@lru_cache(maxsize=4096)
def numberless(path: str | None) -> str | None:
    """A module's path without the numbers of layers: ``blocks.#.fc`` for each of a row of blocks."""
    return None if path is None else ".".join("#" if part.isdecimal() else part for part in path.split("."))


def paths_label(paths: Sequence[str]) -> str:
    """``blocks.0–11.fc`` for paths that differ in one number; else as ``range_label`` has it."""
    split = [path.split(".") for path in dict.fromkeys(paths)]
    apart = [at for at in range(len(split[0])) if len({tuple(parts[at : at + 1]) for parts in split}) > 1]
    if len(apart) != 1 or len({numberless(path) for path in paths}) > 1:
        return range_label(paths)
    end = apart[0] + 1
    return ".".join([range_label([".".join(parts[:end]) for parts in split]), *split[0][end:]])


def module_label(modules: Sequence[tuple[str, str] | None]) -> str:
    """The paths of several modules; a root goes by its label; nothing outside any module."""
    named = [path or root for root, path in filter(None, modules)]
    return paths_label(named) if named else ""


def _module_of(change: Change) -> tuple[str, str] | None:
    event = change.event
    return None if event.module is None else (event.root or "", event.module)
