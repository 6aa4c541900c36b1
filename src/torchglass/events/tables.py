"""A trace as columns: one array of small ints for each field, and tables of what the ints mean.

Plain data: 100,000 events are a few arrays, an ``Event`` is made only when somebody looks at it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace

from torchglass.events.spelling import dtype_word, shape_word
from torchglass.events.types import Event, Location, ModuleInfo, Value

NONE = -1
EVENT_COLUMNS = (
    "what", "parent", "thread", "backward", "start_ns", "end_ns", "module", "call", "stack", "owner", "operands",
    "direct", "args", "result", "first_io", "occurrence", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class What:
    """What happened: a kind, a name, and a note that holds for every such event."""

    kind: str
    name: str
    note: str | None = None
    detail: str = ""
    """Of a variable: how it got its value."""


@dataclass(frozen=True, slots=True)
class Form:
    """How arguments or results stood: the role of each tensor, and the text around them."""

    roles: tuple[str, ...]
    pieces: tuple[str, ...]
    """One more than there are tensors: the text before, between and behind them."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What tensors of one kind have in common."""

    kind: str
    shape: tuple[int, ...] | None
    dtype: str
    device: str
    stride: tuple[int, ...] | None
    layout: str
    requires_grad: bool
    type: str
    word: str
    """``f32[8, 3]``."""

    @classmethod
    def of(
        cls, shape: tuple[int, ...] | None, dtype: str, device: str, stride: tuple[int, ...] | None, layout: str,
        requires_grad: bool, python_type: str, kind: str = "tensor",
    ) -> Meta:  # fmt: skip
        word = dtype_word(dtype) + shape_word(shape) + (" numpy" if kind == "array" else "")
        return cls(kind, shape, dtype, device, stride, layout, requires_grad, python_type, word)


@dataclass(frozen=True, slots=True)
class SiteNames:
    """What the source says at one place."""

    location: Location
    code: str
    target: tuple[str, ...]
    operator: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """A module under one path; ``parameters`` are (name, value id)."""

    root: str
    path: str
    name: str
    detail: str
    parameters: tuple[tuple[str, int], ...]


def _ints() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Tables:
    """Every table of one trace. Event columns have one entry an event, in order of opening."""

    process: int = 0
    name: str = ""
    started_at: float = 0.0
    duration_ns: int = 0
    complete: bool = True
    notes: list[str] = field(default_factory=list[str])
    left_by: tuple[str, ...] = ()
    """The exception that left the block and those that it was raised in answer to, as ``Type: text``."""
    sources: dict[str, str] = field(default_factory=dict[str, str])

    what: array[int] = field(default_factory=_ints)
    parent: array[int] = field(default_factory=_ints)
    thread: array[int] = field(default_factory=_ints)
    backward: array[int] = field(default_factory=_ints)
    start_ns: array[int] = field(default_factory=_ints)
    end_ns: array[int] = field(default_factory=_ints)
    module: array[int] = field(default_factory=_ints)
    call: array[int] = field(default_factory=_ints)
    stack: array[int] = field(default_factory=_ints)
    owner: array[int] = field(default_factory=_ints)
    operands: array[int] = field(default_factory=_ints)
    direct: array[int] = field(default_factory=_ints)
    """1 when the expression at the innermost user site made the call itself."""
    args: array[int] = field(default_factory=_ints)
    result: array[int] = field(default_factory=_ints)
    first_io: array[int] = field(default_factory=_ints)
    """Offset of an event's values in ``io``: its inputs, then its outputs."""
    occurrence: array[int] = field(default_factory=_ints)
    error: array[int] = field(default_factory=_ints)

    io: array[int] = field(default_factory=_ints)
    """Value ids."""
    value_meta: array[int] = field(default_factory=_ints)
    value_version: array[int] = field(default_factory=_ints)
    value_storage: array[int] = field(default_factory=_ints)
    value_producer: array[int] = field(default_factory=_ints)
    value_address: array[int] = field(default_factory=_ints)
    """Of the storages (0: not known); only while storages and producers are not linked yet, else empty."""
    value_before: array[int] = field(default_factory=_ints)
    """The value that the same tensor was before a change (-2 - n: it lies in the memory of value n).

    Kept as long as the addresses are."""

    whats: list[What] = field(default_factory=list[What])
    forms: list[Form] = field(default_factory=list[Form])
    metas: list[Meta] = field(default_factory=list[Meta])
    modules: list[ModuleRow] = field(default_factory=list[ModuleRow])
    threads: list[str] = field(default_factory=list[str])
    thread_processes: list[int] = field(default_factory=list[int])
    """The process of each thread; empty when all are of ``process``."""
    texts: list[str] = field(default_factory=list[str])
    """Errors and owners."""
    operand_texts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    sites: list[SiteNames] = field(default_factory=list[SiteNames])
    stack_base: array[int] = field(default_factory=_ints)
    stack_sites: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """The sites below the base, outermost first."""
    stack_user: array[int] = field(default_factory=_ints)
    """The innermost user site of a stack."""
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
        )  # fmt: skip

    def values_of(self, form: int, first: int) -> tuple[Value, ...]:
        if form == NONE:
            return ()
        return tuple([self.value(self.io[first + i], role) for i, role in enumerate(self.forms[form].roles)])

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
            forward_event=None,
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
        )

    def keep(self, numbers: list[int]) -> Tables:
        """The same trace with only these events; each hangs below its nearest kept ancestor."""
        place = {number: index for index, number in enumerate(numbers)}
        kept = replace(self, _stacks={})
        for name in EVENT_COLUMNS:
            column = getattr(self, name)
            setattr(kept, name, array("q", [column[number] for number in numbers]))
        for index, number in enumerate(numbers):
            parent = self.parent[number]
            while parent != NONE and parent not in place:
                parent = self.parent[parent]
            kept.parent[index] = NONE if parent == NONE else place[parent]
        kept.pack_values(self.io)
        kept.value_producer = array("q", [place.get(number, NONE) for number in self.value_producer])
        return kept

    def pack_values(self, io: array[int]) -> None:
        """Lay the values of the events one behind the other, in order of the events; ``io`` is where they are now."""
        counts = [*(len(form.roles) for form in self.forms), 0]  # the last is for NONE, which is -1
        packed, first_io = array("q"), array("q")
        for first, args, result in zip(self.first_io, self.args, self.result, strict=True):
            first_io.append(len(packed))
            packed += io[first : first + counts[args] + counts[result]]
        self.io, self.first_io = packed, first_io

    def key(self, number: int, what: What, row: ModuleRow | None, site: SiteNames | None) -> str:
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
