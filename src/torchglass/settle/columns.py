"""Raw records turned into rows of the event columns.

What repeats (names, forms, places, operands) is worked out once for each combination that occurs: a forward of
GPT-2 has 732 events, but 83 stacks and 41 forms of arguments.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from torchglass.events.schema import NONE, Form, ModulePath, What
from torchglass.events.tables import Tables
from torchglass.journal.rows import WhatRow
from torchglass.settle.interned import (
    NO_NAMES,
    Interned,
    Module,
    Names,
    RawForm,
    result_form,
    shown_form,
    tensor_slots,
)
from torchglass.settle.places import PlaceTable
from torchglass.settle.values import Values
from torchglass.source.sites import Slots, is_direct, operands

_T = TypeVar("_T")
MODULE, FUNCTION, OP, UNSEEN, MARK, VARIABLE = "module", "function", "op", "unseen", "mark", "variable"
Subject = int
"""What was called: the number of a function or of something else, from 0 on; of the class of a module, downwards."""
FIRST_CLASS = -2
NOT_KNOWN: RawForm = (1, "…")
"""Arguments or a result whose row was dropped."""
NOT_THERE = "?"
"""The name of what no row tells about."""


def module_row(what: int) -> int:
    """Records of module calls hold their row below -1; all others hold a number from 0 on."""
    return -2 - what


class Fixed(NamedTuple):
    """All that is the same whenever the same is called in the same way, from the same place, in the same module."""

    columns: tuple[int, ...]
    """The entries of the columns in ``FIXED``."""
    stem: int
    """Counts the occurrences."""
    taken: int
    given: int
    """How many values."""


FIXED = ("what", "args", "stack", "owner", "operands", "direct", "result")
Combination = tuple[int, int, int, int, int]
"""What was called, and the raw numbers of its arguments, its stack, its module and its result."""


class Batch:
    """Rows to be, in lists of their own: a loop fills these, and the columns get them at once.

    Seventeen columns are longer by one entry after each event; appending to arrays one by one took more time than
    finding out what to append.
    """

    def __init__(self, first_io: int) -> None:
        self.fixed: list[tuple[int, ...]] = []
        self.varying: list[int] = []
        """An entry for each column in ``VARYING``, event after event."""
        self.io: list[int] = []
        self.first_io = first_io
        """How many values there were before those in ``io``."""


VARYING = (
    "parent", "backward", "start_ns", "end_ns", "module", "call", "first_io", "occurrence", "error", "python_call",
    "forward",
)  # fmt: skip


class Columns:
    """Fills the event columns of one ``Tables``, and what their numbers mean."""

    def __init__(self, interned: Interned, places: PlaceTable, values: Values, tables: Tables) -> None:
        self.interned = interned
        self.places = places
        self.values = values
        self.tables = tables
        self.known: dict[Combination, Fixed] = {}
        self._shared: dict[tuple[Subject, int, int, int], tuple[int, ...]] = {}
        self._whats: dict[Subject, tuple[int, Names]] = {}
        self._forms: dict[tuple[Subject, int], int] = {}
        self._texts: dict[str, int] = {}
        self._operands: dict[tuple[str, ...], int] = {}
        self._threads: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        """How often each module was called before its last call."""
        self._stems: dict[tuple[object, ...], int] = {}
        self.occurrences: list[int] = []
        """How often each stem has occurred."""
        self._labels: dict[int, str] = {}
        self._python_calls: dict[int, int] = {}
        self._operand_id(())

    def extend(self, thread: int, batch: Batch) -> None:
        """Append rows that are all of one thread."""
        if not batch.fixed:
            return
        tables, count = self.tables, len(batch.fixed)
        for name, entries in zip(FIXED, zip(*batch.fixed, strict=True), strict=True):
            getattr(tables, name).fromlist(list(entries))  # half the time of extend()
        for index, name in enumerate(VARYING):
            getattr(tables, name).fromlist(batch.varying[index :: len(VARYING)])
        tables.thread.fromlist([self._thread(thread)] * count)
        tables.io.fromlist(batch.io)

    def count_call(self, module: int) -> int:
        """How often a module that is called was called before."""
        before = self._calls[module] = self._calls.get(module, NONE) + 1
        return before

    def python_call(self, number: int) -> int:
        """The calls of Python functions whose variables were followed, counted from 0 on."""
        return NONE if number < 0 else self._python_calls.setdefault(number, len(self._python_calls))

    def add_gap(self, note: str) -> Fixed:
        """What stands where events were dropped."""
        self.tables.whats.append(What(UNSEEN, "gap", note))
        empty = self._add_form(Form((), ("",)))
        columns = (len(self.tables.whats) - 1, empty, NONE, NONE, self._operand_id(()), 0, NONE)
        return Fixed(columns, self._stem(columns[0], NONE, NONE), 0, 0)

    def is_nothing(self, what: int, raw_args: int, raw_result: int) -> bool:
        """A function that neither took nor gave a tensor is no event, nor is an attribute that holds none."""
        if what < 0 or raw_result == NONE or self.interned.whats[what].kind != FUNCTION:
            return False
        if self.tables.forms[self.result(raw_result)].roles:
            return False
        takes_tensors = bool(self.tables.forms[self._args(what, raw_args)].roles)
        return self.interned.whats[what].is_read or not takes_tensors

    def fixed(self, combination: Combination) -> Fixed:
        """What a row says but times and values; worked out once."""
        known = self.known.get(combination)
        if known is None:
            known = self.known[combination] = self._work_out(*combination)
        return known

    def _work_out(self, what: int, raw_args: int, raw_stack: int, module: int, raw_result: int) -> Fixed:
        key = (self._subject(what), raw_args, raw_stack, NONE if module == NONE else self.interned.modules[module].cls)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._work_out_shared(*key)
        *columns, taken = shared
        result = NONE if raw_result == NONE else self.result(raw_result)
        given = 0 if result == NONE else len(self.tables.forms[result].roles)
        number, stack = columns[0], columns[2]
        site = NONE if stack == NONE else self.tables.stack_user[stack]
        return Fixed((*columns, result), self._stem(number, site, module), taken, given)

    def _work_out_shared(self, subject: Subject, raw_args: int, raw_stack: int, cls: int) -> tuple[int, ...]:
        """What is the same for all modules of a class, and how many values are taken: sixty layers are one."""
        number, _ = self._what(subject)
        args = self._args(subject, raw_args)
        stack = self.places.stack(raw_stack)
        owner = self.places.owner(raw_stack, cls)
        # An op has the place of the function that made it, and is not what is written there.
        is_op = self.tables.whats[number].kind == OP
        site = None if is_op or stack == NONE else self.places.direct_site(stack)
        named: tuple[str, ...] = ()
        direct = False
        if site is not None:
            slots = self._slots(subject, raw_args)
            direct, named = is_direct(site, slots), operands(site, slots)
        return (
            number,
            args,
            stack,
            NONE if owner is None else self.text(owner),
            self._operand_id(named),
            int(direct),
            len(self.tables.forms[args].roles),
        )

    def _subject(self, what: int) -> Subject:
        return FIRST_CLASS - self.interned.modules[module_row(what)].cls if what < 0 else what

    def _slots(self, subject: Subject, raw_args: int) -> Slots:
        raw = self._raw_form(raw_args)
        number, (parameters, _) = self._what(subject)
        what = self.tables.whats[number]
        return Slots(tensor_slots(raw), raw[0], "" if what.kind == MODULE else what.name, parameters)

    def _what(self, subject: Subject) -> tuple[int, Names]:
        known = self._whats.get(subject)
        if known is None:
            if subject <= FIRST_CLASS:
                cls = self.interned.classes[FIRST_CLASS - subject]
                shown, names = What(MODULE, cls.name), (tuple(cls.parameters), cls.rest)
            else:
                shown, names = _shown(self.interned.whats[subject])
            self.tables.whats.append(shown)
            known = self._whats[subject] = (len(self.tables.whats) - 1, names)
        return known

    def _args(self, subject: Subject, raw_args: int) -> int:
        number = self._forms.get((subject, raw_args))
        if number is None:
            number = self._add_form(shown_form(self._raw_form(raw_args), self._what(subject)[1]))
            self._forms[subject, raw_args] = number
        return number

    def result(self, raw_result: int) -> int:
        number = self._forms.get((NONE, raw_result))
        if number is None:
            number = self._forms[NONE, raw_result] = self._add_form(result_form(self._raw_form(raw_result)))
        return number

    def _add_form(self, form: Form) -> int:
        self.tables.forms.append(form)
        return len(self.tables.forms) - 1

    def _raw_form(self, number: int) -> RawForm:
        return self.interned.forms.get(number, NOT_KNOWN)

    def error(self, raw: int) -> int:
        """The text of an exception that left an event."""
        return NONE if raw == NONE else self.text(self.interned.errors.get(raw, NOT_THERE))

    def text(self, text: str) -> int:
        return _number(self._texts, text, self.tables.texts)

    def _operand_id(self, texts: tuple[str, ...]) -> int:
        return _number(self._operands, texts, self.tables.operand_texts)

    def _thread(self, thread: int) -> int:
        number = self._threads.get(thread)
        if number is None:
            number = self._threads[thread] = len(self.tables.threads)
            label = self.interned.thread(thread).name
            same = sum(name.split(" #")[0] == label for name in self.tables.threads)
            self.tables.threads.append(f"{label} #{same + 1}" if same else label)
        return number

    def _stem(self, what: int, site: int, module: int) -> int:
        """A number for all that a key says but the occurrence; two sites may be one place to the reader.

        The condition of a loop and what stands in ``finally`` are compiled twice.
        """
        at = self.tables.sites[site].location if site != NONE else None
        row = self.interned.modules[module] if module != NONE else None
        place = None if row is None else (module if row.root == NONE else row.root, row.path)
        stem = (self.tables.whats[what].name, place, at and (at.function, at.line, at.col))
        number = self._stems.setdefault(stem, len(self.occurrences))
        if number == len(self.occurrences):
            self.occurrences.append(0)
        return number

    # Modules

    def take_modules(self, numbers: list[int]) -> None:
        """Take over these modules as they are now: paths, settings and parameters."""
        self._labels.clear()
        self.tables.modules = [self._module(number) for number in numbers]

    def add_modules(self, changed: int) -> None:
        """Take over the modules that are new since the last time, and one that may have changed."""
        modules = self.tables.modules
        for number in range(len(modules), len(self.interned.modules)):
            modules.append(self._module(number))
        if changed != NONE:
            modules[changed] = self._module(changed)

    def _module(self, number: int) -> ModulePath:
        row = self.interned.modules[number]
        label = self._label(number if row.root == NONE else row.root)
        found = [(name, self.values.number(value)) for name, value in row.parameters]
        parameters = tuple((name, value) for name, value in found if value != NONE)
        return ModulePath(label, row.path, self._class_name(row), row.settings, parameters)

    def _class_name(self, row: Module) -> str:
        cls = self.interned.classes.get(row.cls)
        return NOT_THERE if cls is None else cls.name

    def _label(self, root: int) -> str:
        """The class of a root; ``#2`` when two share it, in the order in which they are met."""
        label = self._labels.get(root)
        if label is None:
            modules = self.interned.modules
            name = self._class_name(modules[root]) if root in modules else NOT_THERE
            same = sum(other in modules and self._class_name(modules[other]) == name for other in self._labels)
            label = self._labels[root] = f"{name}#{same + 1}" if same else name
        return label


def _number(known: dict[_T, int], wanted: _T, rows: list[_T]) -> int:
    """The row of something that may be there already."""
    number = known.setdefault(wanted, len(rows))
    if number == len(rows):
        rows.append(wanted)
    return number


def _shown(row: WhatRow) -> tuple[What, Names]:
    names = (tuple(row.parameters), row.rest) if row.kind in (FUNCTION, OP) else NO_NAMES
    return What(row.kind, row.name, row.note, row.detail), names
