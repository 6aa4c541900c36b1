"""Notices that an outer loop began a new round, by the names that its head assigns.

A stack shows which instruction ran. If an instruction runs again, the innermost loop around it began a new round. Of
two nested loops with nothing recorded between them, that does not show when the outer one did::

    for epoch in range(3):
        for x in batches:
            model(x)            # 30 times at one place: 3 × 10, or 5 × 6?

So at each event in two loops, the objects that ``epoch`` refers to are compared with those at the event before. Only
their ``id`` is kept. Loops whose names are assigned or deleted elsewhere in them, too, are left alone.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Hashable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torchglass.capture.engine.codes import MOST_KEPT, CodeTable
from torchglass.capture.slots import UNBOUND, slot, slots_of
from torchglass.journal import layout
from torchglass.journal.layout import NONE
from torchglass.journal.rows import encoded_ints
from torchglass.journal.writer import Journal
from torchglass.source.origins import origin_of

MOST_SEEN = 1024
"""How many loops of running frames to remember. Then all are forgotten, and at worst a round is missed."""
SUSPENDS = 0x20 | 0x80 | 0x200
"""The code flags of generators and coroutines. Other code runs between their rounds."""
_FOR_ITER = dis.opmap["FOR_ITER"]
_STORES = ("STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_NAME")
_UNPACKS = ("UNPACK_SEQUENCE", "UNPACK_EX", "EXTENDED_ARG", "CACHE", "NOT_TAKEN")
_HAS_PROXY = sys.version_info >= (3, 13)
"""Whether ``frame.f_locals`` has no side effects (PEP 667)."""


class Head(NamedTuple):
    """The names that the head of a ``for`` loop assigns."""

    line: int
    column: int
    """Where the first of them is written, the column in bytes."""
    names: tuple[str, ...]
    slots: tuple[int, ...]
    """Where they are among the locals of a function; empty in a module, whose names are globals."""


class CodeLoop(NamedTuple):
    """A loop in the instructions of a code object."""

    begin: int
    end: int
    """The offsets of its first instruction and of its last one."""
    head: Head | None
    """None if its names do not show its rounds, or it has none."""


class Rounds:
    """The loops around each stack whose rounds are to be looked for, and what was seen of them."""

    def __init__(self, journal: Journal, codes: CodeTable) -> None:
        self._journal = journal
        self._codes = codes
        self.watched: dict[int, tuple[tuple[int, Head], ...]] = {}
        """By the number of a stack: how many frames above its innermost one a loop is, and the head of the loop."""

    def meet(self, stack: int, key: tuple[int, ...]) -> None:
        """Find the outer loops of a new stack. Its key is (base, code, instruction, code, instruction, …)."""
        around: list[tuple[int, Head | None]] = []
        for place in range(1, len(key), 2):
            known = self._codes.kept.get(key[place])
            if known is None:
                continue
            inside = [
                loop for loop in loops_of(known[0]) if loop.begin <= key[place + 1] <= loop.end
            ]
            around += [(place // 2, loop.head) for loop in reversed(inside)]
        # The rounds of the innermost loop show in the stacks themselves.
        outer = tuple([(distance, head) for distance, head in around[1:] if head is not None])
        if outer:
            self.watched[stack] = outer

    def look(
        self, log: Any, frame: FrameType | None, stack: int, record: int, last: int = NONE
    ) -> None:
        """Write a row for each outer loop around a frame that began a new round since the last look at it.

        The compiled engine looks here only if an object is another one. ``last`` is the newest record before which it
        had found the objects of the look before.
        """
        seen = log.rounds
        if last != NONE:
            for key in log.looked_at_rounds:
                seen[key] = (seen[key][0], last)
        if len(seen) > MOST_SEEN:
            seen.clear()
        keys: list[Hashable] = []
        above = 0
        for distance, head in self.watched[stack]:
            while above < distance and frame is not None:
                frame = frame.f_back
                above += 1
            if frame is None:
                break
            found = _objects(frame, head)
            key = (id(frame), head)
            keys.append(key)
            before = seen.get(key)
            seen[key] = (found, record)
            if before is not None and before[0] != found:
                code = self._codes.number(frame)
                row = [record, before[1], code, head.line, head.column]
                self._journal.passing.add(layout.ROUND, log.number, encoded_ints(row))
        log.looked_at_rounds = keys


def _objects(frame: FrameType, head: Head) -> list[int]:
    """Return the ids of what the names of a head refer to. No code of the program runs, and nothing is kept."""
    if not head.slots:
        return [id(frame.f_globals.get(name, UNBOUND)) for name in head.names]
    slots = slots_of(frame, frame.f_code.co_nlocals)
    if slots is not None:
        return [id(slot(slots, place)) for place in head.slots]
    if _HAS_PROXY:
        return [id(frame.f_locals.get(name, UNBOUND)) for name in head.names]
    return []


# ---------------------------------------------------------------- loops in code

_loops: dict[int, tuple[CodeType, tuple[CodeLoop, ...]]] = {}
"""By the ``id`` of a code object, which is kept so that no other gets its id."""


def loops_of(code: CodeType) -> tuple[CodeLoop, ...]:
    """Return the loops of a function of the program, the outer ones first; of code without a ``for``, none."""
    known = _loops.get(id(code))
    if known is not None:
        return known[1]
    if len(_loops) >= MOST_KEPT:
        _loops.clear()
    found: tuple[CodeLoop, ...] = ()
    has_for = _FOR_ITER in code.co_code[::2]
    if has_for and not code.co_flags & SUSPENDS and origin_of(code.co_filename) == "user":
        found = _read_loops(code)
    _loops[id(code)] = (code, found)
    return found


def _read_loops(code: CodeType) -> tuple[CodeLoop, ...]:
    instructions = list(dis.get_instructions(code))
    ends: dict[int, int] = {}
    for each in instructions:
        if "JUMP_BACKWARD" in each.opname and "INTERRUPT" not in each.opname:
            ends[each.argval] = max(ends.get(each.argval, 0), each.offset)
    places = {each.offset: place for place, each in enumerate(instructions)}
    loops: list[CodeLoop] = []
    for begin, end in ends.items():
        body = instructions[places[begin] : places[end] + 1]
        loops.append(CodeLoop(begin, end, _head(code, body)))
    return tuple(sorted(loops, key=lambda loop: (loop.begin, -loop.end)))


def _head(code: CodeType, body: list[dis.Instruction]) -> Head | None:
    """Return the head of a loop whose instructions these are; None if its names do not show its rounds."""
    if body[0].opname != "FOR_ITER":
        return None
    stores: list[dis.Instruction] = []
    for each in body[1:]:
        if each.opname in _STORES:
            stores.append(each)
        if each.opname == "STORE_FAST_LOAD_FAST" or each.opname not in (*_STORES, *_UNPACKS):
            break
    names = tuple([name for each in stores for name in _names(each)])
    if not names or any(
        name in names for each in body if each not in stores for name in _names(each)
    ):
        return None
    slots: tuple[int, ...] = ()
    if code.co_name != "<module>":
        if not all(name in code.co_varnames for name in names):
            return None
        slots = tuple([code.co_varnames.index(name) for name in names])
    where = stores[0].positions
    if where is None or where.lineno is None or where.col_offset is None:
        return None
    return Head(where.lineno, where.col_offset, names, slots)


def _names(instruction: dis.Instruction) -> Iterator[str]:
    """Yield the names that an instruction assigns or deletes."""
    if not instruction.opname.startswith(
        ("STORE_FAST", "STORE_NAME", "DELETE_FAST", "DELETE_NAME", "STORE_GLOBAL")
    ):
        return
    argument = instruction.argval
    if isinstance(argument, str):
        yield argument
        return
    yield argument[0]
    if instruction.opname == "STORE_FAST_STORE_FAST":
        yield argument[1]
