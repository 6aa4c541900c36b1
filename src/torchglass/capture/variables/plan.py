"""Computes once for each code object what to look at after each of its lines or instructions.

A ``Plan`` is made from the instructions and the watched names. Its result is a table of ``Action`` objects: by line for
a core that gets lines (``lines``), by the offset of the next instruction for one that gets instructions (``after``).
Activations then only look up the action and do what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from types import CodeType
from typing import Any, NamedTuple

from torchglass.capture.variables.bytecode import (
    CELL,
    FAST,
    GLOBAL,
    NAME,
    Effects,
    Mutator,
    Store,
    effects_of,
    slot_names,
)
from torchglass.capture.variables.scope import owner_scope, scope_name
from torchglass.capture.variables.watch import ARGUMENT, ASSIGNED, Path, Watch

# Flags of code objects (inspect.CO_...).
_OPTIMIZED = 0x1
_VARARGS = 0x4
_VARKEYWORDS = 0x8
_SUSPENDS = 0x20 | 0x80 | 0x200  # a generator, a coroutine or an asynchronous generator


class Target(NamedTuple):
    """A watched store, with the scope under which it is reported."""

    store: Store
    scope: str
    key: str
    """The name of the variable; for a variable of a comprehension a different key (``inner_key``)."""
    facts: tuple[str, CodeType, int, int, str, str]
    """The first six fields of a ``VariableChange``."""


Fast = tuple[int, str, Target]
"""The slot, key and target of a plain local. Unpacking a tuple costs less than reading attributes."""


class Action(NamedTuple):
    """What to look at after a line or an instruction has run."""

    fast: tuple[Fast, ...]
    """The stores to plain locals."""
    targets: tuple[Target, ...]
    """All other stores."""
    mutator: Mutator | None
    mentioned: tuple[str, ...] | None
    """The watched variables that the mutator's expression reads; None if they may be any."""
    roots: tuple[tuple[Path, Mutator], ...] = ()
    """The watched attributes and items whose first name was stored."""
    exact: bool = False
    """Whether the line must be followed instruction by instruction.

    That is so if the line stores a name twice or stores a name that Python unbinds, or if ``is_shared``.
    """
    handles: bool = False
    """Whether the handling of an exception begins here, so the step that it interrupted is still to be checked."""
    is_quiet: bool = False
    """Whether nothing is stored or handled here, so there is only a mutator."""
    is_shared: bool = False
    """Whether several statements of the line may change values, so that each is checked separately."""

    @property
    def line(self) -> int | None:
        """The line of the stores."""
        stores = [*(target for _, _, target in self.fast), *self.targets]
        if stores:
            return stores[0].store.line
        return None


class SlotVariable(NamedTuple):
    """A watched variable that lives in a slot of the frame."""

    name: str
    slot: int
    kind: str
    is_owned: bool
    """Whether the variable is a cell that each call of this code makes (not a free variable)."""


class Plan:
    """Everything about watching one code object that can be computed beforehand."""

    def __init__(
        self, code: CodeType, watch: Watch, outer_of: Callable[[CodeType], CodeType | None]
    ) -> None:
        self.code = code
        self.watch = watch
        self.scope = scope_name(code)
        self.slots = slot_names(code)
        self.inner = tuple(each for each in code.co_consts if isinstance(each, CodeType))
        """The code of functions and classes that are defined in this code."""
        self.suspends = bool(code.co_flags & _SUSPENDS)
        self._outer_of = outer_of
        effects = effects_of(code)
        self._effects = effects
        self.start = effects.start
        self.yields = effects.yields
        self.returns = effects.returns
        self.aliased = effects.aliased
        self.targets: list[tuple[Target, tuple[int, ...]]] = []
        """Each watched store, with the offsets of the instructions that may follow it."""
        for store, after in effects.stores:
            if watch.wants(store.name):
                self.targets.append((self._target(store), after))
        self.stored = {each.name for each, _ in effects.stores if not each.hidden}
        self.namespace = self._names_stored_as(NAME)
        self.globals = self._names_stored_as(GLOBAL)
        self.variables = self._variables(effects)
        self.cells = tuple([each for each in self.variables if each.kind == CELL])
        self.slot_of = {each.name: each.slot for each in self.variables if each.kind == FAST}
        argument_names = code.co_varnames[: _argument_count(code)]
        self.arguments = tuple([each for each in self.variables if each.name in argument_names])
        self.has_plain_arguments = all(each.kind == FAST for each in self.arguments)
        self.opening = (code, self.start, code.co_firstlineno, self.scope, ARGUMENT)
        """The fields that follow the name in a ``VariableChange`` of an argument."""
        self.paths = self._paths()
        self.roots = self._roots(effects)
        self.watches = bool(self.targets or self.variables or self.paths)
        self.mutators = effects.mutators
        is_looked_at = watch.in_place or self.paths
        has_something = self.variables or self.namespace or self.paths
        if not is_looked_at or not has_something:
            self.mutators = []
        self.mutator_at = {each.offset: each for each, _ in self.mutators}
        self.always = bool(self.cells or self.namespace or self.paths)
        """Whether there is something to look at after every mutator."""
        self.alert: set[int] = set()
        """The serials of the calls in which code that does not name a variable may change its value."""
        self.is_on = False
        self.is_muted = False
        self.is_loud = False
        """The state of the instruction events of this code (monitoring.py).

        ``is_on``: they were switched on. ``is_muted``: some were switched off that an alert call needs. ``is_loud``:
        none will be switched off again.
        """
        self._tables: dict[str, dict[int, Action]] = {}
        self.before: dict[int, tuple[Target, ...]] = {}

    @cached_property
    def lines(self) -> dict[int, Action]:
        """The actions by line, for a core that gets lines."""
        if "lines" not in self._tables:
            self._tables["lines"] = self._by_line()
        return self._tables["lines"]

    @cached_property
    def after(self) -> dict[int, Action]:
        """The actions by the offset of the next instruction, for a core that gets instructions."""
        if "after" not in self._tables:
            self._tables["after"] = self._by_offset(self._effects)
        return self._tables["after"]

    def renewed(self, outer_of: Callable[[CodeType], CodeType | None]) -> Plan:
        """Return a copy for another engine, which shares what was read from the code but not the state."""
        other = object.__new__(Plan)
        other.__dict__.update(self.__dict__)  # a sixth of the time that copy.copy takes
        other._outer_of = outer_of
        other.alert = set()
        other.is_on = other.is_muted = other.is_loud = False
        return other

    def scope_of(self, name: str) -> str:
        """Return the name of the scope that a variable of this code belongs to."""
        if name in self.code.co_freevars:
            return owner_scope(self.code, name, self._outer_of)
        return self.scope

    def _target(self, store: Store) -> Target:
        if store.inner is not None:
            scope = store.inner
            key = inner_key(store.inner, store.name)
        else:
            scope = "<module>"
            if store.kind != GLOBAL:
                scope = self.scope_of(store.name)
            key = store.name
        facts = (store.name, self.code, store.offset, store.line, scope, ASSIGNED)
        return Target(store, scope, key, facts)

    def _variables(self, effects: Effects) -> tuple[SlotVariable, ...]:
        code = self.code
        cells = set(code.co_cellvars)
        free = set(code.co_freevars)
        if not code.co_flags & _OPTIMIZED:
            return ()
        inner = {each.name for each, _ in effects.stores if each.inner}
        own = {each.name for each, _ in effects.stores if not each.inner and not each.hidden}
        only_inner = inner - own - set(code.co_varnames[: _argument_count(code)])
        found: list[SlotVariable] = []
        for slot, name in enumerate(self.slots):
            if not self.watch.wants(name) or name in only_inner:
                continue
            kind = FAST
            if name in cells or name in free:
                kind = CELL
            found.append(SlotVariable(name, slot, kind, is_owned=name in cells))
        return tuple(found)

    def _names_stored_as(self, kind: str) -> tuple[str, ...]:
        names = {target.store.name for target, _ in self.targets if target.store.kind == kind}
        return tuple(sorted(names))

    def _roots(self, effects: Effects) -> list[tuple[tuple[Path, Mutator], tuple[int, ...]]]:
        """Return the stores to the first name of a watched path, which may change the whole path."""
        found: list[tuple[tuple[Path, Mutator], tuple[int, ...]]] = []
        for path in self.paths:
            for store, after in effects.stores:
                if store.name == path.root and not store.hidden and not store.inner:
                    mutator = Mutator(store.offset, store.line, None, frozenset(), None)
                    found.append(((path, mutator), after))
        return found

    def _paths(self) -> tuple[Path, ...]:
        if not self.watch.paths:
            return ()
        known = {*self.slots, *self.code.co_names, *self.stored}
        return tuple(path for path in self.watch.paths if path.root in known)

    def _mentioned(self, mutator: Mutator | None) -> tuple[str, ...] | None:
        if mutator is None:
            return ()
        if mutator.mentions is None:
            return None
        return tuple(sorted(filter(self.watch.wants, mutator.mentions)))

    def _by_line(self) -> dict[int, Action]:
        targets: dict[int, list[Target]] = {}
        mutators: dict[int, Mutator] = {}
        roots: dict[int, list[tuple[Path, Mutator]]] = {}
        for target, _ in self.targets:
            if not target.store.hidden:
                targets.setdefault(target.store.line, []).append(target)
        for mutator, _ in self.mutators:
            earlier = mutators.get(mutator.line)
            if earlier is not None:
                mutators[mutator.line] = _merge(earlier, mutator)
            else:
                mutators[mutator.line] = mutator
        for root, _ in self.roots:
            roots.setdefault(root[1].line, []).append(root)
        unbound = {target.key for target, _ in self.targets if target.store.hidden}
        for target, _ in self.targets:
            if target.key in unbound and not target.store.hidden:
                self.before[target.store.offset] = (target,)
        found: dict[int, Action] = {}
        for line in {*targets, *mutators, *roots}:
            action = self._line_action(
                line, targets.get(line, []), mutators.get(line), roots.get(line, []), unbound
            )
            found[line] = _marked(action)
        return found

    def _line_action(
        self,
        line: int,
        targets: list[Target],
        mutator: Mutator | None,
        roots: list[tuple[Path, Mutator]],
        unbound: set[str],
    ) -> Action:
        """Return the action of one line. ``unbound`` has the keys of names that Python itself unbinds."""
        # The variables of a comprehension are gone when its line is done. Of other names, the last store counts.
        latest = {target.key: target for target in targets if not target.store.inner}
        is_shared = mutator is not None and line in self._effects.shared_lines
        stores_twice = len(latest) < len(targets)
        is_exact = stores_twice or is_shared or not unbound.isdisjoint(latest)
        if mutator is not None and is_shared:
            # Each statement is checked right after it, so only stores after the last mutator remain.
            roots = [root for root in roots if root[1].offset > mutator.offset]
        fast, others = _sort(latest.values())
        return Action(
            fast=fast,
            targets=others,
            mutator=mutator,
            mentioned=self._mentioned(mutator),
            roots=tuple(roots),
            exact=is_exact,
            is_shared=is_shared,
        )

    def _by_offset(self, effects: Effects) -> dict[int, Action]:
        found: dict[int, Action] = {}
        for target, after in self.targets:
            for offset in after:
                there = found.get(offset, NOTHING)
                fast, others = _sort([target])
                found[offset] = there._replace(
                    fast=there.fast + fast, targets=there.targets + others
                )
        for root, after in self.roots:
            for offset in after:
                there = found.get(offset, NOTHING)
                found[offset] = there._replace(roots=(*there.roots, root))
        for mutator, after in self.mutators:
            for offset in after:
                there = found.get(offset, NOTHING)
                found[offset] = there._replace(mutator=mutator, mentioned=self._mentioned(mutator))
        for offset in effects.handlers if self.mutators else ():
            found[offset] = found.get(offset, NOTHING)._replace(handles=True)
        return {offset: _marked(action) for offset, action in found.items()}


_known: dict[tuple[Any, ...], Plan] = {}
_MOST_KNOWN = 1024


def _unknown(code: CodeType) -> None:
    """Return None: no outer code is known."""


def plan_of(code: CodeType, watch: Watch, outer_of: Callable[[CodeType], CodeType | None]) -> Plan:
    """Return the plan of a code object; plans are cached for later engines, because making one takes 70 to 600 µs."""
    around = []
    outer = None
    if code.co_freevars:
        outer = outer_of(code)
    # The scopes of a closure's variables depend on which of the outer codes were seen.
    while outer is not None:
        around.append(id(outer))
        outer = outer_of(outer)
    key = (id(code), watch.names, watch.in_place, *around)
    known = _known.get(key)
    if known is None or known.code is not code:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        # The cached plan must not keep the engine alive (as ``outer_of`` would).
        known = _known[key] = Plan(code, watch, outer_of).renewed(_unknown)
    return known.renewed(outer_of)


NOTHING = Action((), (), None, ())


def _marked(action: Action) -> Action:
    return action._replace(
        is_quiet=not (action.fast or action.targets or action.roots or action.handles)
    )


def _sort(targets: Iterable[Target]) -> tuple[tuple[Fast, ...], tuple[Target, ...]]:
    """Split targets into plain locals and all others."""
    plain = tuple((each.store.slot, each.key, each) for each in targets if each.store.kind == FAST)
    return plain, tuple(each for each in targets if each.store.kind != FAST)


def inner_key(scope: str, name: str) -> str:
    """Return the key of a comprehension's variable, which differs from the key of a function's variable."""
    return f"{scope} {name}"


def _merge(one: Mutator, other: Mutator) -> Mutator:
    """Merge two mutators on one line, so that changes are looked for once and reported at the second."""
    if one.mentions is None or other.mentions is None:
        mentions = None
    else:
        mentions = one.mentions | other.mentions
    return other._replace(
        mentions=mentions, shadowed=one.shadowed & other.shadowed, into=one.into or other.into
    )


def _argument_count(code: CodeType) -> int:
    extra = bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + extra
