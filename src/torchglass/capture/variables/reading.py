"""Reads the variables of one call from the frame's slots, its cells, and the namespaces around it."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from torchglass.capture.slots import content, slot
from torchglass.capture.variables.bytecode import CELL, FAST, GLOBAL, Store
from torchglass.capture.variables.following import Following
from torchglass.capture.variables.plan import Action, Plan, SlotVariable, Target
from torchglass.capture.variables.snapshots import Known
from torchglass.capture.variables.watch import UNBOUND
from torchglass.compiled import extension


class Names:
    """The watched names of a namespace: of a module, whose frames all share them, or of a class body."""

    __slots__ = ("known", "mutable")

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.mutable: dict[str, Known] = {}

    def note(self, name: str, entry: Known) -> None:
        """Remember the entry of a name, and whether to look for changes in place of its value."""
        self.known[name] = entry
        self.mutable.pop(name, None)
        if entry.signature is not None:
            self.mutable[name] = entry


NO_NAMES = Names()


class _Fields:
    """The fields of a call that the hot path uses; with the extension, C defines fields of the same names."""

    engine: Following
    plan: Plan
    serial: int
    slots: Any
    """The locals of the frame, read in place; None if they cannot be read, or there are none."""
    known: dict[str, Known]
    open: dict[str, Known]
    """The variables whose values any call may change."""
    alone: dict[str, Known]
    """The variables whose values have no other reference, so that only code that names the variable can change them."""
    # The next five fields are for settrace.py, which gets lines.
    pending: Action | None = None
    """What the running line may do."""
    is_exact = opcodes_before = False
    error: Any = None
    local: Any = None
    skipped_line = 0
    """The line that opened the block, in the frame of the block: its ``with … as name`` is not reported."""


if not TYPE_CHECKING and extension is not None:
    _Fields = extension.Call


class Reading(_Fields):
    """Knows where the variables of one call are, and what they last held."""

    space: Names = NO_NAMES
    is_module = False

    def find_namespace(self, frame: FrameType) -> None:
        # Find out once: from 3.12 on, ``f_locals`` of a module is another object inside a comprehension.
        self.is_module = frame.f_locals is frame.f_globals
        if self.is_module:
            self.space = self.engine.space_of(frame.f_globals)
        else:
            self.space = Names()

    def cell_entry(self, variable: SlotVariable) -> Known:
        cell = None
        if self.slots is not None:
            cell = slot(self.slots, variable.slot)
        return self.engine.cell_entry(cell, variable.is_owned)

    def entry_of(self, target: Target, frame: FrameType) -> Known:
        """Return the entry of the variable that a store writes."""
        kind = target.store.kind
        if kind in (FAST, CELL):
            known = self.known
        else:
            known = self.space_of(target.store, frame).known
        return known.setdefault(target.key, Known())

    def space_of(self, store: Store, frame: FrameType) -> Names:
        if store.kind == GLOBAL:
            return self.engine.space_of(frame.f_globals)
        return self.space

    def read(self, target: Target, frame: FrameType) -> Any:
        """Return the value of a variable after a store."""
        store = target.store
        if store.kind == GLOBAL:
            return dict.get(frame.f_globals, store.name, UNBOUND)
        if store.slot < 0:
            return self.read_name(store.name, frame)
        if self.slots is None:
            return frame.f_locals.get(store.name, UNBOUND)
        value = slot(self.slots, store.slot)
        if store.kind == CELL:
            return content(value)
        return value

    def read_variable(self, variable: SlotVariable, frame: FrameType) -> Any:
        if self.slots is None:
            return frame.f_locals.get(variable.name, UNBOUND)
        value = slot(self.slots, variable.slot)
        if variable.kind == CELL:
            return content(value)
        return value

    def read_slot(self, name: str, frame: FrameType) -> Any:
        """Return the value of a plain local variable."""
        if self.slots is None:
            return frame.f_locals.get(name, UNBOUND)
        return slot(self.slots, self.plan.slot_of[name])

    def read_name(self, name: str, frame: FrameType) -> Any:
        """Return the value of a name in the namespace of a module or class body, or ``UNBOUND``.

        A metaclass may provide a namespace that is not a dict (``__prepare__``); such a namespace is not read.
        """
        if self.is_module:
            space = frame.f_globals
        else:
            space = frame.f_locals
        if issubclass(type(space), dict):
            return dict.get(space, name, UNBOUND)
        return UNBOUND

    def root(self, name: str, frame: FrameType) -> Any:
        """Return the value of the variable that a path begins with."""
        if name in self.plan.slots:
            if self.slots is None:
                return frame.f_locals.get(name, UNBOUND)
            code = self.plan.code
            value = slot(self.slots, self.plan.slots.index(name))
            if name in code.co_cellvars or name in code.co_freevars:
                return content(value)
            return value
        is_function = bool(self.plan.code.co_flags & 1)
        value = UNBOUND
        if not is_function:
            value = self.read_name(name, frame)
        if value is UNBOUND:
            return dict.get(frame.f_globals, name, UNBOUND)
        return value
