"""The order of module calls: which calls are listed, under which call of their thread, and which repeats share rows."""

from __future__ import annotations

from collections.abc import Sequence

from torchglass.views.calls import Options
from torchglass.views.digest import Digest, Recorded, digest_of, texts_of
from torchglass.views.fold import groups
from torchglass.views.row import COUNT, EVENT, FOLD, NAME, REPEAT, THREAD, Cell, Row, Sheet
from torchglass.views.text.cells import Cells, gives_cell, shape_words, takes_cell
from torchglass.views.text.words import clean, count, plural


def sheet(trace: Recorded, options: Options) -> Sheet:
    """Rows for a trace: pure. Unfolded, each module call of the trace has exactly one."""
    return _Calls(digest_of(trace), options).sheet()


class _Calls:
    """One trace while its list is made."""

    def __init__(self, digest: Digest, options: Options) -> None:
        self._digest, self._options = digest, options
        matched = None if options.only is None else digest.matching(options.only)
        is_module = [event.kind == "module" for event in digest.samples]
        self._chosen = [
            at for at, alike in enumerate(digest.alike) if is_module[alike] and (matched is None or matched[at])
        ]
        self._several_roots = len({digest.sample(at).root for at in self._chosen}) > 1
        self._children: dict[int, list[int]] = {}
        self._patterns: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._cells: dict[tuple[int, int], Cells] = {}

    def sheet(self) -> Sheet:
        """Rows by thread, and how many calls there were."""
        threads = self._forest()
        if self._options.counts:
            self._find_patterns()
        rows: list[Row] = []
        for number, (name, tops) in enumerate(threads.items()):
            if number:
                rows.append(Row(0, THREAD, (Cell(NAME, name),)))
            rows += self._rows(tops)
        return Sheet(rows, [Cell(COUNT, self._summary())])

    def _summary(self) -> str:
        modules = {(event.root, event.module) for event in map(self._digest.sample, self._chosen)}
        if self._chosen:
            return f"{plural(len(self._chosen), 'call')} of {plural(len(modules), 'module')}"
        if self._options.only is not None:
            return "No module call is selected: something was recorded, but no call of a module that fits."
        return "No module was called. The tree shows what was recorded."

    def _forest(self) -> dict[str, list[int]]:
        """The outermost calls of each thread; the others under the chosen call of their thread around them."""
        digest, chosen = self._digest, set(self._chosen)
        around: list[int] = []
        threads: dict[str, list[int]] = {}
        for at, parent in enumerate(digest.parents):
            outer = -1 if parent < 0 else parent if parent in chosen else around[parent]
            around.append(outer)
            if at in chosen:
                thread = digest.sample(at).thread
                if outer >= 0 and digest.sample(outer).thread == thread:
                    self._children.setdefault(outer, []).append(at)
                else:
                    threads.setdefault(thread, []).append(at)
        return threads

    def _find_patterns(self) -> None:
        """Equal numbers for calls that are written the same, with all that is in them."""
        known: dict[tuple[object, ...], int] = {}
        texts = texts_of(self._digest)
        for at in reversed(self._chosen):
            event, below = self._digest.sample(at), self._children.get(at, ())
            own = texts[at] if self._options.shapes else (event.root, event.module)
            key = (own, *(self._patterns[child] for child in below))
            self._patterns[at] = known.setdefault(key, len(known))
            self._sizes[at] = 1 + sum(self._sizes[child] for child in below)

    # ------------------------------------------------------------ rows

    def _rows(self, tops: list[int]) -> list[Row]:
        """In order, with a stack of our own: calls nest deeper than Python may."""
        rows: list[Row] = []
        waiting = self._siblings(tops, 0)[::-1]
        while waiting:
            item, depth = waiting.pop()
            if isinstance(item, Row):
                rows.append(item)
                continue
            own: tuple[Row | int, int] = (self._row(item, depth), depth)
            below = self._siblings(self._children.get(item, []), depth)
            waiting += reversed([own, *below] if self._options.order == "begin" else [*below, own])
        return rows

    def _siblings(self, ids: Sequence[int], depth: int) -> list[tuple[Row | int, int]]:
        """Calls beside each other; those that repeat once, after a row that says how often."""
        if not self._options.counts or len(ids) < 2:
            return [(at, depth) for at in ids]
        found: list[tuple[Row | int, int]] = []
        for start, unit, times in groups([self._patterns[at] for at in ids], [self._sizes[at] for at in ids]):
            block = ids[start : start + unit]
            size = sum(self._sizes[at] for at in block)
            if times > 1 and size > 1:
                often = Cell(FOLD, f"× {count(times)}"), Cell(COUNT, f", {plural(size, 'call')} each:")
                found.append((Row(depth, REPEAT, often, times=times, each=size), depth))
                found += [(at, depth + 1) for at in block]
            elif times > 1:
                found.append((self._row(block[0], depth, times), depth))
            else:
                found.append((block[0], depth))
        return found

    def _row(self, at: int, depth: int, times: int = 1) -> Row:
        key = (self._digest.alike[at], times)
        cells = self._cells.get(key)
        if cells is None:
            often = (Cell(FOLD, f" ×{count(times)}"),) if times > 1 else ()
            cells = self._cells[key] = (*self._own_cells(at), *often)
        return Row(depth, EVENT, cells, at, times)

    def _own_cells(self, at: int) -> Cells:
        """A root by its label, what is in it by its path; with the label before it where there are several roots."""
        event = self._digest.sample(at)
        label, path = event.root or event.name, event.module or ""
        name = label if not path else f"{label}.{path}" if self._several_roots else path
        cells = (Cell(NAME, clean(name)),)
        if self._options.shapes:
            return (*cells, takes_cell(shape_words(event.inputs)), gives_cell(event))
        return cells if event.error is None else (*cells, gives_cell(event))
