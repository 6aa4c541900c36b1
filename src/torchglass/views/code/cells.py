"""What is said of a step of the code view: its name, its arguments and its result; of several, what they share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchglass.events.types import Event, Location
from torchglass.views.row import CLASS, COUNT, ERROR, GIVES, HEADING, NAME, TAKES, Cell
from torchglass.views.text.cells import Cells, shape_words
from torchglass.views.text.ops import op_name, op_words
from torchglass.views.text.ranges import args_in_common, texts_word
from torchglass.views.text.spans import counts_word
from torchglass.views.text.words import clean, one_line


def step_cells(events: Sequence[Event], module: str, inside: Sequence[int]) -> Cells:
    """``addmm``, its arguments and its result; which module it belongs to, where nothing else says it."""
    event = events[0]
    if event.kind == "mark":
        value = Cell(GIVES, ", ".join(shape_words(event.inputs or event.outputs)))
        return (Cell(HEADING, f"▸ {clean(event.name)}"), value)
    name, where = op_name(clean(event.name)), (Cell(CLASS, clean(module)),) if module else ()
    if event.kind == "step":
        ops = Cell(COUNT, f"{counts_word(inside, 'op')} inside (inner=True)")
        return (Cell(NAME, f"{name}.step"), ops, *where)
    args = args_in_common([each.args for each in events])
    results = dict.fromkeys(each.result for each in events)
    result = (
        args_in_common(list(results))
        if event.outputs
        else texts_word(list(results))
        if len(results) > 1
        else event.result
    )
    args, result = op_words(args, result) if event.kind == "op" else (one_line(args), one_line(result))
    cells = (Cell(NAME, name), Cell(TAKES, args))
    if event.error is not None:
        return (*cells, Cell(ERROR, clean(event.error)), *where)
    unseen = (Cell(COUNT, "not seen inside"),) if event.kind == "unseen" else ()
    return (*cells, Cell(GIVES, result), *unseen, *where)


def says_module(where: Location | None, name: str) -> bool:
    """Whether a source line says itself which module is called, as ``self.ln_1(x)`` and ``gru(x)`` of a GRU do."""
    last = name.rpartition(".")[2].lower()
    return where is not None and not last.isdecimal() and last in re.findall(r"\w+", where.source.lower())
