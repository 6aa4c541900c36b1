"""What a column of a table is, and how one is declared (schema.py has the tables)."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import MISSING, field
from functools import partial
from typing import Any, NamedTuple

FORMAT = 7
FORMATS = (2, 3, 4, 5, 6, 7)
"""What is written, and what is read."""
NONE = -1
KINDS = ("module", "function", "op", "call", "variable", "mark", "step", "unseen")
ORIGINS = ("user", "torch", "stdlib", "generated")
LONGEST_TIME = 1 << 62
SQL = {
    "id": "INTEGER PRIMARY KEY", "int": "INTEGER NOT NULL", "int | None": "INTEGER", "bool": "INTEGER NOT NULL",
    "float": "REAL NOT NULL", "float | None": "REAL", "str": "TEXT NOT NULL", "str | None": "TEXT",
    "str key": "TEXT PRIMARY KEY", "bytes": "BLOB NOT NULL",
    "tuple[str, ...]": "TEXT NOT NULL", "tuple[int, ...]": "TEXT NOT NULL", "tuple[int, ...] | None": "TEXT",
}  # fmt: skip
"""By the type in Python: that in SQLite. Tuples are JSON lists."""


class Column(NamedTuple):
    """One column of one table."""

    name: str
    type: str
    """A key of ``SQL``."""
    meaning: str
    to: str = ""
    """The table whose rows its numbers are."""
    low: int = 0
    high: int = LONGEST_TIME
    """Where it points to nothing: the numbers that it may hold, from ``low`` to before ``high``."""
    is_back: bool = False
    """Whether it points to an earlier row of its own table."""
    among: tuple[str, ...] = ()
    """The texts that it may hold, if only some make sense."""
    counts_on: bool = False
    """Whether its numbers begin from 0 in each part of a bundle, and count on where parts are joined."""
    since: int = FORMATS[0]
    """The first format that has it; in files of an earlier one it is NONE."""
    field: str = ""
    """Of numbers: the field of ``Tables``."""


INTS: Callable[[], array[int]] = partial(array, "q")
FLOATS: Callable[[], array[float]] = partial(array, "d")


def numbers(meaning: str, **facts: Any) -> Any:
    """A column of numbers in memory, one for each row; ``none=True``: -1 stands for nothing."""
    low = NONE if facts.pop("none", False) else facts.pop("low", 0)
    name = facts.pop("name", "")
    made = Column(name, facts.pop("type", "int"), meaning, low=low, **facts)
    return field(default_factory=INTS, metadata={"column": made})


def reals(meaning: str, **facts: Any) -> Any:
    """A column of floats in memory, one for each row or none at all; NaN stands for nothing."""
    made = Column("", "float | None", meaning, **facts)
    return field(default_factory=FLOATS, metadata={"column": made})


def cell(meaning: str, default: Any = MISSING, **facts: Any) -> Any:
    """One cell of a row that is an object in memory."""
    return field(default=default, metadata={"column": Column("", "", meaning, **facts)})
