"""A place in a function, as loops are found by it: what contains it, and its rank in the order of evaluation."""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass, field

from torchglass.source.statements import Statement, Statements

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FOR = (ast.For, ast.AsyncFor)


class Succession(enum.Enum):
    """How one place can run after another when no loop begins a new iteration between them."""

    SAME_ITERATION = enum.auto()
    OTHER_CALL = enum.auto()


@dataclass(slots=True, eq=False)
class Loop:
    """A ``for``, a ``while``, or a comprehension."""

    node: ast.stmt | Comprehension
    text: str
    """Its head as written, such as ``for x, y in loader:``."""
    breaks: bool
    """Whether it may be left before its end without an error."""

    def assigns_at(self, line: int, column: int) -> bool:
        """Return whether its head assigns a name at a position; the column is in bytes."""
        if not isinstance(self.node, FOR):
            return False
        target = self.node.target
        begin = (target.lineno, target.col_offset)
        end = (target.end_lineno or target.lineno, target.end_col_offset or 0)
        return begin <= (line, column) < end


@dataclass(slots=True, eq=False)
class Surroundings:
    """What contains a place: its function, statement, loops and branches."""

    function: tuple[int, int]
    """Identifies the function in its file: the number of the ``def``, and which lambda or class in it (0: none)."""
    statement: Statement
    loops: tuple[Loop, ...] = ()
    """The loops around the place, outermost first."""
    parts: tuple[tuple[ast.AST, str], ...] = ()
    """The branches around the place, outermost first: a statement or expression, and which part of it this is."""
    always: bool = True
    """Whether every iteration of the innermost loop, or every call if there is no loop, runs it exactly once."""
    is_head: bool = False
    """Whether it belongs to the head of the innermost loop, which runs before each iteration."""

    def inside(
        self,
        node: ast.AST,
        part: str,
        *,
        always: bool = False,
        loop: Loop | None = None,
        is_head: bool = False,
    ) -> Surroundings:
        """Return the surroundings of a part of a statement or expression.

        ``always`` says that the part runs whenever the statement or expression does.
        """
        if loop is None:
            loops = self.loops
        else:
            loops = (*self.loops, loop)
        if not loop:
            always = always and self.always
        return Surroundings(
            self.function, self.statement, loops, (*self.parts, (node, part)), always, is_head
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Place(Surroundings):
    """One place of a function: an expression, or the action of a statement itself.

    Places are compared by identity: each has one object. The *order* of an action is its rank in the order of
    evaluation of its function.
    """

    order: int
    """The order of its main action, such as a call."""
    node: ast.AST
    source: Statements
    is_exit: bool = False
    """Whether it is the end of a ``with``, which runs however the body is left."""
    before: int = 0
    """The order of its first action: a ``for`` makes its iterator."""
    tested: int = 0
    """For a comprehension, the order of its action after all its conditions."""
    after: int = 0
    """The order of its last action: a ``with`` exits, an assignment stores."""
    loop: Loop | None = None
    """For a comprehension, its loop."""
    chain: tuple[int, ...] = ()
    """For ``a < b < c``, the order of each comparison."""
    successions: dict[Place, Loop | Succession] = field(
        default_factory=dict["Place", "Loop | Succession"]
    )
    """Cached results of ``iterations.succession``, for places that ran after this one."""
