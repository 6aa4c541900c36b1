"""The table: one row a module, with its output, its parameters counted once, and its share of the time."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from torchglass.events.selection import Selection
from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.views.digest import TellsAlike
from torchglass.views.fold import groups, merge_alike, range_label
from torchglass.views.nesting import settings_of, split_index
from torchglass.views.options import check_depth, check_only, check_switch
from torchglass.views.recorded import Recorded
from torchglass.views.tree.view import Heading


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the table shows."""

    depth: int | None = None
    """Levels below the outermost module; None: all."""
    only: Selection | None = None
    fold: bool = True
    times: bool = True
    """Show shares of time, and the whole."""
    """Show repeated layers once."""

    def __post_init__(self) -> None:
        check_depth(self.depth)
        check_only(self.only)
        check_switch("fold", self.fold)
        check_switch("times", self.times)


@dataclass(slots=True)
class TableRow:
    """One module, or several that are alike."""

    depth: int
    name: str
    info: ModuleInfo
    outputs: tuple[Value, ...]
    """What its first call gave."""
    varies: bool
    """True when further calls gave other shapes."""
    parameters: int
    """Numbers in its own parameters; in those of its children too when they have no rows."""
    shared: int
    """The same for parameters that were counted further up."""
    total: int
    """All that is counted at and below it."""
    cut: bool
    calls: int
    spent_ns: int
    times: int = 1
    each: int = 1
    span: str = ""


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


@dataclass(frozen=True, slots=True)
class TableView:
    """All lines of the table; the sum of ``each * parameters`` over the rows is ``totals.parameters``."""

    rows: list[TableRow | Heading]
    totals: Totals


@dataclass(slots=True)
class _Node:
    """One module while the table is made."""

    info: ModuleInfo
    name: str
    calls: list[Event]
    spent: int
    own: int = 0
    shared: int = 0
    total: int = 0
    mark: int = 0
    height: int = 1


@dataclass(slots=True)
class _Work:
    nodes: list[_Node]
    children: dict[int, list[int]]
    options: TableOptions


def table_view(trace: Recorded, options: TableOptions) -> TableView:
    """Rows for the modules of a trace, in the order of their first calls."""
    modules, calls = trace.modules(), list(_module_calls(trace))
    nodes, children, roots = _nodes(modules, calls)
    totals = _count_parameters(nodes, children, roots, _forward_ns(calls))
    if options.only is not None:
        roots = _selected(nodes, children, roots, options.only)
    _mark(nodes, children)
    rows: list[TableRow | Heading] = []
    _emit(_Work(nodes, children, options), roots, rows)
    return TableView(rows, totals)


# ---------------------------------------------------------------- modules


def _module_calls(trace: Recorded) -> Iterator[Event]:
    """The calls of modules; where the trace tells which events are alike, no others are made to find them."""
    if not isinstance(trace, TellsAlike):
        yield from (event for event in trace.events() if event.kind == "module")
        return
    is_module: dict[Hashable, bool] = {}
    for number, (key, _, _) in enumerate(trace.alike()):
        found = is_module.get(key)
        if found is None:
            found = is_module[key] = trace.event(number).kind == "module"
        if found:
            yield trace.event(number)


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


# ---------------------------------------------------------------- parameters


def _count_parameters(
    nodes: Sequence[_Node], children: dict[int, list[int]], roots: Sequence[int], forward_ns: int
) -> Totals:
    """Count each parameter at the first module that shows it."""
    seen: dict[int, Value] = {}
    order = _in_order(children, roots)
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


def _in_order(children: dict[int, list[int]], roots: Sequence[int]) -> list[int]:
    order: list[int] = []
    pending = list(reversed(roots))
    while pending:
        order.append(pending.pop())
        pending.extend(reversed(children.get(order[-1], ())))
    return order


# ---------------------------------------------------------------- rows


def _selected(
    nodes: Sequence[_Node], children: dict[int, list[int]], roots: Sequence[int], only: Selection
) -> list[int]:
    """Keep what is selected and what it is in."""
    kept: set[int] = set()
    for at in reversed(_in_order(children, roots)):
        children[at] = [child for child in children.get(at, ()) if child in kept]
        if children[at] or any(map(only.matches, nodes[at].calls)):
            kept.add(at)
    return [at for at in roots if at in kept]


def _mark(nodes: Sequence[_Node], children: dict[int, list[int]]) -> None:
    """Equal marks for modules that may stand for each other, innermost first."""
    known: dict[tuple[object, ...], int] = {}
    for at in range(len(nodes) - 1, -1, -1):
        node, below = nodes[at], children.get(at, ())
        key = (
            node.info.name,
            settings_of(node.info.detail, node.info.path),
            split_index(node.name)[0],
            len(node.calls),
            _shapes(node.calls[0].outputs) if node.calls else None,
            node.own,
            node.shared,
            *[nodes[child].mark for child in below],
        )
        node.mark = known.setdefault(key, len(known))
        node.height = 1 + sum(nodes[child].height for child in below)


def _shapes(values: Iterable[Value]) -> tuple[object, ...]:
    return tuple((value.shape, value.dtype) for value in values)


def _emit(work: _Work, roots: list[int], rows: list[TableRow | Heading]) -> None:
    pending: list[tuple[TableRow | Heading, int, int]] = list(reversed(_siblings(work, roots, 0, 1, 0)))
    while pending:
        row, at, level = pending.pop()
        rows.append(row)
        if isinstance(row, Heading) or row.cut:
            continue
        below = _siblings(work, work.children.get(at, []), row.depth + 1, row.each, level + 1)
        pending.extend(reversed(below))


def _siblings(
    work: _Work, ids: list[int], depth: int, each: int, level: int
) -> list[tuple[TableRow | Heading, int, int]]:
    nodes = work.nodes
    if not work.options.fold:
        return [(_row(work, [at], depth, each, level), at, level) for at in ids]
    found: list[tuple[TableRow | Heading, int, int]] = []
    for start, unit, times in groups([nodes[at].mark for at in ids], [nodes[at].height for at in ids]):
        members = ids[start : start + unit * times]
        if unit > 1:
            span = range_label(nodes[at].name for at in members)
            found.append((Heading(depth, span, times, unit), -1, level))
        for offset in range(unit):
            alike = members[offset::unit]
            row = _row(work, alike, depth + (unit > 1), each, level)
            row.times = 1 if unit > 1 else row.times
            found.append((row, alike[0], level))
    return found


def _row(work: _Work, members: Sequence[int], depth: int, each: int, level: int) -> TableRow:
    nodes = work.nodes
    merge_alike(members, work.children, partial(_add_time, nodes))
    node = nodes[members[0]]
    below = work.children.get(members[0])
    cut = bool(below) and work.options.depth is not None and level >= work.options.depth
    outputs = node.calls[0].outputs if node.calls else ()
    return TableRow(
        depth=depth,
        name=node.name,
        info=node.info,
        outputs=outputs,
        varies=any(_shapes(call.outputs) != _shapes(outputs) for call in node.calls),
        parameters=node.total if cut else node.own,
        shared=node.shared,
        total=node.total,
        cut=cut,
        calls=len(node.calls),
        spent_ns=node.spent,
        times=len(members),
        each=each * len(members),
        span=range_label(nodes[at].name for at in members),
    )


def _add_time(nodes: Sequence[_Node], first: int, others: Sequence[int]) -> None:
    nodes[first].spent += sum([nodes[at].spent for at in others])
