"""The table as text: layers, output shapes, parameters and time, with totals below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views.recorded import Recorded
from torchglass.views.table.view import TableOptions, TableRow, TableView, Totals, table_view
from torchglass.views.text.around import notes_of, nothing_recorded
from torchglass.views.text.cells import shape_words
from torchglass.views.text.layout import guides
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, duration, plural, share, size, width_of
from torchglass.views.tree.view import Heading

Options = TableOptions
TITLES = ("Layer", "Output shape", "Parameters", "Time", "Calls")
STYLES = ("", "output", "", "time", "dim")


def render(trace: Recorded, options: TableOptions, page: Page) -> Iterator[str]:
    """The lines of the table."""
    if not len(trace):
        yield from nothing_recorded(trace, page)
        return
    view = table_view(trace, options)
    if not view.rows:
        yield _no_rows(trace, options)
        yield from notes_of(trace, page)
        return
    shown = [column for column in range(len(TITLES)) if _is_shown(column, view, options)]
    cells = [[words[column] for column in shown] for words in (_cells(row, view.totals, page) for row in view.rows)]
    titles = [TITLES[column] for column in shown]
    widths = _widths([titles, *cells], page.width)
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    yield page.paint("heading", _line(titles, widths))
    yield page.paint("dim", rule)
    for row, words in zip(view.rows, cells, strict=True):
        yield _painted(row, words, [STYLES[column] for column in shown], widths, page)
    yield page.paint("dim", rule)
    yield from _totals(trace, view.totals, options, page)
    yield from notes_of(trace, page)


def _no_rows(trace: Recorded, options: TableOptions) -> str:
    if options.only is not None:
        return f"No module is selected: {plural(len(trace), 'event')}, but none of a module that fits."
    return f"No module was called: {plural(len(trace), 'event')}, all of them functions. The tree shows them."


# ---------------------------------------------------------------- rows


def _cells(row: TableRow | Heading, totals: Totals, page: Page) -> tuple[str, ...]:
    before = guides(row.depth, page.width)
    if isinstance(row, Heading):
        return (f"{before}{clean(row.text)} × {count(row.times)}, {row.rows} layers each:", "", "", "", "")
    name = f"{clean(row.span)} × {count(row.times)}" if row.times > 1 else clean(row.span)
    return (
        f"{before}{name}" + ("" if row.span == row.info.name else f" ({clean(row.info.name)})"),
        _output(row),
        _parameters(row),
        share(row.spent_ns, totals.forward_ns) if row.calls else "",
        count(row.calls),
    )


def _output(row: TableRow) -> str:
    if not row.calls:
        return "not called"
    return (", ".join(shape_words(row.outputs)) or "—") + (" varies" if row.varies else "")


def _parameters(row: TableRow) -> str:
    """``12 × 590,592`` for twelve layers; ``Σ`` before what is the sum of the rows below."""
    often = f"{count(row.each)} × " if row.each > 1 else ""
    if row.parameters:
        told = often + count(row.parameters)
    elif row.total:
        told = f"{often}Σ {count(row.total)}"
    else:
        told = "" if row.shared else "—"
    return told + (f"{' + ' if told else ''}{count(row.shared)} shared" if row.shared else "")


def _is_shown(column: int, view: TableView, options: TableOptions) -> bool:
    """Times only where they are wanted, calls only where a module was called more than once."""
    if TITLES[column] == "Calls":
        return any(row.calls > 1 for row in view.rows if isinstance(row, TableRow))
    return options.times or TITLES[column] != "Time"


def _widths(cells: Sequence[Sequence[str]], page_width: int) -> list[int]:
    columns = len(cells[0])
    widths = [max(width_of(row[column]) for row in cells) for column in range(columns)]
    fixed = sum(widths[2:]) + 2 * (columns - 1)
    widths[1] = max(min(widths[1], page_width - fixed - min(widths[0], page_width // 3)), 8)
    widths[0] = max(min(widths[0], page_width - fixed - widths[1]), 0)
    over = sum(widths) + 2 * (columns - 1) - page_width
    if over > 0:
        widths[2] = max(widths[2] - over, 1)
    return widths


def _line(words: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(_cell(column, words[column], width) for column, width in enumerate(widths)).rstrip()


def _cell(column: int, word: str, width: int) -> str:
    word = cut(word, width)
    space = " " * (width - width_of(word))
    return word + space if column < 2 else space + word


def _painted(
    row: TableRow | Heading, words: Sequence[str], styles: Sequence[str], widths: Sequence[int], page: Page
) -> str:
    if isinstance(row, Heading):
        return page.paint("fold", cut(words[0], page.width))
    if not page.color:
        return _line(words, widths)
    painted = [_cell(column, words[column], width) for column, width in enumerate(widths)]
    before = guides(row.depth, page.width)
    if painted[0].startswith(before):
        painted[0] = page.paint("guide", before) + painted[0][len(before) :]
    return "  ".join(
        page.paint(style, word) if style and word.strip() else word
        for style, word in zip(styles, painted, strict=False)
    ).rstrip()


# ---------------------------------------------------------------- totals


def _totals(trace: Recorded, totals: Totals, options: TableOptions, page: Page) -> Iterator[str]:
    frozen = totals.parameters - totals.trainable
    whole = "Parameters of all modules" if options.only is not None else "Parameters"
    told = [
        (whole, f"{count(totals.parameters)}  ({size(totals.size)})"),
        ("  trainable", count(totals.trainable)),
        ("  not trainable", count(frozen)),
        *([("Forward time", duration(totals.forward_ns))] if options.times else []),
        ("Events", count(len(trace))),
    ]
    if totals.without_shape:
        told.insert(3, ("  not counted", f"{plural(totals.without_shape, 'parameter')} without a shape yet"))
    column = max(len(name) for name, _ in told)
    for name, text in told:
        yield cut(f"{name:<{column}}  {text}", page.width)
