"""Groups changes into the lives of variables: a local has one in each call, an attribute one over all calls.

A *life* is what one variable went through, as a list of changes. A call of a function begins a new life of each local.
The life of an attribute goes on in other calls, so it is found by its value: a change continues a life that holds what
the change found. For example::

    self.cache = None       # layer 0 is made: a new life
    self.cache = None       # layer 1 is made: a new life
    self.cache = x.relu()   # layer 0 runs: the value before was None, so this continues the first of them

A closure's variable belongs to the function that defines it, an attribute to the class of its ``self``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torchglass.program.variables.changes import (
    NOT_KNOWN,
    NOTHING,
    TEXT,
    UNBOUND,
    Change,
    Side,
)

MODULE_LEVEL = "<module>"
OWNERS = ("self.", "cls.")
MAX_LIVES_COMPARED = 64
"""The latest lives that are searched for the one that a change continues. Searching all would be quadratic."""


@dataclass(slots=True, eq=False)
class Life:
    """One variable in one call; or one attribute, over all calls."""

    name: str
    scope: str
    """The function that the variable lives in; for an attribute its class."""
    changes: list[Change] = field(default_factory=list[Change])
    now: Side = UNBOUND
    """What it holds after the last change."""
    module: tuple[str, str] | None = None
    """The root and the path of the module in which it first changed; None outside modules."""
    thread: str = ""

    def add(self, change: Change) -> None:
        """Add a change. If the change does not know the value before, take it from the life."""
        if self.changes and _is_type_only(change.old) and self.now.kind != NOTHING:
            change.old = self.now
        elif change.old is NOT_KNOWN:
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
    """All lives so far. Changes must be added in order."""

    def __init__(self) -> None:
        self.variables: dict[tuple[str, str, str], Variable] = {}
        self._by_call: dict[tuple[int, str], Life] = {}

    def add(self, change: Change) -> Life:
        """Add a change to the life that it belongs to, and return that."""
        event = change.event
        # A call lives as long as its changes, so no other object gets its id.
        key = (id(change.call), event.name)
        life = self._by_call.get(key)
        if life is None:
            life = self._life_from_another_call(change)
            if life is None:
                life = self._new_life(change)
            self._by_call[key] = life
        life.add(change)
        return life

    def _life_from_another_call(self, change: Change) -> Life | None:
        """Return the life that began in another call, for an attribute, a generator, a closure or a global."""
        name = change.event.name
        if change.old.kind == NOTHING and change.how != "deleted":
            return None
        if change.old is NOT_KNOWN and not name.startswith(OWNERS):
            # It may be a local variable in another call of the same function.
            return None
        for scope in _scopes(name, change.at.function):
            variable = self.variables.get((change.at.file, scope, name))
            if variable is not None:
                life = _life_continued_by(change, variable)
                if life is not None:
                    return life
        return None

    def _new_life(self, change: Change) -> Life:
        event = change.event
        at = change.at
        scope = next(_scopes(event.name, at.function))
        variable = self.variables.get((at.file, scope, event.name))
        if variable is None:
            variable = self.variables[at.file, scope, event.name] = Variable(
                event.name, scope, at.file
            )
        life = Life(event.name, scope, thread=event.thread)
        variable.lives.append(life)
        return life


def _scopes(name: str, function: str) -> Iterator[str]:
    """Yield the scopes that a name may belong to: its class for an attribute, else the function and those around."""
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


def _life_continued_by(change: Change, variable: Variable) -> Life | None:
    """Return the life that a change continues: one that holds what the change found, usually the latest.

    For an attribute of a module it is the latest life of that module. If there is none, it is the first life that no
    module has changed yet, because modules mostly run in the order in which they were made.
    """
    module = _module_of(change)
    fitting = [
        life for life in variable.lives[-MAX_LIVES_COMPARED:] if _may_be_found(life.now, change.old)
    ]
    if module is not None and "." in variable.name:
        of_this_module = [life for life in fitting if life.module == module]
        if of_this_module:
            return of_this_module[-1]
        return next((life for life in fitting if life.module is None), None)
    if fitting:
        return fitting[-1]
    return None


def _may_be_found(held: Side, found: Side) -> bool:
    """Return whether a variable that holds ``held`` may be the one whose value a change saw as ``found``."""
    if held.kind == NOTHING:
        return False
    if _is_type_only(found):
        return True
    if held.value is not None:
        return held.form == found.form
    return held.text == found.text


def _is_type_only(side: Side) -> bool:
    """Return whether only the type was recorded: ``<Tensor>``."""
    return side.kind == TEXT and side.text.startswith("<") and side.text.endswith(">")


def _module_of(change: Change) -> tuple[str, str] | None:
    event = change.event
    if event.module is None:
        return None
    return (event.root or "", event.module)
