"""Copy what is needed of a code object into plain data, which outlives the process and any Python version can read."""

from __future__ import annotations

import dis
import hashlib
import sys
from dataclasses import dataclass
from types import CodeType
from typing import cast

from torchglass.source.location_table import Range, read_positions


@dataclass(frozen=True, slots=True)
class Opcodes:
    """The names of the opcodes, which are numbered differently in each version of Python."""

    python: tuple[int, int]
    """Major and minor version."""
    names: tuple[str, ...]
    """The name of each opcode, by its number."""

    @property
    def compare_shift(self) -> int:
        """The number of lower bits in the argument of COMPARE_OP that do not belong to the operator."""
        if self.python < (3, 12):
            return 0
        if self.python < (3, 13):
            return 4
        return 5


OPCODE_COUNT = 256
"""An opcode is one byte. Some versions of Python list more names, which only their compiler uses."""
HERE = Opcodes((sys.version_info.major, sys.version_info.minor), tuple(dis.opname[:OPCODE_COUNT]))
"""The opcodes of this process."""


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """The parts of a code object from which places and names are read."""

    file: str
    name: str
    qualname: str
    line: int
    flags: int
    instructions: bytes
    positions: bytes
    """The location table; see location_table.py."""
    names: tuple[str, ...] = ()
    """The names that the code uses, by which its text is searched for. They are only read if the text is in doubt."""
    digest: str | None = None
    """Identifies the code among all others, to compare it with its text. None if the text is not in doubt."""
    opcodes: Opcodes = HERE

    @classmethod
    def of(cls, code: CodeType, in_doubt: bool = True) -> Code:
        """Copy a code object. ``in_doubt`` says that it may have to be compared with its text."""
        names: tuple[str, ...] = ()
        digest = None
        if in_doubt:
            names = (*code.co_names, *code.co_varnames)
            digest = digest_of(code)
        return cls(
            code.co_filename,
            code.co_name,
            code.co_qualname,
            code.co_firstlineno,
            code.co_flags,
            code.co_code,
            code.co_linetable,
            names,
            digest,
        )

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The source range of each instruction. Inline cache entries count as instructions."""
        return read_positions(self.positions, self.line, len(self.instructions) // 2)


_DIGESTED = (
    "co_name", "co_firstlineno", "co_code", "co_linetable", "co_exceptiontable", "co_names", "co_varnames",
    "co_freevars", "co_cellvars", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount",
)  # fmt: skip


def digest_of(code: CodeType) -> str:
    """Return a digest that is equal for code with equal instructions, positions, names and constants.

    ``==`` is not used: in some releases of Python it compares the inline caches, which a running function fills.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in _DIGESTED:
        digest.update(repr(getattr(code, name)).encode("utf-8", "surrogatepass"))
    for constant in code.co_consts:
        digest.update(_constant_text(constant).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _constant_text(value: object) -> str:
    """Return a text for a constant that is the same in every process. Sets are sorted for that."""
    if isinstance(value, CodeType):
        return digest_of(value)
    if isinstance(value, frozenset):
        return f"set {sorted(map(_constant_text, cast('frozenset[object]', value)))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant_text, cast('tuple[object, ...]', value)))})"
    return f"{type(value).__name__} {value!r}"
