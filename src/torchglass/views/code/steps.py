"""Which events are the steps of the code view, and the call of a module or optimizer around each event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location
from torchglass.views.digest import Digest, Recorded, digest_of, is_inner, is_torch_helper
from torchglass.views.options import CodeOptions
from torchglass.views.row import CLASS, COUNT, ERROR, GIVES, HEADING, NAME, TAKES, Cell, Cells
from torchglass.views.text.cells import op_name, op_words, shape_words
from torchglass.views.text.spans import counts_word
from torchglass.views.text.tensors import args_in_common, texts_word
from torchglass.views.text.words import clean, count, one_line

READ = "Tensor.grad"
"""``zero_grad()`` and ``clip_grad_norm_()`` ask each parameter for its gradient: a look, and no step of the program."""


@dataclass(slots=True)
class Steps:
    """A trace read once, and the events of it that are shown."""

    digest: Digest
    events: list[Event]
    """For each event one that is alike."""
    calls: list[int] = field(default_factory=list[int])
    """The innermost module call or optimizer step around each event; -1: none."""
    chosen: list[int] = field(default_factory=list[int])
    """The events that are shown."""
    inside: dict[int, int] = field(default_factory=dict[int, int])
    """How many ops are in an optimizer's step that is shown as one."""
    left_out: int = 0
    """Steps that are not selected."""


def is_call(event: Event) -> bool:
    """Whether an event is a call that has lines and steps in it: a module's or an optimizer's."""
    return event.kind in ("module", "step")


def steps_of(trace: Recorded, options: CodeOptions) -> Steps:
    """Read a trace and choose its steps."""
    digest = digest_of(trace)
    steps = Steps(digest, digest.events())
    events, parents, calls = steps.events, digest.parents, steps.calls
    for parent in parents:
        calls.append(parent if parent >= 0 and is_call(events[parent]) else calls[parent] if parent >= 0 else -1)
    shown = _shown_kinds(digest.samples, options)
    failed_inside = {parent for event, parent in zip(events, parents, strict=True) if event.error}
    chosen = [
        number
        for number, event in enumerate(events)
        if (event.error and number not in failed_inside) or _is_step(steps, number, shown)
    ]
    if "op" in shown:
        chosen = list(_or_what_has_no_ops(steps, chosen))
    if "step" in shown:
        chosen = list(_outside_optimizers(steps, chosen))
    steps.chosen = chosen if options.only is None else list(_selected(steps, chosen, options.only))
    steps.left_out = len(chosen) - len(steps.chosen)
    return steps


def _shown_kinds(events: Sequence[Event], options: CodeOptions) -> frozenset[str]:
    """The kinds that are steps; without ops and functions the modules that call no others must do."""
    kinds = {event.kind for event in events}
    if options.steps == "ops" or (options.steps == "auto" and "op" in kinds):
        main = "op"
    else:
        main = "function" if options.steps == "functions" or "function" in kinds else "module"
    return frozenset((main, "unseen", "mark", "" if options.inner else "step"))


def _is_step(steps: Steps, number: int, shown: frozenset[str]) -> bool:
    event, parent = steps.events[number], steps.digest.parents[number]
    if event.kind not in shown:
        return False
    if event.name == READ and "step" in shown and is_torch_helper(event, None):
        return False
    if event.kind == "op":
        return bool(event.inputs or event.outputs)  # the profiler's marks are nobody's business
    if event.kind == "module":
        following = steps.calls[number + 1 : number + 2]
        return not following or following[0] != number or not is_call(steps.events[number + 1])
    return (parent >= 0 and steps.events[parent].kind == "step") or not _is_inner(steps, number)


def _is_inner(steps: Steps, number: int) -> bool:
    parent = steps.digest.parents[number]
    return parent >= 0 and is_inner(steps.events[number], steps.events[parent], False)


def _or_what_has_no_ops(steps: Steps, chosen: Iterable[int]) -> Iterator[int]:
    """Ops; and what could not be looked into, as its note says, unless ops were seen in it all the same."""
    ops, parents = set(chosen), steps.digest.parents
    around: set[int] = set()
    for number in ops:
        while (number := parents[number]) >= 0 and number not in around:
            around.add(number)
    for number, event in enumerate(steps.events):
        if number in around and event.kind == "unseen":
            continue
        unseen = event.note and event.kind == "function" and number not in around and not _is_inner(steps, number)
        if number in ops or unseen:
            yield number


def _outside_optimizers(steps: Steps, chosen: Iterable[int]) -> Iterator[int]:
    """Steps but those in an optimizer's step, which are counted; a failing one is shown."""
    for number in chosen:
        call = steps.calls[number]
        if call < 0 or steps.events[call].kind != "step" or steps.events[number].error:
            yield number
        else:
            steps.inside[call] = steps.inside.get(call, 0) + 1


def _selected(steps: Steps, chosen: Iterable[int], only: Selection) -> Iterator[int]:
    """Those of the chosen events that are selected, or are in a function that is."""
    matches, parents = steps.digest.matching(only), steps.digest.parents
    for number in chosen:
        each = number
        while each >= 0 and not matches[each]:
            each = parents[each]
            if each >= 0 and steps.events[each].kind == "module":
                each = -1
        if each >= 0:
            yield number


def why_none(steps: Steps, options: CodeOptions) -> str:
    """What is said where no step is shown."""
    if steps.left_out:
        return f"No step is selected: the trace has {count(steps.left_out)}, and none that fits."
    if options.steps == "ops":
        return "No op was recorded: record(ops=True) records them; steps='functions' shows the functions."
    return "Nothing that is recorded is a step of this view; the tree shows all that was recorded."


# ---------------------------------------------------------------- cells

# What is said of a step of the code view: its name, its arguments and its result; of several, what they share.


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
