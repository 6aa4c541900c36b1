"""The table view: one row for each module, with its output, its parameters and its share of the time.

A parameter that several modules share is counted at the first one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torchglass.events.missing import ModuleKey, is_gap, missing_of
from torchglass.events.selection import Selection
from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.program.fold import Item, Nested, depth_first, folded
from torchglass.program.modules import ModuleTree
from torchglass.program.paths import range_label, settings_of, split_index, without_label_number
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.views.options import TableOptions
from torchglass.views.row import COUNT, GIVES, HEADING, NAME, STATISTICS, TIME, Cell, Row, Sheet
from torchglass.views.text.cells import shape_words
from torchglass.views.text.style import Page
from torchglass.views.text.table import draw_table, module_rows, natural_widths, width_of_all
from torchglass.views.text.tensors import contents_words, is_measured
from torchglass.views.text.words import clean, count, cut, duration, plural, share, size, width_of

MODULE, TOTAL = "module", "total"
"""Kinds of rows."""
CALLS = "calls"
"""The kind of a cell: how often a module was called."""


@dataclass(frozen=True, slots=True)
class TableTotals:
    """Sums over all modules of the trace, each parameter once."""

    parameters: int
    """How many numbers all parameters have."""
    trainable: int
    """How many of them are in parameters that get a gradient."""
    size: int
    """How many bytes all parameters have."""
    without_shape: int
    """How many parameters had no shape yet."""
    forward_ns: int
    """Host time in the outermost module calls."""


@dataclass(slots=True)
class _Node:
    """One module."""

    info: ModuleInfo
    name: str
    calls: list[Event]
    times: int
    """How often it was called, also in events that were dropped."""
    spent: int
    """How long its calls took, in nanoseconds."""
    own: int = 0
    """How many numbers are in its own parameters."""
    shared: int = 0
    """How many are in own parameters that another module was counted with before."""
    total: int = 0
    """How many numbers are counted in it and in the modules in it."""


def sheet(trace: Recorded, options: TableOptions) -> Sheet:
    """Return a row for each module. The parameters in all rows, times ``each``, add up to the total."""
    modules = program_of(trace).modules
    calls = {number: trace.event(number) for number in modules.all_calls}
    nodes = _nodes(modules, calls, _missing_calls(trace))
    roots, children = modules.by_first_call()
    totals = _count_parameters(nodes, children, roots, _forward_ns(list(calls.values())))
    if options.only is not None:
        roots = _selected(nodes, children, roots, options.only)
    if not roots:
        return Sheet(below=[Cell(HEADING, _no_rows(trace, options))])
    rows = _Rows(nodes, options, totals.forward_ns, is_measured(trace))
    items = folded(Nested(children), roots, rows.appearance, options.fold)
    shown = module_rows(items, modules.name, options.depth, rows.row)
    return Sheet([*shown, *_totals(trace, totals, options)])


def _no_rows(trace: Recorded, options: TableOptions) -> str:
    if options.only is not None:
        return (
            f"No module is selected: {plural(len(trace), 'event')}, but none of a module that fits."
        )
    return f"No module was called: {plural(len(trace), 'event')}, all of them functions. The tree shows them."


# ---------------------------------------------------------------- modules


def _missing_calls(trace: Recorded) -> Counter[ModuleKey]:
    """Return how often each module was called in dropped events."""
    missing: Counter[ModuleKey] = Counter()
    for event in program_of(trace).distinct.samples:
        if is_gap(event):
            missing.update(missing_of(event).module_calls)
    return missing


def _nodes(
    modules: ModuleTree, calls: Mapping[int, Event], missing: Counter[ModuleKey]
) -> list[_Node]:
    """Return what is known of each module."""
    nodes: list[_Node] = []
    for number, info in enumerate(modules.infos):
        events = [calls[call] for call in modules.calls[number]]
        times = len(events) + missing[ModuleKey(info.root, info.path)]
        nodes.append(_Node(info, modules.name(number), events, times, _spent(events)))
    return nodes


def _spent(events: Iterable[Event]) -> int:
    return sum(event.duration_ns or 0 for event in events if event.phase != "backward")


def _forward_ns(calls: Sequence[Event]) -> int:
    """Return how long the outermost module calls took."""
    spent = 0
    until = dict[str, int]()
    for event in calls:
        end = event.end_ns or event.start_ns
        if event.phase != "backward" and event.start_ns >= until.get(event.thread, 0):
            spent += end - event.start_ns
            until[event.thread] = end
    return spent


def _selected(
    nodes: Sequence[_Node], children: dict[int, list[int]], roots: Sequence[int], only: Selection
) -> list[int]:
    """Remove modules from ``children`` unless they, or modules in them, are selected; return the roots that remain."""
    kept: set[int] = set()
    for module in reversed([*depth_first(roots, lambda module: children.get(module, ()))]):
        children[module] = [child for child in children.get(module, ()) if child in kept]
        if children[module] or any(map(only.matches, nodes[module].calls)):
            kept.add(module)
    return [root for root in roots if root in kept]


# ---------------------------------------------------------------- parameters


def _count_parameters(
    nodes: Sequence[_Node], children: dict[int, list[int]], roots: Sequence[int], forward_ns: int
) -> TableTotals:
    """Count each parameter at the first module that shows it."""
    seen: dict[int, Value] = {}
    order = [*depth_first(roots, lambda module: children.get(module, ()))]
    for module in order:
        node = nodes[module]
        for value in node.info.parameters:
            if value.id in seen:
                node.shared += numbers_in(value)
            else:
                seen[value.id] = value
                node.own += numbers_in(value)
    for module in reversed(order):
        inside = sum(nodes[child].total for child in children.get(module, ()))
        nodes[module].total = nodes[module].own + inside
    return TableTotals(
        parameters=sum(map(numbers_in, seen.values())),
        trainable=sum(numbers_in(value) for value in seen.values() if value.requires_grad),
        size=sum(numbers_in(value) * bytes_each(value.dtype) for value in seen.values()),
        without_shape=sum(value.shape is None for value in seen.values()),
        forward_ns=forward_ns,
    )


def numbers_in(value: Value) -> int:
    """Return how many numbers a tensor holds; 0 if its shape is not known."""
    if value.shape is None:
        return 0
    return prod(value.shape)


def bytes_each(dtype: str) -> int:
    """Return the bytes of one number, from the digits in the dtype's name (``bool`` and others without digits: 1)."""
    bits = re.search(r"\d+", dtype)
    if bits:
        return max(int(bits[0]) // 8, 1)
    return 1


# ---------------------------------------------------------------- rows


@dataclass(slots=True)
class _Rows:
    """Makes the rows of modules."""

    nodes: list[_Node]
    options: TableOptions
    forward_ns: int
    measured: bool

    def appearance(self, item: Item) -> Hashable:
        """Return a key for what the row of a module shows, without the number of a layer."""
        node = self.nodes[item.nodes[0]]
        return (
            node.info.name,
            settings_of(node.info.detail, node.info.path),
            split_index(without_label_number(node.name))[0],
            node.times,
            _shapes(node.calls[0].outputs) if node.calls else None,
            node.own,
            node.shared,
        )

    def row(self, item: Item, depth: int, is_closed: bool, shows_times: bool) -> Row:
        """Return the row of the modules that an item stands for."""
        nodes = [self.nodes[node] for node in item.nodes]
        first = nodes[0]
        times = 1
        if shows_times:
            times = item.times
        span = range_label(without_label_number(node.name) for node in nodes)
        if len(nodes) == 1:
            span = first.name
        name = clean(span)
        if times > 1:
            name += f" × {count(times)}"
        if span != first.info.name:
            name += f" ({clean(first.info.name)})"
        cells = [Cell(NAME, name), Cell(GIVES, _output(first))]
        if self.measured:
            contents, alarm = contents_words(_outputs(nodes))
            # The alarm comes first, since a narrow page cuts the end.
            text = f"{alarm} {contents}".strip()
            if alarm:
                cells.append(Cell(STATISTICS, text, mark=(0, len(alarm))))
            elif text:
                cells.append(Cell(STATISTICS, text))
        parameters = first.own
        if is_closed:
            parameters = first.total
        cells.append(Cell(COUNT, _parameters(first, len(nodes), parameters)))
        event = -1
        time = ""
        if first.calls:
            event = first.calls[0].id
            time = share(sum(node.spent for node in nodes), self.forward_ns)
        if self.options.times:
            cells.append(Cell(TIME, time))
        cells.append(Cell(CALLS, count(first.times)))
        return Row(depth, MODULE, tuple(cells), event, times, len(nodes))


def _shapes(values: Iterable[Value]) -> tuple[object, ...]:
    return tuple((value.shape, value.dtype) for value in values)


def _outputs(nodes: Sequence[_Node]) -> list[list[Value]]:
    """Return the outputs of all calls of modules, by their place among the outputs."""
    calls = [call.outputs for node in nodes for call in node.calls if call.outputs]
    return [list(column) for column in zip(*calls, strict=False)]


def _output(node: _Node) -> str:
    if not node.calls:
        return "not called"
    outputs = node.calls[0].outputs
    text = ", ".join(shape_words(outputs)) or "—"
    if any(_shapes(call.outputs) != _shapes(outputs) for call in node.calls):
        text += " varies"
    return text


def _parameters(node: _Node, layers: int, parameters: int) -> str:
    """Return ``12 × 590,592`` for twelve layers. ``Σ`` marks the sum of the rows below; ``—`` means none."""
    times = ""
    if layers > 1:
        times = f"{count(layers)} × "
    parts: list[str] = []
    if parameters:
        parts.append(times + count(parameters))
    elif node.total:
        parts.append(f"{times}Σ {count(node.total)}")
    if node.shared:
        parts.append(f"{count(node.shared)} shared")
    return " + ".join(parts) or "—"


def _totals(trace: Recorded, totals: TableTotals, options: TableOptions) -> Iterator[Row]:
    whole = "Parameters"
    if options.only is not None:
        whole = "Parameters of all modules"
    of_kept = ""
    if _missing_calls(trace):
        of_kept = "  (of the calls that were kept)"
    lines = [
        (whole, f"{count(totals.parameters)}  ({size(totals.size)})"),
        ("  trainable", count(totals.trainable)),
        ("  not trainable", count(totals.parameters - totals.trainable)),
        *([("Forward time", duration(totals.forward_ns) + of_kept)] if options.times else []),
        ("Events", count(len(trace))),
    ]
    if totals.without_shape:
        lines.insert(
            3, ("  not counted", f"{plural(totals.without_shape, 'parameter')} without a shape yet")
        )
    return (Row(0, TOTAL, (Cell(NAME, name), Cell(COUNT, text))) for name, text in lines)


# ---------------------------------------------------------------- text

TITLES = {
    NAME: "Layer",
    GIVES: "Output shape",
    STATISTICS: "Output values",
    COUNT: "Parameters",
    TIME: "Time",
    CALLS: "Calls",
}
STYLES = {GIVES: "output", STATISTICS: "output", TIME: "time", CALLS: "dim"}


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the table, and the totals below it."""
    modules = [row for row in rows if row.kind != TOTAL]
    totals = [row for row in rows if row.kind == TOTAL]
    if not modules:
        return
    titles = {kind: title for kind, title in TITLES.items() if _is_shown(kind, modules)}
    widths = _fitted(natural_widths(modules, titles, page), STATISTICS in titles, page.width)
    yield from draw_table(modules, titles, widths, STYLES, page)
    column = max(width_of(row.text(NAME)) for row in totals)
    yield from (cut(f"{row.text(NAME):<{column}}  {row.text(COUNT)}", page.width) for row in totals)


def _is_shown(kind: str, rows: Sequence[Row]) -> bool:
    """Return whether a column is shown. That of the calls is if a module was called more than once."""
    if kind == CALLS:
        return any(row.text(CALLS) not in ("", "0", "1") for row in rows)
    return any(row.cell(kind) for row in rows)


def _fitted(widths: list[int], has_statistics: bool, page: int) -> list[int]:
    """Shrink columns to fit: statistics first, which are the widest, then shapes, then names."""
    gaps = 2 * (len(widths) - 1)
    if has_statistics:
        others = sum(widths[3:]) + gaps + min(widths[0], page // 3) + min(widths[1], page // 5)
        widths[2] = min(widths[2], max(page - others, len(TITLES[STATISTICS])))
    fixed = sum(widths[2:]) + gaps
    widths[1] = max(min(widths[1], page - fixed - min(widths[0], page // 3)), 8)
    widths[0] = max(min(widths[0], page - fixed - widths[1]), 0)
    over = width_of_all(widths) - page
    if over > 0:
        widths[2] = max(widths[2] - over, 1)
    return widths
