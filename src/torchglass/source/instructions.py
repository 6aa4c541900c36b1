"""Describe one instruction of a code object: its name, its range in the source, the operator that it was written as."""

from __future__ import annotations

import dis
from dataclasses import dataclass

from torchglass.source.codes import Code
from torchglass.source.location_table import NOWHERE, Range

CALLS = frozenset({"CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX"})
COMPARISONS = frozenset({"COMPARE_OP", "CONTAINS_OP"})

_UNARY_POSITIVE_INTRINSIC = 5
_TRUTH_JUMPS = ("_IF_TRUE", "_IF_FALSE", "_IF_TRUE_OR_POP", "_IF_FALSE_OR_POP")

# The argument of BINARY_OP is one of the NB_ constants of CPython. They number these operators in this order, then
# their in-place forms and, from Python 3.14 on, the subscript.
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
    """One instruction of a code object."""

    code: Code
    offset: int
    name: str
    arg: int
    range: Range

    @property
    def operator(self) -> str | None:
        """The operator that compiles to this instruction, or None for calls, attributes, loops and others."""
        if self.name == "BINARY_OP":
            if self.arg < len(BINARY_OPERATORS):
                return BINARY_OPERATORS[self.arg]
            return None
        if self.name == "COMPARE_OP":
            index = self.arg >> self.code.opcodes.compare_shift
            if index < len(dis.cmp_op):
                return dis.cmp_op[index]
            return None
        if self.name == "CONTAINS_OP":
            if self.arg:
                return "not in"
            return "in"
        if self.name == "CALL_INTRINSIC_1" and self.arg == _UNARY_POSITIVE_INTRINSIC:
            return "+"
        return _PLAIN_OPERATORS.get(self.name)

    @property
    def tests_truth(self) -> bool:
        """Whether it tests the truth of a value, as a conditional jump does."""
        return self.name == "TO_BOOL" or ("JUMP" in self.name and self.name.endswith(_TRUTH_JUMPS))

    def offsets_of_same_range(self, names: frozenset[str]) -> list[int]:
        """Return the offsets of all instructions with these names and the range of this one."""
        instructions = self.code.instructions
        opcode_names = self.code.opcodes.names
        return [
            index * 2
            for index, range_ in enumerate(self.code.ranges)
            if range_ == self.range and opcode_names[instructions[index * 2]] in names
        ]


def instruction_at(code: Code, lasti: int) -> Instruction:
    """Return the instruction at a frame's ``f_lasti``, which may also be one of the cache entries after it."""
    instructions = code.instructions
    names = code.opcodes.names
    if not 0 <= lasti < len(instructions) - 1:
        return Instruction(code, max(lasti, 0), "", 0, NOWHERE)
    offset = lasti & ~1
    # For a call of a Python function, f_lasti points to the last of the cache entries after the CALL.
    while offset > 0 and names[instructions[offset]] == "CACHE":
        offset -= 2
    name = names[instructions[offset]]
    arg = instructions[offset + 1]
    return Instruction(code, offset, name, arg, code.ranges[offset // 2])
