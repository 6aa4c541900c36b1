"""The table: one row a module, with its output, its parameters counted once, and its share of the time."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from torchglass.events.selection import Selection
from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.views.digest import Recorded, digest_of, settings_of, split_index
from torchglass.views.fold import Item, folded, in_order, range_label
from torchglass.views.options import TableOptions
from torchglass.views.row import COUNT, GIVES, HEADING, NAME, STATISTICS, TIME, Cell, Row, Sheet
from torchglass.views.text.cells import shape_words
from torchglass.views.text.style import Page
from torchglass.views.text.table import ModuleForest, draw_table, natural_widths, width_of_all
from torchglass.views.text.tensors import contents_words, is_measured
from torchglass.views.text.words import clean, count, cut, duration, plural, share, size, width_of

MODULE, TOTAL = "module", "total"
"""Kinds of rows."""
CALLS = "calls"
"""The kind of a cell."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all modules of the trace, each parameter once."""

    parameters: int
    trainable: int
    size: int
    """Bytes."""
    without_shape: int
    """Parameters that had no shape yet."""
    forward_ns: int
    """Host time in the outermost module calls."""


@dataclass(slots=True)
class _Node:
    """One module while the table is made."""

    info: ModuleInfo
    name: str
    calls: list[Event]
    spent: int
    own: int = 0
    """Numbers in its own parameters."""
    shared: int = 0
    """The same for parameters that were counted further up."""
    total: int = 0
    """All that is counted at and below it."""


def sheet(trace: Recorded, options: TableOptions) -> Sheet:
    """Rows for the modules of a trace; the sum of ``each`` times parameters over the rows is the total."""
    calls = list(_module_calls(trace))
    nodes, children, roots = _nodes(trace.modules(), calls)
    totals = _count_parameters(nodes, children, roots, _forward_ns(calls))
    if options.only is not None:
        roots = _selected(nodes, children, roots, options.only)
    if not roots:
        return Sheet(below=[Cell(HEADING, _no_rows(trace, options))])
    rows = _Rows(nodes, options, totals.forward_ns, is_measured(trace))
    forest = ModuleForest(children, lambda node: nodes[node].name)
    items = folded(forest, roots, rows.own, options.fold)
    return Sheet([*forest.rows(items, options.depth, rows.row), *_totals(trace, totals, options)])


def _no_rows(trace: Recorded, options: TableOptions) -> str:
    if options.only is not None:
        return f"No module is selected: {plural(len(trace), 'event')}, but none of a module that fits."
    return f"No module was called: {plural(len(trace), 'event')}, all of them functions. The tree shows them."


# ---------------------------------------------------------------- modules


def _module_calls(trace: Recorded) -> Iterator[Event]:
    """The calls of modules: no other events are made to find them."""
    digest = digest_of(trace)
    is_module = [event.kind == "module" for event in digest.samples]
    return (trace.event(number) for number, alike in enumerate(digest.alike) if is_module[alike])


def _nodes(
    modules: Sequence[ModuleInfo], calls: Iterable[Event]
) -> tuple[list[_Node], dict[int, list[int]], list[int]]:
    """Modules under the modules that hold them, those called first first."""
    called: dict[tuple[str, str], list[Event]] = {}
    for event in calls:
        called.setdefault((event.root or "", event.module or ""), []).append(event)
    never = 1 << 62
    first = {key: events[0].id for key, events in called.items()}
    ordered = sorted(modules, key=lambda info: first.get((info.root, info.path), never))
    places = {(info.root, info.path): at for at, info in enumerate(ordered)}
    nodes: list[_Node] = []
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    for at, info in enumerate(ordered):
        holder = _holder(info, places)
        outer = ordered[holder].path if holder is not None else ""
        name = info.path[len(outer) + 1 :] if outer else info.path
        events = called.get((info.root, info.path), [])
        nodes.append(_Node(info, name or info.root, events, _spent(events)))
        (roots if holder is None else children.setdefault(holder, [])).append(at)
    return nodes, children, roots


def _holder(info: ModuleInfo, places: dict[tuple[str, str], int]) -> int | None:
    path = info.path
    while path:
        path = path.rpartition(".")[0]
        if (info.root, path) in places:
            return places[info.root, path]
    return None


def _spent(events: Iterable[Event]) -> int:
    return sum(event.duration_ns or 0 for event in events if event.phase != "backward")


def _forward_ns(calls: Sequence[Event]) -> int:
    """Time in module calls that no other module call is around."""
    spent, until = 0, dict[str, int]()
    for event in calls:
        end = event.end_ns or event.start_ns
        if event.phase != "backward" and event.start_ns >= until.get(event.thread, 0):
            spent += end - event.start_ns
            until[event.thread] = end
    return spent


def _selected(
    nodes: Sequence[_Node], children: dict[int, list[int]], roots: Sequence[int], only: Selection
) -> list[int]:
    """Keep what is selected and what it is in."""
    kept: set[int] = set()
    for at in reversed([*in_order(roots, lambda at: children.get(at, ()))]):
        children[at] = [child for child in children.get(at, ()) if child in kept]
        if children[at] or any(map(only.matches, nodes[at].calls)):
            kept.add(at)
    return [at for at in roots if at in kept]


# ---------------------------------------------------------------- parameters


def _count_parameters(
    nodes: Sequence[_Node], children: dict[int, list[int]], roots: Sequence[int], forward_ns: int
) -> Totals:
    """Count each parameter at the first module that shows it."""
    seen: dict[int, Value] = {}
    order = [*in_order(roots, lambda at: children.get(at, ()))]
    for at in order:
        node = nodes[at]
        for value in node.info.parameters:
            if value.id in seen:
                node.shared += numbers_in(value)
            else:
                seen[value.id] = value
                node.own += numbers_in(value)
    for at in reversed(order):
        nodes[at].total = nodes[at].own + sum(nodes[child].total for child in children.get(at, ()))
    return Totals(
        parameters=sum(map(numbers_in, seen.values())),
        trainable=sum(numbers_in(value) for value in seen.values() if value.requires_grad),
        size=sum(numbers_in(value) * bytes_each(value.dtype) for value in seen.values()),
        without_shape=sum(value.shape is None for value in seen.values()),
        forward_ns=forward_ns,
    )


def numbers_in(value: Value) -> int:
    """How many numbers a tensor holds; 0 when its shape is not known."""
    return 0 if value.shape is None else prod(value.shape)


def bytes_each(dtype: str) -> int:
    """Bytes of one number, by the digits in the dtype's name (``bool`` and what has none: 1)."""
    bits = re.search(r"\d+", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


# ---------------------------------------------------------------- rows


@dataclass(slots=True)
class _Rows:
    """Makes the rows of modules."""

    nodes: list[_Node]
    options: TableOptions
    forward_ns: int
    measured: bool

    def own(self, item: Item) -> Hashable:
        """All that is said of a module; of numbered ones without the number."""
        node = self.nodes[item.nodes[0]]
        return (
            node.info.name,
            settings_of(node.info.detail, node.info.path),
            split_index(node.name)[0],
            len(node.calls),
            _shapes(node.calls[0].outputs) if node.calls else None,
            node.own,
            node.shared,
        )

    def row(self, item: Item, depth: int, is_closed: bool, says_times: bool) -> Row:
        """What is said of the modules that an item stands for."""
        nodes = [self.nodes[node] for node in item.nodes]
        first, times = nodes[0], item.times if says_times else 1
        span = range_label(node.name for node in nodes)
        name = f"{clean(span)} × {count(times)}" if times > 1 else clean(span)
        spent = sum(node.spent for node in nodes)
        cells = [
            Cell(NAME, name + ("" if span == first.info.name else f" ({clean(first.info.name)})")),
            Cell(GIVES, _output(first)),
            Cell(COUNT, _parameters(first, len(nodes), first.total if is_closed else first.own)),
            Cell(CALLS, count(len(first.calls))),
        ]
        found, alarm = contents_words(_outputs(nodes)) if self.measured else ("", "")
        if found or alarm:
            text = f"{alarm} {found}".strip()  # on a narrow page the end is cut
            cells.insert(2, Cell(STATISTICS, text, mark=(0, len(alarm)) if alarm else None))
        if self.options.times:
            cells.insert(-1, Cell(TIME, share(spent, self.forward_ns) if first.calls else ""))
        return Row(depth, MODULE, tuple(cells), first.calls[0].id if first.calls else -1, times, len(nodes))


def _shapes(values: Iterable[Value]) -> tuple[object, ...]:
    return tuple((value.shape, value.dtype) for value in values)


def _outputs(nodes: Sequence[_Node]) -> list[list[Value]]:
    """What the calls of modules gave, place by place."""
    calls = [call.outputs for node in nodes for call in node.calls if call.outputs]
    return [list(column) for column in zip(*calls, strict=False)]


def _output(node: _Node) -> str:
    if not node.calls:
        return "not called"
    outputs = node.calls[0].outputs
    varies = any(_shapes(call.outputs) != _shapes(outputs) for call in node.calls)
    return (", ".join(shape_words(outputs)) or "—") + (" varies" if varies else "")


def _parameters(node: _Node, each: int, own: int) -> str:
    """``12 × 590,592`` for twelve layers; ``Σ`` before what is the sum of the rows below."""
    often = f"{count(each)} × " if each > 1 else ""
    if own:
        text = often + count(own)
    elif node.total:
        text = f"{often}Σ {count(node.total)}"
    else:
        text = "" if node.shared else "—"
    return text + (f"{' + ' if text else ''}{count(node.shared)} shared" if node.shared else "")


def _totals(trace: Recorded, totals: Totals, options: TableOptions) -> Iterator[Row]:
    whole = "Parameters of all modules" if options.only is not None else "Parameters"
    lines = [
        (whole, f"{count(totals.parameters)}  ({size(totals.size)})"),
        ("  trainable", count(totals.trainable)),
        ("  not trainable", count(totals.parameters - totals.trainable)),
        *([("Forward time", duration(totals.forward_ns))] if options.times else []),
        ("Events", count(len(trace))),
    ]
    if totals.without_shape:
        lines.insert(3, ("  not counted", f"{plural(totals.without_shape, 'parameter')} without a shape yet"))
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
    """The table, and totals below it."""
    modules, totals = ([row for row in rows if (row.kind == TOTAL) is is_total] for is_total in (False, True))
    if not modules:
        return
    titles = {kind: title for kind, title in TITLES.items() if _is_shown(kind, modules)}
    widths = _fitted(natural_widths(modules, titles, page), STATISTICS in titles, page.width)
    yield from draw_table(modules, titles, widths, STYLES, page)
    column = max(width_of(row.text(NAME)) for row in totals)
    yield from (cut(f"{row.text(NAME):<{column}}  {row.text(COUNT)}", page.width) for row in totals)


def _is_shown(kind: str, rows: Sequence[Row]) -> bool:
    """Times only where they are wanted, calls only where a module was called more than once."""
    if kind == CALLS:
        return any(row.text(CALLS) not in ("", "0", "1") for row in rows)
    return any(row.cell(kind) for row in rows)


def _fitted(widths: list[int], has_statistics: bool, page: int) -> list[int]:
    """What is too much comes off statistics, which are the widest, then shapes, then names."""
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
