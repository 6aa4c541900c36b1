"""The code view as text: source lines, one level deeper what they call, and under the innermost the steps."""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.events.types import Event
from torchglass.views.code.view import CodeOptions, CodeRow, CodeView, code_view
from torchglass.views.live.code_lines import DOWN, CodeLines, LineOptions, op_name, op_words
from torchglass.views.recorded import Recorded
from torchglass.views.text.around import how_it_ended, notes_of, nothing_recorded, wrapped
from torchglass.views.text.cells import shape_words
from torchglass.views.text.layout import guides
from torchglass.views.text.source import Placed, SourceLines, Sources, assigned_word
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, duration, one_line, plural, width_of

__all__ = ["CodeLines", "LineOptions", "Options", "render"]

Options = CodeOptions
TIME_WIDTH = 10
WORDS = {"line": "line", "call": "module", "step": "step"}
SHORTEST_ARGS = 12


def render(trace: Recorded, options: CodeOptions, page: Page) -> Iterator[str]:
    """The lines of the view; a trace that an exception left begins with how it ended."""
    yield from how_it_ended(trace, page)
    if not len(trace):
        yield from nothing_recorded(trace, page)
        return
    view = code_view(trace, options)
    sources = trace.sources if isinstance(trace, Sources) else {}
    writer = _Writer(SourceLines(sources), options, page)
    for row in view.rows:
        yield from writer.lines(row)
    yield from _footer(trace, view, options, page)


class _Writer:
    """Writes rows, and remembers which places and notes were told."""

    def __init__(self, sources: SourceLines, options: CodeOptions, page: Page) -> None:
        self._sources, self._options, self._page = sources, options, page
        self._width = page.width - (TIME_WIDTH if options.times else 0)
        self._functions: list[tuple[str, str]] = []
        """File and function of the line last shown at each depth."""
        self._told: set[str] = set()
        self._steps: dict[tuple[object, ...], tuple[str, Event]] = {}

    def lines(self, row: CodeRow) -> Iterator[str]:
        """The line of a row, and a note that its step may have."""
        if row.kind == "thread":
            self._functions.clear()
            title = f"── thread {cut(clean(row.text), self._page.width - 14)} "
            yield self._page.paint("heading", title + "─" * max(self._page.width - width_of(title), 2))
            return
        before = guides(row.depth, self._width)
        bars = self._time(row) + self._page.paint("guide", before)
        room = self._width - width_of(before)
        if row.kind == "line":
            yield bars + self._line(row, room)
        elif row.kind == "step":
            yield bars + self._step(row, room)
            yield from self._note(row)
        else:
            del self._functions[row.depth :]
            yield bars + self._heading(row, room)

    def _time(self, row: CodeRow) -> str:
        if not self._options.times:
            return ""
        told = "" if row.kind in ("down", "repeat") else duration(row.spent_ns)
        return self._page.paint("time", f"{told:>{TIME_WIDTH - 1}}") + " "

    def _often(self, row: CodeRow) -> str:
        return f" × {count(row.times)}" if row.times > 1 else ""

    # ------------------------------------------------------------ lines of source

    def _line(self, row: CodeRow, room: int) -> str:
        assert row.where is not None
        page, at = self._page, row.where
        del self._functions[row.depth + 1 :]
        while len(self._functions) <= row.depth:
            self._functions.append(("", ""))
        known = self._functions[row.depth] == (at.file, at.function)
        self._functions[row.depth] = (at.file, at.function)
        often = f" × {count(row.levels)} deep" if row.levels > 1 else self._often(row)
        inside = f"  {plural(row.deeper, 'step')} inside" if row.deeper else ""
        placed = Placed(self._sources.parts(at), at, known, assigned_word(row.assigned))
        if width_of(often) + len(inside) > room // 2:
            inside = ""
        source, place, assigned = placed.fit(room - width_of(often) - len(inside))
        text = source.painted(page) + page.paint("fold", often) + "  " + page.paint("place", place)
        return text + page.paint("output", assigned) + page.paint("dim", inside)

    def _heading(self, row: CodeRow, room: int) -> str:
        page, often = self._page, self._often(row)
        if row.kind == "repeat":
            rest = f", {plural(row.rows, WORDS[row.of])} each:"
            return page.paint("fold", cut(f"{clean(row.text)}{often}".strip(), room - len(rest))) + page.paint(
                "dim", rest
            )
        name = cut(clean(row.text), room - 4 - width_of(often))
        return page.paint("dim", DOWN) + (f" {page.paint('name', name)}" if name else "") + page.paint("fold", often)

    # ------------------------------------------------------------ steps

    def _step(self, row: CodeRow, room: int) -> str:
        assert row.event is not None
        event = row.event
        key = (id(event), row.args, row.result, row.text, row.times, row.inside, room)
        found = self._steps.get(key)
        if found is None:
            # The event is kept with its line, so that its id stays its own.
            found = self._steps[key] = (self._make_step(event, row, room), event)
        return found[0]

    def _make_step(self, event: Event, row: CodeRow, room: int) -> str:
        page, often = self._page, self._often(row)
        module = cut(f"  {clean(row.text)}", room // 3) if row.text else ""
        if event.kind == "mark":
            value = cut(", ".join(shape_words(event.inputs or event.outputs)), room // 2)
            name = cut(f"▸ {clean(event.name)}", room - width_of(often) - width_of(value) - 2)
            return page.paint("name", name) + page.paint("output", f"  {value}".rstrip()) + page.paint("fold", often)
        space = room - width_of(module) - width_of(often)
        if event.error is not None:
            text, error = step_text(row, space * 2 // 3), clean(event.error)
            return page.paint("dim", text) + page.paint("error", cut(f" ✗ {error}", space - width_of(text)))
        text = step_text(row, space)
        return page.paint("dim", text) + page.paint("class", module) + page.paint("fold", often)

    def _note(self, row: CodeRow) -> Iterator[str]:
        note = row.event.note if row.event is not None else None
        if not note:
            return
        before = guides(row.depth + 1, self._width)
        text = "note: as above" if note in self._told else f"note: {note}"
        self._told.add(note)
        blank = " " * TIME_WIDTH if self._options.times else ""
        for line in wrapped(text, blank + before, self._page):
            yield blank + self._page.paint("guide", before) + self._page.paint("note", line)


def step_text(row: CodeRow, room: int) -> str:
    """``# addmm(f32[96], f32[14, 32], f32[32, 96]) -> f32[14, 96];``: where it is too long, first arguments go."""
    event = row.event
    assert event is not None
    name = op_name(clean(event.name))
    if event.kind == "step":
        return cut(f"# {name}.step;  {plural(row.inside, 'op')} inside (inner=True)", room)
    args, result = one_line(row.args), one_line(row.result)
    if event.kind == "op":
        args, result = op_words(row.args, row.result)
    end = ""
    if event.error is None:
        unseen = "  not seen inside" if event.kind == "unseen" else ""
        end = f" -> {result};{unseen}" if result else f";{unseen}"
    fixed = width_of(name) + 4
    if fixed + width_of(args) + width_of(end) > room:
        end = cut(end, max(room - fixed - min(width_of(args), SHORTEST_ARGS), 6))
        args = cut(args, max(room - fixed - width_of(end), 1))
    return cut(f"# {name}({args}){end}", room)


def _footer(trace: Recorded, view: CodeView, options: CodeOptions, page: Page) -> Iterator[str]:
    """How many steps there were, and why some have no line."""
    if not view.steps:
        yield from _no_steps(view, options, page)
        yield from notes_of(trace, page)
        return
    rows = [row for row in view.rows if row.kind == "step"]
    word = next(iter(view.kinds)) if len(view.kinds) == 1 and view.kinds <= {"function", "op"} else "step"
    deeper = sum(row.deeper for row in view.rows)
    told = [plural(view.steps, word)]
    if options.times:
        told[0] += f" in {duration(sum(row.spent_ns for row in rows))} of {duration(trace.duration_ns)}"
    if view.steps - deeper > len(rows):
        told.append(f"{count(view.steps - deeper - len(rows))} folded")
    if deeper:
        told.append(f"{count(deeper)} deeper than depth={options.depth}")
    if view.left_out:
        told.append(f"{count(view.left_out)} not selected")
    if view.outer:
        told.append(f"{plural(view.outer, 'line')} of what ran the program (frames='all')")
    if word == "function" and options.steps == "auto":
        told.append("record(ops=True) shows the aten ops in them")
    for line in wrapped(" · ".join(told), "", page):
        yield page.paint("dim", line)
    yield from notes_of(trace, page)


def _no_steps(view: CodeView, options: CodeOptions, page: Page) -> Iterator[str]:
    if view.left_out:
        text = f"No step is selected: the trace has {count(view.left_out)}, and none that fits."
    elif options.steps == "ops":
        text = "No op was recorded: record(ops=True) records them; steps='functions' shows the functions."
    else:
        text = "Nothing that is recorded is a step of this view; the tree shows all that was recorded."
    yield from wrapped(text, "", page)
