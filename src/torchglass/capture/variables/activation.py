"""Follows one call of watched code: remembers the values of its variables, and reports what has changed.

An ``Activation`` has one entry (``Known``) for each variable: what it saw of the value at its last look. After each
line or instruction that may have changed something, ``done`` compares the entries with the variables.

Changes in place are the expensive part, because any call may make them. So a variable whose value can change in place
is in one of two tables:

* ``open``: code that does not name the variable may hold its value, too. Every call may have changed it.
* ``alone``: the variable has the only reference. Only an expression that names the variable can have changed it.

``_sort_by_access`` chooses the table by the number of references. Variables that several calls share are in neither:
those of closures, of modules and classes, and watched attributes. They are looked at after every call
(``plan.always``).
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from types import FrameType
from typing import Any

from torchglass.capture.slots import SLOTS_ARE_READABLE, slots_of
from torchglass.capture.variables.arrays import differs_small
from torchglass.capture.variables.bytecode import CELL, FAST, Mutator, Store
from torchglass.capture.variables.following import Following
from torchglass.capture.variables.frames import step_from
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
from torchglass.capture.variables.watch import ASSIGNED, CHANGED, DELETED, REPORTED, UNBOUND, Path
from torchglass.compiled import extension

_REFERENCES_OF_ONE_LOCAL = 3
"""The references to a value with one name: the slot, our variable, and the argument of ``getrefcount``.

So references are counted in a statement of their own: a parameter or a value on the stack would be one more.
"""
_NOTHING_SHADOWED: frozenset[str] = frozenset()
_LARGE_FINGERPRINT = 5
"""The length of a large array's signature (``arrays.py``); that of a small array is shorter."""
_MOST_CALLERS = 16
"""How many callers of a closure to search for the call that owns its variables."""

_weak_offset_of = type.__dict__["__weakrefoffset__"].__get__

Where = tuple[str, str, int, int]
"""The name, scope, offset and line under which a change is reported."""


class Activation(Reading):
    """One call, or one run of a module's or class's body."""

    cells: list[tuple[SlotVariable, Known]] | tuple[()] = ()

    def __init__(self, engine: Following, plan: Plan, frame: FrameType, serial: int) -> None:
        self.engine = engine
        self.plan = plan
        self.serial = serial
        if plan.slots:
            self.slots = slots_of(frame, len(plan.slots))
        else:
            self.slots = None
        self.known = {}
        self.open = {}
        self.alone = {}
        if plan.paths:
            self.path_entries: dict[str, Known] = {}
            """The entry that each path led to at the last look; by now it may lead to another owner."""
        if plan.namespace:
            self.find_namespace(frame)

    def begin(self, frame: FrameType, silent: bool) -> None:
        """Take the first look, and report the arguments unless the call was running already (``silent``)."""
        plan = self.plan
        if plan.always:
            self._begin_shared(frame, silent)
        if (
            extension is not None
            and not silent
            and self.slots is not None
            and plan.has_plain_arguments
        ):
            extension.begin(self, plan.arguments, plan.opening, frame)
        else:
            self._begin_locals(plan.variables if silent else plan.arguments, frame, silent)
        if plan.globals:
            self._begin_globals(frame)

    def _begin_locals(
        self, variables: tuple[SlotVariable, ...], frame: FrameType, silent: bool
    ) -> None:
        plan = self.plan
        known = self.known
        take = self.engine.snapshots.take
        tell = self.engine.tell
        for variable in variables:
            name, at, kind, _ = variable
            try:
                if kind == FAST:
                    value = self.slots[at]
                else:
                    value = self.read_variable(variable, frame)
            except (ValueError, TypeError):  # the slot is empty, or there are no slots to read
                value = self.read_variable(variable, frame)
            if value is UNBOUND:
                continue
            entry = known.get(name)
            if entry is None:
                entry = known[name] = Known()
            take(entry, value, True)
            if entry.signature is not None and kind == FAST:
                references = getrefcount(value)
                self._sort_by_access(name, value, references)
            if not silent:
                code, start, line, scope, how = plan.opening
                is_reported = tell(
                    (name, code, start, line, scope, how, UNBOUND, value, self.serial), frame
                )
                entry.is_reported = is_reported and kind == FAST

    def _begin_shared(self, frame: FrameType, silent: bool) -> None:
        plan = self.plan
        plan.alert.add(self.serial)
        self.cells = [(variable, self.cell_entry(variable)) for variable in plan.cells]
        self.known.update((variable.name, entry) for variable, entry in self.cells)
        if not silent:
            self._begin_cells(frame)
        for name in plan.namespace:
            value = self.read_name(name, frame)
            entry = self.space.known.get(name)
            if value is not UNBOUND and (entry is None or entry.id != id(value)):
                self._know(name, value, self.space)
        for path in plan.paths:
            self._look_at_path(path, frame, None)

    def _begin_cells(self, frame: FrameType) -> None:
        """Read the variables of closures, unless another call has done so."""
        for variable, entry in self.cells:
            value = self.read_variable(variable, frame)
            if not variable.is_owned and value is not UNBOUND and entry.id != id(value):
                self._catch_up(entry, value, frame.f_back)
                if entry.id != id(value):
                    self.engine.snapshots.take(entry, value)

    def _catch_up(self, entry: Known, value: Any, outer: FrameType | None) -> None:
        """Report a closure's variable now if a line of a caller that is still running has stored it."""
        for _ in range(_MOST_CALLERS):
            if outer is None:
                return
            owner = self.engine.running.get(id(outer))
            if owner is not None and owner.pending is not None and owner.plan.code is outer.f_code:
                for target in owner.pending.targets:
                    if target.store.kind == CELL and owner.known.get(target.key) is entry:
                        owner._stored(target, entry, value, outer)
                        entry.is_reported = False
                        return
            outer = outer.f_back

    def _know(self, name: str, value: Any, space: Names) -> None:
        entry = space.known.get(name) or Known()
        self.engine.snapshots.take(entry, value, whole=True)
        space.note(name, entry)

    def _begin_globals(self, frame: FrameType) -> None:
        for name in self.plan.globals:
            space = self.engine.space_of(frame.f_globals)
            value = dict.get(frame.f_globals, name, UNBOUND)
            if name not in space.known and value is not UNBOUND:
                self._know(name, value, space)

    # ------------------------------------------------------------ after a line or an instruction

    def done(self, action: Action, frame: FrameType) -> None:
        """Report what a line or an instruction that has just run has stored or changed."""
        fast = action.fast
        mutator = action.mutator
        slots = self.slots
        known = self.known
        slot_of = self.plan.slot_of
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
                    references = getrefcount(value)
                    self._sort_by_access(key, value, references)
                    fresh += (key,)
            elif target.store.ended:
                self._forget_inner(target.store)
        for target in action.targets:
            entry = self.entry_of(target, frame)
            self._stored(target, entry, self.read(target, frame), frame)
            entry.is_reported = (
                False  # other calls see the variable too, and may not have reported it
            )
        for path, root in action.roots:
            self._look_at_path(path, frame, root)
        if mutator is not None and self._may_have_changed(action):
            self.look(mutator, action.mentioned, frame, fresh)

    def _may_have_changed(self, action: Action) -> bool:
        """Return whether there is a variable that the mutator of an action may have changed in place."""
        if self.open or self.plan.always:
            return True
        return bool(self.alone) and action.mentioned != ()

    def look(
        self,
        mutator: Mutator,
        mentioned: tuple[str, ...] | None,
        frame: FrameType,
        fresh: tuple[str, ...] = (),
    ) -> None:
        """Look for changes in place that ``mutator`` made, itself or by a call, except in the ``fresh`` variables.

        ``mentioned`` are the variables that its expression names, or None if they may be any.
        """
        if mentioned is None:
            mentioned_alone = tuple(self.alone)
        else:
            mentioned_alone = mentioned
        for name in mentioned_alone:
            if name in self.alone and name not in mutator.shadowed:
                value = self.read_slot(name, frame)
                self._compare(name, self.alone[name], value, mutator, frame)
                references = getrefcount(value)
                self._sort_by_access(name, value, references)
        if self.open:
            self._look_at_open(mutator, mentioned, frame, fresh)
        if self.plan.always:
            self._look_at_shared(mutator, frame)

    def _look_at_open(
        self,
        mutator: Mutator,
        mentioned: tuple[str, ...] | None,
        frame: FrameType,
        fresh: tuple[str, ...],
    ) -> None:
        stamp = self.engine.snapshots.stamp
        shadowed = mutator.shadowed
        for name, entry in tuple(self.open.items()):
            if name in fresh or name in shadowed:
                continue
            value = self.read_slot(name, frame)
            if (
                entry.kind[0] == STAMPED
                and entry.id == id(value)
                and stamp(value) == entry.signature
            ):
                continue  # the usual case: a tensor that was not written into
            self._compare(name, entry, value, mutator, frame)
            if mentioned is None or name in mentioned:
                references = getrefcount(value)
                self._sort_by_access(name, value, references)

    def _look_at_shared(self, mutator: Mutator, frame: FrameType, thorough: bool = False) -> None:
        """Look at the variables that other calls share: of namespaces, closures, and watched attributes."""
        for name, entry in tuple(self.space.mutable.items()):
            self._compare(name, entry, self.read_name(name, frame), mutator, frame, thorough)
        for variable, entry in self.cells:
            if entry.signature is not None:
                self._compare(
                    variable.name,
                    entry,
                    self.read_variable(variable, frame),
                    mutator,
                    frame,
                    thorough,
                )
        for path in self.plan.paths:
            self._look_at_path(path, frame, mutator)

    def end(self, frame: FrameType, offset: int, line: int, looked: bool = False) -> None:
        """Take a last, thorough look when the call ends; changes are reported at the instruction where it ended.

        ``looked`` means that nothing has run since the last look. Then only arrays are looked at once more: the last
        look may have read a sample of a large one, and this one reads it completely if there is time.
        """
        if not self.open and not self.plan.always:
            return
        mutator = Mutator(offset, line, None, _NOTHING_SHADOWED, None)
        stamp = self.engine.snapshots.stamp
        for name, entry in tuple(self.open.items()):
            role = entry.kind[0]
            if role == STAMPED and not looked:
                value = self.read_slot(name, frame)
                if entry.id != id(value) or stamp(value) != entry.signature:
                    self._compare(name, entry, value, mutator, frame)
            elif not looked or role == ARRAY:
                self._compare(
                    name, entry, self.read_slot(name, frame), mutator, frame, thorough=True
                )
        if self.plan.always:
            self._look_at_shared(mutator, frame, thorough=True)

    def unbound_before(self, target: Target, frame: FrameType) -> None:
        """Forget the value of a name before a store, if Python has unbound the name without a visible deletion."""
        if self.read(target, frame) is UNBOUND:
            self._drop(target.key, self.entry_of(target, frame))

    def _compare(
        self,
        name: str,
        entry: Known,
        value: Any,
        mutator: Mutator,
        frame: FrameType,
        thorough: bool = False,
    ) -> None:
        if value is UNBOUND:
            return
        role = entry.kind.role
        # Another object, but no store was seen: it was set through globals(), a debugger …
        if entry.id != id(value):
            old = entry.recall()
            self.engine.snapshots.take(entry, value)
            self._tell(
                (name, self.plan.scope_of(name), mutator.offset, mutator.line),
                ASSIGNED,
                old,
                value,
                frame,
            )
            return
        if role == ARRAY:
            has_all_bytes = type(entry.signature[-1]) is bytes
            if has_all_bytes and not differs_small(value, entry.signature):
                return
        signature = self.engine.snapshots.signature(value, role, thorough)
        is_large_array = role == ARRAY and len(signature) == _LARGE_FINGERPRINT
        # The samples of a large array may miss what ``array[i] = x`` wrote, so that always counts as a change.
        is_written = is_large_array and mutator.into == name
        if is_written or has_changed(role, entry.signature, signature):
            self._changed(name, entry, signature, (value, mutator, frame))

    def _changed(
        self, name: str, entry: Known, signature: Any, change: tuple[Any, Mutator, FrameType]
    ) -> None:
        """Report a value that was changed in place, and remember its new signature (looking.c calls this, too)."""
        value, mutator, frame = change
        old = entry.past()
        entry.signature = signature
        self._tell(
            (name, self.plan.scope_of(name), mutator.offset, mutator.line),
            CHANGED,
            old,
            value,
            frame,
        )

    # ------------------------------------------------------------ stores

    def _stored(self, target: Target, entry: Known, value: Any, frame: FrameType) -> None:
        """Handle a store: report it if the variable has another value than its entry says."""
        store = target.store
        key = target.key
        if value is UNBOUND or store.hidden:
            self._unbound(target, entry, value, frame)
            return
        if entry.id == id(value) or (
            entry.kind[0] <= TEXT and entry.id and same_atom(entry.kept, value)
        ):
            entry.id = id(value)
            return
        engine = self.engine
        could_change = entry.signature is not None
        old = REPORTED
        if not entry.is_reported:
            old = entry.recall()
        engine.snapshots.take(entry, value, True)
        if could_change or entry.signature is not None:
            if store.slot < 0:
                self.space_of(store, frame).note(key, entry)
            elif entry.signature is None and key in self.plan.slot_of:
                self.alone.pop(key, None)
                self.open.pop(key, None)
                self._update_alertness()
        change = target.facts + (old, value, self.serial)  # noqa: RUF005 (a third of the time)
        entry.is_reported = engine.tell(change, frame)

    def _unbound(self, target: Target, entry: Known, value: Any, frame: FrameType) -> None:
        store = target.store
        if store.ended:
            self._forget_inner(store)
        if value is UNBOUND and entry.id:
            old = entry.recall()
            self._drop(target.key, entry)
            if not store.hidden:
                self._tell(
                    (store.name, target.scope, store.offset, store.line),
                    DELETED,
                    old,
                    UNBOUND,
                    frame,
                )

    def _sort_by_access(self, name: str, value: Any, references: int) -> None:
        """Put a variable into ``alone`` or ``open``: can code that does not name it change its value in place?"""
        entry = self.known[name]
        role = entry.kind[0]
        if entry.signature is None or (role == STAMPED and name in self.open):
            return
        has_one_name = references <= _REFERENCES_OF_ONE_LOCAL and name not in self.plan.aliased
        if has_one_name and self.engine.snapshots.is_closed(value, role):
            table = self.alone
            other = self.open
        else:
            table = self.open
            other = self.alone
        if name not in table:
            other.pop(name, None)
            table[name] = entry
            self._update_alertness()

    def _update_alertness(self) -> None:
        """Note whether this call has variables that code may change without naming them.

        While some call of the code has any, monitoring.py must not switch off the events of its calls.
        """
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
        self._update_alertness()

    def _forget_inner(self, store: Store) -> None:
        """Forget the variable of a comprehension that has ended, because the next run of it begins without a value."""
        scope = store.ended or ""
        self.known.pop(inner_key(scope, store.name), None)
        self.engine.ended(self.serial, scope, store.name)

    # ------------------------------------------------------------ paths

    def _look_at_path(self, path: Path, frame: FrameType, mutator: Mutator | None) -> None:
        """Compare an attribute or item with its entry, which all calls share.

        Without a mutator this is a first look, which reports nothing.
        """
        owner = self.root(path.root, frame)
        for step in path.steps[:-1]:
            if owner is UNBOUND:
                break
            owner = step_from(owner, step)
        if owner is UNBOUND:
            value = UNBOUND
            entry = Known()
            is_new = True
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
            old = entry.recall()
            was = entry.id
            entry.clear()
            if was:
                self._tell(where, DELETED, old, UNBOUND, frame)
        elif entry.id != id(value):
            self._look_at_other(where, (entry, entry), value, frame)
        elif entry.signature is not None:
            self._compare(path.name, entry, value, mutator, frame)

    def _look_at_other(
        self, where: Where, entries: tuple[Known, Known], value: Any, frame: FrameType
    ) -> None:
        """Report an attribute or item that is another object now, or belongs to another owner."""
        last, entry = entries
        old = last.recall()
        same = last.id == id(value) or (bool(last.id) and same_atom(last.kept, value))
        if last is not entry and last.is_loose:
            last.clear()
        if value is not UNBOUND:
            self.engine.snapshots.take(entry, value)
        if same:
            return
        how = ASSIGNED
        if value is UNBOUND:
            how = DELETED
        self._tell(where, how, old, value, frame)

    def _tell(self, where: Where, how: str, old: Any, new: Any, frame: FrameType) -> None:
        name, scope, offset, line = where
        self.engine.tell(
            (name, self.plan.code, offset, line, scope, how, old, new, self.serial), frame
        )


if extension is not None:
    extension.follow_with(
        UNBOUND, REPORTED, NO_KIND, BUILTINS, Known, Activation, SLOTS_ARE_READABLE
    )
after_step: Callable[[Activation, Action, FrameType], None] = (
    Activation.done if extension is None else extension.done
)
"""``Activation.done``, or its compiled version (``capture/engine/fast/following.c``)."""
