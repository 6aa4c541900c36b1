"""One raw record turned into one row of the event columns.

What repeats (names, forms, places, operands) is worked out once for each combination that occurs: a forward of
GPT-2 has 732 events, but 83 stacks and 41 forms of arguments.
"""

from __future__ import annotations

from array import array
from typing import Any

from torchglass.capture.code.sites import Slots, is_direct, operands
from torchglass.capture.log import ARGS, NONE, RESULT, WHAT, WIDTH, ThreadLog
from torchglass.capture.session import FUNCTION, OP, Session
from torchglass.capture.settling.forms import NO_NAMES, Names, result_form, shown_form, tensor_slots
from torchglass.capture.settling.places import Places
from torchglass.capture.settling.signatures import forward_parameters
from torchglass.capture.threads import thread_label
from torchglass.capture.values import ARRAY
from torchglass.capture.values import WIDTH as VALUE
from torchglass.events.tables import Form, Meta, ModuleRow, Tables, What

MODULE = "module"
Subject = int | type
"""What was called: the class of a module, or the number of a function or of something else."""


def module_row(what: int) -> int:
    """Records of module calls hold their row below -1; all others hold a number from 0 on."""
    return -2 - what


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
        self._fixed: dict[tuple[int, int, int, int], tuple[int, ...]] = {}
        self._shared: dict[tuple[Subject, int, int, type | None], tuple[int, ...]] = {}
        self._whats: dict[Subject, tuple[int, Names]] = {}
        self._forms: dict[tuple[Subject, int], int] = {}
        self._texts: dict[str, int] = {}
        self._operands: dict[tuple[str, ...], int] = {}
        self._threads: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        self._stems: dict[tuple[Any, ...], int] = {}
        self._seen: dict[int, int] = {}
        self._labels: dict[int, str] = {}
        self._values_taken = 0
        self._operand_id(())

    def append(self, log: ThreadLog, at: int, parent: int, module: int, backward: int) -> None:
        """Append the row of a record."""
        tables = self.tables
        what, _, raw_stack, start, end, raw_args, inputs, raw_result, outputs, error = log.records[at : at + WIDTH]
        key = (what, raw_args, raw_stack, module)
        fixed = self._fixed.get(key)
        if fixed is None:
            fixed = self._fixed[key] = self._work_out(*key)
        number, args, stack, owner, named, stem, direct, taken = fixed
        tables.what.append(number)
        tables.parent.append(parent)
        tables.thread.append(self._thread(log))
        tables.backward.append(backward)
        tables.start_ns.append(start)
        tables.end_ns.append(end)
        tables.module.append(module)
        tables.call.append(self._call(module) if what < 0 else NONE)
        tables.stack.append(stack)
        tables.owner.append(owner)
        tables.operands.append(named)
        tables.direct.append(direct)
        tables.args.append(args)
        tables.first_io.append(len(tables.io))
        tables.io.extend(log.values[inputs : inputs + taken])
        tables.occurrence.append(self._occurrence(stem))
        tables.error.append(NONE if error == NONE else self.text(self.session.errors[error]))
        result = NONE
        if raw_result != NONE:
            result = self.result(raw_result)
            tables.io.extend(log.values[outputs : outputs + len(tables.forms[result].roles)])
        tables.result.append(result)

    def is_nothing(self, records: list[int], at: int) -> bool:
        """A function that neither took nor gave a tensor is no event, nor is an attribute that holds none."""
        what, result = records[at + WHAT], records[at + RESULT]
        if what < 0 or result == NONE or self.session.whats[what].kind != FUNCTION:
            return False
        if self.tables.forms[self.result(result)].roles:
            return False
        is_read = getattr(self.session.whats[what].subject, "__name__", "") == "__get__"
        return is_read or not self.tables.forms[self._args(what, records[at + ARGS])].roles

    def takes_tensors(self, what: int, raw_args: int) -> bool:
        """Whether there is a tensor among the arguments of a function or op."""
        return bool(self.tables.forms[self._args(what, raw_args)].roles)

    def _work_out(self, what: int, raw_args: int, raw_stack: int, module: int) -> tuple[int, ...]:
        """All that depends on nothing but what was called, how, from where and in which module."""
        cls = self.session.modules[module].cls if module != NONE else None
        key = (self._subject(what), raw_args, raw_stack, cls)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._work_out_shared(*key)
        number, args, stack, owner, named, direct, taken = shared
        stem = self._stem(number, self.tables.stack_user[stack], module)
        return number, args, stack, owner, named, stem, direct, taken

    def _work_out_shared(self, subject: Subject, raw_args: int, raw_stack: int, cls: type | None) -> tuple[int, ...]:
        """What is the same for all modules of a class: sixty layers are worked out once."""
        number, _ = self._what(subject)
        args = self._args(subject, raw_args)
        stack = self.places.stack(raw_stack)
        owner = self.places.owner(raw_stack, cls)
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
        return self.session.modules[module_row(what)].cls if what < 0 else what

    def _slots(self, subject: Subject, raw_args: int) -> Slots:
        raw = self._raw_form(raw_args)
        number, (parameters, _) = self._what(subject)
        what = self.tables.whats[number]
        return Slots(tensor_slots(raw), raw[0], "" if what.kind == MODULE else what.name, parameters)

    def _what(self, subject: Subject) -> tuple[int, Names]:
        known = self._whats.get(subject)
        if known is None:
            name = self._name_module if isinstance(subject, type) else self._name_other
            known = self._whats[subject] = name(subject)  # type: ignore[arg-type]
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

    def _call(self, module: int) -> int:
        count = self._calls.get(module, 0)
        self._calls[module] = count + 1
        return count

    def _stem(self, what: int, site: int, module: int) -> int:
        """A number for all that a key says but the occurrence; two sites may be one place to the reader.

        The condition of a loop and what stands in ``finally`` are compiled twice.
        """
        at = self.tables.sites[site].location if site != NONE else None
        row = self.session.modules[module] if module != NONE else None
        place = None if row is None else (module if row.root == NONE else row.root, row.path)
        stem = (self.tables.whats[what].name, place, at and (at.function, at.line, at.col))
        return self._stems.setdefault(stem, len(self._stems))

    def _occurrence(self, stem: int) -> int:
        count = self._seen.get(stem, 0)
        self._seen[stem] = count + 1
        return count

    # Values and modules

    def take_values(self) -> list[int]:
        """Take over the value rows added since the last time; returns which values they describe, some again."""
        tables, rows = self.tables, self.session.values.rows
        end = len(rows)
        if end == self._values_taken:
            return []
        fresh = rows[self._values_taken : end]
        self._values_taken = end
        missing = max(fresh[0::VALUE]) + 1 - len(tables.value_meta)
        if missing > 0:
            for column in (
                tables.value_meta,
                tables.value_version,
                tables.value_storage,
                tables.value_producer,
            ):
                column.extend([NONE] * missing)
            self.addresses.extend([0] * missing)
            self.before.extend([NONE] * missing)
        columns = [fresh[column::VALUE] for column in range(VALUE)]
        for value, meta, version, address, before in zip(*columns, strict=True):
            tables.value_meta[value] = meta
            tables.value_version[value] = version
            self.addresses[value] = address
            self.before[value] = before
        self._take_metas()
        return columns[0]

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
