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
