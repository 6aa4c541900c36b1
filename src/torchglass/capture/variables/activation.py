"""One call of watched code: what its variables held when last looked at, and telling what has changed since."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from types import FrameType
from typing import Any

from torchglass.capture.variables.arrays import differs_small
from torchglass.capture.variables.bytecode import CELL, FAST, Mutator, Store
from torchglass.capture.variables.following import Following
from torchglass.capture.variables.frames import SLOTS_ARE_READABLE, slots_of, step_from
from torchglass.capture.variables.plan import Action, Plan, SlotVariable, Target, inner_key
from torchglass.capture.variables.reading import Names, Reading
from torchglass.capture.variables.snapshots import (
    ARRAY,
    BUILTINS,
    NO_KIND,
    STAMPED,
    TEXT,
    Known,
    has_changed,
    same_atom,
)
from torchglass.capture.variables.watch import ASSIGNED, CHANGED, DELETED, TOLD, UNBOUND, Path
from torchglass.compiled import extension

_REFERENCES_OF_ONE_LOCAL = 3
"""The slot, our own variable, and the argument of ``getrefcount``."""
_NOWHERE: frozenset[str] = frozenset()
_LARGE_FINGERPRINT = 5
_NEAR = 16
"""Frames above a closure's call in which its owner is looked for."""

_weak_offset_of = type.__dict__["__weakrefoffset__"].__get__

Where = tuple[str, str, int, int]
"""Name, scope, offset and line to tell a change under."""


class Activation(Reading):
    """One call, or one run of a module's or class's body."""

    cells: list[tuple[SlotVariable, Known]] | tuple[()] = ()

    def __init__(self, engine: Following, plan: Plan, frame: FrameType, serial: int) -> None:
        self.engine = engine
        self.plan = plan
        self.serial = serial
        self.slots = slots_of(frame, len(plan.slots)) if plan.slots else None
        self.known = {}
        self.open = {}
        self.alone = {}
        if plan.paths:
            self.path_entries: dict[str, Known] = {}
            """What was last looked at under each path; its owner may be another by now."""
        if plan.namespace:
            self.find_namespace(frame)

    def begin(self, frame: FrameType, silent: bool) -> None:
        """Take the first look; tell of the arguments unless the call was under way already."""
        plan = self.plan
        if plan.always:
            self._begin_shared(frame, silent)
        if extension is not None and not silent and self.slots is not None and plan.has_plain_arguments:
            extension.begin(self, plan.arguments, plan.opening, frame)
        else:
            self._begin_locals(plan.variables if silent else plan.arguments, frame, silent)
        if plan.globals:
            self._begin_globals(frame)

    def _begin_locals(self, variables: tuple[SlotVariable, ...], frame: FrameType, silent: bool) -> None:
        plan, known, take, tell = self.plan, self.known, self.engine.snapshots.take, self.engine.tell
        for variable in variables:
            name, at, kind, _ = variable
            try:
                value = self.slots[at] if kind == FAST else self.read_variable(variable, frame)
            except (ValueError, TypeError):  # nothing in the slot; no slots to read
                value = self.read_variable(variable, frame)
            if value is UNBOUND:
                continue
            entry = known.get(name)
            if entry is None:
                entry = known[name] = Known()
            take(entry, value, True)
            if entry.signature is not None and kind == FAST:
                references = getrefcount(value)
                self._settle(name, value, references)
            if not silent:
                code, start, line, scope, how = plan.opening
                told = tell((name, code, start, line, scope, how, UNBOUND, value, self.serial), frame)
                entry.is_told = told and kind == FAST

    def _begin_shared(self, frame: FrameType, silent: bool) -> None:
        plan = self.plan
        plan.alert.add(self.serial)
        self.cells = [(variable, self.cell_entry(variable)) for variable in plan.cells]
        self.known.update((variable.name, entry) for variable, entry in self.cells)
        if not silent:
            self._begin_cells(frame)
        for name in plan.namespace:
            value, entry = self.read_name(name, frame), self.space.known.get(name)
            if value is not UNBOUND and (entry is None or entry.id != id(value)):
                self._know(name, value, self.space)
        for path in plan.paths:
            self._look_at_path(path, frame, None)

    def _begin_cells(self, frame: FrameType) -> None:
        """Know what closures give, unless another call knows already."""
        for variable, entry in self.cells:
            value = self.read_variable(variable, frame)
            if not variable.is_owned and value is not UNBOUND and entry.id != id(value):
                self._catch_up(entry, value, frame.f_back)
                if entry.id != id(value):
                    self.engine.snapshots.take(entry, value)

    def _catch_up(self, entry: Known, value: Any, outer: FrameType | None) -> None:
        """A caller's line that is still under way may have stored a closure's variable: then that is told first."""
        for _ in range(_NEAR):
            if outer is None:
                return
            owner = self.engine.running.get(id(outer))
            if owner is not None and owner.pending is not None and owner.plan.code is outer.f_code:
                for target in owner.pending.targets:
                    if target.store.kind == CELL and owner.known.get(target.key) is entry:
                        owner._stored(target, entry, value, outer)
                        entry.is_told = False
                        return
            outer = outer.f_back

    def _know(self, name: str, value: Any, space: Names) -> None:
        entry = space.known.get(name) or Known()
        self.engine.snapshots.take(entry, value, whole=True)
        space.note(name, entry)

    def _begin_globals(self, frame: FrameType) -> None:
        for name in self.plan.globals:
            space, value = self.engine.space_of(frame.f_globals), dict.get(frame.f_globals, name, UNBOUND)
            if name not in space.known and value is not UNBOUND:
                self._know(name, value, space)

    # ------------------------------------------------------------ after a line or an instruction

    def done(self, action: Action, frame: FrameType) -> None:
        """Look at what a line or an instruction may have done, and tell."""
        fast, targets, mutator, mentioned, roots, _, _, _, _ = action
        slots, known, slot_of = self.slots, self.known, self.plan.slot_of
        fresh: tuple[str, ...] = ()
        for at, key, target in fast:
            try:
                value = slots[at]
            except ValueError:
                value = UNBOUND
            except TypeError:  # no slots to read
                value = self.read(target, frame)
            entry = known.get(key)
            if entry is None:
                entry = known[key] = Known()
            if entry.id != id(value):
                self._stored(target, entry, value, frame)
                if entry.signature is not None and key in slot_of:
                    # Counted here by itself: as a parameter or on the stack the value has one reference more.
                    references = getrefcount(value)
                    self._settle(key, value, references)
                    fresh += (key,)
            elif target.store.ended:
                self._forget_inner(target.store)
        for target in targets:
            entry = self.entry_of(target, frame)
            self._stored(target, entry, self.read(target, frame), frame)
            entry.is_told = False  # not in every call that sees the variable
        for path, root in roots:
            self._look_at_path(path, frame, root)
        if mutator is not None and (self.open or self.plan.always or (self.alone and mentioned != ())):
            self.look(mutator, mentioned, frame, fresh)

    def look(
        self, mutator: Mutator, mentioned: tuple[str, ...] | None, frame: FrameType, fresh: tuple[str, ...] = ()
    ) -> None:
        """Look for changes in place, made by ``mutator`` or by what it called, but in ``fresh`` ones."""
        for name in tuple(self.alone) if mentioned is None else mentioned:
            if name in self.alone and name not in mutator.shadowed:
                value = self.read_slot(name, frame)
                self._compare(name, self.alone[name], value, mutator, frame)
                references = getrefcount(value)
                self._settle(name, value, references)
        if self.open:
            self._look_at_open(mutator, mentioned, frame, fresh)
        if self.plan.always:
            self._look_at_shared(mutator, frame)

    def _look_at_open(
        self, mutator: Mutator, mentioned: tuple[str, ...] | None, frame: FrameType, fresh: tuple[str, ...]
    ) -> None:
        stamp, shadowed = self.engine.snapshots.stamp, mutator.shadowed
        for name, entry in tuple(self.open.items()):
            if name in fresh or name in shadowed:
                continue
            value = self.read_slot(name, frame)
            if entry.kind[0] == STAMPED and entry.id == id(value) and stamp(value) == entry.signature:
                continue  # most often: a tensor that nothing was written into
            self._compare(name, entry, value, mutator, frame)
            if mentioned is None or name in mentioned:
                references = getrefcount(value)
                self._settle(name, value, references)

    def _look_at_shared(self, mutator: Mutator, frame: FrameType, thorough: bool = False) -> None:
        """At what other calls see too."""
        for name, entry in tuple(self.space.mutable.items()):
            self._compare(name, entry, self.read_name(name, frame), mutator, frame, thorough)
        for variable, entry in self.cells:
            if entry.signature is not None:
                self._compare(variable.name, entry, self.read_variable(variable, frame), mutator, frame, thorough)
        for path in self.plan.paths:
            self._look_at_path(path, frame, mutator)

    def end(self, frame: FrameType, offset: int, line: int, looked: bool = False) -> None:
        """The call is over, or raises: one thorough look, told under the instruction that it ended at.

        ``looked``: nothing has happened since the last look; then only large arrays are looked at more closely.
        """
        if not self.open and not self.plan.always:
            return
        mutator = Mutator(offset, line, None, _NOWHERE, None)
        stamp = self.engine.snapshots.stamp
        for name, entry in tuple(self.open.items()):
            role = entry.kind[0]
            if role == STAMPED and not looked:
                value = self.read_slot(name, frame)
                if entry.id != id(value) or stamp(value) != entry.signature:
                    self._compare(name, entry, value, mutator, frame)
            elif not looked or role == ARRAY:
                self._compare(name, entry, self.read_slot(name, frame), mutator, frame, thorough=True)
        if self.plan.always:
            self._look_at_shared(mutator, frame, thorough=True)

    def unbound_before(self, target: Target, frame: FrameType) -> None:
        """A store is about to be done: if Python has unbound the name in silence, forget what it held."""
        if self.read(target, frame) is UNBOUND:
            self._drop(target.key, self.entry_of(target, frame))

    def _compare(
        self, name: str, entry: Known, value: Any, mutator: Mutator, frame: FrameType, thorough: bool = False
    ) -> None:
        if value is UNBOUND:
            return
        role = entry.kind.role
        if entry.id != id(value):  # stored by other means than a store: through globals(), a debugger …
            old = entry.recall()
            self.engine.snapshots.take(entry, value)
            self._tell((name, self.plan.scope_of(name), mutator.offset, mutator.line), ASSIGNED, old, value, frame)
            return
        if role == ARRAY and type(entry.signature[-1]) is bytes and not differs_small(value, entry.signature):
            return
        signature = self.engine.snapshots.signature(value, role, thorough)
        is_large_store = mutator.into == name and role == ARRAY and len(signature) == _LARGE_FINGERPRINT
        if is_large_store or has_changed(role, entry.signature, signature):
            self._changed(name, entry, signature, (value, mutator, frame))

    def _changed(self, name: str, entry: Known, signature: Any, what: tuple[Any, Mutator, FrameType]) -> None:
        """A value was changed in place, which this signature tells."""
        value, mutator, frame = what
        old, entry.signature = entry.past(), signature
        self._tell((name, self.plan.scope_of(name), mutator.offset, mutator.line), CHANGED, old, value, frame)

    # ------------------------------------------------------------ stores

    def _stored(self, target: Target, entry: Known, value: Any, frame: FrameType) -> None:
        """A store was done; whether it changed anything, the entry tells."""
        store, _, key, facts = target
        if value is UNBOUND or store.hidden:
            self._unbound(target, entry, value, frame)
            return
        if entry.id == id(value) or (entry.kind[0] <= TEXT and entry.id and same_atom(entry.kept, value)):
            entry.id = id(value)
            return
        engine, could_change = self.engine, entry.signature is not None
        old = TOLD if entry.is_told else entry.recall()
        engine.snapshots.take(entry, value, True)
        if could_change or entry.signature is not None:
            if store.slot < 0:
                self.space_of(store, frame).note(key, entry)
            elif entry.signature is None and key in self.plan.slot_of:
                self.alone.pop(key, None)
                self.open.pop(key, None)
                self._be_alert()
        entry.is_told = engine.tell(facts + (old, value, self.serial), frame)  # noqa: RUF005 (a third of the time)

    def _unbound(self, target: Target, entry: Known, value: Any, frame: FrameType) -> None:
        store = target.store
        if store.ended:
            self._forget_inner(store)
        if value is UNBOUND and entry.id:
            old = entry.recall()
            self._drop(target.key, entry)
            if not store.hidden:
                self._tell((store.name, target.scope, store.offset, store.line), DELETED, old, UNBOUND, frame)

    def _settle(self, name: str, value: Any, references: int) -> None:
        """Decide whether a value can be changed by code that does not name the variable."""
        entry = self.known[name]
        role = entry.kind[0]
        if entry.signature is None or (role == STAMPED and name in self.open):
            return
        alone = references <= _REFERENCES_OF_ONE_LOCAL and name not in self.plan.aliased
        alone = alone and self.engine.snapshots.is_closed(value, role)
        if name not in (self.alone if alone else self.open):
            (self.open if alone else self.alone).pop(name, None)
            (self.alone if alone else self.open)[name] = entry
            self._be_alert()

    def _be_alert(self) -> None:
        plan = self.plan
        if self.open or plan.always:
            plan.alert.add(self.serial)
            if plan.is_muted:
                self.engine.unmute(plan)
        else:
            plan.alert.discard(self.serial)

    def _drop(self, key: str, entry: Known) -> None:
        entry.clear()
        for table in (self.open, self.alone, self.space.mutable):
            table.pop(key, None)
        self._be_alert()

    def _forget_inner(self, store: Store) -> None:
        """A comprehension is over: the next one begins anew."""
        scope = store.ended or ""
        self.known.pop(inner_key(scope, store.name), None)
        self.engine.ended(self.serial, scope, store.name)

    # ------------------------------------------------------------ paths

    def _look_at_path(self, path: Path, frame: FrameType, mutator: Mutator | None) -> None:
        """Compare an attribute or item with what anybody saw last; without a mutator this is only the first look."""
        owner = self.root(path.root, frame)
        for step in path.steps[:-1]:
            owner = step_from(owner, step) if owner is not UNBOUND else UNBOUND
        if owner is UNBOUND:
            value, entry, is_new = UNBOUND, Known(), True
        else:
            value = step_from(owner, path.steps[-1])
            entry, is_new = self.engine.path_entry(owner, path.steps[-1])
        last = self.path_entries.get(path.name, entry)
        self.path_entries[path.name] = entry
        entry.is_loose = _weak_offset_of(type(owner)) == 0
        if value is not UNBOUND:
            self.engine.found_paths.add(path.name)
        if mutator is None:
            if is_new and value is not UNBOUND:
                self.engine.snapshots.take(entry, value)
            return
        where = (path.name, self.plan.scope, mutator.offset, mutator.line)
        if last is not entry and last.id:
            self._look_at_other(where, (last, entry), value, frame)
        elif value is UNBOUND:
            old, was = entry.recall(), entry.id
            entry.clear()
            if was:
                self._tell(where, DELETED, old, UNBOUND, frame)
        elif entry.id != id(value):
            self._look_at_other(where, (entry, entry), value, frame)
        elif entry.signature is not None:
            self._compare(path.name, entry, value, mutator, frame)

    def _look_at_other(self, where: Where, entries: tuple[Known, Known], value: Any, frame: FrameType) -> None:
        """An attribute or item is another object, or that of another owner: then the entries differ."""
        last, entry = entries
        old = last.recall()
        same = last.id == id(value) or (bool(last.id) and same_atom(last.kept, value))
        if last is not entry and last.is_loose:
            last.clear()
        if value is not UNBOUND:
            self.engine.snapshots.take(entry, value)
        if not same:
            self._tell(where, DELETED if value is UNBOUND else ASSIGNED, old, value, frame)

    def _tell(self, where: Where, how: str, old: Any, new: Any, frame: FrameType) -> None:
        name, scope, offset, line = where
        self.engine.tell((name, self.plan.code, offset, line, scope, how, old, new, self.serial), frame)


if extension is not None:
    extension.follow_with(UNBOUND, TOLD, NO_KIND, BUILTINS, Known, Activation, SLOTS_ARE_READABLE)
look_behind: Callable[[Activation, Action, FrameType], None] = Activation.done if extension is None else extension.done
"""``Activation.done``, compiled where it can be (``capture/engine/fast/following.c``)."""
