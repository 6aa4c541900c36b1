"""Reading what the variables of one call hold: from the frame's slots, its cells, and the namespaces around it."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from torchglass.capture.variables.bytecode import CELL, FAST, GLOBAL, Store
from torchglass.capture.variables.following import Following
from torchglass.capture.variables.frames import content, slot
from torchglass.capture.variables.plan import Action, Plan, SlotVariable, Target
from torchglass.capture.variables.snapshots import Known
from torchglass.capture.variables.watch import UNBOUND
from torchglass.compiled import extension


class Names:
    """The watched names of a namespace: of a module, where all its frames share them, or of a class body."""

    __slots__ = ("known", "mutable")

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.mutable: dict[str, Known] = {}

    def note(self, name: str, entry: Known) -> None:
        """Look for changes of this one from now on, or no longer."""
        self.known[name] = entry
        self.mutable.pop(name, None)
        if entry.signature is not None:
            self.mutable[name] = entry


NO_NAMES = Names()


class _Fields:
    """What the hot path asks of a call; where there is an extension, C has fields of the same names."""

    engine: Following
    plan: Plan
    serial: int
    slots: Any
    """The locals where they are; None where they cannot be read, or there are none."""
    known: dict[str, Known]
    open: dict[str, Known]
    """Values that any call may change."""
    alone: dict[str, Known]
    """Values that nothing else refers to: only code that names the variable can change them."""
    pending: Action | None = None
    """What the line under way may do, for the core that is told of lines; so are the next four."""
    is_exact = opcodes_before = False
    error: Any = None
    local: Any = None
    skipped_line = 0
    """The line that opened the block, in the block's own frame: ``with … as name`` is not the block's doing."""


if not TYPE_CHECKING and extension is not None:
    _Fields = extension.Call


class Reading(_Fields):
    """Where the variables of one call are, and what is known of them."""

    space: Names = NO_NAMES
    is_module = False

    def find_namespace(self, frame: FrameType) -> None:
        # Asked once: inside a comprehension f_locals of a module is something else from 3.12 on.
        self.is_module = frame.f_locals is frame.f_globals
        self.space = self.engine.space_of(frame.f_globals) if self.is_module else Names()

    def cell_entry(self, variable: SlotVariable) -> Known:
        cell = slot(self.slots, variable.slot) if self.slots is not None else None
        return self.engine.cell_entry(cell, variable.is_owned)

    def entry_of(self, target: Target, frame: FrameType) -> Known:
        """What is known of what a store was into."""
        kind = target.store.kind
        known = self.known if kind in (FAST, CELL) else self.space_of(target.store, frame).known
        return known.setdefault(target.key, Known())

    def space_of(self, store: Store, frame: FrameType) -> Names:
        return self.engine.space_of(frame.f_globals) if store.kind == GLOBAL else self.space

    def read(self, target: Target, frame: FrameType) -> Any:
        """What a store has left in its variable."""
        store = target.store
        if store.kind == GLOBAL:
            return dict.get(frame.f_globals, store.name, UNBOUND)
        if store.slot < 0:
            return self.read_name(store.name, frame)
        if self.slots is None:
            return frame.f_locals.get(store.name, UNBOUND)
        value = slot(self.slots, store.slot)
        return content(value) if store.kind == CELL else value

    def read_variable(self, variable: SlotVariable, frame: FrameType) -> Any:
        if self.slots is None:
            return frame.f_locals.get(variable.name, UNBOUND)
        value = slot(self.slots, variable.slot)
        return content(value) if variable.kind == CELL else value

    def read_slot(self, name: str, frame: FrameType) -> Any:
        """What a plain local holds."""
        if self.slots is None:
            return frame.f_locals.get(name, UNBOUND)
        return slot(self.slots, self.plan.slot_of[name])

    def read_name(self, name: str, frame: FrameType) -> Any:
        """From the namespace of a module or class body; what ``__prepare__`` gave may be no dict, and is not asked."""
        space = frame.f_globals if self.is_module else frame.f_locals
        return dict.get(space, name, UNBOUND) if issubclass(type(space), dict) else UNBOUND

    def root(self, name: str, frame: FrameType) -> Any:
        """What a path begins with."""
        if name in self.plan.slots:
            if self.slots is None:
                return frame.f_locals.get(name, UNBOUND)
            code = self.plan.code
            value = slot(self.slots, self.plan.slots.index(name))
            return content(value) if name in code.co_cellvars or name in code.co_freevars else value
        is_function = bool(self.plan.code.co_flags & 1)
        value = UNBOUND if is_function else self.read_name(name, frame)
        return dict.get(frame.f_globals, name, UNBOUND) if value is UNBOUND else value
