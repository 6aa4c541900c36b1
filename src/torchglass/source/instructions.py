"""What one instruction says: its range in the source, its name, the operator it was written as."""

from __future__ import annotations

import dis
from dataclasses import dataclass

from torchglass.source.codes import NOWHERE, Code, Range

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
