"""Writes the text of calls and loops that have no event: the code, the number of iterations, and in which of them.

Printed output says "round" for an iteration. ``rounds_word`` says in which rounds something happened, if not in all::

    for i in range(4):      × 4
        a()
        if i >= 2:
            c()             in rounds 3–4
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from torchglass.events.types import Location
from torchglass.program.fold import Item, IterationKey
from torchglass.program.tree import ProgramTree, ScopeSite
from torchglass.views.row import EXPRESSION, PLACE, ROUNDS, TIMES, Cell, Cells
from torchglass.views.text.words import clean, count, one_line, plural

MODULE_LEVEL = "<module>"
COMPREHENSIONS = {
    "<listcomp>": "a list comprehension",
    "<setcomp>": "a set comprehension",
    "<dictcomp>": "a dict comprehension",
    "<genexpr>": "a generator expression",
    "<lambda>": "a lambda",
}
_SELF = re.compile(r"(?<![\w.])self\.")
GIVES_THE_SAME = frozenset(["checkpoint"])
"""Functions that return what the function returns that they call, such as ``checkpoint(block, x)``.

A call of one of these is shown as written, although another function runs.
"""
MAX_ROUNDS_NAMED = 3
"""How many iterations are listed one by one, as in ``in rounds 2, 5, 6``. More are only counted."""


class ShowsTree(Protocol):
    """A tree of nodes to fold. Some of the nodes stand for calls and loops of the program."""

    @property
    def tree(self) -> ProgramTree: ...

    def children_of(self, node: int, /) -> Sequence[int]:
        """Return the nodes shown inside a node. For a loop, these are its iterations."""
        ...

    def scope(self, node: int, /) -> int:
        """Return the call, loop or iteration of the program tree for a node, or -1 for other nodes."""
        ...

    def times_run(self, nodes: Sequence[int], /) -> int | None:
        """Return how often something ran of which these nodes were kept.

        Return None if all of it was kept, or if the number is not known.
        """
        ...


def call_word(site: ScopeSite) -> str:
    """Return a call as written, such as ``loss = train_step(model, x)``, or the name of what is
    called.

    For the import of a module it is the import statement.
    """
    place = site.place
    line = ""
    if site.at is not None:
        line = site.at.source.strip()
    if site.function == MODULE_LEVEL and line.startswith(("import ", "from ")):
        return one_line(line)
    name = site.function.replace(".<locals>", "")
    if place is None or not isinstance(
        place.node, ast.Call | ast.Attribute | ast.BinOp | ast.Subscript
    ):
        return f"{clean(name)}(…)"
    node = place.node
    called = node
    if isinstance(node, ast.Call):
        called = node.func
    if isinstance(called, ast.Name | ast.Attribute) and site.is_called_back:
        if isinstance(called, ast.Name):
            last = called.id
        else:
            last = called.attr
        if last != name.rpartition(".")[2] and last not in GIVES_THE_SAME:
            return f"{clean(name)}(…)"
    text = place.source.text(node)
    statement = place.statement.node
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is node:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            targets = [statement.target]
        text = " = ".join([*map(place.source.text, targets), text])
    return _SELF.sub("", one_line(text))


def short_call(function: str) -> str:
    """Return the name of a function without the function around it. For a constructor it is
    ``Net()``.
    """
    name = clean(function.rpartition("<locals>.")[2])
    if name.endswith(".__init__"):
        return f"{name.removesuffix('.__init__')}()"
    return name


def loop_word(tree: ProgramTree, loop: int) -> str:
    """Return a loop as written, such as ``for x, y in loader:``.

    If the iterations of loops around it cannot be distinguished from its own, those loops are
    written before it.
    """
    text = _loop_text(tree, loop)
    outer = tree.loops[loop].outer
    while outer >= 0 and tree.loops[outer].is_uncounted:
        text = f"{_loop_text(tree, outer)} {text}"
        outer = tree.loops[outer].outer
    return _SELF.sub("", one_line(text))


def _loop_text(tree: ProgramTree, loop: int) -> str:
    written = tree.site(loop).loop
    assert written is not None
    return written.text


def loop_place(site: ScopeSite) -> Location | None:
    """Return the place of a loop's first line."""
    if site.loop is None or site.at is None:
        return site.at
    node = site.loop.node
    return replace(site.at, line=node.lineno, end_line=node.lineno, col=node.col_offset)


def count_word(tree: ProgramTree, loops: Sequence[int]) -> str:
    """Return how many iterations loops had.

    It is ``× 938``, ``× 5–10`` if the loops differ, ``× ≥ 7`` or ``× ≤ 7`` if only a bound is known,
    ``× ?`` if there is none, and ``× 938 or ≥ 7`` if more is known of some of the loops.
    """
    counts = set(map(tree.count, loops))
    words: list[str] = []
    known = [each.number for each in counts if each.exact]
    if known:
        words.append(range_word(known))
    at_least = [each.number for each in counts if each.at_least and not each.at_most]
    if at_least:
        words.append(f"≥ {count(min(at_least))}")
    at_most = [each.number for each in counts if each.at_most and not each.at_least]
    if at_most:
        words.append(f"≤ {count(max(at_most))}")
    if not all(each.at_least or each.at_most for each in counts):
        words.append("?")
    return f"× {' or '.join(words)}"


def loop_cells(tree: ProgramTree, loops: Sequence[int], rounds: str = "") -> Cells:
    """Return the cells of a loop: the code, the number of iterations, and in which iterations of
    the outer loop it ran.
    """
    code = Cell(EXPRESSION, loop_word(tree, loops[0]))
    times = Cell(TIMES, count_word(tree, loops))
    place = Cell(PLACE, at=loop_place(tree.site(loops[0])))
    if rounds:
        return (code, times, Cell(ROUNDS, rounds), place)
    return (code, times, place)


def counts_word(numbers: Sequence[int], word: str) -> str:
    """Return a number with a word, such as ``4 torch functions``, or ``3–5 events`` if the numbers
    differ.
    """
    if len(set(numbers)) == 1:
        return plural(max(numbers), word)
    return f"{range_word(numbers)} {word}s"


def range_word(numbers: Iterable[int]) -> str:
    """Return numbers as one number or as a range: ``4`` or ``3–5``."""
    ordered = sorted(set(numbers))
    if len(ordered) == 1:
        return count(ordered[0])
    return f"{count(ordered[0])}–{count(ordered[-1])}"


def rounds_word(item: Item, around: Item | None, loop: Item | None, shown: ShowsTree) -> str:
    """Return in which iterations of a loop an item happened, or "" if it happened in all in which
    it could.

    ``around`` is the item that contains it, ``loop`` the innermost merged loop.
    """
    if around is None or around.is_repeat or item.is_repeat:
        return ""
    present = len(set(item.slots))
    if present == around.slot_count:
        return ""
    if loop is None:
        return f"in {count(present)} of {plural(around.slot_count, 'call')}"
    tree = shown.tree
    loops = list(map(shown.scope, loop.nodes))
    rounds = [list(map(shown.scope, shown.children_of(node))) for node in loop.nodes]
    empty = _empty_iterations(tree, loops, rounds)
    inside = {
        slot: iteration
        for slot, iteration in zip(item.slots, item.iterations, strict=True)
        if iteration not in empty
    }
    if not inside:
        return "after the last round"
    if len(loops) == 1 and tree.loops[loops[0]].not_kept and len(item.nodes) == present:
        counted = tree.count(loops[0])
        times = shown.times_run(item.nodes)
        if times is not None and counted.exact:
            if times == counted.number:
                return ""
            if times > len(inside) and around is loop:
                return f"in {count(times)} of {count(counted.number)} rounds"
    if len(inside) == _possible(around, loop, empty):
        return ""
    # A step that is missing in an iteration may be among the events that were dropped there.
    cut = _cut_iterations(tree, loops, rounds)
    if cut:
        in_whole_iterations = sum(iteration not in cut for iteration in inside.values())
        if in_whole_iterations == _possible(around, loop, empty | cut):
            return ""
    size = loop.slot_count - len(empty)
    words = _rounds_inside(tree, list(inside.values()), loops, rounds, size)
    if len(inside) == present:
        return words
    return f"{words} and after the last"


def _possible(around: Item, loop: Item, excluded: set[IterationKey]) -> int:
    """Return how often something in ``around`` could have happened, not counting the excluded
    iterations of the loop.
    """
    if around is loop:
        return loop.slot_count - len(excluded)
    return sum(iteration not in excluded for iteration in around.iterations)


def _cut_iterations(
    tree: ProgramTree, loops: Sequence[int], rounds: Sequence[Sequence[int]]
) -> set[IterationKey]:
    """Return the iterations of which some events were dropped."""
    if not tree.cut:
        return set()
    found: set[IterationKey] = set()
    for execution, loop in enumerate(loops):
        for index, iteration in enumerate(rounds[execution]):
            if (loop, tree.number(iteration)) in tree.cut:
                found.add((execution, index))
    return found


def _empty_iterations(
    tree: ProgramTree, loops: Sequence[int], rounds: Sequence[Sequence[int]]
) -> set[IterationKey]:
    """Return, for each execution of a loop, the last iteration if it is empty.

    It is empty if in it only the ``while`` condition was false or the iterator was exhausted.
    """
    empty: set[IterationKey] = set()
    for execution, loop in enumerate(loops):
        run = tree.loops[loop]
        inside = rounds[execution]
        if not inside or not run.count.exact or run.begun <= run.count.number:
            continue
        if tree.number(inside[-1]) == run.begun - 1:
            empty.add((execution, len(inside) - 1))
    return empty


def _rounds_inside(
    tree: ProgramTree,
    iterations: Sequence[IterationKey],
    loops: Sequence[int],
    rounds: Sequence[Sequence[int]],
    size: int,
) -> str:
    """Return the words for some iterations of all executions of a loop, which had ``size``
    iterations together.
    """
    different = dict.fromkeys(iterations)
    by_execution: dict[int, list[int]] = {}
    for execution, index in different:
        number = tree.number(rounds[execution][index]) + 1
        by_execution.setdefault(execution, []).append(number)
    if not all(tree.count(loop).exact for loop in loops):
        times = [len(numbers) for numbers in by_execution.values()]
        if max(times) == 1:
            return "once"
        return counts_word(times, "time")
    are_some_dropped = any(tree.loops[loop].not_kept for loop in loops)
    if are_some_dropped and (len(loops) > 1 or len(different) > MAX_ROUNDS_NAMED):
        return f"in {count(len(different))} of {count(size)} kept rounds"
    patterns = {tuple(numbers) for numbers in by_execution.values()}
    if len(patterns) == 1 and len(by_execution) == len(loops):
        return _rounds(patterns.pop(), size // len(loops))
    return f"in {count(len(different))} of {count(size)} rounds"


def _rounds(rounds: Sequence[int], of: int) -> str:
    """Return the numbers of iterations as text.

    It is one of ``in round 1``, ``in rounds 2–5``, ``in rounds 10, 20 … 50`` and ``in 7 of 50
    rounds``.
    """
    if len(rounds) == 1:
        return f"in round {count(rounds[0])}"
    steps = {later - earlier for earlier, later in pairwise(rounds)}
    if steps == {1}:
        return f"in rounds {count(rounds[0])}–{count(rounds[-1])}"
    if len(rounds) <= MAX_ROUNDS_NAMED:
        return f"in rounds {', '.join(map(count, rounds))}"
    if len(steps) == 1:
        return f"in rounds {count(rounds[0])}, {count(rounds[1])} … {count(rounds[-1])}"
    return f"in {count(len(rounds))} of {count(of)} rounds"


def in_scope(function: str) -> str:
    """Return in which function something is, as ``in load`` or ``at module level``."""
    if function == MODULE_LEVEL:
        return "at module level"
    return f"in {scope_word(function)}"


def scope_word(function: str) -> str:
    """Return the name of a function, such as ``outer.inner`` or ``a list comprehension in outer``."""
    inner = function.replace(".<locals>", "")
    head, _, last = inner.rpartition(".")
    if last in COMPREHENSIONS:
        return COMPREHENSIONS[last] + (f" in {clean(head)}" if head else "")
    if inner == MODULE_LEVEL:
        return "module level"
    return clean(inner) or "?"
