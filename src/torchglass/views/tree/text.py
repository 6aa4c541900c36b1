"""The tree as text: one line a call, written line by line so that a hundred thousand cost little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views.recorded import Recorded
from torchglass.views.text.around import how_it_ended, notes_of, nothing_recorded, wrapped
from torchglass.views.text.cells import Cells, cells_of, helper_cells, label_of
from torchglass.views.text.layout import Layout, Line, columns_for, guides
from torchglass.views.text.places import Places
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, duration, plural, share, width_of
from torchglass.views.tree.view import Heading, Row, TreeOptions, TreeView, tree_view

Options = TreeOptions
TIME_WIDTH = 15
LONGEST_MARK = 40
"""Characters of a marked value that is no tensor."""


def render(trace: Recorded, options: TreeOptions, page: Page) -> Iterator[str]:
    """The lines of the tree; a trace that an exception left begins with how it ended."""
    yield from how_it_ended(trace, page)
    if not len(trace):
        yield from nothing_recorded(trace, page)
        return
    view = tree_view(trace, options)
    cells, places = _words(trace, view, page)
    layout = Layout(columns_for(_different(view, cells, places, options, page), page.width), page)
    words = zip(cells, places, strict=True)
    told: set[str | None] = set()
    whole_ns = trace.duration_ns
    for row in view.rows:
        if isinstance(row, Heading):
            yield _heading(row, page, layout.edge)
            continue
        time = _time(row, whole_ns) if options.times else ""
        yield layout.line(_line(row, *next(words), page, time))
        if row.unlike or row.note:
            yield from _remarks(row, page, told)
            told.add(row.note)
    yield from _footer(trace, view, options, page)


# ---------------------------------------------------------------- rows to lines


def _words(trace: Recorded, view: TreeView, page: Page) -> tuple[list[Cells], list[str]]:
    """Cells and place of each row that is no heading: columns need a look at all of them before the first."""
    outer = failed_further_in(view.rows)
    places = Places(page.width)
    known: dict[tuple[object, ...], Cells] = {}
    equal: dict[Cells, Cells] = {}
    cells: list[Cells] = []
    where: list[str] = []
    for row in view.rows:
        if isinstance(row, Heading):
            if not row.times:
                places = Places(page.width)
            continue
        key = (row.look, row.name, row.span, row.times, row.each, row.inside, row.deeper, row.id in outer)
        if key not in known:
            these = cells_for(row, row.id in outer, page)
            known[key] = equal.setdefault(these, these)
        cells.append(_with_value(known[key], row, trace) if row.event.kind == "mark" else known[key])
        location = row.event.location
        where.append("" if location is None else places.place(row.depth, location))
    return cells, where


def _different(view: TreeView, cells: list[Cells], places: list[str], options: TreeOptions, page: Page) -> list[Line]:
    """One line of each kind, to find the columns by."""
    rows = (row for row in view.rows if not isinstance(row, Heading))
    kinds = {
        (row.depth, id(these), len(place)): (row, these, place)
        for row, these, place in zip(rows, cells, places, strict=True)
    }
    time = " " * TIME_WIDTH if options.times else ""
    return [_line(*kind, page, time) for kind in kinds.values()]


def _line(row: Row, cells: Cells, place: str, page: Page, time: str) -> Line:
    location = row.event.location if page.links else None
    return Line(guides(row.depth, page.width), cells, place, time, location)


def cells_for(row: Row, failed_inside: bool, page: Page) -> Cells:
    """The words of a row; how often it happened stands before everything else."""
    fold = ""
    if row.times > 1:
        fold = f"{clean(row.span)} × {count(row.times)}".lstrip()
    elif row.span and row.span != row.name:
        fold = clean(row.span)
    fold = cut(fold, page.width // 3)
    if row.helper:
        return helper_cells(row.event, fold, row.inside + row.each)
    more = row.deeper or (row.inside if row.event.kind == "step" else 0)
    cells = cells_of(row.event, row.name, fold=fold, same_code=row.same_code, more=more)
    if row.event.kind == "mark":
        cells = cells._replace(prefix=fold, label=label_of(row.event, row.name))
    return cells._replace(gives=cells.gives.partition(":")[0]) if failed_inside else cells


def _with_value(cells: Cells, row: Row, trace: Recorded) -> Cells:
    """A mark of something that holds no tensor says what it was, and of several what the first was."""
    if cells.takes:
        return cells
    # Asked of the trace: the row's event may be another one, from the same place and with another value.
    value = cut(clean(trace.event(row.id).args), LONGEST_MARK)
    return cells._replace(takes=(f"{value} …" if row.each > 1 else value,))


def _time(row: Row, whole_ns: int) -> str:
    spent = row.spent_ns if row.event.end_ns is not None else None
    return f"{duration(spent):>8} {share(spent, whole_ns):>6}"


def failed_further_in(rows: Sequence[Row | Heading]) -> set[int]:
    """Events whose error came out of a call that has a row of its own: its text is told there."""
    outer: set[int] = set()
    depth: int | None = None
    for row in reversed(rows):
        if isinstance(row, Heading):
            continue
        inside = depth is not None and row.depth < depth
        if row.event.error is not None:
            if inside:
                outer.add(row.id)
            depth = row.depth
        elif inside:
            depth = None
    return outer


# ---------------------------------------------------------------- lines of their own


def _heading(row: Heading, page: Page, edge: int) -> str:
    if not row.times:
        title = f"── thread {cut(clean(row.text), page.width - 14)} "
        return page.paint("heading", title + "─" * (edge - width_of(title)))
    before = guides(row.depth, page.width)
    rest = f", {row.rows} steps each:"
    often = cut(f"{clean(row.text)} × {count(row.times)}".lstrip(), page.width - len(before) - len(rest))
    return page.paint("guide", before) + page.paint("fold", often) + page.paint("dim", rest)


def _remarks(row: Row, page: Page, told: set[str | None]) -> Iterator[str]:
    """What keeps a row out of a repeat, and its note; a note that was told before is not told again in full."""
    before = guides(row.depth + 1, page.width)
    remarks = [("dim", f"≠ {row.unlike} differ")] if row.unlike else []
    if row.note:
        remarks.append(("note", "note: as above" if row.note in told else f"note: {row.note}"))
    for style, text in remarks:
        for line in wrapped(text, before, page):
            yield page.paint("guide", before) + page.paint(style, line)


def _footer(trace: Recorded, view: TreeView, options: TreeOptions, page: Page) -> Iterator[str]:
    """How many events there were, and why some have no line."""
    rows = [row for row in view.rows if isinstance(row, Row)]
    inner = sum(row.inside for row in rows)
    deeper = sum(row.deeper for row in rows)
    folded = sum(row.each - 1 for row in rows)
    took = f" in {duration(trace.duration_ns)}" if options.times and trace.duration_ns else ""
    told = [plural(len(trace), "event") + took]
    if folded:
        told.append(f"{count(folded)} folded")
    if inner:
        told.append(f"{count(inner)} inside torch calls" + ("" if options.inner else " (inner=True)"))
    if deeper:
        told.append(f"{count(deeper)} deeper than depth={options.depth}")
    if view.left_out:
        told.append(f"{count(view.left_out)} not {'selected' if options.only else 'shown'}")
    for line in wrapped(" · ".join(told), "", page):
        yield page.paint("dim", line)
    yield from notes_of(trace, page)
