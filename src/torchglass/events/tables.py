"""A trace as columns: one array of small ints for each field, and tables of what the ints mean.

Plain data: 100,000 events are a few arrays, an ``Event`` is made only when somebody looks at it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from torchglass.events.column import INTS
from torchglass.events.schema import EVENT_COLUMNS, NONE, Form, Meta, ModulePath, SiteNames, StackColumns, What
from torchglass.events.types import Event, Location, ModuleInfo, Sketch, Stats, Value


@dataclass(slots=True)
class Tables(StackColumns):
    """Every table of one trace. Columns of numbers come from the schema; those of events are in order of opening."""

    process: int = 0
    name: str = ""
    started_at: float = 0.0
    duration_ns: int = 0
    complete: bool = True
    notes: list[str] = field(default_factory=list[str])
    left_by: tuple[str, ...] = ()
    """The exception that left the block and those that it was raised in answer to, as ``Type: text``."""
    left_process: int = 0
    """Of several processes the one that it left; 0 where there is but one."""
    raised_at: tuple[Location, ...] = ()
    """The frames between the block and the place where that exception was raised, outermost first."""
    sources: dict[str, str] = field(default_factory=dict[str, str])

    first_io: array[int] = field(default_factory=INTS)
    """Offset of an event's values in ``io``: its inputs, then its outputs."""
    io: array[int] = field(default_factory=INTS)
    """Value ids."""

    sketches: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """By value: what its numbers are known again by; of those of which that was asked for."""
    whats: list[What] = field(default_factory=list[What])
    forms: list[Form] = field(default_factory=list[Form])
    metas: list[Meta] = field(default_factory=list[Meta])
    modules: list[ModulePath] = field(default_factory=list[ModulePath])
    threads: list[str] = field(default_factory=list[str])
    thread_processes: list[int] = field(default_factory=list[int])
    """The process of each thread; empty when all are of ``process``."""
    texts: list[str] = field(default_factory=list[str])
    """Errors and owners."""
    operand_texts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    sites: list[SiteNames] = field(default_factory=list[SiteNames])
    stack_sites: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """The sites below the base, outermost first."""
    _stacks: dict[int, tuple[Location, ...]] = field(default_factory=dict[int, tuple[Location, ...]])

    def __len__(self) -> int:
        return len(self.what)

    def process_of(self, thread: int) -> int:
        return self.thread_processes[thread] if self.thread_processes else self.process

    def stack_locations(self, number: int) -> tuple[Location, ...]:
        """A whole stack, outermost first; made once."""
        known = self._stacks.get(number)
        if known is not None:
            return known
        chain: list[int] = []
        base = number
        while base != NONE and base not in self._stacks:
            chain.append(base)
            base = self.stack_base[base]
        locations = self._stacks[base] if base != NONE else ()
        for each in reversed(chain):
            locations += tuple(self.sites[site].location for site in self.stack_sites[each])
            self._stacks[each] = locations
        return locations

    def value(self, number: int, role: str) -> Value:
        meta = self.metas[self.value_meta[number]]
        version, storage = self.value_version[number], self.value_storage[number]
        producer = self.value_producer[number]
        return Value(
            number, meta.kind, role, meta.shape, meta.dtype, meta.device, meta.stride, meta.layout,
            meta.requires_grad, meta.type, None if storage < 0 else storage,
            None if version < 0 else version, None if producer < 0 else producer,
            self.stats(number) if self.value_measured else None,
            Sketch.of(self.sketches[number]) if number in self.sketches else None,
        )  # fmt: skip

    def stats(self, number: int) -> Stats | None:
        """What was in a value; None where it was not measured."""
        if not self.value_measured or self.value_measured[number] == NONE:
            return None
        return Stats(
            self.value_count[number], self.value_nan[number], self.value_posinf[number], self.value_neginf[number],
            self.value_zeros[number], self.value_min[number], self.value_max[number], self.value_mean[number],
            self.value_std[number], self.value_norm[number],
        )  # fmt: skip

    def values_of(self, form: int, first: int) -> tuple[Value, ...]:
        if form == NONE:
            return ()
        return tuple([self.value(self.io[first + i], role) for i, role in enumerate(self.forms[form].roles)])

    def mentions(self) -> Iterator[tuple[int, int, str]]:
        """Each value that an event took or gave, under its role there: (event, value, role), in order of events."""
        for number, first in enumerate(self.first_io):
            forms = [each for each in (self.args[number], self.result[number]) if each != NONE]
            roles = [role for form in forms for role in self.forms[form].roles]
            for value, role in zip(self.io[first : first + len(roles)], roles, strict=True):
                yield number, value, role

    def text_of(self, form: int, first: int) -> str:
        """Arguments or a result as text, tensors as ``f32[8, 3]``."""
        if form == NONE:
            return ""
        pieces = self.forms[form].pieces
        text = pieces[0]
        for index, piece in enumerate(pieces[1:]):
            text += self.metas[self.value_meta[self.io[first + index]]].word + piece
        return text

    def event(self, number: int, shown_as: int | None = None) -> Event:
        """The event of a row; ``shown_as`` is its id when rows are not kept (live)."""
        what = self.whats[self.what[number]]
        args, result, first = self.args[number], self.result[number], self.first_io[number]
        outputs = first + (len(self.forms[args].roles) if args != NONE else 0)
        stack, error, end = self.stack[number], self.error[number], self.end_ns[number]
        user = self.stack_user[stack] if stack != NONE else NONE
        site = self.sites[user] if user != NONE else None
        direct = site is not None and bool(self.direct[number])
        row = self.modules[self.module[number]] if self.module[number] != NONE else None
        parent, call, owner = self.parent[number], self.call[number], self.owner[number]
        return Event(
            id=number if shown_as is None else shown_as,
            kind=what.kind,
            name=what.name,
            parent=None if parent < 0 else parent,
            thread=self.threads[self.thread[number]],
            process=self.process_of(self.thread[number]),
            phase="backward" if self.backward[number] else "forward",
            forward_event=None if (forward := self.forward[number]) < 0 else forward,
            start_ns=self.start_ns[number],
            end_ns=None if end < 0 else end,
            module=row.path if row else None,
            root=row.root if row else None,
            call=None if call < 0 else call,
            detail=row.detail if row and what.kind == "module" else what.detail,
            operator=site.operator if site and direct and what.kind == "function" else None,
            args=self.text_of(args, first),
            result=self.text_of(result, outputs),
            inputs=self.values_of(args, first),
            outputs=self.values_of(result, outputs),
            stack=self.stack_locations(stack) if stack != NONE else (),
            location=site.location if site else None,
            owner=self.texts[owner] if owner >= 0 else None,
            code=site.code if site else "",
            direct=direct,
            target=site.target if site and direct else (),
            operands=self.operand_texts[self.operands[number]],
            key=self.key(number, what, row, site),
            error=self.texts[error] if error >= 0 else None,
            note=what.note,
            python_call=None if (number_of_call := self.python_call[number]) < 0 else number_of_call,
        )

    def keep(self, numbers: list[int]) -> Tables:
        """The same trace with only these events; each hangs below its nearest kept ancestor."""
        place = {number: index for index, number in enumerate(numbers)}
        kept = replace(self, _stacks={})
        for name in (*EVENT_COLUMNS, "first_io"):
            column = getattr(self, name)
            setattr(kept, name, array("q", [column[number] for number in numbers]))
        for index, number in enumerate(numbers):
            parent = self.parent[number]
            while parent != NONE and parent not in place:
                parent = self.parent[parent]
            kept.parent[index] = NONE if parent == NONE else place[parent]
        kept.pack_values(self.io)
        kept.value_producer = array("q", [place.get(number, NONE) for number in self.value_producer])
        kept.forward = array("q", [place.get(number, NONE) for number in kept.forward])
        return kept

    def pack_values(self, io: array[int]) -> None:
        """Lay the values of the events one behind the other, in order of the events; ``io`` is where they are now."""
        counts = form_sizes(self)
        packed, first_io = array("q"), array("q")
        for first, args, result in zip(self.first_io, self.args, self.result, strict=True):
            first_io.append(len(packed))
            packed += io[first : first + counts[args] + counts[result]]
        self.io, self.first_io = packed, first_io

    def key(self, number: int, what: What, row: ModulePath | None, site: SiteNames | None) -> str:
        """The same in two runs of one program: where in the model, where in the code, which time."""
        place = f"{row.root}/{row.path}" if row else ""
        at = site.location if site else None
        line = f"{at.function}:{at.line}:{at.col}" if at else ""
        return f"{place}@{line}/{what.name}#{self.occurrence[number]}"

    def module_infos(self) -> tuple[ModuleInfo, ...]:
        return tuple(
            ModuleInfo(
                number, row.root, row.path, row.name, row.detail,
                tuple(self.value(value, name) for name, value in row.parameters),
            )
            for number, row in enumerate(self.modules)
        )  # fmt: skip


def form_sizes(tables: Tables) -> list[int]:
    """How many values each form has a place for; the last entry is for NONE, which is -1."""
    return [*(len(form.roles) for form in tables.forms), 0]
