"""What one instruction says: its range in the source, its name, the operator it was written as."""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from types import CodeType
from typing import NamedTuple

CALLS = frozenset({"CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX"})
COMPARISONS = frozenset({"COMPARE_OP", "CONTAINS_OP"})

_CACHE = dis.opmap["CACHE"]
_COMPARE_SHIFT = 0 if sys.version_info < (3, 12) else 4 if sys.version_info < (3, 13) else 5
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


class Range(NamedTuple):
    """A range of source text; lines count from 1, columns are byte offsets from 0, None where not told."""

    line: int | None
    end_line: int | None
    col: int | None
    end_col: int | None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, found by the ``f_lasti`` of a frame that stood at it."""

    code: CodeType
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
            return dis.cmp_op[self.arg >> _COMPARE_SHIFT]
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
        instructions = self.code.co_code
        return [
            offset * 2
            for offset, where in enumerate(_ranges(self.code))
            if where == self.range and dis.opname[instructions[offset * 2]] in names
        ]


def instruction_at(code: CodeType, lasti: int) -> Instruction:
    """The instruction at ``lasti``, which may also be one of the cache entries behind it."""
    instructions = code.co_code
    ranges = _ranges(code)
    if not 0 <= lasti < len(instructions):
        return Instruction(code, max(lasti, 0), "", 0, Range(None, None, None, None))
    offset = lasti & ~1
    # A call that the interpreter runs in its own loop leaves f_lasti behind the caches of the CALL.
    while offset > 0 and instructions[offset] == _CACHE:
        offset -= 2
    return Instruction(code, offset, dis.opname[instructions[offset]], instructions[offset + 1], ranges[offset // 2])


_known_ranges: dict[int, tuple[CodeType, list[Range]]] = {}
_MOST_KNOWN = 256


def _ranges(code: CodeType) -> list[Range]:
    """The ranges of all instructions, kept by ``id``: to hash a module's code hashes all code inside it."""
    known = _known_ranges.get(id(code))
    if known is None or known[0] is not code:
        if len(_known_ranges) >= _MOST_KNOWN:
            _known_ranges.clear()
        known = _known_ranges[id(code)] = (code, [Range(*position) for position in code.co_positions()])
    return known[1]
