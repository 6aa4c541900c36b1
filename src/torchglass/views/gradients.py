"""The gradients: a row a parameter, with the norm of its gradient, of its updates, and what got none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import hypot, prod, sqrt
from typing import TypeVar

from torchglass.events.gradients import Gradients, Leaf, Step, gradients_of, missed_words, tells_of_gradients
from torchglass.events.types import Event, Stats, Value
from torchglass.views.digest import Digest, Recorded, digest_of, split_index
from torchglass.views.fold import Item, folded, in_order, range_label
from torchglass.views.options import GradientsOptions
from torchglass.views.row import COUNT, GIVES, HEADING, NAME, NOTE, REMARK, Cell, Row, Sheet
from torchglass.views.text.style import Page
from torchglass.views.text.table import ModuleForest, draw_table, natural_widths, width_of_all
from torchglass.views.text.tensors import alarm_word, is_measured, numbers_word
from torchglass.views.text.words import clean, count, plural, shape_word

MODULE, PARAMETER = "module", "parameter"
"""Kinds of rows."""
CALLED = "called"
"""The kind of a cell: how often backward added to it."""
NOT_MEASURED = 'norms were not measured: record(values="stats") measures them'
NO_BACKWARD = "No backward ran in the block: no gradient was accumulated, and no optimizer made a step."
NOT_CALLED = "No gradient is selected: parameters got some, but none of a module that fits."


@dataclass(slots=True)
class Holder:
    """A module or a parameter while the rows are made."""

    name: str
    cls: str = ""
    leaf: Leaf | None = None
    children: list[int] = field(default_factory=list[int])
    below: list[Leaf] = field(default_factory=list[Leaf])
    """All parameters at and below it."""


def sheet(trace: Recorded, options: GradientsOptions) -> Sheet:
    """A row for each module and parameter of which a trace tells; missing gradients stand below once more, by name."""
    digest = digest_of(trace)
    found = gradients_of(_telling(trace, digest), trace.modules(), lambda value: name_of_leaf(trace, value))
    if not found.runs and not found.steps:
        return Sheet(below=[Cell(HEADING, NO_BACKWARD)])
    leaves = found.leaves if options.only is None else _selected(found.leaves, digest, options)
    if not leaves:
        return Sheet(below=[Cell(HEADING, NOT_CALLED)])
    nodes, roots = _nodes(leaves, trace)
    rows = _Rows(nodes)
    forest = ModuleForest({at: node.children for at, node in enumerate(nodes)}, lambda node: nodes[node].name)
    items = folded(forest, roots, rows.own, options.fold)
    return Sheet(list(forest.rows(items, options.depth, rows.row)), list(_below(found, leaves, is_measured(trace))))


def _telling(trace: Recorded, digest: Digest) -> Iterator[Event]:
    """The events that tell of gradients: no others are made to find them."""
    tells = [tells_of_gradients(event.kind, event.name) for event in digest.samples]
    return (trace.event(number) for number, alike in enumerate(digest.alike) if tells[alike])


def _selected(leaves: list[Leaf], digest: Digest, options: GradientsOptions) -> list[Leaf]:
    """The parameters of modules of which a call is selected."""
    assert options.only is not None
    matches = digest.matching(options.only)
    called = {
        (event.root, event.module)
        for number, event in enumerate(digest.events())
        if matches[number] and event.kind == "module"
    }
    return [leaf for leaf in leaves if leaf.holder is not None and (leaf.holder.root, leaf.holder.path) in called]


def name_of_leaf(trace: Recorded, value: Value) -> str:
    """What a leaf outside of all modules is called: as it was assigned, or as it was first given to a function."""
    if value.producer is not None:
        event = trace.event(value.producer)
        return ", ".join(event.target) if len(event.outputs) == 1 else ""
    for event in trace.events():
        for name, given in zip(event.operands, event.inputs, strict=False):
            if given.storage == value.storage and given.shape == value.shape and name.isidentifier():
                return name
    return ""


# ---------------------------------------------------------------- modules and parameters


def _nodes(leaves: Sequence[Leaf], trace: Recorded) -> tuple[list[Holder], list[int]]:
    """Parameters under the modules that hold them, in the order in which a model has them."""
    classes = {(info.root, info.path): info.name for info in trace.modules()}
    nodes: list[Holder] = []
    known: dict[tuple[str, ...], int] = {}
    roots: list[int] = []

    def module(root: str, path: str) -> int:
        key = (root, path)
        if key not in known:
            known[key] = len(nodes)
            above, _, name = path.rpartition(".")
            nodes.append(Holder(name or root, classes.get(key, "")))
            (nodes[module(root, above)].children if path else roots).append(known[key])
        return known[key]

    for leaf in leaves:
        holder = leaf.holder
        within = roots if holder is None else nodes[module(holder.root, holder.path)].children
        within.append(len(nodes))
        nodes.append(Holder(leaf.name, leaf=leaf, below=[leaf]))
    for node in reversed([*in_order(roots, lambda at: nodes[at].children)]):
        if nodes[node].leaf is None:
            nodes[node].below = [leaf for child in nodes[node].children for leaf in nodes[child].below]
    return nodes, roots


# ---------------------------------------------------------------- rows


@dataclass(slots=True)
class _Rows:
    """Makes the rows of modules and parameters."""

    nodes: list[Holder]

    def own(self, item: Item) -> Hashable:
        """What is the same for layers that are shown as one; norms are ranges, what got none is told apart."""
        node = self.nodes[item.nodes[0]]
        leaf = node.leaf
        said = None if leaf is None else (leaf.value.shape, leaf.value.dtype, leaf.is_missed, len(leaf.accumulated))
        alarm = None if leaf is None else norms_of([[leaf]]).alarm
        return (node.cls, split_index(node.name)[0], said, alarm, leaf is None or leaf.value.requires_grad)

    def row(self, item: Item, depth: int, is_closed: bool, says_times: bool) -> Row:
        """A module that is not opened stands for all of its parameters."""
        nodes = [self.nodes[node] for node in item.nodes]
        first = nodes[0]
        name = clean(range_label(node.name for node in nodes))
        name += f" × {count(len(nodes))}" if len(nodes) > 1 else ""
        name += f" ({clean(first.cls)})" if first.cls and first.cls != first.name else ""
        cells = [Cell(NAME, name)]
        if first.leaf is not None:
            value = first.leaf.value
            cells.append(Cell(GIVES, shape_word(value.dtype, value.shape, value.layout)))
            times = sorted({len(node.leaf.accumulated) for node in nodes if node.leaf is not None})
            cells.append(Cell(CALLED, "–".join(count(each) for each in dict.fromkeys((times[0], times[-1])))))
        cells += norms_of([node.below for node in nodes]).cells()
        event = first.below[0].event if first.below else -1
        return Row(depth, MODULE if first.leaf is None else PARAMETER, tuple(cells), event, len(nodes), len(nodes))


# ---------------------------------------------------------------- sentences


def _below(found: Gradients, leaves: Sequence[Leaf], measured: bool) -> Iterator[Cell]:
    steps = {name: found.steps.count(name) for name in found.steps}
    counted = [f"backward ran {'once' if found.runs == 1 else plural(found.runs, 'time')}"]
    counted += [f"{plural(times, 'step')} of {clean(name)}" for name, times in steps.items()]
    yield Cell(COUNT, " · ".join(counted))
    if found.skipped:
        yield Cell(NOTE, f"GradScaler skipped {plural(found.skipped, 'step')}: gradients overflowed")
    sampled = any(norms_of([[leaf]]).sampled for leaf in leaves)
    if sampled:
        yield Cell(REMARK, "≈: of so many parameters every n-th number of an update was compared")
    if not measured:
        yield Cell(REMARK, NOT_MEASURED)
    if found.missed:
        yield Cell(NOTE, f"no gradient: {clean(missed_words(found))}")


# ---------------------------------------------------------------- norms

# The norms of gradients and updates over several steps, as ranges; of several parameters that of all together.

GRADIENT, UPDATE, RATIO = "gradient", "update", "ratio"
"""Kinds of cells; ``mark`` is the part that is an alarm."""
Parameters = Sequence[Leaf]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Norms:
    """What is told of a module or a parameter, or of several that a row stands for."""

    gradients: tuple[float, ...]
    updates: tuple[float, ...]
    ratios: tuple[float, ...]
    alarm: str
    """What is amiss: no gradient, only zeros, NaN."""
    bad_updates: str
    """Of the updates what is not finite."""
    sampled: bool
    """Whether some updates are an estimate."""

    def cells(self) -> Iterator[Cell]:
        """Those cells that have something to say."""
        text = " ".join(filter(None, (numbers_word(self.gradients), self.alarm)))
        if text:
            mark = (len(text) - len(self.alarm), len(text)) if self.alarm and self.alarm != FROZEN else None
            yield Cell(GRADIENT, text, mark=mark)
        about = "≈ " if self.sampled else ""
        if self.updates or self.bad_updates:
            text = about + " ".join(filter(None, (numbers_word(self.updates), self.bad_updates)))
            yield Cell(UPDATE, text, mark=(len(text) - len(self.bad_updates), len(text)) if self.bad_updates else None)
        if self.ratios:
            yield Cell(RATIO, about + numbers_word(self.ratios))


FROZEN = "frozen"


def norms_of(several: Sequence[Parameters]) -> Norms:
    """Of one or more modules, each with its parameters: each round of each module is one norm."""
    gradients = [norm for leaves in several for norm in _together([each.gradients for each in leaves], _norm).values()]
    updates, ratios = list[float](), list[float]()
    for leaves in several:
        steps = [leaf.steps for leaf in leaves]
        moved, weights = _together(steps, _update), _together(steps, lambda step: _norm(step.weight))
        updates += moved.values()
        ratios += (norm / weights[number] for number, norm in moved.items() if weights.get(number))
    leaves = [leaf for each in several for leaf in each]
    changes = [step.update.stats for leaf in leaves for step in leaf.steps if step.update is not None]
    bad = alarm_word([each for each in changes if each is not None])
    sampled = any(map(_is_sampled, leaves))
    return Norms(tuple(gradients), tuple(updates), tuple(ratios), _alarm(leaves), bad, sampled)


def _together(rows: Sequence[Sequence[T]], norm: Callable[[T], float | None]) -> dict[int, float]:
    """By round the norm of all parameters together; rounds that only some had count for these."""
    joined: dict[int, list[float]] = {}
    for row in rows:
        for number, each in enumerate(row):
            found = norm(each)
            if found is not None:
                joined.setdefault(number, []).append(found)
    return {number: hypot(*joined[number]) for number in sorted(joined)}


def _norm(value: Value) -> float | None:
    stats = value.stats
    if stats is None or not stats.count:
        return None
    return stats.norm if stats.finite else None


def _update(step: Step) -> float | None:
    """Of a sample, what all of it is about."""
    norm = None if step.update is None else _norm(step.update)
    if norm is None or step.update is None or step.update.stats is None:
        return None
    return norm * sqrt(max(_numbers(step.weight) / step.update.stats.count, 1))


def _numbers(value: Value) -> int:
    return prod(value.shape or (0,)) * (2 if value.dtype.startswith("complex") else 1)


def _is_sampled(leaf: Leaf) -> bool:
    measured = [(step.weight, step.update.stats) for step in leaf.steps if step.update is not None]
    return any(stats is not None and stats.count < _numbers(weight) for weight, stats in measured)


def _alarm(leaves: Parameters) -> str:
    """What is amiss with some parameters: of one in its own words, of several how many."""
    wanting = [leaf for leaf in leaves if leaf.value.requires_grad]
    if not wanting:
        return FROZEN if leaves else ""
    missed = sum(leaf.is_missed for leaf in wanting)
    stats = [[each.stats for each in leaf.gradients if each.stats is not None] for leaf in wanting]
    zero = sum(bool(each) and all(map(_is_zero, each)) for each in stats)
    some = [sum(map(_is_zero, each)) for each in stats]
    words = [alarm_word([each for several in stats for each in several])]
    if missed:
        words.append("none" if missed == len(wanting) else f"{count(missed)} of {count(len(wanting))} none")
    if zero:
        words.append("zero" if zero == len(wanting) else f"{count(zero)} of {count(len(wanting))} zero")
    elif len(wanting) == 1 and some[0]:
        words.append(f"zero in {count(some[0])} of {count(len(stats[0]))}")
    return ", ".join(filter(None, words))


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
LEAST_SAID = (CALLED, GIVES)
READABLE_NAME, FEWEST_OF_A_NAME = 28, 16
"""Letters of a name that are worth a column, and those that stand there in any case."""
STYLES = {GIVES: "output", CALLED: "dim", UPDATE: "time", RATIO: "time"}


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """The table. What is too wide comes off the names, then the least said columns are left out."""
    if not rows:
        return
    titles = {kind: TITLES[kind] for kind in TITLES if kind == NAME or any(row.cell(kind) for row in rows)}
    for each in LEAST_SAID:
        widths = natural_widths(rows, titles, page)
        if width_of_all(widths) - page.width <= max(widths[0] - READABLE_NAME, 0):
            break
        titles.pop(each, None)
    widths = natural_widths(rows, titles, page)
    widths[0] -= min(max(width_of_all(widths) - page.width, 0), max(widths[0] - FEWEST_OF_A_NAME, 0))
    yield from draw_table(rows, titles, widths, STYLES, page)
