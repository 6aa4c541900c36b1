"""Gradients by parameter, below the modules that hold them: norms over all steps as ranges, and what got none."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.gradients import Gradients, Leaf, gradients_of, missed_words, tells_of_gradients
from torchglass.events.types import Event, Value
from torchglass.views.digest import Digest, Recorded, digest_of
from torchglass.views.fold import TOGETHER, Item, folded, range_label, unfolded
from torchglass.views.gradients import Options
from torchglass.views.gradients.norms import norms_of
from torchglass.views.nesting import split_index
from torchglass.views.row import COUNT, FOLD, GIVES, HEADING, NAME, NOTE, REMARK, REPEAT, Cell, Row, Sheet
from torchglass.views.text.statistics import is_measured
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


def sheet(trace: Recorded, options: Options) -> Sheet:
    """A row for each module and parameter of which a trace tells; missing gradients stand below once more, by name."""
    digest = digest_of(trace)
    found = gradients_of(_telling(trace, digest), trace.modules(), lambda value: name_of_leaf(trace, value))
    if not found.runs and not found.steps:
        return Sheet(below=[Cell(HEADING, NO_BACKWARD)])
    leaves = found.leaves if options.only is None else _selected(found.leaves, digest, options)
    if not leaves:
        return Sheet(below=[Cell(HEADING, NOT_CALLED)])
    nodes, roots = _nodes(leaves, trace)
    rows = list(_Rows(_Forest(nodes), options).of(roots))
    return Sheet(rows, list(_below(found, leaves, is_measured(trace))))


def _telling(trace: Recorded, digest: Digest) -> Iterator[Event]:
    """The events that tell of gradients: no others are made to find them."""
    tells = [tells_of_gradients(event.kind, event.name) for event in digest.samples]
    return (trace.event(number) for number, alike in enumerate(digest.alike) if tells[alike])


def _selected(leaves: list[Leaf], digest: Digest, options: Options) -> list[Leaf]:
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
    for node in reversed(_in_order(nodes, roots)):
        if nodes[node].leaf is None:
            nodes[node].below = [leaf for child in nodes[node].children for leaf in nodes[child].below]
    return nodes, roots


def _in_order(nodes: Sequence[Holder], roots: Sequence[int]) -> list[int]:
    order: list[int] = []
    pending = list(reversed(roots))
    while pending:
        order.append(pending.pop())
        pending.extend(reversed(nodes[order[-1]].children))
    return order


@dataclass(slots=True)
class _Forest:
    """Modules and parameters to fold: none stands for another but where they are equal."""

    nodes: list[Holder]

    def below(self, node: int) -> Sequence[int]:
        return self.nodes[node].children

    def key(self, node: int) -> Hashable:
        return node

    def merges(self, node: int) -> bool:
        return False

    def rounds(self, node: int) -> bool | None:
        return None

    def line(self, node: int) -> int:
        return 0

    def own(self, item: Item) -> Hashable:
        """What is the same for layers that are shown as one; norms are ranges, what got none is told apart."""
        node = self.nodes[item.nodes[0]]
        leaf = node.leaf
        said = None if leaf is None else (leaf.value.shape, leaf.value.dtype, leaf.is_missed, len(leaf.accumulated))
        alarm = None if leaf is None else norms_of([[leaf]]).alarm
        return (node.cls, split_index(node.name)[0], said, alarm, leaf is None or leaf.value.requires_grad)


# ---------------------------------------------------------------- rows


@dataclass(slots=True)
class _Rows:
    forest: _Forest
    options: Options

    def of(self, roots: list[int]) -> Iterator[Row]:
        """Depth first; a module that is not opened stands for all of its parameters."""
        forest = self.forest
        items = folded(forest, roots, forest.own) if self.options.fold else unfolded(forest, roots)
        pending = [(item, 0, 0) for item in reversed(items)]
        while pending:
            item, depth, level = pending.pop()
            if item.nodes == [TOGETHER]:
                yield self._repeat(item, depth)
                pending += [(child, depth + 1, level) for child in reversed(item.children)]
                continue
            cut = bool(item.children) and self.options.depth is not None and level >= self.options.depth
            yield self._row(item, depth)
            if not cut:
                pending += [(child, depth + 1, level + 1) for child in reversed(item.children)]

    def _repeat(self, item: Item, depth: int) -> Row:
        names = [self.forest.nodes[node].name for node in sorted(n for child in item.children for n in child.nodes)]
        often = Cell(FOLD, f"{clean(range_label(names))} × {count(item.times)}")
        return Row(depth, REPEAT, (often, Cell(COUNT, f", {item.unit} layers each:")), times=item.times)

    def _row(self, item: Item, depth: int) -> Row:
        nodes = [self.forest.nodes[node] for node in item.nodes]
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
