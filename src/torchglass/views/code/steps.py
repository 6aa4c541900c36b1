"""Chooses the steps of the code view: the events that it shows under source lines, and their cells.

Steps are the aten ops if they were recorded, otherwise the torch functions. An optimizer's step is shown as one row.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location
from torchglass.program.dedup import DistinctEvents
from torchglass.program.inner import is_called_back, is_inner, is_torch_helper, nearest_around
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.views.options import CodeOptions
from torchglass.views.row import CLASS, COUNT, ERROR, GIVES, HEADING, NAME, TAKES, Cell, Cells
from torchglass.views.text.cells import op_name, op_words, shape_words
from torchglass.views.text.scopes import counts_word
from torchglass.views.text.tensors import args_in_common, texts_word
from torchglass.views.text.words import clean, count, one_line

GRAD_ACCESS = "Tensor.grad"
"""Reading ``.grad``, as ``zero_grad()`` does for each parameter. What torch reads in one call of the program is one
step, and none if the call has other steps.
"""


@dataclass(slots=True)
class Steps:
    """The events of a trace, and those that are shown as steps."""

    distinct: DistinctEvents
    events: list[Event]
    """By event, a sample of it."""
    calls: list[int]
    """By event, the innermost module call or optimizer step around it; -1 if there is none."""
    chosen: list[int] = field(default_factory=list[int])
    """The events that are shown."""
    inside: dict[int, int] = field(default_factory=dict[int, int])
    """By optimizer step that is shown as one row, how many ops are in it."""
    left_out: int = 0
    """How many steps are not selected."""


def is_call(event: Event) -> bool:
    """Return whether an event is the call of a module or an optimizer's step: lines and steps can be in it."""
    return event.kind in ("module", "step")


def steps_of(trace: Recorded, options: CodeOptions) -> Steps:
    """Read a trace and choose its steps. The innermost event that failed is always one."""
    distinct = program_of(trace).distinct
    events = distinct.events()
    parents = distinct.parents
    calls = nearest_around(parents, bytearray(map(is_call, events)))
    steps = Steps(distinct, events, calls)
    main_kind = _main_kind(distinct.samples)
    kinds = {main_kind, "unseen", "mark"}
    folds_optimizers = not options.inner
    if folds_optimizers:
        kinds.add("step")
    failed_inside = {parent for event, parent in zip(events, parents, strict=True) if event.error}
    chosen: list[int] = []
    for number, event in enumerate(events):
        has_failed_here = bool(event.error) and number not in failed_inside
        if has_failed_here or _is_step(steps, number, kinds, folds_optimizers):
            chosen.append(number)
    if folds_optimizers:
        chosen = sorted([*chosen, *_reads_of_gradients(steps, chosen)])
    is_partial = program_of(trace).left_out
    chosen = [number for number in chosen if not is_partial[number]]
    if main_kind == "op":
        chosen = list(_with_functions_without_ops(steps, chosen))
    if folds_optimizers:
        chosen = list(_outside_optimizers(steps, chosen))
    if options.only is None:
        steps.chosen = chosen
    else:
        steps.chosen = list(_selected(steps, chosen, options.only))
    steps.left_out = len(chosen) - len(steps.chosen)
    return steps


def _main_kind(events: Sequence[Event]) -> str:
    """Return the kind of most steps: ops or functions if there are any, otherwise modules without modules in them."""
    kinds = {event.kind for event in events}
    return next((kind for kind in ("op", "function") if kind in kinds), "module")


def _is_step(steps: Steps, number: int, kinds: Container[str], folds_optimizers: bool) -> bool:
    event = steps.events[number]
    parent = steps.distinct.parents[number]
    if event.kind not in kinds:
        return False
    if event.name == GRAD_ACCESS and folds_optimizers and is_torch_helper(event, None):
        return False
    if event.kind == "op":
        # The marks of torch's profiler have no tensors.
        return bool(event.inputs or event.outputs)
    if event.kind == "module":
        is_last = number + 1 == len(steps.events)
        contains_call = (
            not is_last and steps.calls[number + 1] == number and is_call(steps.events[number + 1])
        )
        return not contains_call
    return (parent >= 0 and steps.events[parent].kind == "step") or not _is_inner(steps, number)


def _reads_of_gradients(steps: Steps, chosen: Iterable[int]) -> Iterator[int]:
    """Yield the first event of each call that only reads gradients, such as ``optimizer.zero_grad()``.

    The others are counted as inside of it.
    """
    with_steps = {steps.events[number].location for number in chosen}
    first = -1
    for number, event in enumerate(steps.events):
        if event.name != GRAD_ACCESS or event.kind != "function" or event.location in with_steps:
            continue
        if not is_torch_helper(event, None) or steps.calls[number] >= 0:
            continue
        if first >= 0 and _is_read_with(steps, first, number):
            steps.inside[first] += 1
            continue
        first = number
        steps.inside[first] = 1
        yield first


def _is_read_with(steps: Steps, first: int, number: int) -> bool:
    """Return whether two reads of gradients are in one call, with nothing else between them."""
    return (
        steps.events[first].location == steps.events[number].location
        and first + steps.inside[first] == number
    )


def _is_inner(steps: Steps, number: int) -> bool:
    parent = steps.distinct.parents[number]
    return parent >= 0 and is_inner(steps.events[number], steps.events[parent], False)


def _with_functions_without_ops(steps: Steps, chosen: Iterable[int]) -> Iterator[int]:
    """Yield the ops, and the functions in which no ops were recorded, such as those that run in a compiled region.

    The note of such a function says why. An ``unseen`` event is left out if it has ops inside after all.
    """
    ops = set(chosen)
    parents = steps.distinct.parents
    has_ops: set[int] = set()
    for op in ops:
        parent = parents[op]
        while parent >= 0 and parent not in has_ops:
            has_ops.add(parent)
            parent = parents[parent]
    for number, event in enumerate(steps.events):
        if number in has_ops:
            if number in ops and event.kind != "unseen":
                yield number
            continue
        is_opaque = event.kind == "function" and event.note and not _is_inner(steps, number)
        if number in ops or is_opaque:
            yield number


def _outside_optimizers(steps: Steps, chosen: Iterable[int]) -> Iterator[int]:
    """Yield the steps outside optimizer steps; those inside are counted, unless they failed or torch called them."""
    for number in chosen:
        call = steps.calls[number]
        event = steps.events[number]
        is_in_step = call >= 0 and steps.events[call].kind == "step"
        if not is_in_step or event.error or is_called_back(event, steps.events[call]):
            yield number
        else:
            steps.inside[call] = steps.inside.get(call, 0) + 1


def _selected(steps: Steps, chosen: Iterable[int], only: Selection) -> Iterator[int]:
    """Yield the steps that are selected, or that are inside a selected function."""
    matches = steps.distinct.matching(only)
    parents = steps.distinct.parents
    for number in chosen:
        each = number
        while each >= 0 and not matches[each]:
            each = parents[each]
            if each >= 0 and steps.events[each].kind == "module":
                each = -1
        if each >= 0:
            yield number


def why_none(steps: Steps) -> str:
    """Return a sentence that says why no step is shown."""
    if steps.left_out:
        return f"No step is selected: the trace has {count(steps.left_out)}, and none that fits."
    return "Nothing that is recorded is a step of this view; the tree shows all that was recorded."


# ---------------------------------------------------------------- cells


def step_cells(events: Sequence[Event], module: str, inside: Sequence[int]) -> Cells:
    """Return the cells of a row that stands for these events: the name, and the arguments and results in common.

    ``module`` is shown if no row around it names it; ``inside`` is how many ops are in an optimizer's step.
    """
    event = events[0]
    if event.kind == "mark":
        value = Cell(GIVES, ", ".join(shape_words(event.inputs or event.outputs)))
        return (Cell(HEADING, f"▸ {clean(event.name)}"), value)
    name = op_name(clean(event.name))
    where = ()
    if module:
        where = (Cell(CLASS, clean(module)),)
    if event.name == GRAD_ACCESS and any(inside):
        return (Cell(NAME, name), Cell(COUNT, f"of {counts_word(inside, 'parameter')}"))
    if event.kind == "step":
        ops = ()
        if any(inside):
            ops = (Cell(COUNT, f"{counts_word(inside, 'op')} inside (inner=True)"),)
        return (Cell(NAME, f"{name}.step"), *ops, *where)
    args = args_in_common([each.args for each in events])
    results = dict.fromkeys(each.result for each in events)
    if event.outputs:
        result = args_in_common(list(results))
    elif len(results) > 1:
        result = texts_word(list(results))
    else:
        result = event.result
    if event.kind == "op":
        args, result = op_words(args, result)
    else:
        args = one_line(args)
        result = one_line(result)
    cells = (Cell(NAME, name), Cell(TAKES, args))
    if event.error is not None:
        return (*cells, Cell(ERROR, clean(event.error)), *where)
    unseen = ()
    if event.kind == "unseen":
        unseen = (Cell(COUNT, "not seen inside"),)
    return (*cells, Cell(GIVES, result), *unseen, *where)


def says_module(where: Location | None, name: str) -> bool:
    """Return whether a source line names a module, as ``self.ln_1(x)`` names ``h.0.ln_1``."""
    last = name.rpartition(".")[2].lower()
    return (
        where is not None
        and not last.isdecimal()
        and last in re.findall(r"\w+", where.source.lower())
    )
