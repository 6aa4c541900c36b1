"""One call of watched code: what its variables held when last looked at, and telling what has changed since."""

from __future__ import annotations

from sys import getrefcount
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import ref

from torchglass.capture.variables import paths
from torchglass.capture.variables.arrays import differs_small
from torchglass.capture.variables.bytecode import CELL, FAST, GLOBAL, Mutator, Store
from torchglass.capture.variables.frames import content, slot, slots_of
from torchglass.capture.variables.looks import ARRAY, ATOM, OBJECT, TEXT, Entry, has_changed, same_atom
from torchglass.capture.variables.plan import Action, Plan, Target, Variable
from torchglass.capture.variables.watch import ARGUMENT, ASSIGNED, CHANGED, DELETED, UNBOUND, Change, Path

if TYPE_CHECKING:
    from torchglass.capture.variables.engine import Engine

_REFERENCES_OF_ONE_LOCAL = 3
"""The slot, our own variable, and the argument of ``getrefcount``."""
_NOWHERE: frozenset[str] = frozenset()
_LARGE_FINGERPRINT = 5
_new_change = tuple.__new__  # half the price of Change(…)

Where = tuple[str, str, int, int]
"""Name, scope, offset and line to tell a change under."""


class Names:
    """The watched names of a namespace: of a module, where all its frames share them, or of a class body."""

    __slots__ = ("known", "mutable")

    def __init__(self) -> None:
        self.known: dict[str, Entry] = {}
        self.mutable: dict[str, Entry] = {}

    def note(self, name: str, entry: Entry) -> None:
        """Look for changes of this one from now on, or no longer."""
        self.known[name] = entry
        self.mutable.pop(name, None)
        if entry.signature is not None:
            self.mutable[name] = entry


_NO_NAMES = Names()


class Activation:
    """One call, or one run of a module's or class's body."""

    cells: list[tuple[Variable, Entry]] | tuple[()] = ()
    is_module = False
    skipped_line = 0
    """The line that opened the block, in the block's own frame: ``with … as name`` is not the block's doing."""
    pending: Action | None = None
    """What the line under way may do, for the core that is told of lines; so are the next four."""
    is_exact = opcodes_before = False
    error: Any = None
    local: Any = None

    def __init__(self, engine: Engine, plan: Plan, frame: FrameType, serial: int) -> None:
        self.engine = engine
        self.plan = plan
        self.serial = serial
        self.slots: Any = slots_of(frame, len(plan.slots)) if plan.slots else None
        self.known: dict[str, Entry] = {}
        self.open: dict[str, Entry] = {}
        """Values that any call may change."""
        self.alone: dict[str, Entry] = {}
        """Values that nothing else refers to: only code that names the variable can change them."""
        self.space = _NO_NAMES
        if plan.namespace:
            # Asked once: inside a comprehension f_locals of a module is something else from 3.12 on.
            self.is_module = frame.f_locals is frame.f_globals
            self.space = engine.space_of(frame.f_globals) if self.is_module else Names()

    def begin(self, frame: FrameType, silent: bool) -> None:
        """Take the first look; tell of the arguments unless the call was under way already."""
        plan = self.plan
        if plan.always:
            self._begin_shared(frame, silent)
        known, kit, tell = self.known, self.engine.looks, self.engine.sink.changed
        for variable in plan.variables if silent else plan.arguments:
            value = self._read_variable(variable, frame)
            if value is UNBOUND:
                continue
            entry = known.get(variable.name)
            if entry is None:
                entry = known[variable.name] = Entry()
            kit.take(entry, value, kit.kind(value), whole=True)
            if entry.signature is not None and variable.kind == FAST:
                references = getrefcount(value)
                self._settle(variable.name, value, references)
            if not silent:
                line = plan.code.co_firstlineno
                change = (variable.name, plan.code, plan.start, line, plan.scope, ARGUMENT, UNBOUND, value, self.serial)
                tell(_new_change(Change, change), frame)
        if plan.globals:
            self._begin_globals(frame)

    def _begin_shared(self, frame: FrameType, silent: bool) -> None:
        plan = self.plan
        plan.alert.add(self.serial)
        self.cells = [(variable, self._cell_entry(variable)) for variable in plan.cells]
        self.known.update((variable.name, entry) for variable, entry in self.cells)
        if not silent:
            self._begin_cells(frame)
        for name in plan.namespace:
            value, entry = self._read_name(name, frame), self.space.known.get(name)
            if value is not UNBOUND and (entry is None or entry.id != id(value)):
                self._know(name, value, self.space)
        for path in plan.paths:
            self._look_at_path(path, frame, None)

    def _begin_cells(self, frame: FrameType) -> None:
        """Know what closures give, unless another call knows already."""
        for variable, entry in self.cells:
            value = self._read_variable(variable, frame)
            if not variable.is_owned and value is not UNBOUND and entry.id != id(value):
                kit = self.engine.looks
                kit.take(entry, value, kit.kind(value))

    def _know(self, name: str, value: Any, space: Names) -> None:
        kit, entry = self.engine.looks, space.known.get(name) or Entry()
        kit.take(entry, value, kit.kind(value), whole=True)
        space.note(name, entry)

    def _begin_globals(self, frame: FrameType) -> None:
        for name in self.plan.globals:
            space, value = self.engine.space_of(frame.f_globals), dict.get(frame.f_globals, name, UNBOUND)
            if name not in space.known and value is not UNBOUND:
                self._know(name, value, space)

    # ------------------------------------------------------------ after a line or an instruction

    def done(self, action: Action, frame: FrameType) -> None:
        """Look at what a line or an instruction may have done, and tell."""
        slots, known = self.slots, self.known
        for at, key, target in action.fast:
            try:
                value = slots[at]
            except ValueError:
                value = UNBOUND
            except TypeError:  # no slots to read
                value = self._read(target, frame)
            entry = known.get(key)
            if entry is None:
                entry = known[key] = Entry()
            if entry.id != id(value):
                self._stored(target, entry, value, frame)
                if entry.signature is not None and key in self.plan.slot_of:
                    # Counted here by itself: as a parameter or on the stack the value has one reference more.
                    references = getrefcount(value)
                    self._settle(key, value, references)
            elif target.store.hidden:
                self._forget_inner(target.store.name)
        for target in action.targets:
            self._stored(target, self._entry(target, frame), self._read(target, frame), frame)
        for path, root in action.roots:
            self._look_at_path(path, frame, root)
        if action.mutator is not None and (self.open or self.plan.always or (self.alone and action.mentioned != ())):
            self.look(action.mutator, action.mentioned, frame)

    def look(
        self, mutator: Mutator, mentioned: tuple[str, ...] | None, frame: FrameType, thorough: bool = False
    ) -> None:
        """Look for changes in place, made by ``mutator`` or by what it called; ``thorough`` at the end of a call."""
        for name in tuple(self.alone) if mentioned is None else mentioned:
            if name in self.alone and name not in mutator.shadowed:
                value = self._read_slot(name, frame)
                self._compare(name, self.alone[name], value, mutator, frame)
                references = getrefcount(value)
                self._settle(name, value, references)
        for name, entry in tuple(self.open.items()) if self.open else ():
            if name not in mutator.shadowed:
                value = self._read_slot(name, frame)
                self._compare(name, entry, value, mutator, frame, thorough)
                if mentioned is None or name in mentioned:
                    references = getrefcount(value)
                    self._settle(name, value, references)
        if not self.plan.always:
            return
        for name, entry in tuple(self.space.mutable.items()):
            self._compare(name, entry, self._read_name(name, frame), mutator, frame, thorough)
        for variable, entry in self.cells:
            if entry.signature is not None:
                self._compare(variable.name, entry, self._read_variable(variable, frame), mutator, frame, thorough)
        for path in self.plan.paths:
            self._look_at_path(path, frame, mutator)

    def end(self, frame: FrameType, offset: int, line: int) -> None:
        """The call is over, or raises: one thorough look, told under the instruction that it ended at."""
        if self.has_something:
            self.look(Mutator(offset, line, None, _NOWHERE, None), (), frame, thorough=True)

    @property
    def has_something(self) -> bool:
        """Whether there is anything that could change in place."""
        return bool(self.open or self.alone or self.plan.always)

    def close(self) -> None:
        self.plan.alert.discard(self.serial)

    def unbound_before(self, target: Target, frame: FrameType) -> None:
        """A store is about to be done: if Python has unbound the name in silence, forget what it held."""
        if self._read(target, frame) is UNBOUND:
            self._drop(target.key, self._entry(target, frame))

    def _compare(
        self, name: str, entry: Entry, value: Any, mutator: Mutator, frame: FrameType, thorough: bool = False
    ) -> None:
        if value is UNBOUND:
            return
        role = entry.kind.role
        if entry.id != id(value):  # stored by other means than a store: through globals(), a debugger …
            old = entry.recall()
            kit = self.engine.looks
            kit.take(entry, value, kit.kind(value))
            self._tell((name, self.plan.scope_of(name), mutator.offset, mutator.line), ASSIGNED, old, value, frame)
            return
        if role == ARRAY and type(entry.signature[-1]) is bytes and not differs_small(value, entry.signature):
            return
        signature = self.engine.looks.signature(value, role, thorough)
        is_large_store = mutator.into == name and role == ARRAY and len(signature) == _LARGE_FINGERPRINT
        if is_large_store or has_changed(role, entry.signature, signature):
            old, entry.signature = entry.past(), signature
            self._tell((name, self.plan.scope_of(name), mutator.offset, mutator.line), CHANGED, old, value, frame)

    # ------------------------------------------------------------ stores

    def _stored(self, target: Target, entry: Entry, value: Any, frame: FrameType) -> None:
        """A store was done; whether it changed anything, the entry tells."""
        if value is UNBOUND or target.store.hidden:
            self._unbound(target, entry, value, frame)
            return
        if entry.id == id(value) or (entry.kind[0] <= TEXT and entry.id and same_atom(entry.kept, value)):
            entry.id = id(value)
            return
        engine, old = self.engine, entry.recall()
        kind = engine.looks.kinds.get(id(type(value)))
        if kind is None or (kind.type is not None and kind.type() is not type(value)):
            kind = engine.looks.kind(value)
        role = kind[0]
        if entry.signature is None and (role >= OBJECT or role == ATOM):
            # What take() would do, at less cost: most values are of these roles.
            entry.id, entry.kind = id(value), kind
            entry.kept = value if role == ATOM else ref(value) if role == OBJECT else None
        else:
            self._take(target, entry, value, frame)
        engine.sink.changed(_new_change(Change, (*target.facts, old, value, self.serial)), frame)

    def _unbound(self, target: Target, entry: Entry, value: Any, frame: FrameType) -> None:
        store = target.store
        if store.hidden:
            self._forget_inner(store.name)
        if value is UNBOUND and entry.id:
            old = entry.recall()
            self._drop(target.key, entry)
            if not store.hidden:
                self._tell((store.name, target.scope, store.offset, store.line), DELETED, old, UNBOUND, frame)

    def _take(self, target: Target, entry: Entry, value: Any, frame: FrameType) -> None:
        """Keep what is needed to know a change later, and whether to look for one."""
        kit, key, could_change = self.engine.looks, target.key, entry.signature is not None
        kit.take(entry, value, kit.kind(value), whole=True)
        if target.store.slot < 0:
            self._space(target.store, frame).note(key, entry)
        elif could_change and entry.signature is None and key in self.plan.slot_of:
            self.alone.pop(key, None)
            self.open.pop(key, None)
            self._be_alert()

    def _settle(self, name: str, value: Any, references: int) -> None:
        """Decide whether a value can be changed by code that does not name the variable."""
        entry = self.known[name]
        if entry.signature is None:
            return
        alone = references <= _REFERENCES_OF_ONE_LOCAL and name not in self.plan.aliased
        alone = alone and self.engine.looks.is_closed(value, entry.kind.role)
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

    def _drop(self, key: str, entry: Entry) -> None:
        entry.clear()
        for table in (self.open, self.alone, self.space.mutable):
            table.pop(key, None)
        self._be_alert()

    def _forget_inner(self, name: str) -> None:
        """A comprehension is over: the next one begins anew."""
        for key in self.plan.inner_keys.get(name, ()):
            self.known.pop(key, None)

    # ------------------------------------------------------------ paths

    def _look_at_path(self, path: Path, frame: FrameType, mutator: Mutator | None) -> None:
        """Compare an attribute or item with what anybody saw last; without a mutator this is only the first look."""
        owner = self._root(path.root, frame)
        for step in path.steps[:-1]:
            owner = paths.take(owner, step) if owner is not UNBOUND else UNBOUND
        if owner is UNBOUND:
            return
        value = paths.take(owner, path.steps[-1])
        entry, is_new = self.engine.path_entry(owner, path.steps[-1])
        kit = self.engine.looks
        if mutator is None:
            if is_new and value is not UNBOUND:
                kit.take(entry, value, kit.kind(value))
            return
        where = (path.name, self.plan.scope, mutator.offset, mutator.line)
        if value is UNBOUND:
            old, was = entry.recall(), entry.id
            entry.clear()
            if was:
                self._tell(where, DELETED, old, UNBOUND, frame)
        elif entry.id != id(value):
            old, same = entry.recall(), bool(entry.id) and same_atom(entry.kept, value)
            kit.take(entry, value, kit.kind(value))
            if not same:
                self._tell(where, ASSIGNED, old, value, frame)
        elif entry.signature is not None:
            self._compare(path.name, entry, value, mutator, frame)

    def _root(self, name: str, frame: FrameType) -> Any:
        if name in self.plan.slots:
            if self.slots is None:
                return frame.f_locals.get(name, UNBOUND)
            code = self.plan.code
            value = slot(self.slots, self.plan.slots.index(name))
            return content(value) if name in code.co_cellvars or name in code.co_freevars else value
        is_function = bool(self.plan.code.co_flags & 1)
        value = UNBOUND if is_function else self._read_name(name, frame)
        return dict.get(frame.f_globals, name, UNBOUND) if value is UNBOUND else value

    # ------------------------------------------------------------ reading

    def _cell_entry(self, variable: Variable) -> Entry:
        cell = slot(self.slots, variable.slot) if self.slots is not None else None
        return self.engine.cell_entry(cell, variable.is_owned)

    def _entry(self, target: Target, frame: FrameType) -> Entry:
        kind = target.store.kind
        known = self.known if kind in (FAST, CELL) else self._space(target.store, frame).known
        return known.setdefault(target.key, Entry())

    def _space(self, store: Store, frame: FrameType) -> Names:
        return self.engine.space_of(frame.f_globals) if store.kind == GLOBAL else self.space

    def _read(self, target: Target, frame: FrameType) -> Any:
        store = target.store
        if store.kind == GLOBAL:
            return dict.get(frame.f_globals, store.name, UNBOUND)
        if store.slot < 0:
            return self._read_name(store.name, frame)
        if self.slots is None:
            return frame.f_locals.get(store.name, UNBOUND)
        value = slot(self.slots, store.slot)
        return content(value) if store.kind == CELL else value

    def _read_variable(self, variable: Variable, frame: FrameType) -> Any:
        if self.slots is None:
            return frame.f_locals.get(variable.name, UNBOUND)
        value = slot(self.slots, variable.slot)
        return content(value) if variable.kind == CELL else value

    def _read_slot(self, name: str, frame: FrameType) -> Any:
        if self.slots is None:
            return frame.f_locals.get(name, UNBOUND)
        return slot(self.slots, self.plan.slot_of[name])

    def _read_name(self, name: str, frame: FrameType) -> Any:
        """From the namespace of a module or class body; what ``__prepare__`` gave may be no dict, and is not asked."""
        space = frame.f_globals if self.is_module else frame.f_locals
        return dict.get(space, name, UNBOUND) if issubclass(type(space), dict) else UNBOUND

    def _tell(self, where: Where, how: str, old: Any, new: Any, frame: FrameType) -> None:
        name, scope, offset, line = where
        change = (name, self.plan.code, offset, line, scope, how, old, new, self.serial)
        self.engine.sink.changed(_new_change(Change, change), frame)
