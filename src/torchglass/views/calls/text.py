"""The order of module calls as text: one path a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views.calls.view import Call, CallsOptions, CallsView, Repeat, Thread, calls_view
from torchglass.views.recorded import Recorded
from torchglass.views.text.around import how_it_ended, notes_of, nothing_recorded, wrapped
from torchglass.views.text.cells import gives_word, shape_words
from torchglass.views.text.layout import suits_most
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, plural, width_of

Options = CallsOptions
ARROW = " → "
MOST_INDENTS = 12


def render(trace: Recorded, options: CallsOptions, page: Page) -> Iterator[str]:
    """The lines of the list; a trace that an exception left begins with how it ended."""
    yield from how_it_ended(trace, page)
    if not len(trace):
        yield from nothing_recorded(trace, page)
        return
    view = calls_view(trace, options)
    columns = _columns(view.rows, page) if options.shapes else (0, 0)
    for row in view.rows:
        yield _line(row, columns, options, page)
    for line in wrapped(_total(view, options), "", page):
        yield page.paint("dim", line)
    yield from notes_of(trace, page)


def _total(view: CallsView, options: CallsOptions) -> str:
    if view.calls:
        return f"{plural(view.calls, 'call')} of {plural(view.modules, 'module')}"
    if options.only is not None:
        return "No module call is selected: something was recorded, but no call of a module that fits."
    return "No module was called. The tree shows what was recorded."


def _line(row: Call | Repeat | Thread, columns: tuple[int, int], options: CallsOptions, page: Page) -> str:
    if isinstance(row, Thread):
        title = f"── thread {cut(clean(row.name), page.width - 14)} "
        return page.paint("heading", title + "─" * (page.width - width_of(title)))
    before = _indent(row.depth)
    if isinstance(row, Repeat):
        often = f"× {count(row.times)}"
        rest = cut(f", {plural(row.calls, 'call')} each:", page.width - len(before) - len(often))
        return before + page.paint("fold", often) + page.paint("dim", rest)
    often = _often(row)
    beside = options.shapes or row.event.error is not None
    room = page.width - len(before) - len(often) - (page.width // 3 if beside else 0)
    path = cut(clean(row.path), max(room, 8))
    head = before + path + page.paint("fold", often)
    if not beside:
        return head
    used = len(before) + width_of(path) + len(often)
    gap = max(columns[0] - used, 0) + 2
    return (head + " " * gap + _shapes(row, page.width - used - gap, columns[1], options, page)).rstrip()


def _shapes(row: Call, room: int, arrow: int, options: CallsOptions, page: Page) -> str:
    """What it took and gave, arrow under arrow; without shapes only the error that left it."""
    gives = gives_word(row.event)
    if not options.shapes:
        return page.paint("error", cut(gives, room))
    gives = cut(gives, max(room - len(ARROW) - 1, 1))
    space = room - width_of(gives) - len(ARROW)
    takes = cut(", ".join(shape_words(row.event.inputs)), space)
    before = " " * min(max(arrow - width_of(takes), 0), space - width_of(takes))
    style = "output" if row.event.error is None else "error"
    return before + page.paint("input", takes) + page.paint("dim", ARROW) + page.paint(style, gives)


def _columns(rows: Sequence[Call | Repeat | Thread], page: Page) -> tuple[int, int]:
    """Where shapes begin, and how wide those are that went in."""
    calls = [row for row in rows if isinstance(row, Call)]
    paths = [len(_indent(row.depth)) + width_of(clean(row.path)) + len(_often(row)) for row in calls]
    takes = [width_of(", ".join(shape_words(row.event.inputs))) for row in calls]
    return min(suits_most(paths, slack=8), page.width // 2), min(suits_most(takes, slack=8), page.width // 4)


def _often(row: Call) -> str:
    return f" ×{count(row.times)}" if row.times > 1 else ""


def _indent(depth: int) -> str:
    return "  " * min(depth, MOST_INDENTS)
