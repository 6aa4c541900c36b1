"""Hold a trace as columns: an array of small ints for each field, and tables of what the ints stand for.

So 100,000 events are a few arrays of plain data. An ``Event`` object is created only when it is asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torchglass.events.column import INTS
from torchglass.events.schema import (
    EVENT_COLUMNS,
    NONE,
    Callee,
    Form,
    Meta,
    ModulePath,
    SiteNames,
    StackColumns,
)
from torchglass.events.types import Event, Location, ModuleInfo, Sketch, Stats, Value

GAP = ("unseen", "gap")
"""Kind and name of the event that stands for dropped ones."""


class NewRound(NamedTuple):
    """An outer loop began a new round since an event before, and no stack shows it."""

    before: int
    """The event that was still in the last round."""
    file: str
    line: int
    column: int
    """Where the head of the loop assigns its first name; the column in bytes."""


@dataclass(slots=True)
class Tables(StackColumns):
    """Every table of one trace.

    Columns of numbers are declared in the schema. Events are in the order of their start.
    """

    process: int = 0
    name: str = ""
    started_at: float = 0.0
    python: str = ""
    """The version of Python that ran; "" if it is not known. With several processes, that of the first."""
    torch: str = ""
    """The version of PyTorch, likewise."""
    duration_ns: int = 0
    complete: bool = True
    notes: list[str] = field(default_factory=list[str])
    left_by: tuple[str, ...] = ()
    """The exception that left the block and those during which it was raised, each as ``Type: text``."""
    left_process: int = 0
    """The process that the exception left, if the trace has several processes; else 0."""
    raised_at: tuple[Location, ...] = ()
    """The frames between the block and the place where that exception was raised, outermost first."""
    sources: dict[str, str] = field(default_factory=dict[str, str])

    first_io: array[int] = field(default_factory=INTS)
    """For each event, the index of its values in ``io``: first its inputs, then its outputs."""
    io: array[int] = field(default_factory=INTS)
    """Ids of values."""

    rounds: dict[int, list[NewRound]] = field(default_factory=dict[int, list[NewRound]])
    """By event, the outer loops that began a new round at it."""
    sketches: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Fingerprints by value, for the values that have one."""
    callees: list[Callee] = field(default_factory=list[Callee])
    forms: list[Form] = field(default_factory=list[Form])
    metas: list[Meta] = field(default_factory=list[Meta])
    modules: list[ModulePath] = field(default_factory=list[ModulePath])
    threads: list[str] = field(default_factory=list[str])
    thread_processes: list[int] = field(default_factory=list[int])
    """The process of each thread. Empty if ``process`` is that of all threads."""
    texts: list[str] = field(default_factory=list[str])
    """Errors and owners."""
    operand_texts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    sites: list[SiteNames] = field(default_factory=list[SiteNames])
    stack_sites: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """The sites below the base, outermost first."""
    _stacks: dict[int, tuple[Location, ...]] = field(
        default_factory=dict[int, tuple[Location, ...]]
    )

    def __len__(self) -> int:
        return len(self.callee)

    def process_of(self, thread: int) -> int:
        if self.thread_processes:
            return self.thread_processes[thread]
        return self.process

    def stack_locations(self, number: int) -> tuple[Location, ...]:
        """Return all frames of a stack, outermost first. They are cached."""
        cached = self._stacks.get(number)
        if cached is not None:
            return cached
        missing: list[int] = []
        base = number
        while base != NONE and base not in self._stacks:
            missing.append(base)
            base = self.stack_base[base]
        locations = ()
        if base != NONE:
            locations = self._stacks[base]
        for stack in reversed(missing):
            locations += tuple(self.sites[site].location for site in self.stack_sites[stack])
            self._stacks[stack] = locations
        return locations

    def value(self, number: int, role: str, has_stats: bool = True) -> Value:
        """Return a value as an object, with its role in an event."""
        meta = self.metas[self.value_meta[number]]
        version = self.value_version[number]
        storage = self.value_storage[number]
        producer = self.value_producer[number]
        sketch = None
        if number in self.sketches:
            sketch = Sketch.of(self.sketches[number])
        stats = None
        if has_stats:
            stats = self.stats(number)
        return Value(
            number,
            meta.kind,
            role,
            meta.shape,
            meta.dtype,
            meta.device,
            meta.stride,
            meta.layout,
            meta.requires_grad,
            meta.type,
            _or_none(storage),
            _or_none(version),
            _or_none(producer),
            stats,
            sketch,
        )

    def gaps(self) -> Iterator[int]:
        """Yield the events that stand for dropped ones."""
        gaps: set[int] = set()
        for number, callee in enumerate(self.callees):
            if (callee.kind, callee.name) == GAP:
                gaps.add(number)
        if not gaps:
            return
        for event, callee in enumerate(self.callee):
            if callee in gaps:
                yield event

    def stats(self, number: int) -> Stats | None:
        """Return the statistics of a value, or None if it was not measured."""
        if not self.value_measured or self.value_measured[number] == NONE:
            return None
        return Stats(
            self.value_count[number],
            self.value_nan[number],
            self.value_posinf[number],
            self.value_neginf[number],
            self.value_zeros[number],
            self.value_min[number],
            self.value_max[number],
            self.value_mean[number],
            self.value_std[number],
            self.value_norm[number],
        )

    def values_of(self, form: int, first: int, has_stats: bool = True) -> tuple[Value, ...]:
        """Return the values of a form. They begin at index ``first`` of ``io``."""
        if form == NONE:
            return ()
        roles = self.forms[form].roles
        return tuple(
            [
                self.value(self.io[first + index], role, has_stats)
                for index, role in enumerate(roles)
            ]
        )

    def mentions(self) -> Iterator[tuple[int, int, str]]:
        """Yield event, value and role of each input and output, in the order of the events."""
        for event, first in enumerate(self.first_io):
            roles: list[str] = []
            for form in (self.args[event], self.result[event]):
                if form != NONE:
                    roles += self.forms[form].roles
            for value, role in zip(self.io[first : first + len(roles)], roles, strict=True):
                yield event, value, role

    def text_of(self, form: int, first: int) -> str:
        """Return arguments or a result as text, tensors as ``f32[8, 3]``."""
        if form == NONE:
            return ""
        pieces = self.forms[form].pieces
        text = pieces[0]
        for index, piece in enumerate(pieces[1:]):
            text += self.metas[self.value_meta[self.io[first + index]]].word + piece
        return text

    def event(self, number: int, shown_as: int | None = None, has_stats: bool = True) -> Event:
        """Return the event of a row as an object. In live output, which keeps no rows, ``shown_as`` is its id.

        Its values have statistics, unless ``has_stats`` is false.
        """
        callee = self.callees[self.callee[number]]
        args = self.args[number]
        result = self.result[number]
        first_input = self.first_io[number]
        first_output = first_input
        if args != NONE:
            first_output += len(self.forms[args].roles)
        stack = self.stack[number]
        locations: tuple[Location, ...] = ()
        site = None
        if stack != NONE:
            locations = self.stack_locations(stack)
            user_site = self.stack_user[stack]
            if user_site != NONE:
                site = self.sites[user_site]
        module = None
        path = None
        root = None
        detail = callee.detail
        if self.module[number] != NONE:
            module = self.modules[self.module[number]]
            path = module.path
            root = module.root
            if callee.kind == "module":
                detail = module.detail
        is_direct = False
        operator = None
        target: tuple[str, ...] = ()
        location = None
        code = ""
        if site is not None:
            is_direct = bool(self.direct[number])
            location = site.location
            code = site.code
        if site is not None and is_direct:
            target = site.target
            if callee.kind == "function":
                operator = site.operator
        phase = "forward"
        if self.backward[number]:
            phase = "backward"
        event_id = number
        if shown_as is not None:
            event_id = shown_as
        return Event(
            id=event_id,
            kind=callee.kind,
            name=callee.name,
            parent=_or_none(self.parent[number]),
            thread=self.threads[self.thread[number]],
            process=self.process_of(self.thread[number]),
            phase=phase,
            forward_event=_or_none(self.forward[number]),
            start_ns=self.start_ns[number],
            end_ns=_or_none(self.end_ns[number]),
            module=path,
            root=root,
            call=_or_none(self.call[number]),
            detail=detail,
            operator=operator,
            args=self.text_of(args, first_input),
            result=self.text_of(result, first_output),
            inputs=self.values_of(args, first_input, has_stats),
            outputs=self.values_of(result, first_output, has_stats),
            stack=locations,
            location=location,
            owner=self._text_or_none(self.owner[number]),
            code=code,
            direct=is_direct,
            target=target,
            operands=self.operand_texts[self.operands[number]],
            key=self.key(number, callee, module, site),
            error=self._text_or_none(self.error[number]),
            note=callee.note,
            python_call=_or_none(self.python_call[number]),
        )

    def _text_or_none(self, number: int) -> str | None:
        if number < 0:
            return None
        return self.texts[number]

    def keep(self, numbers: list[int]) -> Tables:
        """Return the same trace with only these events. Each gets its nearest kept ancestor as its parent."""
        new_numbers = {number: index for index, number in enumerate(numbers)}
        kept = replace(self, _stacks={})
        for name in (*EVENT_COLUMNS, "first_io"):
            column = getattr(self, name)
            setattr(kept, name, array("q", [column[number] for number in numbers]))
        for index, number in enumerate(numbers):
            parent = self.parent[number]
            while parent != NONE and parent not in new_numbers:
                parent = self.parent[parent]
            kept.parent[index] = new_numbers.get(parent, NONE)
        kept.pack_values(self.io)
        kept.value_producer = array(
            "q", [new_numbers.get(number, NONE) for number in self.value_producer]
        )
        kept.forward = array("q", [new_numbers.get(number, NONE) for number in kept.forward])
        kept.rounds = {}
        for event, rounds in self.rounds.items():
            # If the first event in a round is left out, the next one in its thread shows the round.
            index = bisect_left(numbers, event)
            while index < len(numbers) and self.thread[numbers[index]] != self.thread[event]:
                index += 1
            if index < len(numbers):
                befores = [bisect_right(numbers, each.before) - 1 for each in rounds]
                kept.rounds.setdefault(index, []).extend(
                    each._replace(before=before)
                    for each, before in zip(rounds, befores, strict=True)
                    if before != NONE
                )
        return kept

    def pack_values(self, io: array[int]) -> None:
        """Fill ``io`` with the values of the events, without gaps and in their order, from an array that has them."""
        counts = form_sizes(self)
        packed = array("q")
        first_io = array("q")
        for first, args, result in zip(self.first_io, self.args, self.result, strict=True):
            first_io.append(len(packed))
            packed += io[first : first + counts[args] + counts[result]]
        self.io = packed
        self.first_io = first_io

    def key(
        self, number: int, callee: Callee, module: ModulePath | None, site: SiteNames | None
    ) -> str:
        """Return a key of an event that is equal in two runs of one program: ``Net/fc@forward:12:8/F.relu#0``.

        It has the module, the place in the code, the callee, and the number of the occurrence.
        """
        path = ""
        if module:
            path = f"{module.root}/{module.path}"
        place = ""
        if site:
            location = site.location
            place = f"{location.function}:{location.line}:{location.col}"
        return f"{path}@{place}/{callee.name}#{self.occurrence[number]}"

    def module_infos(self) -> tuple[ModuleInfo, ...]:
        """Return all modules as objects."""
        infos: list[ModuleInfo] = []
        for number, row in enumerate(self.modules):
            parameters = tuple(self.value(value, name) for name, value in row.parameters)
            infos.append(ModuleInfo(number, row.root, row.path, row.name, row.detail, parameters))
        return tuple(infos)


def _or_none(number: int) -> int | None:
    """Return a number of a column; None if it is negative, which marks a missing number."""
    if number < 0:
        return None
    return number


def form_sizes(tables: Tables) -> list[int]:
    """Return the number of tensors in each form. The last entry, for the form NONE, which is -1, is 0."""
    return [*(len(form.roles) for form in tables.forms), 0]
