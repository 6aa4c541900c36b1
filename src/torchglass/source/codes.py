"""What is read of a code object, as plain data: it outlives the process, and is read by another Python too."""

from __future__ import annotations

import dis
import hashlib
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import NamedTuple, cast


class Range(NamedTuple):
    """A range of source text; lines count from 1, columns are byte offsets from 0, None where not told."""

    line: int | None
    end_line: int | None
    col: int | None
    end_col: int | None


NOWHERE = Range(None, None, None, None)


def char_column(line: str, byte: int) -> int:
    """The column in characters of a column that was counted in UTF-8 bytes."""
    if line.isascii():
        return byte
    return len(line.encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "ignore"))


@dataclass(frozen=True, slots=True)
class Opcodes:
    """What the numbers in instructions mean, which differs from one Python to the next."""

    python: tuple[int, int]
    names: tuple[str, ...]

    @property
    def compare_shift(self) -> int:
        """By how many bits the operator stands up in the argument of a comparison."""
        return 0 if self.python < (3, 12) else 4 if self.python < (3, 13) else 5


MOST_OPCODES = 256
"""An instruction has a byte for its opcode; what some Pythons list behind only their compiler knows."""
HERE = Opcodes((sys.version_info.major, sys.version_info.minor), tuple(dis.opname[:MOST_OPCODES]))
"""Those of the Python that runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """One code object, as far as places and names are read from it."""

    file: str
    name: str
    qualname: str
    line: int
    flags: int
    instructions: bytes
    positions: bytes
    """Its location table."""
    names: tuple[str, ...] = ()
    """The names that it uses, of code without a file: its text has them all."""
    digest: str | None = None
    """Told apart from all other code by this; None where nobody doubts the text of its file."""
    opcodes: Opcodes = HERE

    @classmethod
    def of(cls, code: CodeType, in_doubt: bool = True) -> Code:
        """What is read of living code; ``in_doubt``: whether it may have to be compared with a text."""
        return cls(
            code.co_filename,
            code.co_name,
            code.co_qualname,
            code.co_firstlineno,
            code.co_flags,
            code.co_code,
            code.co_linetable,
            (*code.co_names, *code.co_varnames) if in_doubt else (),
            digest_of(code) if in_doubt else None,
        )

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Where each instruction stands in the source, caches included."""
        return read_positions(self.positions, self.line, len(self.instructions) // 2)


_DIGESTED = (
    "co_name", "co_firstlineno", "co_code", "co_linetable", "co_exceptiontable", "co_names", "co_varnames",
    "co_freevars", "co_cellvars", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount",
)  # fmt: skip


def digest_of(code: CodeType) -> str:
    """Equal for code objects that are equal in instructions, positions, names and constants.

    Not by ``==``: in some releases that compares the caches which a running function fills.
    """
    found = hashlib.blake2b(digest_size=16)
    for name in _DIGESTED:
        found.update(repr(getattr(code, name)).encode("utf-8", "surrogatepass"))
    for constant in code.co_consts:
        found.update(_constant(constant).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _constant(value: object) -> str:
    """The text of a constant, the same in every process; sets have no order."""
    if isinstance(value, CodeType):
        return digest_of(value)
    if isinstance(value, frozenset):
        return f"set {sorted(map(_constant, cast('frozenset[object]', value)))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, cast('tuple[object, ...]', value)))})"
    return f"{type(value).__name__} {value!r}"


# ---------------------------------------------------------------- location tables, as all Pythons since 3.11 have them

_NO_COLUMN, _LONG, _NOTHING = 13, 14, 15
_ONE_LINE = range(10, 13)


@lru_cache(maxsize=1024)
def read_positions(table: bytes, line: int, count: int) -> tuple[Range, ...]:
    """The ranges of ``count`` instructions of code that begins in ``line``; what the table does not tell is nowhere.

    Written out here, since asking a code object would need one, and a table from a file must not reach the
    interpreter unchecked. Kept, as the same code comes in every recording.
    """
    ranges: list[Range] = []
    reader = _Table(table)
    try:
        while len(ranges) < count:
            head = reader.byte()
            kind, length = head >> 3 & 15, (head & 7) + 1
            line, where = reader.entry(kind, line)
            ranges += [where] * length
    except IndexError:
        pass  # it ends here
    ranges += [NOWHERE] * (count - len(ranges))
    return tuple(ranges[:count])


class _Table:
    """Reads a location table from its beginning on."""

    def __init__(self, table: bytes) -> None:
        self.table = table
        self.at = 0

    def byte(self) -> int:
        found = self.table[self.at]
        self.at += 1
        return found

    def entry(self, kind: int, line: int) -> tuple[int, Range]:
        """The line after an entry of some kind, and the range that it tells."""
        if kind == _NOTHING:
            return line, NOWHERE
        if kind == _LONG:
            line += self._signed()
            end_line = line + self._number()
            col, end_col = self._number() - 1, self._number() - 1
            return line, Range(line, end_line, None if col < 0 else col, None if end_col < 0 else end_col)
        if kind == _NO_COLUMN:
            line += self._signed()
            return line, Range(line, line, None, None)
        if kind in _ONE_LINE:
            line += kind - 10
            return line, Range(line, line, self.byte(), self.byte())
        second = self.byte()
        col = kind * 8 + (second >> 4 & 7)
        return line, Range(line, line, col, col + (second & 15))

    def _number(self) -> int:
        """Six bits at a time, the lowest first."""
        value = shift = 0
        while True:
            each = self.byte()
            value |= (each & 63) << shift
            shift += 6
            if not each & 64:
                return value

    def _signed(self) -> int:
        value = self._number()
        return -(value >> 1) if value & 1 else value >> 1


# ---------------------------------------------------------------- instructions

# What one instruction says: its range in the source, its name, the operator it was written as.

CALLS = frozenset({"CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX"})
COMPARISONS = frozenset({"COMPARE_OP", "CONTAINS_OP"})

_UNARY_POSITIVE_INTRINSIC = 5
_ON_TRUTH = ("_IF_TRUE", "_IF_FALSE", "_IF_TRUE_OR_POP", "_IF_FALSE_OR_POP")

# In the order of the NB_ constants of CPython, which number the argument of BINARY_OP; the in-place
# forms follow in the same order, and from 3.14 on the subscript.
_BINARY = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
BINARY_OPERATORS = (*_BINARY, *(f"{symbol}=" for symbol in _BINARY), "[]")

_PLAIN_OPERATORS = {
    "BINARY_SUBSCR": "[]",
    "BINARY_SLICE": "[]",
    "STORE_SUBSCR": "[]=",
    "STORE_SLICE": "[]=",
    "DELETE_SUBSCR": "del []",
    "UNARY_NEGATIVE": "-",
    "UNARY_POSITIVE": "+",
    "UNARY_INVERT": "~",
    "UNARY_NOT": "not",
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, found by the ``f_lasti`` of a frame that stood at it."""

    code: Code
    offset: int
    name: str
    arg: int
    range: Range

    @property
    def operator(self) -> str | None:
        """The operator that compiles to this instruction; None for calls, attributes, loops …"""
        if self.name == "BINARY_OP":
            return BINARY_OPERATORS[self.arg] if self.arg < len(BINARY_OPERATORS) else None
        if self.name == "COMPARE_OP":
            index = self.arg >> self.code.opcodes.compare_shift
            return dis.cmp_op[index] if index < len(dis.cmp_op) else None
        if self.name == "CONTAINS_OP":
            return "not in" if self.arg else "in"
        if self.name == "CALL_INTRINSIC_1" and self.arg == _UNARY_POSITIVE_INTRINSIC:
            return "+"
        return _PLAIN_OPERATORS.get(self.name)

    @property
    def tests_truth(self) -> bool:
        """Whether it asks a value for its truth, as a conditional jump does."""
        return self.name == "TO_BOOL" or ("JUMP" in self.name and self.name.endswith(_ON_TRUTH))

    def alike(self, names: frozenset[str]) -> list[int]:
        """The offsets of all instructions of these names that have this same range."""
        instructions, named = self.code.instructions, self.code.opcodes.names
        return [
            offset * 2
            for offset, where in enumerate(self.code.ranges)
            if where == self.range and named[instructions[offset * 2]] in names
        ]


def instruction_at(code: Code, lasti: int) -> Instruction:
    """The instruction at ``lasti``, which may also be one of the cache entries behind it."""
    instructions, names = code.instructions, code.opcodes.names
    if not 0 <= lasti < len(instructions) - 1:
        return Instruction(code, max(lasti, 0), "", 0, NOWHERE)
    offset = lasti & ~1
    # A call that the interpreter runs in its own loop leaves f_lasti behind the caches of the CALL.
    while offset > 0 and names[instructions[offset]] == "CACHE":
        offset -= 2
    name, arg = names[instructions[offset]], instructions[offset + 1]
    return Instruction(code, offset, name, arg, code.ranges[offset // 2])
