"""Turns records into rows of the event columns.

A record refers to rows of the journal. A row of the tables refers to other rows of the tables. So there are two kinds
of numbers here: those of the journal (``raw_args``, ``raw_stack`` …), and those of the tables (``args``, ``stack`` …).

Names, forms, sites and operands repeat. They are computed once for each *combination* of callee, arguments, stack,
module and result. A forward pass of GPT-2 has 732 events, but only 83 stacks and 41 forms of arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from torchglass.events.schema import NONE, Callee, Form, ModulePath
from torchglass.events.tables import Tables
from torchglass.journal.rows import WhatRow
from torchglass.settle.form_texts import (
    NO_NAMES,
    ParameterNames,
    result_form,
    shown_form,
    tensor_slots,
)
from torchglass.settle.journal_rows import JournalRows, Module, RawForm
from torchglass.settle.places import PlaceTable
from torchglass.settle.value_columns import ValueFiller
from torchglass.source.operands import Slots, is_direct, operands

_T = TypeVar("_T")
MODULE, FUNCTION, OP, UNSEEN, MARK, VARIABLE = (
    "module",
    "function",
    "op",
    "unseen",
    "mark",
    "variable",
)
CalleeKey = int
"""The row of a function or other callee, or FIRST_CLASS - the row of the class of a module."""
FIRST_CLASS = -2
DROPPED_FORM: RawForm = (1, "…")
"""Stands for arguments or a result whose row was dropped."""
MISSING_NAME = "?"
"""Stands for the name of something whose row is missing."""


def module_row(callee: int) -> int:
    """Return the row of a module from the callee of a record, which is -2 - that row. Other callees are 0 or more."""
    return -2 - callee


class FixedFields(NamedTuple):
    """The fields of an event that are the same for all events of one ``Combination``."""

    columns: tuple[int, ...]
    """The entries of the columns in ``FIXED_COLUMNS``."""
    stem: int
    """The index in ``Columns.occurrences`` of the counter for these events."""
    input_count: int
    output_count: int


class CallKey(NamedTuple):
    """A call, as far as it is the same in all modules of a class. So sixty equal layers are read only once."""

    callee: CalleeKey
    raw_args: int
    raw_stack: int
    cls: int
    """The row of the class of the module that is running, or NONE."""


class SharedFields(NamedTuple):
    """The fields of an event that are the same for all events of one ``CallKey``."""

    callee: int
    args: int
    stack: int
    owner: int
    operands: int
    direct: int
    input_count: int


FIXED_COLUMNS = ("callee", "args", "stack", "owner", "operands", "direct", "result")
Combination = tuple[int, int, int, int, int]
"""The callee of a record, and the rows of its arguments, its stack, its module and its result."""


class Batch:
    """Rows of events, collected in lists that are added to the columns all at once.

    Each event has an entry in seventeen columns. Appending them to arrays one by one took longer than computing them.
    """

    def __init__(self, first_io: int) -> None:
        self.fixed: list[tuple[int, ...]] = []
        self.varying: list[int] = []
        """The entries of the columns in ``VARYING_COLUMNS``, event after event."""
        self.io: list[int] = []
        """The inputs and outputs of the events."""
        self.first_io = first_io
        """The index of the first of these inputs and outputs in the tables."""


VARYING_COLUMNS = (
    "parent", "backward", "start_ns", "end_ns", "module", "call", "first_io", "occurrence", "error", "python_call",
    "forward",
)  # fmt: skip


class Columns:
    """Fills the event columns of one ``Tables``, and the tables that their numbers refer to."""

    def __init__(
        self, journal_rows: JournalRows, places: PlaceTable, values: ValueFiller, tables: Tables
    ) -> None:
        self.journal_rows = journal_rows
        self.places = places
        self.values = values
        self.tables = tables
        self.fixed_fields: dict[Combination, FixedFields] = {}
        """Cached results of ``fixed``."""
        self._shared: dict[CallKey, SharedFields] = {}
        """Cached results of ``_compute_shared``."""
        self._callees: dict[CalleeKey, tuple[int, ParameterNames]] = {}
        """By callee, its number in the tables and the names of its parameters."""
        self._forms: dict[tuple[CalleeKey, int], int] = {}
        """By callee and row of the journal, the number of the form in the tables. A result has NONE as its callee."""
        self._texts: dict[str, int] = {}
        self._operands: dict[tuple[str, ...], int] = {}
        self._threads: dict[int, int] = {}
        """By row of the journal, the number in the tables."""
        self._calls: dict[int, int] = {}
        """The number of calls of each module, minus 1."""
        self._stems: dict[tuple[object, ...], int] = {}
        """By callee, module and place in the code, the index in ``occurrences``."""
        self.occurrences: list[int] = []
        """How often each stem has occurred; see ``_stem``."""
        self._labels: dict[int, str] = {}
        """The labels of roots, by module."""
        self._python_calls: dict[int, int] = {}
        """By the number that the recorder gave to a Python call, its index in the order of the first events."""
        self._operand_id(())

    def extend(self, thread: int, batch: Batch) -> None:
        """Append a batch of rows of one thread."""
        if not batch.fixed:
            return
        tables = self.tables
        count = len(batch.fixed)
        for name, entries in zip(FIXED_COLUMNS, zip(*batch.fixed, strict=True), strict=True):
            # fromlist() takes half the time of extend().
            getattr(tables, name).fromlist(list(entries))
        for index, name in enumerate(VARYING_COLUMNS):
            getattr(tables, name).fromlist(batch.varying[index :: len(VARYING_COLUMNS)])
        tables.thread.fromlist([self._thread(thread)] * count)
        tables.io.fromlist(batch.io)

    def count_call(self, module: int) -> int:
        """Count a call of a module, and return the index of the call, from 0."""
        index = self._calls[module] = self._calls.get(module, NONE) + 1
        return index

    def skip_calls(self, module: int, number: int) -> None:
        """Count calls of a module that were dropped."""
        self._calls[module] = self._calls.get(module, NONE) + number

    def python_call(self, number: int) -> int:
        """Return the index, from 0, of the call of a Python function whose variables are followed."""
        if number < 0:
            return NONE
        return self._python_calls.setdefault(number, len(self._python_calls))

    def add_gap(self, note: str) -> FixedFields:
        """Add the event that stands for dropped ones."""
        self.tables.callees.append(Callee(UNSEEN, "gap", note))
        empty = self._add_form(Form((), ("",)))
        columns = (len(self.tables.callees) - 1, empty, NONE, NONE, self._operand_id(()), 0, NONE)
        return FixedFields(columns, self._stem(columns[0], NONE, NONE), 0, 0)

    def is_event(self, callee: int, raw_args: int, raw_result: int) -> bool:
        """Return whether a call is an event: a function that neither takes nor returns a tensor is none."""
        if callee < 0 or raw_result == NONE or self.journal_rows.callees[callee].kind != FUNCTION:
            return True
        if self.tables.forms[self.result(raw_result)].roles:
            return True
        takes_tensors = bool(self.tables.forms[self._args(callee, raw_args)].roles)
        # Reading a property, such as ``x.shape``, takes a tensor too.
        return takes_tensors and not self.journal_rows.callees[callee].is_read

    def fixed(self, combination: Combination) -> FixedFields:
        """Return the fixed fields of a combination, which are computed once."""
        fields = self.fixed_fields.get(combination)
        if fields is None:
            fields = self.fixed_fields[combination] = self._compute(*combination)
        return fields

    def _compute(
        self, callee: int, raw_args: int, raw_stack: int, module: int, raw_result: int
    ) -> FixedFields:
        cls = NONE
        if module != NONE:
            cls = self.journal_rows.modules[module].cls
        key = CallKey(self._callee_key(callee), raw_args, raw_stack, cls)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._compute_shared(key)
        *columns, input_count = shared
        result = NONE
        output_count = 0
        if raw_result != NONE:
            result = self.result(raw_result)
            output_count = len(self.tables.forms[result].roles)
        site = NONE
        if shared.stack != NONE:
            site = self.tables.stack_user[shared.stack]
        stem = self._stem(shared.callee, site, module)
        return FixedFields((*columns, result), stem, input_count, output_count)

    def _compute_shared(self, key: CallKey) -> SharedFields:
        callee, _ = self._callee(key.callee)
        args = self._args(key.callee, key.raw_args)
        stack = self.places.stack(key.raw_stack)
        owner = NONE
        owner_text = self.places.owner(key.raw_stack, key.cls)
        if owner_text is not None:
            owner = self.text(owner_text)
        site = None
        # An op has the site of the function that called it, so the expression there is not the op.
        is_op = self.tables.callees[callee].kind == OP
        if stack != NONE and not is_op:
            site = self.places.direct_site(stack)
        operand_texts: tuple[str, ...] = ()
        direct = False
        stored = self.journal_rows.call_names.get(key)
        if stored is not None:
            direct = stored.is_direct
            operand_texts = tuple(stored.operands)
        elif site is not None:
            slots = self._slots(key.callee, key.raw_args)
            direct = is_direct(site, slots)
            operand_texts = operands(site, slots)
        return SharedFields(
            callee=callee,
            args=args,
            stack=stack,
            owner=owner,
            operands=self._operand_id(operand_texts),
            direct=int(direct),
            input_count=len(self.tables.forms[args].roles),
        )

    def call_names(self) -> Iterator[tuple[tuple[int, ...], bool, tuple[str, ...]]]:
        """Yield what was read of each call: its key, whether the expression is the call itself, and its operands."""
        for key, shared in self._shared.items():
            texts = self.tables.operand_texts[shared.operands]
            if shared.direct or texts:
                yield key, bool(shared.direct), texts

    def _callee_key(self, callee: int) -> CalleeKey:
        """Return the key of a record's callee, which is the same for all modules of a class."""
        if callee < 0:
            return FIRST_CLASS - self.journal_rows.modules[module_row(callee)].cls
        return callee

    def _slots(self, callee: CalleeKey, raw_args: int) -> Slots:
        raw = self._raw_form(raw_args)
        number, (parameters, _) = self._callee(callee)
        shown = self.tables.callees[number]
        name = shown.name
        if shown.kind == MODULE:
            name = ""
        return Slots(tensor_slots(raw), raw[0], name, parameters)

    def _callee(self, callee: CalleeKey) -> tuple[int, ParameterNames]:
        """Return the number of a callee in the tables, and the names of its parameters."""
        number_and_names = self._callees.get(callee)
        if number_and_names is None:
            if callee <= FIRST_CLASS:
                cls = self.journal_rows.classes[FIRST_CLASS - callee]
                shown = Callee(MODULE, cls.name)
                names = (tuple(cls.parameters), cls.rest)
            else:
                shown, names = _callee_of_row(self.journal_rows.callees[callee])
            self.tables.callees.append(shown)
            number_and_names = self._callees[callee] = (len(self.tables.callees) - 1, names)
        return number_and_names

    def _args(self, callee: CalleeKey, raw_args: int) -> int:
        """Return the form of arguments in the tables."""
        number = self._forms.get((callee, raw_args))
        if number is None:
            number = self._add_form(shown_form(self._raw_form(raw_args), self._callee(callee)[1]))
            self._forms[callee, raw_args] = number
        return number

    def result(self, raw_result: int) -> int:
        """Return the form of a result in the tables."""
        number = self._forms.get((NONE, raw_result))
        if number is None:
            number = self._forms[NONE, raw_result] = self._add_form(
                result_form(self._raw_form(raw_result))
            )
        return number

    def _add_form(self, form: Form) -> int:
        self.tables.forms.append(form)
        return len(self.tables.forms) - 1

    def _raw_form(self, number: int) -> RawForm:
        return self.journal_rows.forms.get(number, DROPPED_FORM)

    def error(self, raw: int) -> int:
        """Return the text of the exception that left an event."""
        if raw == NONE:
            return NONE
        return self.text(self.journal_rows.errors.get(raw, MISSING_NAME))

    def text(self, text: str) -> int:
        return _index_of(self._texts, text, self.tables.texts)

    def _operand_id(self, texts: tuple[str, ...]) -> int:
        return _index_of(self._operands, texts, self.tables.operand_texts)

    def _thread(self, thread: int) -> int:
        number = self._threads.get(thread)
        if number is None:
            number = self._threads[thread] = len(self.tables.threads)
            label = self.journal_rows.thread(thread).name
            same = sum(name.split(" #")[0] == label for name in self.tables.threads)
            self.tables.threads.append(f"{label} #{same + 1}" if same else label)
        return number

    def _stem(self, callee: int, site: int, module: int) -> int:
        """Return a number for all parts of an event's key but the occurrence: callee, module and place in the code.

        It is not the site that is compared, since Python compiles the condition of a loop and a ``finally`` block
        twice.
        """
        position = None
        if site != NONE:
            location = self.tables.sites[site].location
            position = (location.function, location.line, location.col)
        layer = None
        if module != NONE:
            row = self.journal_rows.modules[module]
            root = row.root
            if root == NONE:
                root = module
            layer = (root, row.path)
        stem = (self.tables.callees[callee].name, layer, position)
        number = self._stems.setdefault(stem, len(self.occurrences))
        if number == len(self.occurrences):
            self.occurrences.append(0)
        return number

    # ------------------------------------------------------------ modules

    def set_modules(self, numbers: list[int]) -> None:
        """Put these modules into the tables as they are now: paths, settings and parameters."""
        self._labels.clear()
        self.tables.modules = [self._module(number) for number in numbers]

    def add_modules(self, changed: int) -> None:
        """Put new modules into the tables, and update one that may have changed."""
        modules = self.tables.modules
        for number in range(len(modules), len(self.journal_rows.modules)):
            modules.append(self._module(number))
        if changed != NONE:
            modules[changed] = self._module(changed)

    def _module(self, number: int) -> ModulePath:
        row = self.journal_rows.modules[number]
        root = row.root
        if root == NONE:
            root = number
        parameters: list[tuple[str, int]] = []
        for name, id_ in row.parameters:
            value = self.values.number(id_)
            if value != NONE:
                parameters.append((name, value))
        return ModulePath(
            self._label(root), row.path, self._class_name(row), row.settings, tuple(parameters)
        )

    def _class_name(self, row: Module) -> str:
        cls = self.journal_rows.classes.get(row.cls)
        if cls is None:
            return MISSING_NAME
        return cls.name

    def _label(self, root: int) -> str:
        """Return the class of a root.

        If several share it, later ones have ``#2``, ``#3`` … in the order of occurrence.
        """
        label = self._labels.get(root)
        if label is None:
            modules = self.journal_rows.modules
            name = MISSING_NAME
            if root in modules:
                name = self._class_name(modules[root])
            same = sum(
                other in modules and self._class_name(modules[other]) == name
                for other in self._labels
            )
            if same:
                label = self._labels[root] = f"{name}#{same + 1}"
            else:
                label = self._labels[root] = name
        return label


def _index_of(indices: dict[_T, int], item: _T, rows: list[_T]) -> int:
    """Return the index of an item in a list of rows, and add it if it is new."""
    index = indices.setdefault(item, len(rows))
    if index == len(rows):
        rows.append(item)
    return index


def _callee_of_row(row: WhatRow) -> tuple[Callee, ParameterNames]:
    names = NO_NAMES
    if row.kind in (FUNCTION, OP):
        names = (tuple(row.parameters), row.rest)
    return Callee(row.kind, row.name, row.note, row.detail), names
