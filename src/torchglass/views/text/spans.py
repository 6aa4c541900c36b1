"""What is said of calls and loops that no event tells of: as they are written, how often, in which rounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from torchglass.events.types import Location
from torchglass.views.fold import TOGETHER, Item, Label
from torchglass.views.levels import Level, count_of
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


def call_word(span: Level) -> str:
    """``loss = train_step(model, x)``, as it is written where the call was; else what was called.

    A module that is imported is called by its statement.
    """
    place, line = span.place, "" if span.at is None else span.at.source.strip()
    if span.function == MODULE_LEVEL and line.startswith(("import ", "from ")):
        return one_line(line)
    name = span.function.replace(".<locals>", "")
    if place is None or not isinstance(place.node, ast.Call | ast.Attribute | ast.BinOp | ast.Subscript):
        return f"{clean(name)}(…)"
    node = place.node
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Name | ast.Attribute) and span.is_called_back:
        last = called.id if isinstance(called, ast.Name) else called.attr
        if last != name.rpartition(".")[2]:
            return f"{clean(name)}(…)"
    text, statement = place.source.text(node), place.statement.node
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is node:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        text = " = ".join([*map(place.source.text, targets), text])
    return _SELF.sub("", one_line(text))


def short_call(function: str) -> str:
    """What was called, without the function it is defined in; ``Net()`` where an object was made."""
    name = clean(function.rpartition("<locals>.")[2])
    return f"{name.removesuffix('.__init__')}()" if name.endswith(".__init__") else name


def loop_word(span: Level) -> str:
    """``for x, y in loader:``, as it is written; before it the loops around it whose rounds it counts with its own."""
    assert span.loop is not None
    text, around = span.loop.text, span.around
    while around is not None and around.loop is not None and _is_counted_inside(around):
        text, around = f"{around.loop.text} {text}", around.around
    return _SELF.sub("", one_line(text))


def _is_counted_inside(span: Level) -> bool:
    """Whether nothing tells the rounds of a loop apart, so that the loop in it counts those of both."""
    return span.rounds is not None and span.rounds.begun == 1 and not span.rounds.seen


def loop_place(span: Level) -> Location | None:
    """Where a loop is written."""
    if span.loop is None or span.at is None:
        return span.at
    node = span.loop.node
    return replace(span.at, line=node.lineno, end_line=node.lineno, col=node.col_offset)


def count_word(loops: Sequence[Level]) -> str:
    """``× 938``; ``× 5–10`` where executions of the loop differed; ``× ≥ 7`` where only that is known."""
    counts = [count_of(span) for span in loops]
    numbers = [each.number for each in counts]
    return f"× {range_word(numbers)}" if all(each.exact for each in counts) else f"× ≥ {count(min(numbers))}"


def loop_cells(loops: Sequence[Level], rounds: str = "") -> Cells:
    """What is said of executions of a loop: as it is written, how many rounds, in which rounds of the one around."""
    text, times = Cell(EXPRESSION, loop_word(loops[0])), Cell(TIMES, count_word(loops))
    return (text, times, *([Cell(ROUNDS, rounds)] if rounds else []), Cell(PLACE, at=loop_place(loops[0])))


def counts_word(numbers: Sequence[int], word: str) -> str:
    """``4 torch functions``; ``3–5 events`` where rounds differed."""
    return plural(max(numbers), word) if len(set(numbers)) == 1 else f"{range_word(numbers)} {word}s"


def range_word(numbers: Iterable[int]) -> str:
    """``4``, ``3–5``."""
    ordered = sorted(set(numbers))
    return count(ordered[0]) if len(ordered) == 1 else f"{count(ordered[0])}–{count(ordered[-1])}"


def rounds_of(item: Item, around: Item | None, loop: Item | None, span_of: Callable[[int], Level | None]) -> str:
    """In which rounds of a loop something happened, where it did not in all of what is around it; else nothing."""
    if around is None or TOGETHER in (around.nodes[0], item.nodes[0]):
        return ""
    present = len(set(item.slots))
    if present == around.size:
        return ""
    if loop is None:
        return f"in {count(present)} of {plural(around.size, 'call')}"
    loops = [span for span in map(span_of, loop.nodes) if span is not None]
    ends = _ends(loops)
    size = loop.size - len(ends)
    inside = {slot: label for slot, label in zip(item.slots, item.labels, strict=True) if label not in ends}
    if not inside:
        return "after the last round"
    if len(inside) == (size if around is loop else sum(label not in ends for label in around.labels)):
        return ""
    said = _rounds_inside(list(inside.values()), loops, size)
    return said if len(inside) == present else f"{said} and after the last"


def _rounds_inside(labels: Sequence[Label], loops: Sequence[Level], size: int) -> str:
    """The same of some of the rounds, by executions of the loop."""
    executions: dict[int, list[int]] = {}
    for execution, at in dict.fromkeys(labels):
        executions.setdefault(execution, []).append(at + 1)
    if not all(count_of(span).exact for span in loops):
        often = [len(rounds) for rounds in executions.values()]
        return "once" if max(often) == 1 else counts_word(often, "time")
    different = {tuple(rounds) for rounds in executions.values()}
    if len(different) == 1 and len(executions) == len(loops):
        return _rounds(different.pop(), size // len(loops))
    return f"in {count(len(set(labels)))} of {count(size)} rounds"


def _ends(loops: Sequence[Level]) -> set[Label]:
    """Of each execution the step that found no further round: a ``while`` that was false, an iterator at its end."""
    found: set[Label] = set()
    for execution, span in enumerate(loops):
        counted, begun = count_of(span), span.rounds.begun if span.rounds is not None else 0
        if counted.exact and begun > counted.number:
            found.add((execution, begun - 1))
    return found


def _rounds(rounds: Sequence[int], of: int) -> str:
    """``in round 1``, ``in rounds 2–5``, ``in rounds 10, 20 … 50``; else in how many."""
    if len(rounds) == 1:
        return f"in round {count(rounds[0])}"
    steps = {later - earlier for earlier, later in pairwise(rounds)}
    if steps == {1}:
        return f"in rounds {count(rounds[0])}–{count(rounds[-1])}"
    if len(rounds) <= 3:
        return f"in rounds {', '.join(map(count, rounds))}"
    if len(steps) == 1:
        return f"in rounds {count(rounds[0])}, {count(rounds[1])} … {count(rounds[-1])}"
    return f"in {count(len(rounds))} of {count(of)} rounds"


def in_scope(function: str) -> str:
    """``in load``, ``at module level``."""
    return "at module level" if function == MODULE_LEVEL else f"in {scope_word(function)}"


def scope_word(function: str) -> str:
    """``outer.inner`` for a function in a function; a comprehension by what it is in."""
    inner = function.replace(".<locals>", "")
    head, _, last = inner.rpartition(".")
    if last in COMPREHENSIONS:
        return COMPREHENSIONS[last] + (f" in {clean(head)}" if head else "")
    return "module level" if inner == MODULE_LEVEL else clean(inner) or "?"
