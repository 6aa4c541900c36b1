"""What every view has to show: rows of typed cells, each leading to its event, and the ``kinds`` of both."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.spelling import clean
from torchglass.events.types import Location

# ---------------------------------------------------------------- kinds of cells

FOLD = "fold"
"""Which calls a row stands for, and how often: ``blocks.0–11 × 12``."""
TIMES = "times"
"""How many rounds a loop had: ``× 938``."""
SAME = "same"
"""Where the same stands above: ``as at train.py:224``."""
ROUNDS = "rounds"
"""In which of them it happened, where not in all: ``in rounds 10, 20 … 50``."""
NAME = "name"
"""The path of a module, the name of a variable or mark."""
EXPRESSION = "expression"
"""What was written: ``q, k = split(x)``."""
CLASS = "class"
"""A module's class and settings, or how a value came about."""
TAKES, GIVES = "takes", "gives"
"""Shapes, or other values as text."""
STATISTICS = "statistics"
"""What was in tensors; ``mark`` is the part that says what is not finite."""
ERROR = "error"
COUNT = "count"
"""How many of something: ``3 calls each``, ``12 events inside``."""
TIME = "time"
PLACE = "place"
NOTE = "note"
"""What the recorder has to say of the event."""
REMARK = "remark"
"""What the view adds: why two rows differ."""
ORIGIN = "origin"
"""Where a value comes from."""
SOURCE = "source"
"""A line of the program; ``mark`` is the part of it that ran."""
HEADING = "heading"

# ---------------------------------------------------------------- kinds of rows

EVENT = "event"
THREAD = "thread"
"""From here on another thread."""
REPEAT = "repeat"
"""Above rows, one further in, that repeat together."""
LINE = "line"
"""A line of source."""
CALL = "call"
"""A call of a function of the program, or into one."""
LOOP = "loop"
"""Above the rows of one round."""
ROUND = "round"
"""Above the rows of a round that is shown by itself."""
PATH = "path"
"""On the way to another row; it names its file even where that stays the same."""
VARIABLE = "variable"
"""Above the changes of one."""
GAP = "gap"
"""Something is left out here."""
BLANK = "blank"


class Cell(NamedTuple):
    """One thing that is said in a row."""

    kind: str
    text: str = ""
    short: str | None = None
    """What remains of it on a narrow page; None: all of it, cut."""
    at: Location | None = None
    """Of a place and a source line: where it is."""
    mark: tuple[int, int] | None = None
    """The part of the text that is meant."""


Cells = tuple[Cell, ...]


@dataclass(slots=True)
class Row:
    """One line of a view."""

    depth: int
    kind: str = EVENT
    cells: Cells = ()
    event: int = -1
    """The id of the (first) event that it stands for; -1: none."""
    times: int = 1
    """How many in a row it stands for."""
    each: int = 1
    """The same, times that of the repeats it is in: how many events of the trace."""
    hidden: int = 0
    """Events in all of them that have no row."""
    below: Cells = ()
    """Notes and remarks, on lines of their own."""
    indent: int = 0
    """Columns before it: below a heading."""
    subject: str = ""
    """Which function or module was called: what is below two rows of one subject may be the same."""

    def cell(self, kind: str) -> Cell | None:
        """The first cell of that kind."""
        return next((cell for cell in self.cells if cell.kind == kind), None)

    @property
    def place(self) -> Location | None:
        """Where it was written."""
        found = self.cell(PLACE)
        return None if found is None else found.at

    def text(self, kind: str) -> str:
        """What the first cell of that kind says; ``""`` when there is none."""
        found = self.cell(kind)
        return "" if found is None else found.text


def repeat_row(depth: int, span: str, times: int, each: str) -> Row:
    """Above rows, one further in, that repeat together: ``layers.0–23 × 24, 3 steps each:``."""
    often = Cell(FOLD, f"{clean(span)} × {times:,}".lstrip())
    return Row(depth, REPEAT, (often, Cell(COUNT, f", {each} each:")), times=times)


@dataclass(slots=True)
class Sheet:
    """What a view has to show: rows, and sentences below them."""

    rows: list[Row] = field(default_factory=list[Row])
    below: list[Cell] = field(default_factory=list[Cell])
    """How many there were and why some have no row (COUNT), explanations (REMARK), what is amiss (NOTE, HEADING)."""


def has_heading(thread: str, threads: Collection[str]) -> bool:
    """Whether rows of a thread begin with its name: they do not where only the main thread can be meant."""
    return len(threads) > 1 and thread != "MainThread"


# ---------------------------------------------------------------- rows that were said before

WORTH_SAYING = 5
"""Rows from which on those that stand above already are not shown again."""


def said_once(rows: Sequence[Row]) -> list[Row]:
    """Without what is below a call where a call of the same function or module above has the same below it."""
    inside, below = [0] * len(rows), [list[int]() for _ in rows]
    stack: list[int] = []
    for at, row in enumerate(rows):  # how many rows follow that stand deeper, and which of them by one
        while stack and (rows[stack[-1]].depth >= row.depth or row.kind == THREAD):
            inside[stack[-1]] = at - 1 - stack[-1]
            stack.pop()
        if stack:
            below[stack[-1]].append(at)
        stack.append(at)
    for each in stack:
        inside[each] = len(rows) - 1 - each
    numbers: dict[Hashable, int] = {}
    content, whole = [0] * len(rows), [0] * len(rows)
    for at in range(len(rows) - 1, -1, -1):
        content[at] = numbers.setdefault(tuple(whole[child] for child in below[at]), len(numbers))
        own = (rows[at].kind, rows[at].cells, rows[at].below)
        whole[at] = numbers.setdefault((own, content[at]), len(numbers))
    found: list[Row] = []
    first: dict[tuple[str, int], Row] = {}
    at = 0
    while at < len(rows):
        row = rows[at]
        found.append(row)
        at += 1
        if not row.subject or inside[at - 1] < WORTH_SAYING:
            continue
        same = first.setdefault((row.subject, content[at - 1]), row)
        if same is not row and same.place is not None:
            left_out = rows[at : at + inside[at - 1]]
            row.cells = (*row.cells, Cell(SAME, _as_at(same.place, row.place), at=same.place))
            row.hidden += sum(each.each + each.hidden for each in left_out)
            at += inside[at - 1]
    return found


def _as_at(at: Location, here: Location | None) -> str:
    file = "" if here is not None and here.file == at.file else clean(at.file.rpartition("/")[2])
    return f"as at {file}:{at.line}"
