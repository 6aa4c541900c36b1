"""The gradients view: for each parameter the norms of its gradient and update, and which parameters got no gradient."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor, hypot, log10, prod, sqrt
from typing import TypeVar

from torchglass.answers.finding import place_words
from torchglass.answers.findings.check import MOST_EVENTS, Checked, check
from torchglass.events.gradients import (
    Gradients,
    Leaf,
    Step,
    gradients_of,
    in_ranges,
    is_about_gradients,
    missed_words,
)
from torchglass.events.types import Stats, Value
from torchglass.program.dedup import DistinctEvents
from torchglass.program.fold import Item, Nested, depth_first, folded
from torchglass.program.modules import ModuleTree
from torchglass.program.paths import range_label, split_index
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.views.options import GradientsOptions
from torchglass.views.row import COUNT, GIVES, HEADING, NAME, NOTE, REMARK, Cell, Row, Sheet
from torchglass.views.text.style import Page
from torchglass.views.text.table import draw_table, module_rows, natural_widths, width_of_all
from torchglass.views.text.tensors import alarm_word, is_measured, number_word, numbers_word
from torchglass.views.text.words import clean, count, plural, shape_word

MODULE, PARAMETER = "module", "parameter"
"""Kinds of rows."""
CALLED = "called"
"""The kind of a cell: how often backward accumulated a gradient."""
MAX_SPREAD = 100.0
"""The factor by which gradients of equal layers may differ; otherwise the layers are not shown as one."""
VANISHING_RATIO = 1e-5
"""A gradient vanishes if its typical number, relative to the largest one of all parameters, is smaller."""
EXPLODING_SIZE = 1e3
"""A gradient explodes if its typical number is larger."""
MAX_NAMES_LISTED = 5
"""Parameters, or ranges of them, that a sentence names."""
ABOUT_GRADIENTS = frozenset(
    "no-gradient not-in-optimizer stale-optimizer unregistered step-without-gradient never-stepped loss-is-a-leaf "
    "gradients-pile-up zero-gradient no-update".split()
)
"""The findings that this view repeats below its rows."""
_NUMBERS = re.compile(r"\d+")
NOT_MEASURED = 'norms were not measured: record(values="stats") measures them'
NO_BACKWARD = (
    "No backward ran in the block: no gradient was accumulated, and no optimizer made a step."
)
NOT_SELECTED = "No gradient is selected: parameters got some, but none of a module that fits."


@dataclass(slots=True)
class Node:
    """A module or a parameter."""

    name: str
    cls: str = ""
    leaf: Leaf | None = None
    """The parameter; None for a module."""
    children: list[int] = field(default_factory=list[int])
    leaves: list[Leaf] = field(default_factory=list[Leaf])
    """The parameters in it, also in the modules in it; for a parameter itself."""


def sheet(trace: Recorded, options: GradientsOptions, gradients: Gradients | None = None) -> Sheet:
    """Return a row for each module and parameter, and sentences about what is wrong.

    ``gradients`` are those of the trace, if the caller has read them already.
    """
    distinct = program_of(trace).distinct
    gradients = gradients or recorded_gradients(trace)
    if not gradients.runs and not gradients.steps:
        return Sheet(below=[Cell(HEADING, NO_BACKWARD)])
    leaves = gradients.leaves
    if options.only is not None:
        leaves = _selected(leaves, distinct, options)
    if not leaves:
        return Sheet(below=[Cell(HEADING, NOT_SELECTED)])
    nodes, roots = _nodes(leaves, program_of(trace).modules)
    rows = _Rows(nodes)
    children = {number: node.children for number, node in enumerate(nodes)}
    items = folded(Nested(children), roots, rows.appearance, options.fold)
    shown = module_rows(items, lambda number: nodes[number].name, options.depth, rows.row)
    below = [
        *_summary(gradients, leaves, is_measured(trace)),
        *_unusual_sizes(leaves),
        *_findings(trace),
    ]
    return Sheet(list(shown), below)


def recorded_gradients(trace: Recorded) -> Gradients:
    """Return the gradients and updates that a trace has, by parameter."""
    distinct = program_of(trace).distinct
    is_about = [is_about_gradients(event.kind, event.name) for event in distinct.samples]
    events = (trace.event(number) for number, alike in enumerate(distinct.alike) if is_about[alike])
    return gradients_of(events, trace.modules(), lambda value: name_of_leaf(trace, value))


def _selected(
    leaves: list[Leaf], distinct: DistinctEvents, options: GradientsOptions
) -> list[Leaf]:
    """Return the parameters of the modules of which a call is selected."""
    assert options.only is not None
    matches = distinct.matching(options.only)
    called = {
        (event.root, event.module)
        for number, event in enumerate(distinct.events())
        if matches[number] and event.kind == "module"
    }
    return [
        leaf
        for leaf in leaves
        if leaf.holder is not None and (leaf.holder.root, leaf.holder.path) in called
    ]


def name_of_leaf(trace: Recorded, value: Value) -> str:
    """Return the name of a leaf outside all modules: the variable that it was assigned to, or passed as first."""
    if value.producer is not None:
        event = trace.event(value.producer)
        if len(event.outputs) == 1:
            return ", ".join(event.target)
        return ""
    for event in trace.events():
        for name, given in zip(event.operands, event.inputs, strict=False):
            if (
                given.storage == value.storage
                and given.shape == value.shape
                and name.isidentifier()
            ):
                return name
    return ""


# ---------------------------------------------------------------- modules and parameters


def _nodes(leaves: Sequence[Leaf], modules: ModuleTree) -> tuple[list[Node], list[int]]:
    """Return parameters below the modules that contain them, in the order of the model, and the outermost nodes."""
    nodes: list[Node] = []
    known: dict[tuple[int, str], int] = {}
    """By the parent of a module and the path from there, the node."""
    roots: list[int] = []

    def children_of(module: int) -> list[int]:
        """Return the list of children of a module's node (-1: of the outermost nodes). New nodes are made."""
        if module < 0:
            return roots
        parent = modules.parent[module]
        children = children_of(parent)
        parts = [modules.name(module)]
        if parent >= 0:
            # A container between the two may not be known as a module.
            parts = parts[0].split(".")
        for length, part in enumerate(parts, 1):
            key = (parent, ".".join(parts[:length]))
            if key not in known:
                cls = ""
                if length == len(parts):
                    cls = modules.infos[module].name
                known[key] = len(nodes)
                children.append(len(nodes))
                nodes.append(Node(part, cls))
            children = nodes[known[key]].children
        return children

    for leaf in leaves:
        module = -1
        if leaf.holder is not None:
            module = modules.number_of(leaf.holder.root, leaf.holder.path)
        children_of(module).append(len(nodes))
        nodes.append(Node(leaf.name, leaf=leaf, leaves=[leaf]))
    inner_last = [*depth_first(roots, lambda number: nodes[number].children)]
    for number in reversed(inner_last):
        node = nodes[number]
        if node.leaf is None:
            node.leaves = [leaf for child in node.children for leaf in nodes[child].leaves]
    return nodes, roots


# ---------------------------------------------------------------- rows


@dataclass(slots=True)
class _Rows:
    """Makes the rows of modules and parameters."""

    nodes: list[Node]
    spread_out: set[str] = field(default_factory=set[str])
    """The names, without layer numbers, of parameters whose gradients differ by more than MAX_SPREAD between layers."""

    def __post_init__(self) -> None:
        norms_by_name: dict[str, list[float]] = {}
        for node in self.nodes:
            if node.leaf is None:
                continue
            norm = _typical_norm(node.leaf)
            if norm:
                name = _without_numbers(node.leaf.full_name)
                norms_by_name.setdefault(name, []).append(norm)
        self.spread_out = {
            name for name, norms in norms_by_name.items() if max(norms) > MAX_SPREAD * min(norms)
        }

    def _power_of_ten(self, leaf: Leaf) -> int | None:
        """Return the power of ten of a gradient if those of its layers differ much; otherwise None."""
        norm = None
        if _without_numbers(leaf.full_name) in self.spread_out:
            norm = _typical_norm(leaf)
        if norm:
            return floor(log10(norm))
        return None

    def appearance(self, item: Item) -> Hashable:
        """Return a key that must be equal for layers shown as one. Norms may differ, but not a missing gradient."""
        node = self.nodes[item.nodes[0]]
        leaf = node.leaf
        name = split_index(node.name)[0]
        if leaf is None:
            return (node.cls, name)
        return (
            node.cls,
            name,
            leaf.value.shape,
            leaf.value.dtype,
            leaf.value.requires_grad,
            leaf.is_missed,
            len(leaf.accumulated),
            norms_of([[leaf]]).alarm,
            self._power_of_ten(leaf),
        )

    def row(self, item: Item, depth: int, is_closed: bool, shows_times: bool) -> Row:
        """Return the row of a module or parameter. That of a module sums up the parameters in it."""
        nodes = [self.nodes[node] for node in item.nodes]
        first = nodes[0]
        name = clean(range_label(node.name for node in nodes))
        if len(nodes) > 1:
            name += f" × {count(len(nodes))}"
        if first.cls and first.cls != first.name:
            name += f" ({clean(first.cls)})"
        cells = [Cell(NAME, name)]
        if first.leaf is not None:
            value = first.leaf.value
            cells.append(Cell(GIVES, shape_word(value.dtype, value.shape, value.layout)))
            times = sorted({len(node.leaf.accumulated) for node in nodes if node.leaf is not None})
            ends = dict.fromkeys((times[0], times[-1]))
            cells.append(Cell(CALLED, "–".join(map(count, ends))))
        cells += norms_of([node.leaves for node in nodes]).cells()
        event = -1
        if first.leaves:
            event = first.leaves[0].event
        kind = PARAMETER
        if first.leaf is None:
            kind = MODULE
        return Row(depth, kind, tuple(cells), event, len(nodes), len(nodes))


# ---------------------------------------------------------------- sentences


def _summary(gradients: Gradients, leaves: Sequence[Leaf], measured: bool) -> Iterator[Cell]:
    """Yield the sentences about all gradients: how often backward ran, and which are missing."""
    times = "once"
    if gradients.runs != 1:
        times = plural(gradients.runs, "time")
    parts = [f"backward ran {times}"]
    for name in dict.fromkeys(gradients.steps):
        parts.append(f"{plural(gradients.steps.count(name), 'step')} of {clean(name)}")
    yield Cell(COUNT, " · ".join(parts))
    if gradients.skipped:
        steps = plural(gradients.skipped, "step")
        yield Cell(NOTE, f"GradScaler skipped {steps}: gradients overflowed")
    if any(map(_is_sampled, leaves)):
        yield Cell(REMARK, "≈: of so many parameters every n-th number of an update was compared")
    if not measured:
        yield Cell(REMARK, NOT_MEASURED)
    if gradients.missed:
        yield Cell(NOTE, f"no gradient: {clean(missed_words(gradients))}")


def _unusual_sizes(leaves: Sequence[Leaf]) -> Iterator[Cell]:
    """Yield which gradients vanish or explode, by the size of a typical number in them."""
    sizes: dict[str, float] = {}
    for leaf in leaves:
        norm = _typical_norm(leaf)
        if norm:
            sizes[leaf.full_name] = norm / sqrt(max(_numbers(leaf.value), 1))
    largest = max(sizes.values(), default=0.0)
    vanishing = {name: size for name, size in sizes.items() if size < VANISHING_RATIO * largest}
    exploding = {name: size for name, size in sizes.items() if size > EXPLODING_SIZE}
    if vanishing:
        yield _size_note("vanishing", vanishing, f", {number_word(largest)} in others")
    if exploding:
        yield _size_note("exploding", exploding, "")


def _size_note(word: str, sizes: dict[str, float], comparison: str) -> Cell:
    """Return a note that names the parameters with such gradients."""
    names = sorted(sizes, key=_without_numbers)
    ranges = [name for name, _ in in_ranges(dict.fromkeys(names, 1))]
    listed = ", ".join(map(clean, ranges[:MAX_NAMES_LISTED]))
    if len(ranges) > MAX_NAMES_LISTED:
        listed += f" and {count(len(ranges) - MAX_NAMES_LISTED)} more"
    numbers = numbers_word(list(sizes.values()))
    return Cell(NOTE, f"{word}: {listed} (a typical number of the gradient: {numbers}{comparison})")


def _findings(trace: Recorded) -> Iterator[Cell]:
    """Yield the findings about gradients and optimizers."""
    if not isinstance(trace, Checked) or len(trace) > MOST_EVENTS:
        return
    for each in check(trace).findings:
        if each.kind in ABOUT_GRADIENTS:
            yield Cell(NOTE, f"{each.kind}: {clean(each.text)}{place_words(each.location)}")


# ---------------------------------------------------------------- norms

GRADIENT, UPDATE, RATIO = "gradient", "update", "ratio"
"""Kinds of cells. Their ``mark`` is the part of the text that is an alarm."""
Parameters = Sequence[Leaf]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Norms:
    """The norms in one row, which may stand for several modules or parameters: one for each backward or step."""

    gradients: tuple[float, ...]
    updates: tuple[float, ...]
    ratios: tuple[float, ...]
    """The norms of updates, relative to those of the weights."""
    alarm: str
    """What is wrong with the gradients: some are missing, zero or NaN."""
    bad_updates: str
    """How many numbers of updates are not finite."""
    sampled: bool
    """Whether some updates are estimates."""

    def cells(self) -> Iterator[Cell]:
        """Yield the cells that have content."""
        text = " ".join(filter(None, (numbers_word(self.gradients), self.alarm)))
        if text:
            mark = None
            if self.alarm and self.alarm != FROZEN:
                mark = (len(text) - len(self.alarm), len(text))
            yield Cell(GRADIENT, text, mark=mark)
        sign = ""
        if self.sampled:
            sign = "≈ "
        if self.updates or self.bad_updates:
            text = sign + " ".join(filter(None, (numbers_word(self.updates), self.bad_updates)))
            mark = None
            if self.bad_updates:
                mark = (len(text) - len(self.bad_updates), len(text))
            yield Cell(UPDATE, text, mark=mark)
        if self.ratios:
            yield Cell(RATIO, sign + numbers_word(self.ratios))


FROZEN = "frozen"


def norms_of(groups: Sequence[Parameters]) -> Norms:
    """Return the norms of one or more modules, each given by its parameters.

    There is one norm for each backward pass (or step) of each module, over all of its parameters.
    """
    gradients = list[float]()
    updates = list[float]()
    ratios = list[float]()
    for leaves in groups:
        gradients += _joint_norms([leaf.gradients for leaf in leaves], _norm).values()
        steps = [leaf.steps for leaf in leaves]
        changes = _joint_norms(steps, update_norm)
        weights = _joint_norms(steps, lambda step: _norm(step.weight))
        updates += changes.values()
        ratios += (
            norm / weights[number] for number, norm in changes.items() if weights.get(number)
        )
    leaves = [leaf for group in groups for leaf in group]
    stats = [step.update.stats for leaf in leaves for step in leaf.steps if step.update is not None]
    return Norms(
        tuple(gradients),
        tuple(updates),
        tuple(ratios),
        alarm=_alarm(leaves),
        bad_updates=alarm_word([each for each in stats if each is not None]),
        sampled=any(map(_is_sampled, leaves)),
    )


def _joint_norms(
    rows: Sequence[Sequence[T]], norm_of: Callable[[T], float | None]
) -> dict[int, float]:
    """Return the joint norm of all rows, by the number of the backward pass or step.

    Each row is a parameter. Parameters without a norm for a number are left out there.
    """
    norms: dict[int, list[float]] = {}
    for row in rows:
        for number, each in enumerate(row):
            norm = norm_of(each)
            if norm is not None:
                norms.setdefault(number, []).append(norm)
    return {number: hypot(*norms[number]) for number in sorted(norms)}


def _norm(value: Value) -> float | None:
    stats = value.stats
    if stats is None or not stats.count:
        return None
    if stats.finite:
        return stats.norm
    return None


def _typical_norm(leaf: Leaf) -> float | None:
    """Return the median norm of a parameter's gradients, without those that are zero or not finite."""
    norms = sorted(norm for each in leaf.gradients if (norm := _norm(each)))
    if norms:
        return norms[len(norms) // 2]
    return None


def _without_numbers(name: str) -> str:
    return _NUMBERS.sub("#", name)


def update_norm(step: Step) -> float | None:
    """Return the norm of an update, scaled up if only a sample was compared."""
    norm = None
    if step.update is not None:
        norm = _norm(step.update)
    if norm is None or step.update is None or step.update.stats is None:
        return None
    return norm * sqrt(max(_numbers(step.weight) / step.update.stats.count, 1))


def _numbers(value: Value) -> int:
    return prod(value.shape or (0,)) * (2 if value.dtype.startswith("complex") else 1)


def _is_sampled(leaf: Leaf) -> bool:
    measured = [(step.weight, step.update.stats) for step in leaf.steps if step.update is not None]
    return any(stats is not None and stats.count < _numbers(weight) for weight, stats in measured)


def _alarm(leaves: Parameters) -> str:
    """Return what is wrong with the gradients of some parameters; "" if nothing is."""
    trained = [leaf for leaf in leaves if leaf.value.requires_grad]
    if not trained:
        if leaves:
            return FROZEN
        return ""
    missed = sum(leaf.is_missed for leaf in trained)
    stats = [[each.stats for each in leaf.gradients if each.stats is not None] for leaf in trained]
    always_zero = sum(bool(each) and all(map(_is_zero, each)) for each in stats)
    words = [alarm_word([each for of_leaf in stats for each in of_leaf])]
    if missed:
        words.append(_some_of(missed, len(trained), "none"))
    if always_zero:
        words.append(_some_of(always_zero, len(trained), "zero"))
    elif len(trained) == 1:
        sometimes_zero = sum(map(_is_zero, stats[0]))
        if sometimes_zero:
            words.append(f"zero in {count(sometimes_zero)} of {count(len(stats[0]))}")
    return ", ".join(filter(None, words))


def _some_of(number: int, total: int, word: str) -> str:
    """Return ``none`` if it holds for all parameters, otherwise ``3 of 12 none``."""
    if number == total:
        return word
    return f"{count(number)} of {count(total)} {word}"


def _is_zero(stats: Stats) -> bool:
    return stats.count > 0 and stats.zeros == stats.count


# ---------------------------------------------------------------- text

TITLES = {
    NAME: "Parameter",
    GIVES: "Shape",
    CALLED: "Backward",
    GRADIENT: "Gradient norm",
    UPDATE: "Update norm",
    RATIO: "Update / weight",
}
LEAST_NEEDED = (CALLED, GIVES)
"""The columns that are left out first if the table is too wide."""
READABLE_NAME = 28
"""Letters of a name that are kept by leaving out a column."""
MIN_NAME = 16
"""Letters of a name that are always shown."""
STYLES = {GIVES: "output", CALLED: "dim", UPDATE: "time", RATIO: "time"}


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the table. If it is too wide, names are cut, and columns are left out."""
    if not rows:
        return
    titles = {
        kind: TITLES[kind] for kind in TITLES if kind == NAME or any(row.cell(kind) for row in rows)
    }
    for kind in LEAST_NEEDED:
        widths = natural_widths(rows, titles, page)
        too_much = width_of_all(widths) - page.width
        if too_much <= max(widths[0] - READABLE_NAME, 0):
            break
        titles.pop(kind, None)
    widths = natural_widths(rows, titles, page)
    too_much = max(width_of_all(widths) - page.width, 0)
    widths[0] -= min(too_much, max(widths[0] - MIN_NAME, 0))
    yield from draw_table(rows, titles, widths, STYLES, page)
