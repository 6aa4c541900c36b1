"""Declare columns of tables. The tables themselves are declared in schema.py."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import MISSING, field
from functools import partial
from typing import Any, NamedTuple

FORMAT = 8
FORMATS = (2, 3, 4, 5, 6, 7, 8)
"""Formats of bundles that this version reads. It writes the newest."""
NONE = -1
"""Stands for a missing number in all columns of numbers."""
KINDS = ("module", "function", "op", "call", "variable", "mark", "step", "unseen")
ORIGINS = ("user", "torch", "stdlib", "generated")
MAX_TIME = 1 << 62
SQL = {
    "id": "INTEGER PRIMARY KEY", "int": "INTEGER NOT NULL", "int | None": "INTEGER", "bool": "INTEGER NOT NULL",
    "float": "REAL NOT NULL", "float | None": "REAL", "str": "TEXT NOT NULL", "str | None": "TEXT",
    "str key": "TEXT PRIMARY KEY", "bytes": "BLOB NOT NULL",
    "tuple[str, ...]": "TEXT NOT NULL", "tuple[int, ...]": "TEXT NOT NULL", "tuple[int, ...] | None": "TEXT",
}  # fmt: skip
"""The SQLite type for each Python type. Tuples are stored as JSON lists."""


class Column(NamedTuple):
    """One column of one table."""

    name: str
    type: str
    """A key of ``SQL``."""
    meaning: str
    to: str = ""
    """The table to whose rows its numbers refer, or ``""``."""
    low: int = 0
    """The smallest number that it may have, if it does not refer to a table."""
    high: int = MAX_TIME
    """The number after the largest one that it may have, if it does not refer to a table."""
    is_back: bool = False
    """Whether it refers to an earlier row of its own table."""
    among: tuple[str, ...] = ()
    """The texts that it may have, or () if it may have any."""
    counts_on: bool = False
    """Whether its numbers begin at 0 in each part of a bundle, and are renumbered when parts are joined."""
    since: int = FORMATS[0]
    """The first format that has it. In files of an earlier format it is NONE."""
    field: str = ""
    """For a column of numbers, its field of ``Tables``."""


INTS: Callable[[], array[int]] = partial(array, "q")
FLOATS: Callable[[], array[float]] = partial(array, "d")


def numbers(meaning: str, **facts: Any) -> Any:
    """Declare a column with a number for each row, as a field of ``Tables``. With ``none=True`` it may have NONE."""
    if facts.pop("none", False):
        low = NONE
    else:
        low = facts.pop("low", 0)
    name = facts.pop("name", "")
    column = Column(name, facts.pop("type", "int"), meaning, low=low, **facts)
    return field(default_factory=INTS, metadata={"column": column})


def reals(meaning: str, **facts: Any) -> Any:
    """Declare a column with a float for each row, or without rows, as a field of ``Tables``. NaN means nothing."""
    column = Column("", "float | None", meaning, **facts)
    return field(default_factory=FLOATS, metadata={"column": column})


def cell(meaning: str, default: Any = MISSING, **facts: Any) -> Any:
    """Declare a column as a field of the class whose objects are the rows of its table."""
    return field(default=default, metadata={"column": Column("", "", meaning, **facts)})
