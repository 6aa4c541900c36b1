"""Reads from the instructions of a code object what it can do to variables: stores, and changes in place.

For this function, ``effects_of`` finds::

    def f(items, x):
        y = items               # a store of y; items is aliased: its list has a second name from now on
        items.append(x)         # a mutator that mentions items and x: a call may change what they hold
        items[0] = x            # a mutator into items
        g(x); h(x)              # a shared line: two statements that may change values

Everything is found by the columns of the instructions: an instruction is part of an expression if its range in the
source lies inside the expression's range. Code without columns is read as well as possible.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import NamedTuple

from torchglass.capture.variables.scope import comprehension_scope

FAST, CELL, GLOBAL, NAME = "fast", "cell", "global", "name"

_KINDS = {"FAST": FAST, "DEREF": CELL, "GLOBAL": GLOBAL, "NAME": NAME}
_STORES = {
    f"{verb}_{kind}": (verb == "DELETE", _KINDS[kind])
    for verb in ("STORE", "DELETE")
    for kind in _KINDS
}
_CALLING = frozenset({
    "CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH", "BEFORE_ASYNC_WITH", "WITH_EXCEPT_START", "SEND",
    "YIELD_VALUE", "STORE_ATTR", "DELETE_ATTR",
})  # fmt: skip
"""The instructions that run other code, which may change any value."""
_WRITING_INTO = frozenset({"STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"})
_IN_PLACE_OPERATORS = range(13, 26)
"""The arguments of ``BINARY_OP`` for ``+=`` to ``^=`` (``NB_INPLACE_ADD`` to ``NB_INPLACE_XOR`` in opcode.h)."""
_COMPREHENSIONS = {"BUILD_LIST": "<listcomp>", "BUILD_SET": "<setcomp>", "BUILD_MAP": "<dictcomp>"}

_LOADS = (
    "LOAD_FAST", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF", "LOAD_FROM_DICT", "STORE_FAST_LOAD",
    "LOAD_CLOSURE",
)  # fmt: skip
"""Prefixes of the instructions that read a variable."""

_KEEP_NO_OPERAND = (
    *_LOADS,
    "LOAD_CONST",
    "PUSH_NULL",
    "PRECALL",
    "CACHE",
    "NOP",
    "COPY",
    "SWAP",
    "POP_TOP",
    "STORE_",
    "RESUME",
)
"""Prefixes of the instructions that only move values about, so they decide nothing about who holds a value."""
_MAKE_NEW_VALUE = (
    "CALL",
    "BINARY_OP",
    "COMPARE_OP",
    "CONTAINS_OP",
    "IS_OP",
    "UNARY_",
    "TO_BOOL",
    "RETURN_",
    "POP_JUMP",
)
"""Prefixes of the instructions that take a value and make a new one, or after which changes are looked for anyway."""

_ENDS = ("POP_TOP", "STORE_", "DELETE_", "RETURN_")
"""Prefixes of the instructions that end a statement, unless they are part of a larger one."""

_MOST_LINES = 100
"""The most lines of one expression to examine."""
_MOST_CACHED = 1024

_Range = tuple[int, int, int, int]
"""The first line, first column, last line and last column. In this order, ranges compare in the order of the text."""


class Store(NamedTuple):
    """An instruction that binds or unbinds a name."""

    offset: int
    line: int
    name: str
    kind: str
    slot: int
    """The index among the fast locals, cells and free variables; -1 for names of a namespace."""
    deletes: bool
    inner: str | None
    """The scope of the comprehension that the name belongs to, if the comprehension has no frame."""
    hidden: bool
    """Whether Python added the store: after ``except … as e``, and to restore a name after a comprehension."""
    ended: str | None
    """The scope of the comprehension that has ended, if the store restores a name after it."""


class Mutator(NamedTuple):
    """An instruction that may change values in place."""

    offset: int
    line: int
    mentions: frozenset[str] | None
    """The names that the instruction's expression reads; None if they may be any, because there are no columns."""
    shadowed: frozenset[str]
    """The names that belong to a comprehension at this place, and not to the function."""
    into: str | None
    """The name of a value that is certainly changed: ``a`` in ``a[i] = v`` and ``a += v``."""


@dataclass(slots=True)
class Effects:
    """What one code object does to variables."""

    start: int = 0
    """The offset of the RESUME instruction with which a call begins."""
    stores: list[tuple[Store, tuple[int, ...]]] = field(default_factory=list)
    """Each store with the offsets right after it. The list of mutators has the same form."""
    mutators: list[tuple[Mutator, tuple[int, ...]]] = field(default_factory=list)
    handlers: set[int] = field(default_factory=set)
    """The offsets at which the handling of an exception begins."""
    aliased: set[str] = field(default_factory=set)
    """The names whose value may get another reference without a call, such as ``a`` in ``b = a`` and in ``[a]``."""
    yields: set[int] = field(default_factory=set)
    """The offsets at which the code may be suspended."""
    returns: set[int] = field(default_factory=set)
    """The offsets at which the code may return."""
    comprehensions: dict[int, int] = field(default_factory=dict)
    """Keyed by the offset of a store to a comprehension's variable: the offset at which the comprehension begins."""
    shared_lines: set[int] = field(default_factory=set)
    """The lines with several statements that may change values, which must be followed instruction by instruction."""


_effects_by_id: dict[int, tuple[CodeType, Effects]] = {}


class _Comprehension(NamedTuple):
    """A comprehension that Python has compiled into the code of its function, as it does from 3.12 on."""

    kind: str
    names: set[str]
    start: int
    """The offset at which it begins."""


@dataclass(slots=True)
class _Statements:
    """The mutators of one line so far, by their ranges."""

    current: list[_Range] = field(default_factory=list)
    """Those of the statement that is not complete yet."""
    complete: list[_Range] = field(default_factory=list)
    """Those of earlier statements on the line."""
    conditions: list[_Range] = field(default_factory=list)
    """Those in conditions, such as ``f(a)`` in ``x if f(a) else g(b)``."""


class _Reader:
    """Reads the instructions of one code object."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.instructions, self.starts = _instructions(code)
        self.ranges = [_range_of(each) for each in self.instructions]
        self.loads = self._loads()
        self.begins = self._begins()
        self.comprehensions = self._comprehensions()
        self.effects = Effects()
        self.statements: dict[int, _Statements] = {}
        """Keyed by line."""

    def read(self) -> Effects:
        line = self.code.co_firstlineno
        resumes = [each.offset for each in self.instructions if each.opname == "RESUME"]
        if resumes:
            self.effects.start = resumes[0]
        for index, each in enumerate(self.instructions):
            line = _positions(each)[0] or line
            self._read_one(index, each, line)
        self.effects.aliased = self._aliased()
        return self.effects

    def _read_one(self, index: int, each: dis.Instruction, line: int) -> None:
        name = each.opname
        effects = self.effects
        if name == "PUSH_EXC_INFO":
            effects.handlers.update(self._after(index))
        elif name == "YIELD_VALUE":
            # From Python 3.13 on, ``f_lasti`` at a yield is the next offset.
            effects.yields.update((each.offset, *self._after(index)))
        elif name.startswith("RETURN_") and name != "RETURN_GENERATOR":
            effects.returns.add(each.offset)
        effects.stores += [(store, self._after(index)) for store in self._stores(index, each, line)]
        mutator = self._mutator(index, each, line)
        if mutator:
            effects.mutators.append((mutator, self._after(index)))
        self._note_statement(index, line, mutator is not None)

    def _note_statement(self, index: int, line: int, mutates: bool) -> None:
        """Note whether a line has several statements that may change values.

        ``f(a); g(b)`` has two: when ``g(b)`` ends, ``f(a)`` is complete, and neither is inside the other.
        ``y = x if f(a) else g(b)`` has one: when the store ends the statement, ``f(a)`` is only a condition of it. But
        in ``if f(a): g(b)`` the result of ``g(b)`` is dropped (POP_TOP), so it is a statement beside the condition.
        """
        name = self.instructions[index].opname
        where = self.ranges[index]
        line_so_far = self.statements.setdefault(line, _Statements())
        current = line_so_far.current
        if mutates and where is not None:
            current.append(where)
        if name.startswith("POP_JUMP"):
            line_so_far.conditions += current
            current.clear()
        elif current and name.startswith(_ENDS) and not self._is_walrus(index):
            before = line_so_far.complete
            if name == "POP_TOP":
                before = before + line_so_far.conditions
            if any(_are_apart(one, other) for one in current for other in before):
                self.effects.shared_lines.add(line)
            # Instructions after a return belong to another branch.
            if not name.startswith("RETURN_"):
                line_so_far.complete += current
            current.clear()

    def _is_walrus(self, index: int) -> bool:
        """Return whether the value of a store is used again, by the expression around it or by the next target."""
        return index > 0 and self.instructions[index - 1].opname == "COPY"

    def _after(self, index: int) -> tuple[int, ...]:
        """Return the offsets of the instruction after this one: without and with its EXTENDED_ARG."""
        if index + 1 == len(self.instructions):
            return ()
        return tuple(dict.fromkeys((self.starts[index + 1], self.instructions[index + 1].offset)))

    def _stores(self, index: int, each: dis.Instruction, line: int) -> Iterator[Store]:
        name = each.opname
        if name in _STORES:
            deletes, kind = _STORES[name]
            slot = -1
            if kind in (FAST, CELL) and each.arg is not None:
                slot = each.arg
            yield self._store(
                index, line, name=str(each.argval), kind=kind, slot=slot, deletes=deletes
            )
        elif name == "STORE_FAST_STORE_FAST" and each.arg is not None:
            for text, slot in zip(each.argval, (each.arg >> 4, each.arg & 15), strict=True):
                yield self._store(index, line, name=text, kind=FAST, slot=slot)
        elif name == "STORE_FAST_LOAD_FAST" and each.arg is not None:
            yield self._store(index, line, name=each.argval[0], kind=FAST, slot=each.arg >> 4)

    def _store(
        self, index: int, line: int, *, name: str, kind: str, slot: int, deletes: bool = False
    ) -> Store:
        where = self.ranges[index]
        comprehension = self._comprehension_around(where, name)
        # A store with the range of the whole comprehension gives the name back the value that it had before it.
        restores_outer_name = (
            comprehension is not None
            and where is not None
            and comprehension is self.comprehensions.get(where)
        )
        scope = None
        if comprehension is not None:
            scope = comprehension_scope(self.code, comprehension.kind)
        instruction = self.instructions[index]
        has_line = _positions(instruction)[0] is not None
        hidden = restores_outer_name or not has_line or self._ends_except(index)
        inner = ended = None
        if restores_outer_name:
            ended = scope
        else:
            inner = scope
            if comprehension is not None:
                self.effects.comprehensions[instruction.offset] = comprehension.start
        return Store(instruction.offset, line, name, kind, slot, deletes, inner, hidden, ended)

    def _ends_except(self, index: int) -> bool:
        """Return whether a store is part of the ``e = None; del e`` that Python adds after ``except … as e``."""
        if self.instructions[index].opname.startswith("STORE"):
            first = index - 1
        else:
            first = index - 2
        if first < 0 or first + 2 >= len(self.instructions):
            return False
        load, store, delete = self.instructions[first : first + 3]
        return (
            load.opname == "LOAD_CONST"
            and load.argval is None
            and _STORES.get(store.opname, (True, ""))[0] is False
            and delete.opname == store.opname.replace("STORE", "DELETE")
            and store.argval == delete.argval
            and _positions(load) == _positions(store) == _positions(delete)
        )

    def _mutator(self, index: int, each: dis.Instruction, line: int) -> Mutator | None:
        name = each.opname
        is_in_place_operator = name == "BINARY_OP" and each.arg in _IN_PLACE_OPERATORS
        writes_into = is_in_place_operator or name in _WRITING_INTO
        if not writes_into and name not in _CALLING:
            return None
        where = self.ranges[index]
        mentions = None
        if where is not None:
            lines = range(where[0], where[2] + 1)
            near = (load for line in lines for load in self.loads.get(line, ()))
            mentions = frozenset(text for range_, text in near if _is_inside(range_, where))
        shadowed: set[str] = set()
        for range_, comprehension in self.comprehensions.items():
            if where is not None and _is_inside(where, range_):
                shadowed |= comprehension.names
        into = None
        if writes_into:
            into = self._container(where)
        return Mutator(each.offset, line, mentions, frozenset(shadowed), into)

    def _container(self, where: _Range | None) -> str | None:
        """Return the name that the target of a write begins with, if only subscripts follow the name."""
        if where is None:
            return None
        begins = self.begins.get(where[:2], ())
        if any(each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "CALL")) for each in begins):
            return None
        names = [text for range_, text in self.loads.get(where[0], ()) if range_[:2] == where[:2]]
        if names:
            return names[0]
        return None

    def _begins(self) -> dict[tuple[int, int], list[dis.Instruction]]:
        """Return the instructions by the line and column where their source text begins."""
        begins: dict[tuple[int, int], list[dis.Instruction]] = {}
        for each, where in zip(self.instructions, self.ranges, strict=True):
            if where is not None:
                begins.setdefault(where[:2], []).append(each)
        return begins

    def _loads(self) -> dict[int, list[tuple[_Range, str]]]:
        """Return the names that are read, with their ranges, by line."""
        loads: dict[int, list[tuple[_Range, str]]] = {}
        for each, where in zip(self.instructions, self.ranges, strict=True):
            if where is not None and each.opname.startswith(_LOADS):
                if isinstance(each.argval, tuple):
                    names = each.argval
                else:
                    names = (each.argval,)
                loads.setdefault(where[0], []).extend((where, str(name)) for name in names)
        return loads

    def _aliased(self) -> set[str]:
        """Return the names whose value may get another reference without a call.

        The instruction with the smallest range around a name takes its value. If it makes a new value of it, as a call
        or an operator does, nobody else holds the old one. Otherwise somebody may: ``b = a``, ``[a]``,
        ``f = a.append``.
        """
        takers: dict[int, list[tuple[_Range, dis.Instruction]]] = {}
        for each, where in zip(self.instructions, self.ranges, strict=True):
            if where is not None and not each.opname.startswith(_KEEP_NO_OPERAND):
                for line in range(where[0], min(where[2], where[0] + _MOST_LINES) + 1):
                    takers.setdefault(line, []).append((where, each))
        aliased: set[str] = set()
        for line, loads in self.loads.items():
            for where, name in loads:
                if not _is_consumed(where, takers.get(line, ())):
                    aliased.add(name)
        for each in self.instructions:
            if each.opname == "STORE_FAST_LOAD_FAST":
                aliased.add(each.argval[1])
        return aliased

    def _comprehensions(self) -> dict[_Range, _Comprehension]:
        by_range: dict[_Range, _Comprehension] = {}
        for index, each in enumerate(self.instructions):
            where = self.ranges[index]
            if each.opname != "LOAD_FAST_AND_CLEAR" or where is None:
                continue
            if where not in by_range:
                builds = (_COMPREHENSIONS.get(later.opname) for later in self.instructions[index:])
                kind = next(filter(None, builds), "<listcomp>")
                by_range[where] = _Comprehension(kind, set(), each.offset)
            by_range[where].names.add(str(each.argval))
        return by_range

    def _comprehension_around(self, where: _Range | None, name: str) -> _Comprehension | None:
        """Return the innermost comprehension around a place that has a variable of this name."""
        if where is None:
            return None
        around = [
            range_
            for range_, each in self.comprehensions.items()
            if name in each.names and _is_inside(where, range_)
        ]
        if around:
            return self.comprehensions[max(around, key=lambda range_: range_[:2])]
        return None


def _is_consumed(name: _Range, takers: Iterable[tuple[_Range, dis.Instruction]]) -> bool:
    """Return whether the innermost instruction around a name makes a new value of it, or calls its method."""
    around = [(where, taker) for where, taker in takers if _is_inside(name, where)]
    innermost = max((_inwards(where) for where, _ in around), default=None)
    return any(
        taker.opname.startswith(_MAKE_NEW_VALUE) or _is_method(taker)
        for where, taker in around
        if _inwards(where) == innermost
    )


def effects_of(code: CodeType) -> Effects:
    """Return what a code object does to variables; it is cached by ``id``, because hashing code takes long."""
    cached = _effects_by_id.get(id(code))
    if cached is None or cached[0] is not code:
        if len(_effects_by_id) >= _MOST_CACHED:
            _effects_by_id.clear()
        cached = _effects_by_id[id(code)] = (code, _Reader(code).read())
    return cached[1]


def comprehension_start(code: CodeType, offset: int) -> int | None:
    """Return where the comprehension begins whose variable is stored at this offset, or None without such a store."""
    return effects_of(code).comprehensions.get(offset)


def slot_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of a frame's slots: locals, then cells that are not among them, then free variables."""
    locals_ = code.co_varnames
    return (
        *locals_,
        *(name for name in code.co_cellvars if name not in locals_),
        *code.co_freevars,
    )


def _is_method(instruction: dis.Instruction) -> bool:
    """Return whether a method is read to be called at once, unlike in ``f = a.append``.

    Changes are looked for after the call anyway.
    """
    if sys.version_info < (3, 12):
        return instruction.opname == "LOAD_METHOD"
    return instruction.opname == "LOAD_ATTR" and bool((instruction.arg or 0) & 1)


def _instructions(code: CodeType) -> tuple[list[dis.Instruction], list[int]]:
    """Return all instructions except EXTENDED_ARG, and the offset where each begins, including its EXTENDED_ARGs."""
    found: list[dis.Instruction] = []
    starts: list[int] = []
    start = -1
    for each in dis.get_instructions(code):
        if start < 0:
            start = each.offset
        if each.opname != "EXTENDED_ARG":
            found.append(each)
            starts.append(start)
            start = -1
    return found, starts


def _positions(instruction: dis.Instruction) -> tuple[int | None, ...]:
    where = instruction.positions
    if where is None:
        return (None,) * 4
    return tuple(where)


def _range_of(instruction: dis.Instruction) -> _Range | None:
    line, end_line, column, end_column = _positions(instruction)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return (line, column, end_line, end_column)


def _inwards(range_: _Range) -> tuple[int, int, int, int]:
    """Return a sort key for ranges around one place; smaller ranges come later."""
    return (range_[0], range_[1], -range_[2], -range_[3])


def _are_apart(one: _Range, other: _Range) -> bool:
    return not _is_inside(one, other) and not _is_inside(other, one)


def _is_inside(inner: _Range, outer: _Range) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]
