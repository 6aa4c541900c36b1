"""The order of module calls: one row a call, as they begin or as they end, rounds of loops and equal layers once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from torchglass.events.types import Event
from torchglass.views import row as kinds
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.fold import TOGETHER, Item, folded, in_order
from torchglass.views.forest import EventForest
from torchglass.views.levels import LOOP, count_of
from torchglass.views.options import CallsOptions
from torchglass.views.row import Cell, Cells, Row, Sheet, has_heading, repeat_row
from torchglass.views.text.cells import gives_cell, shape_words, takes_cell
from torchglass.views.text.layout import ARROW, repeat_line, suits_most, thread_line
from torchglass.views.text.spans import count_word, loop_word
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import is_measured, narrowed, painted, paths_word, values_words, with_stats
from torchglass.views.text.words import clean, count, cut, plural, width_of


def sheet(trace: Recorded, options: CallsOptions) -> Sheet:
    """Rows for a trace: pure. Unfolded, each module call of the trace has exactly one."""
    return _Calls(trace, options).sheet()


class _Calls(EventForest):
    """One trace while its list is made: calls under the calls around them, and the loops and rounds between."""

    def __init__(self, trace: Recorded, options: CallsOptions) -> None:
        super().__init__(digest_of(trace))
        self._trace, self._options, self._is_measured = trace, options, is_measured(trace)
        matched = None if options.only is None else self.digest.matching(options.only)
        chosen = [at for at in range(len(self.events)) if self._is_listed(at) and (matched is None or matched[at])]
        self._chosen = dict.fromkeys(chosen)
        self._several_roots = len({self.events[at].root for at in chosen} - {None}) > 1
        self._fill()

    def sheet(self) -> Sheet:
        """Rows by thread, and how many calls there were."""
        rows: list[Row] = []
        for name, tops in self.threads.items():
            if has_heading(name, self.threads):
                rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, name),)))
            items = folded(self, tops, self._own, self._options.fold)
            rows += self._rows(items)
        return Sheet(rows, [Cell(kinds.COUNT, self._summary())])

    def _summary(self) -> str:
        if self._chosen:
            events = [self.events[at] for at in self._chosen]
            modules = {(event.root, event.module, event.name) for event in events if event.kind == "module"}
            functions = {event.name for event in events if event.kind == "call"}
            of = [plural(len(modules), "module")] if modules or not functions else []
            of += [plural(len(functions), "function")] if functions else []
            return f"{plural(len(self._chosen), 'call')} of {' and '.join(of)}"
        if self._options.only is not None:
            return "No module call is selected: something was recorded, but no call of a module that fits."
        return "No module was called. The tree shows what was recorded."

    def _fill(self) -> None:
        """The outermost calls of each thread; the others under the chosen call around them, and under their loops."""
        around: list[int] = []
        attached: set[int] = set()
        for at, parent in enumerate(self.digest.parents):
            outer = -1 if parent < 0 else parent if parent in self._chosen else around[parent]
            around.append(outer)
            if at not in self._chosen:
                continue
            thread = self.events[at].thread
            outer = outer if outer >= 0 and self.events[outer].thread == thread else -1
            for span in self._spans(at):
                if span not in attached:
                    attached.add(span)
                    self.siblings(outer, thread).append(span)
                outer = span
            self.siblings(outer, thread).append(at)

    def _spans(self, at: int) -> list[int]:
        """The loops and rounds around a call, and around the events around it up to a call that is listed."""
        found: list[int] = []
        event = at
        while event >= 0 and (event == at or not self._is_listed(event)):
            number = self.levels.span_of[event]
            while number >= 0:
                if self.levels.spans[number].kind != "call":
                    found.append(len(self.events) + number)
                number = self.levels.spans[number].parent
            event = self.digest.parents[event]
        return found[::-1]

    def _is_listed(self, at: int) -> bool:
        return self.events[at].kind in ("module", "call")

    # ------------------------------------------------------------ what folding asks

    def key(self, node: int) -> Hashable:
        span = self.span(node)
        if span is not None:
            return span.loop
        event = self.events[node]
        return (event.kind, event.root, event.module, event.name, event.error)

    def merges(self, node: int) -> bool:
        return self.span(node) is None and not self.below(node)

    def _own(self, item: Item) -> Hashable:
        span = self.span(item.nodes[0])
        if span is not None:
            return (span.kind, span.loop)
        if self._options.shapes:
            return tuple(dict.fromkeys((_numberless(self.events[node]), self._shapes(node)) for node in item.nodes))
        return tuple(dict.fromkeys(_numberless(self.events[node]) for node in item.nodes))

    def _shapes(self, node: int) -> Hashable:
        event = self.events[node]
        return (shape_words(event.inputs), shape_words(event.outputs), event.result)

    # ------------------------------------------------------------ rows

    def _rows(self, items: Sequence[Item]) -> list[Row]:
        """In order, with a stack of our own: calls nest deeper than Python may."""
        rows: list[Row] = []
        waiting: list[tuple[Item | Row, int]] = [(item, 0) for item in reversed(items)]
        while waiting:
            item, depth = waiting.pop()
            if isinstance(item, Row):
                rows.append(item)
                continue
            heading = self._heading(item, depth)
            if heading is not None:
                rows.append(heading)
            inner = depth + (heading is not None)
            own: list[tuple[Item | Row, int]] = []
            if self._is_call(item):
                own = [(self._row(item, inner, heading is None), inner)]
            below: list[tuple[Item | Row, int]] = [(child, inner) for child in item.children]
            waiting += reversed([*own, *below] if self._options.order == "begin" else [*below, *own])
        return rows

    def _heading(self, item: Item, depth: int) -> Row | None:
        """A loop, or how often all that follows happened."""
        node = item.nodes[0]
        span = None if node == TOGETHER else self.span(node)
        if span is not None and span.kind == LOOP:
            loops = [each for each in map(self.span, item.nodes) if each is not None]
            if not self.rounds(node) or max(count_of(each).number for each in loops) < 2:
                return None
            return Row(
                depth,
                kinds.LOOP,
                (Cell(kinds.EXPRESSION, loop_word(span)), Cell(kinds.TIMES, count_word(loops))),
                each=0,
            )
        if item.times == 1:  # before anything is counted: that goes through all that is below
            return None
        calls = sum(self._is_call(each) * len(each.nodes) for each in in_order([item], lambda each: each.children))
        size = calls // len(item.nodes if node != TOGETHER else item.children[0].nodes)
        if size < 2 and node != TOGETHER:
            return None
        return repeat_row(depth, "", item.times, plural(size, "call"))

    def _is_call(self, item: Item) -> bool:
        return item.nodes != [TOGETHER] and self.span(item.nodes[0]) is None

    def _row(self, item: Item, depth: int, says_times: bool) -> Row:
        times = item.times if item.times > 1 else item.in_a_row
        often = (Cell(kinds.FOLD, f" ×{count(times)}"),) if times > 1 and says_times else ()
        cells = self._cells(item)
        if self._is_measured and self._options.shapes:
            cells = with_stats(cells, map(self._trace.event, item.nodes))
        return Row(depth, kinds.EVENT, (*cells, *often), item.nodes[0], times if says_times else 1, len(item.nodes))

    def _cells(self, item: Item) -> Cells:
        """A root by its label, what is in it by its path; with the label before it where there are several roots."""
        events = [self.events[node] for node in dict.fromkeys(item.nodes)]
        names = dict.fromkeys(map(self._name, events))
        cells = (Cell(kinds.NAME, paths_word(list(names))),)
        first = events[0]
        if not self._options.shapes:
            return cells if first.error is None else (*cells, gives_cell(first))
        others = list({self.texts[node]: self.events[node] for node in reversed(item.nodes)}.values())
        if len(others) == 1:
            return (*cells, takes_cell(shape_words(first.inputs)), gives_cell(first))
        takes = takes_cell(values_words([event.inputs for event in reversed(others)]))
        return (*cells, takes, gives_cell(first, others=[event for event in reversed(others) if event is not first]))

    def _name(self, event: Event) -> str:
        if event.kind == "call":
            return clean(event.name)
        label, path = event.root or event.name, event.module or ""
        return clean(label if not path else f"{label}.{path}" if self._several_roots else path)


def _numberless(event: Event) -> Hashable:
    """A module without the numbers of layers, so that ``blocks.0`` may equal ``blocks.1``."""
    path = ".".join("#" if part.isdecimal() else part for part in (event.module or "").split("."))
    return (event.kind, event.root, path, event.name, event.error)


# ---------------------------------------------------------------- text

MOST_INDENTS = 12


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """The lines of the list."""
    columns = _columns([row for row in rows if row.kind == kinds.EVENT and row.cell(kinds.TAKES)], page)
    for row in rows:
        if row.kind == kinds.THREAD:
            yield thread_line(row.text(kinds.NAME), page.width, page)
        elif row.kind == kinds.REPEAT:
            yield repeat_line(row, _indent(row.depth), page)
        elif row.kind == kinds.LOOP:
            often = f"  {row.text(kinds.TIMES)}"
            room = page.width - len(_indent(row.depth)) - len(often)
            yield _indent(row.depth) + cut(row.text(kinds.EXPRESSION), room) + page.paint("fold", often)
        else:
            yield _line(row, columns, page)


def _line(row: Row, columns: tuple[int, int], page: Page) -> str:
    before, often = _indent(row.depth), row.text(kinds.FOLD)
    beside = row.cell(kinds.TAKES) or row.cell(kinds.ERROR)
    room = page.width - len(before) - len(often) - (page.width // 3 if beside else 0)
    path = cut(row.text(kinds.NAME), max(room, 8))
    head = before + path + page.paint("fold", often)
    if not beside:
        return head
    used = len(before) + width_of(path) + len(often)
    gap = max(columns[0] - used, 0) + 2
    return (head + " " * gap + _shapes(row, page.width - used - gap, columns[1], page)).rstrip()


def _shapes(row: Row, room: int, arrow: int, page: Page) -> str:
    """What it took and gave, arrow under arrow; without shapes only the error that left it."""
    gives = row.cell(kinds.ERROR) or row.cell(kinds.GIVES)
    text = gives.text if gives else ""
    if row.cell(kinds.TAKES) is None:
        return page.paint("error", cut(text, room))
    text = narrowed(text, max(room - len(ARROW) - 1, 1))
    space = room - width_of(text) - len(ARROW)
    takes = cut(row.text(kinds.TAKES), space)
    before = " " * min(max(arrow - width_of(takes), 0), space - width_of(takes))
    style = "error" if row.cell(kinds.ERROR) else "output"
    said = painted(text, style, page) if gives is not None and gives.mark else page.paint(style, text)
    return before + page.paint("input", takes) + page.paint("dim", ARROW) + said


def _columns(rows: Sequence[Row], page: Page) -> tuple[int, int]:
    """Where shapes begin, and how wide those are that went in."""
    paths = [len(_indent(row.depth)) + width_of(row.text(kinds.NAME)) + len(row.text(kinds.FOLD)) for row in rows]
    takes = [width_of(row.text(kinds.TAKES)) for row in rows]
    return min(suits_most(paths, slack=8), page.width // 2), min(suits_most(takes, slack=8), page.width // 4)


def _indent(depth: int) -> str:
    return "  " * min(depth, MOST_INDENTS)
