"""The order of module calls: one row a call, as they begin or as they end, repeats folded on request."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchglass.errors import UsageError, WrongType, closest
from torchglass.events.selection import Selection
from torchglass.events.types import Event
from torchglass.views.digest import Looks, looks_of
from torchglass.views.fold import groups
from torchglass.views.options import check_only, check_switch
from torchglass.views.recorded import Recorded

ORDERS = ("begin", "end")


@dataclass(frozen=True, slots=True)
class CallsOptions:
    """What the list of calls shows."""

    shapes: bool = False
    """What each call took and gave."""
    counts: bool = False
    """Fold repeats: equal calls in a row, and blocks of calls that repeat, with how often."""
    only: Selection | None = None
    """Only the selected module calls."""
    order: str = "begin"
    """``begin``: as the calls begin; ``end``: as they return, so that a module comes after those it called."""

    def __post_init__(self) -> None:
        check_only(self.only)
        check_switch("shapes", self.shapes)
        check_switch("counts", self.counts)
        if not isinstance(self.order, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(f"order= takes 'begin' or 'end', not {type(self.order).__name__}")
        if self.order not in ORDERS:
            raise UsageError(f"order={self.order!r}: {closest(self.order, ORDERS)}")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, or several equal ones in a row."""

    depth: int
    """How many repeats it is in."""
    path: str
    event: Event
    """An event that looks the same."""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Repeat:
    """The rows below it that stand deeper happened ``times`` times, one block after the other."""

    depth: int
    calls: int
    """In each of them."""
    times: int


@dataclass(frozen=True, slots=True)
class Thread:
    """From here on, calls in another thread."""

    name: str


@dataclass(slots=True)
class CallsView:
    """All rows, and what they stand for."""

    rows: list[Call | Repeat | Thread]
    calls: int = 0
    modules: int = 0


@dataclass(slots=True)
class _Work:
    options: CallsOptions
    looks: Looks
    several_roots: bool
    children: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    marks: dict[int, int] = field(default_factory=dict[int, int])
    sizes: dict[int, int] = field(default_factory=dict[int, int])

    def path(self, at: int) -> str:
        """A root by its label, what is in it by its path; with the label before it where there are several roots."""
        event = self.looks.events[at]
        label, path = event.root or event.name, event.module or ""
        if not path:
            return label
        return f"{label}.{path}" if self.several_roots else path


def calls_view(trace: Recorded, options: CallsOptions) -> CallsView:
    """Rows for a trace: pure. Unfolded, each module call of the trace has exactly one."""
    looks = looks_of(trace, options.only)
    chosen = [at for at, event in enumerate(looks.events) if event.kind == "module" and _is_chosen(looks, at)]
    roots = {looks.events[at].root for at in chosen}
    work = _Work(options, looks, len(roots) > 1)
    threads = _forest(work, chosen)
    view = CallsView([], len(chosen), len({(looks.events[at].root, looks.events[at].module) for at in chosen}))
    if options.counts:
        _mark(work, chosen)
    for number, (name, tops) in enumerate(threads.items()):
        if number:
            view.rows.append(Thread(name))
        view.rows += _rows(work, tops)
    return view


def _is_chosen(looks: Looks, at: int) -> bool:
    return looks.matched is None or bool(looks.matched[at])


def _forest(work: _Work, chosen: list[int]) -> dict[str, list[int]]:
    """The outermost calls of each thread; the others under the chosen call of their thread around them."""
    looks, chosen_set = work.looks, set(chosen)
    around: list[int] = []
    threads: dict[str, list[int]] = {}
    for at, parent in enumerate(looks.parents):
        outer = -1 if parent < 0 else parent if parent in chosen_set else around[parent]
        around.append(outer)
        if at in chosen_set:
            thread = looks.events[at].thread
            if outer >= 0 and looks.events[outer].thread == thread:
                work.children.setdefault(outer, []).append(at)
            else:
                threads.setdefault(thread, []).append(at)
    return threads


def _mark(work: _Work, chosen: list[int]) -> None:
    """Equal numbers for calls that are written the same, with all that is in them."""
    known: dict[tuple[object, ...], int] = {}
    for at in reversed(chosen):
        event = work.looks.events[at]
        own = work.looks.look[at] if work.options.shapes else (event.root, event.module)
        below = work.children.get(at, ())
        key = (own, *(work.marks[child] for child in below))
        work.marks[at] = known.setdefault(key, len(known))
        work.sizes[at] = 1 + sum(work.sizes[child] for child in below)


def _rows(work: _Work, tops: list[int]) -> list[Call | Repeat | Thread]:
    """In order, with a stack of our own: calls nest deeper than Python may."""
    rows: list[Call | Repeat | Thread] = []
    waiting: list[tuple[Call | Repeat | int, int]] = list(reversed(_siblings(work, tops, 0)))
    while waiting:
        item, depth = waiting.pop()
        if not isinstance(item, int):
            rows.append(item)
            continue
        own: tuple[Call | Repeat | int, int] = (Call(depth, work.path(item), work.looks.events[item]), depth)
        below = _siblings(work, work.children.get(item, []), depth)
        waiting += reversed([own, *below] if work.options.order == "begin" else [*below, own])
    return rows


def _siblings(work: _Work, ids: list[int], depth: int) -> list[tuple[Call | Repeat | int, int]]:
    """Calls beside each other; those that repeat once, after a row that says how often."""
    if not work.options.counts or len(ids) < 2:
        return [(at, depth) for at in ids]
    found: list[tuple[Call | Repeat | int, int]] = []
    for start, unit, times in groups([work.marks[at] for at in ids], [work.sizes[at] for at in ids]):
        block = ids[start : start + unit]
        size = sum(work.sizes[at] for at in block)
        if times > 1 and size > 1:
            found.append((Repeat(depth, size, times), depth))
            found += [(at, depth + 1) for at in block]
        elif times > 1:
            event = work.looks.events[block[0]]
            found.append((Call(depth, work.path(block[0]), event, times), depth))
        else:
            found.append((block[0], depth))
    return found
