"""Raw records turned into rows of the event columns.

What repeats (names, forms, places, operands) is worked out once for each combination that occurs: a forward of
GPT-2 has 732 events, but 83 stacks and 41 forms of arguments.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from torchglass.capture.log import NONE, ThreadLog
from torchglass.capture.session import FUNCTION, OP, Session
from torchglass.capture.settling.forms import NO_NAMES, Names, result_form, shown_form, tensor_slots
from torchglass.capture.settling.places import Places
from torchglass.capture.settling.signatures import forward_parameters
from torchglass.capture.threads import thread_label
from torchglass.capture.values import ARRAY
from torchglass.capture.values import WIDTH as VALUE
from torchglass.events.tables import Form, Meta, ModuleRow, Tables, What
from torchglass.source.sites import Slots, is_direct, operands

MODULE = "module"
Subject = int
"""What was called: the number of a function or of something else, from 0 on; of the class of a module, downwards."""
FIRST_CLASS = -2


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


VARYING = ("parent", "backward", "start_ns", "end_ns", "module", "call", "first_io", "occurrence", "error")


class Rows:
    """Fills the columns of one ``Tables`` from the records of one session."""

    def __init__(self, session: Session, places: Places, tables: Tables) -> None:
        self.session = session
        self.places = places
        self.tables = tables
        self.addresses = array("q")
        """Of the storages, by value."""
        self.before = array("q")
        """The value that the same tensor was before, by value."""
        self._raw_forms: list[Any] = []
        self.known: dict[Combination, Fixed] = {}
        self._classes: list[type] = []
        """Of modules; by number, as a metaclass may have a hash of its own."""
        self._class_numbers: dict[int, int] = {}
        self._shared: dict[tuple[Subject, int, int, int], tuple[int, ...]] = {}
        self._whats: dict[Subject, tuple[int, Names]] = {}
        self._forms: dict[tuple[Subject, int], int] = {}
        self._texts: dict[str, int] = {}
        self._operands: dict[tuple[str, ...], int] = {}
        self._threads: dict[int, int] = {}
        self.calls: dict[int, int] = {}
        """How often each module was called."""
        self._stems: dict[tuple[Any, ...], int] = {}
        self.occurrences: list[int] = []
        """How often each stem has occurred."""
        self._labels: dict[int, str] = {}
        self._values_taken = 0
        self._operand_id(())

    def extend(self, log: ThreadLog, batch: Batch) -> None:
        """Append rows that are all of one thread."""
        if not batch.fixed:
            return
        tables, count = self.tables, len(batch.fixed)
        for name, entries in zip(FIXED, zip(*batch.fixed, strict=True), strict=True):
            getattr(tables, name).fromlist(list(entries))  # half the time of extend()
        for index, name in enumerate(VARYING):
            getattr(tables, name).fromlist(batch.varying[index :: len(VARYING)])
        tables.thread.fromlist([self._thread(log)] * count)
        tables.io.fromlist(batch.io)

    def is_nothing(self, what: int, raw_args: int, raw_result: int) -> bool:
        """A function that neither took nor gave a tensor is no event, nor is an attribute that holds none."""
        if what < 0 or raw_result == NONE or self.session.whats[what].kind != FUNCTION:
            return False
        if self.tables.forms[self.result(raw_result)].roles:
            return False
        is_read = getattr(self.session.whats[what].subject, "__name__", "") == "__get__"
        return is_read or not self.takes_tensors(what, raw_args)

    def takes_tensors(self, what: int, raw_args: int) -> bool:
        """Whether there is a tensor among the arguments of a function or op."""
        return bool(self.tables.forms[self._args(what, raw_args)].roles)

    def fixed(self, combination: Combination) -> Fixed:
        """What a row says but times and values; worked out once."""
        known = self.known.get(combination)
        if known is None:
            known = self.known[combination] = self._work_out(*combination)
        return known

    def _work_out(self, what: int, raw_args: int, raw_stack: int, module: int, raw_result: int) -> Fixed:
        key = (self._subject(what), raw_args, raw_stack, NONE if module == NONE else self._class_number(module))
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._work_out_shared(*key)
        *columns, taken = shared
        result = NONE if raw_result == NONE else self.result(raw_result)
        given = 0 if result == NONE else len(self.tables.forms[result].roles)
        number, stack = columns[0], columns[2]
        return Fixed((*columns, result), self._stem(number, self.tables.stack_user[stack], module), taken, given)

    def _work_out_shared(self, subject: Subject, raw_args: int, raw_stack: int, cls: int) -> tuple[int, ...]:
        """What is the same for all modules of a class, and how many values are taken: sixty layers are one."""
        number, _ = self._what(subject)
        args = self._args(subject, raw_args)
        stack = self.places.stack(raw_stack)
        owner = self.places.owner(raw_stack, None if cls == NONE else self._classes[cls])
        # An op has the place of the function that made it, and is not what is written there.
        site = None if self.tables.whats[number].kind == OP else self.places.direct_site(stack)
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
        return FIRST_CLASS - self._class_number(module_row(what)) if what < 0 else what

    def _class_number(self, module: int) -> int:
        cls = self.session.modules[module].cls
        number = self._class_numbers.get(id(cls))
        if number is None:
            number = self._class_numbers[id(cls)] = len(self._classes)
            self._classes.append(cls)
        return number

    def _slots(self, subject: Subject, raw_args: int) -> Slots:
        raw = self._raw_form(raw_args)
        number, (parameters, _) = self._what(subject)
        what = self.tables.whats[number]
        return Slots(tensor_slots(raw), raw[0], "" if what.kind == MODULE else what.name, parameters)

    def _what(self, subject: Subject) -> tuple[int, Names]:
        known = self._whats.get(subject)
        if known is None:
            is_class = subject <= FIRST_CLASS
            known = self._name_module(self._classes[FIRST_CLASS - subject]) if is_class else self._name_other(subject)
            self._whats[subject] = known
        return known

    def _name_module(self, cls: type) -> tuple[int, Names]:
        self.tables.whats.append(What(MODULE, cls.__name__))
        return len(self.tables.whats) - 1, forward_parameters(cls)

    def _name_other(self, what: int) -> tuple[int, Names]:
        raw = self.session.whats[what]
        if raw.kind in (FUNCTION, OP):
            from torchglass.capture.settling import subjects  # needs torch, of which there are events

            if raw.kind == OP:
                shown, names = subjects.name_op(raw.subject, raw.note)
            else:
                shown, names = subjects.name_function(raw.subject, self.session.op_mode_class is not None)
        else:
            shown, names = What(raw.kind, raw.subject, raw.note, raw.detail), NO_NAMES
        self.tables.whats.append(shown)
        return len(self.tables.whats) - 1, names

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

    def _raw_form(self, number: int) -> Any:
        if number >= len(self._raw_forms):
            ids = dict(self.session.forms.ids)  # a copy: other threads may be adding
            self._raw_forms = [None] * (max(ids.values()) + 1)
            for form, each in ids.items():
                self._raw_forms[each] = form
        return self._raw_forms[number]

    def text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self.tables.texts)
            self.tables.texts.append(text)
        return number

    def _operand_id(self, texts: tuple[str, ...]) -> int:
        number = self._operands.get(texts)
        if number is None:
            number = self._operands[texts] = len(self.tables.operand_texts)
            self.tables.operand_texts.append(texts)
        return number

    def _thread(self, log: ThreadLog) -> int:
        number = self._threads.get(id(log))
        if number is None:
            number = self._threads[id(log)] = len(self.tables.threads)
            label = thread_label(log)
            same = sum(name.split(" #")[0] == label for name in self.tables.threads)
            self.tables.threads.append(f"{label} #{same + 1}" if same else label)
        return number

    def _stem(self, what: int, site: int, module: int) -> int:
        """A number for all that a key says but the occurrence; two sites may be one place to the reader.

        The condition of a loop and what stands in ``finally`` are compiled twice.
        """
        at = self.tables.sites[site].location if site != NONE else None
        row = self.session.modules[module] if module != NONE else None
        place = None if row is None else (module if row.root == NONE else row.root, row.path)
        stem = (self.tables.whats[what].name, place, at and (at.function, at.line, at.col))
        number = self._stems.get(stem)
        if number is None:
            number = self._stems[stem] = len(self.occurrences)
            self.occurrences.append(0)
        return number

    # Values and modules

    def take_values(self) -> list[int]:
        """Take over the value rows added since the last time; returns which values they describe, some again."""
        tables, rows = self.tables, self.session.values.rows
        end = len(rows)
        if end == self._values_taken:
            return []
        fresh = rows[self._values_taken : end]
        self._values_taken = end
        numbers, metas, versions, addresses, before = (fresh[column::VALUE] for column in range(VALUE))
        have = len(tables.value_meta)
        if numbers != list(range(have, have + len(numbers))):
            self._lengthen(max(numbers) + 1 - have)
            for index, value in enumerate(numbers):
                tables.value_meta[value] = metas[index]
                tables.value_version[value] = versions[index]
                self.addresses[value] = addresses[index]
                self.before[value] = before[index]
        else:  # nothing is described anew, and no two threads met: the whole batch at once
            for column, entries in (
                (tables.value_meta, metas),
                (tables.value_version, versions),
                (self.addresses, addresses),
                (self.before, before),
            ):
                column.fromlist(entries)
            self._lengthen(0)
        self._take_metas()
        return numbers

    def _lengthen(self, missing: int) -> None:
        """Make room for values of which nothing is known yet."""
        tables = self.tables
        missing = max(missing, 0)
        nothing = array("q", [NONE])
        tables.value_meta.extend(nothing * missing)
        tables.value_version.extend(nothing * missing)
        self.addresses.extend(array("q", [0]) * missing)
        self.before.extend(nothing * missing)
        for column in (tables.value_storage, tables.value_producer):
            column.extend(nothing * (len(tables.value_meta) - len(column)))

    def _take_metas(self) -> None:
        metas = self.tables.metas
        if len(metas) == len(self.session.values.metas):
            return
        known = dict(self.session.values.metas)
        metas.extend([_NO_META] * (max(known.values()) + 1 - len(metas)))
        for raw, number in known.items():
            if metas[number] is _NO_META:
                metas[number] = _meta(raw)

    def take_modules(self, only: list[int] | None = None) -> None:
        """Take over modules as they are now: paths, settings and parameters; all rows, or only these."""
        chosen = range(len(self.session.modules)) if only is None else only
        self._labels.clear()
        self.tables.modules = [self._module(number) for number in chosen]

    def add_modules(self, changed: int) -> None:
        """Take over the modules that are new since the last time, and one that may have changed."""
        modules = self.tables.modules
        for number in range(len(modules), len(self.session.modules)):
            modules.append(self._module(number))
        if changed != NONE:
            modules[changed] = self._module(changed)

    def _module(self, number: int) -> ModuleRow:
        row = self.session.modules[number]
        label = self._label(number if row.root == NONE else row.root)
        return ModuleRow(label, row.path, row.cls.__name__, row.detail, row.parameters)

    def _label(self, root: int) -> str:
        """The class of a root; ``#2`` when two share it, in the order in which they are met."""
        label = self._labels.get(root)
        if label is None:
            name = self.session.modules[root].cls.__name__
            same = sum(self.session.modules[other].cls.__name__ == name for other in self._labels)
            label = self._labels[root] = f"{name}#{same + 1}" if same else name
        return label

    def keep_own_modules(self) -> None:
        """Where recordings share a session: only the modules that this one met."""
        own = sorted(set(self.tables.module) - {NONE})
        place = {row: number for number, row in enumerate(own)}
        self.tables.module = array("q", [place.get(row, NONE) for row in self.tables.module])
        self.take_modules(own)


def _plain(number: Any) -> int:
    return int(number)


def _meta(raw: tuple[Any, ...]) -> Meta:
    shape, stride, dtype, device, grad, cls, *layout = raw
    is_array = layout == [ARRAY]
    return Meta.of(
        None if shape is None else tuple(map(_plain, shape)),
        _word(dtype),
        "?" if device is None else str(device),
        None if stride is None else tuple(map(_plain, stride)),
        _word(layout[0]) if layout and not is_array else "strided",
        bool(grad),
        cls.__name__,
        "array" if is_array else "tensor",
    )


def _word(name: Any) -> str:
    return "?" if name is None else str(name).removeprefix("torch.")


_NO_META = Meta.of(None, "?", "?", None, "?", False, "?")
