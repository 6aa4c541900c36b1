"""What the instructions of a code object can do to variables: stores, and whatever may change a value in place."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import NamedTuple

from torchglass.capture.variables.scope import comprehension_scope

FAST, CELL, GLOBAL, NAME = "fast", "cell", "global", "name"

_KINDS = {"FAST": FAST, "DEREF": CELL, "GLOBAL": GLOBAL, "NAME": NAME}
_STORES = {f"{verb}_{kind}": (verb == "DELETE", _KINDS[kind]) for verb in ("STORE", "DELETE") for kind in _KINDS}
_CALLS = frozenset({
    "CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH", "BEFORE_ASYNC_WITH", "WITH_EXCEPT_START", "SEND",
    "YIELD_VALUE", "STORE_ATTR", "DELETE_ATTR",
})  # fmt: skip
_INTO = frozenset({"STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"})
_FIRST_IN_PLACE, _LAST_IN_PLACE = 13, 25
_COMPREHENSIONS = {"BUILD_LIST": "<listcomp>", "BUILD_SET": "<setcomp>", "BUILD_MAP": "<dictcomp>"}

_LOADS = (
    "LOAD_FAST", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF", "LOAD_FROM_DICT", "STORE_FAST_LOAD",
    "LOAD_CLOSURE",
)  # fmt: skip

_PASSIVE = (
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
_FRESH = ("CALL", "BINARY_OP", "COMPARE_OP", "CONTAINS_OP", "IS_OP", "UNARY_", "TO_BOOL", "RETURN_", "POP_JUMP")
"""What takes a value and gives a new one, or is looked behind anyway."""

_ENDS = ("POP_TOP", "STORE_", "DELETE_", "RETURN_")
"""What ends a statement, unless a larger one is around it."""

_Range = tuple[int, int, int, int]
"""First line, first column, last line, last column: so that ranges compare in the order of the text."""


class Store(NamedTuple):
    """An instruction that binds or unbinds a name."""

    offset: int
    line: int
    name: str
    kind: str
    slot: int
    """Among the fast locals, cells and free variables; -1 for names of a namespace."""
    deletes: bool
    inner: str | None
    """The scope of the comprehension that the name belongs to, where that has no frame of its own."""
    hidden: bool
    """Whether Python itself does it: after ``except … as e``, and when a comprehension gives a name back."""
    ended: str | None
    """The scope of the comprehension that gives the name back."""


class Mutator(NamedTuple):
    """An instruction that may change values in place."""

    offset: int
    line: int
    mentions: frozenset[str] | None
    """The names that its expression reads; None where Python keeps no columns: then it may be any."""
    shadowed: frozenset[str]
    """Names that belong to a comprehension at this place, not to the function."""
    into: str | None
    """``a`` in ``a[i] = v`` and ``a += v``: changed for certain."""


@dataclass(slots=True)
class Effects:
    """What one code object does to variables."""

    start: int = 0
    """Offset of the RESUME that a call begins with."""
    stores: list[tuple[Store, tuple[int, ...]]] = field(default_factory=list)
    """Each with the offsets at which it has just been done."""
    mutators: list[tuple[Mutator, tuple[int, ...]]] = field(default_factory=list)
    handlers: set[int] = field(default_factory=set)
    """Offsets where an exception has just begun to be handled."""
    aliased: set[str] = field(default_factory=set)
    """Names whose value may get another name, or a place in a container, without any call: ``b = a``, ``[a]``."""
    yields: set[int] = field(default_factory=set)
    returns: set[int] = field(default_factory=set)
    comprehensions: dict[int, int] = field(default_factory=dict)
    """By the offset of a store of a comprehension's own variable: where that comprehension begins."""
    shared_lines: set[int] = field(default_factory=set)
    """Lines with several statements that may change values: which of them did, only the instructions tell."""


class _Comprehension(NamedTuple):
    """One that is written into its function's own code, as Python does from 3.12 on."""

    kind: str
    names: set[str]
    start: int


class _Reader:
    """Reads the instructions of one code object."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.list, self.starts = _instructions(code)
        self.ranges = [_range_of(each) for each in self.list]
        self.loads = self._loads()
        self.begins = self._begins()
        self.comprehensions = self._comprehensions()
        self.effects = Effects()
        self.statements: dict[int, tuple[list[_Range], ...]] = {}
        """By line, where the mutators are: of the statement under way, of those before it, and in conditions."""

    def read(self) -> Effects:
        line = self.code.co_firstlineno
        resumes = [each.offset for each in self.list if each.opname == "RESUME"]
        self.effects.start = resumes[0] if resumes else 0
        for index, each in enumerate(self.list):
            line = _positions(each)[0] or line
            self._read_one(index, each, line)
        self.effects.aliased = self._aliased()
        return self.effects

    def _read_one(self, index: int, each: dis.Instruction, line: int) -> None:
        name, effects = each.opname, self.effects
        if name == "PUSH_EXC_INFO":
            effects.handlers.update(self._after(index))
        elif name == "YIELD_VALUE":
            effects.yields.update((each.offset, *self._after(index)))  # f_lasti is the latter from 3.13 on
        elif name.startswith("RETURN_") and name != "RETURN_GENERATOR":
            effects.returns.add(each.offset)
        effects.stores += [(store, self._after(index)) for store in self._stores(index, each, line)]
        mutator = self._mutator(index, each, line)
        if mutator:
            effects.mutators.append((mutator, self._after(index)))
        self._note_statement(index, line, mutator is not None)

    def _note_statement(self, index: int, line: int, mutates: bool) -> None:
        """Tell whether a line has several statements, by the instructions that end one."""
        name, where = self.list[index].opname, self.ranges[index]
        under_way, ended, tested = self.statements.setdefault(line, ([], [], []))
        if mutates and where is not None:
            under_way.append(where)
        if name.startswith("POP_JUMP"):
            tested += under_way
            under_way.clear()
        elif under_way and name.startswith(_ENDS) and not self._is_walrus(index):
            # Behind a condition, what is stored or returned is most often the other part of one expression.
            before = ended + tested if name == "POP_TOP" else ended
            if any(_are_apart(one, other) for one in under_way for other in before):
                self.effects.shared_lines.add(line)
            if not name.startswith("RETURN_"):  # what follows that is another branch
                ended += under_way
            under_way.clear()

    def _is_walrus(self, index: int) -> bool:
        """Whether a store leaves the value to the expression around it, or to the next target of ``a = b = …``."""
        return index > 0 and self.list[index - 1].opname == "COPY"

    def _after(self, index: int) -> tuple[int, ...]:
        """Where the instruction has just been done: the next one, which an EXTENDED_ARG may open."""
        if index + 1 == len(self.list):
            return ()
        return tuple(dict.fromkeys((self.starts[index + 1], self.list[index + 1].offset)))

    def _stores(self, index: int, each: dis.Instruction, line: int) -> Iterator[Store]:
        name = each.opname
        if name in _STORES:
            deletes, kind = _STORES[name]
            slot = each.arg if kind in (FAST, CELL) and each.arg is not None else -1
            yield self._store(index, line, (str(each.argval), kind, slot, deletes))
        elif name == "STORE_FAST_STORE_FAST" and each.arg is not None:
            for text, slot in zip(each.argval, (each.arg >> 4, each.arg & 15), strict=True):
                yield self._store(index, line, (text, FAST, slot, False))
        elif name == "STORE_FAST_LOAD_FAST" and each.arg is not None:
            yield self._store(index, line, (each.argval[0], FAST, each.arg >> 4, False))

    def _store(self, index: int, line: int, what: tuple[str, str, int, bool]) -> Store:
        name, kind, slot, deletes = what
        where = self.ranges[index]
        around = self._comprehension_around(where, name)
        gives_back = around is not None and where is not None and around is self.comprehensions.get(where)
        scope = comprehension_scope(self.code, around.kind) if around else None
        offset = self.list[index].offset
        if around and not gives_back:
            self.effects.comprehensions[offset] = around.start
        hidden = gives_back or _positions(self.list[index])[0] is None or self._ends_except(index)
        inner, ended = (None, scope) if gives_back else (scope, None)
        return Store(offset, line, name, kind, slot, deletes, inner, hidden, ended)

    def _ends_except(self, index: int) -> bool:
        """``e = None; del e`` in one place of the source is what ends ``except … as e``."""
        first = index - 1 if self.list[index].opname.startswith("STORE") else index - 2
        if first < 0 or first + 2 >= len(self.list):
            return False
        load, store, delete = self.list[first : first + 3]
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
        in_place = name == "BINARY_OP" and _FIRST_IN_PLACE <= (each.arg or 0) <= _LAST_IN_PLACE
        if not (in_place or name in _CALLS or name in _INTO):
            return None
        where = self.ranges[index]
        mentions = None
        if where is not None:
            lines = range(where[0], where[2] + 1)
            near = (load for line in lines for load in self.loads.get(line, ()))
            mentions = frozenset(text for range_, text in near if _is_inside(range_, where))
        shadowed = {text for range_, each in self.comprehensions.items() for text in each.names if where
                    and _is_inside(where, range_)}  # fmt: skip
        into = self._container(where) if in_place or name in _INTO else None
        return Mutator(each.offset, line, mentions, frozenset(shadowed), into)

    def _container(self, where: _Range | None) -> str | None:
        """The name that the written target begins with, when only subscripts follow it."""
        if where is None:
            return None
        begins = self.begins.get(where[:2], ())
        if any(each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "CALL")) for each in begins):
            return None
        names = [text for range_, text in self.loads.get(where[0], ()) if range_[:2] == where[:2]]
        return names[0] if names else None

    def _begins(self) -> dict[tuple[int, int], list[dis.Instruction]]:
        """The instructions by the place where their text begins."""
        found: dict[tuple[int, int], list[dis.Instruction]] = {}
        for each, where in zip(self.list, self.ranges, strict=True):
            if where is not None:
                found.setdefault(where[:2], []).append(each)
        return found

    def _loads(self) -> dict[int, list[tuple[_Range, str]]]:
        """The names that are read, by line."""
        found: dict[int, list[tuple[_Range, str]]] = {}
        for each, where in zip(self.list, self.ranges, strict=True):
            if where is not None and each.opname.startswith(_LOADS):
                names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
                found.setdefault(where[0], []).extend((where, str(name)) for name in names)
        return found

    def _aliased(self) -> set[str]:
        """Names that are read elsewhere than as an argument, as an operand, or to be returned."""
        takers: dict[int, list[tuple[_Range, dis.Instruction]]] = {}
        for each, where in zip(self.list, self.ranges, strict=True):
            if where is not None and not each.opname.startswith(_PASSIVE):
                for line in range(where[0], min(where[2], where[0] + _MOST_LINES) + 1):
                    takers.setdefault(line, []).append((where, each))
        found: set[str] = set()
        for line, loads in self.loads.items():
            for where, name in loads:
                around = [(range_, each) for range_, each in takers.get(line, ()) if _is_inside(where, range_)]
                # The smallest range around the name is what takes its value.
                nearest = max((_inwards(range_) for range_, _ in around), default=None)
                takers_of_it = [each for range_, each in around if _inwards(range_) == nearest]
                if not any(each.opname.startswith(_FRESH) or _is_method(each) for each in takers_of_it):
                    found.add(name)
        return found | {each.argval[1] for each in self.list if each.opname == "STORE_FAST_LOAD_FAST"}

    def _comprehensions(self) -> dict[_Range, _Comprehension]:
        found: dict[_Range, _Comprehension] = {}
        for index, each in enumerate(self.list):
            where = self.ranges[index]
            if each.opname != "LOAD_FAST_AND_CLEAR" or where is None:
                continue
            if where not in found:
                builds = (_COMPREHENSIONS.get(later.opname) for later in self.list[index:])
                found[where] = _Comprehension(next(filter(None, builds), "<listcomp>"), set(), each.offset)
            found[where].names.add(str(each.argval))
        return found

    def _comprehension_around(self, where: _Range | None, name: str) -> _Comprehension | None:
        """The innermost one that this place lies in and that owns the name."""
        if where is None:
            return None
        around = [range_ for range_, each in self.comprehensions.items() if name in each.names
                  and _is_inside(where, range_)]  # fmt: skip
        return self.comprehensions[max(around, key=lambda range_: range_[:2])] if around else None


_MOST_LINES = 100
"""Of one expression; what is longer is not looked through."""
_known: dict[int, tuple[CodeType, Effects]] = {}
_MOST_KNOWN = 1024


def effects_of(code: CodeType) -> Effects:
    """What the code does to variables; read once, kept by ``id`` (to hash a code object takes long)."""
    known = _known.get(id(code))
    if known is None or known[0] is not code:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[id(code)] = (code, _Reader(code).read())
    return known[1]


def start_of(code: CodeType, offset: int) -> int | None:
    """Where the comprehension begins whose variable is stored at an instruction; None where that is no such store."""
    return effects_of(code).comprehensions.get(offset)


def slot_names(code: CodeType) -> tuple[str, ...]:
    """The names of the slots of a frame: locals, cells that are no arguments, free variables."""
    locals_ = code.co_varnames
    return (*locals_, *(name for name in code.co_cellvars if name not in locals_), *code.co_freevars)


def _is_method(instruction: dis.Instruction) -> bool:
    """Whether a method is read to be called at once (not ``f = a.append``): the call is looked behind."""
    if sys.version_info < (3, 12):
        return instruction.opname == "LOAD_METHOD"
    return instruction.opname == "LOAD_ATTR" and bool((instruction.arg or 0) & 1)


def _instructions(code: CodeType) -> tuple[list[dis.Instruction], list[int]]:
    """All but EXTENDED_ARG, and where each begins with the EXTENDED_ARGs before it."""
    found: list[dis.Instruction] = []
    starts: list[int] = []
    start = -1
    for each in dis.get_instructions(code):
        start = each.offset if start < 0 else start
        if each.opname != "EXTENDED_ARG":
            found.append(each)
            starts.append(start)
            start = -1
    return found, starts


def _positions(instruction: dis.Instruction) -> tuple[int | None, ...]:
    where = instruction.positions
    return (None,) * 4 if where is None else tuple(where)


def _range_of(instruction: dis.Instruction) -> _Range | None:
    line, end_line, column, end_column = _positions(instruction)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return (line, column, end_line, end_column)


def _inwards(range_: _Range) -> tuple[int, int, int, int]:
    """Sorts the ranges around one place: the smaller, the later."""
    return (range_[0], range_[1], -range_[2], -range_[3])


def _are_apart(one: _Range, other: _Range) -> bool:
    return not _is_inside(one, other) and not _is_inside(other, one)


def _is_inside(inner: _Range, outer: _Range) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]
