"""Makes the rows of the listing: each file that ran, with what its lines assigned or returned, and
how often::

    12  3×   y = self.fc(x)         f32[8, 16]
    13  3×   a, b = y.chunk(2)      a, b: f32[4, 16]
    14  ✓    if debug:
    15  ·        print(y)
    16  3×   return a + b           → f32[4, 16]

A ``LineNote`` is all that is known of a line. Each of its ``notes`` is about one target: what the
line assigned to it, or returned, or computed. The *outcome* of a note is all that it got in all
runs of the line. Each note is printed as a *piece* of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from torchglass.events.selection import base_name
from torchglass.events.types import Location
from torchglass.program.by_line.notes import LineNote, LineState, Note
from torchglass.program.by_line.results import Outcome, by_path, forms_of
from torchglass.program.merge import MergedTensor
from torchglass.program.recorded import Recorded
from torchglass.views import row as kinds
from torchglass.views.backward import NO_BACKWARD, words_by_line
from torchglass.views.listing.files import FileListing, Files, Gap, files_of
from torchglass.views.options import ListingOptions
from torchglass.views.row import GIVES, Cell, Row, Sheet
from torchglass.views.text.tensors import (
    MAX_ALTERNATIVES,
    MAX_TENSORS_WITH_STATS,
    MAX_TEXT_LENGTH,
    alarms_in,
    append_stats,
    is_measured,
    merged_word,
    paths_word,
    texts_word,
)
from torchglass.views.text.words import (
    clean,
    count,
    cut,
    duration,
    known_as,
    one_line,
    path_word,
    plural,
)

BACKWARD = "backward"
"""The kind of the row below a line that shows what backward ran for it."""
STATES = {LineState.RAN: "✓", LineState.UNSEEN: "·"}
FAILED = "✗"
TAB_WIDTH = 8
"""Columns of a tab, as on terminals."""
MAX_FILES_NAMED = 8
"""How many other files the sentence below the listing names."""
MAX_FUNCTIONS_NAMED = 3
"""How many functions that did not run a gap names."""


# ---------------------------------------------------------------- legend


class _LegendEntry(NamedTuple):
    text: str
    explains: Callable[[Cell], bool]
    """Whether the entry explains something in a cell of a source line."""


def _is_count(cell: Cell) -> bool:
    return cell.kind == kinds.COUNT and cell.text[:-1].replace(",", "").isdecimal()


def _is_state(sign: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.kind in (kinds.COUNT, kinds.REMARK) and cell.text == sign


def _is_result_with(sign: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.kind == kinds.GIVES and cell.text.startswith(sign)


def _is_range(cell: Cell) -> bool:
    is_result = cell.kind in (kinds.GIVES, kinds.ERROR)
    return is_result and any(sign in cell.text for sign in ("–", "{", "|"))


LEGEND = (
    _LegendEntry("12×: how often it ran", _is_count),
    _LegendEntry("✓: ran, steps do not tell how often", _is_state("✓")),
    _LegendEntry("·: no step seen, may not have run", _is_state("·")),
    _LegendEntry("→: returned", _is_result_with("→")),
    _LegendEntry("(…): computed on the line", _is_result_with("(")),
    _LegendEntry("1–12 {1, 7} f32|bf16: differed between calls", _is_range),
)


def _legend(rows: Sequence[Row]) -> str:
    """Return the entries of the legend that explain something in the rows."""
    cells = [cell for row in rows if row.kind == kinds.LINE for cell in row.cells]
    return "; ".join(entry.text for entry in LEGEND if any(map(entry.explains, cells)))


# ---------------------------------------------------------------- rows


def sheet(trace: Recorded, options: ListingOptions) -> Sheet:
    """Return the rows of all files that are shown, and below them a sentence about other files that
    ran.
    """
    files = files_of(trace, options)
    rows = [row for each in files.shown for row in _file(each, options)]
    below: list[Cell] = []
    if is_measured(trace):
        rows = list(map(_with_alarms, rows))
    if options.backward:
        words = words_by_line(trace)
        rows = list(_with_backward(rows, words))
        if not words:
            below.append(Cell(kinds.REMARK, NO_BACKWARD))
    if not files.shown and not files.named:
        reason = "No step has a line of your program"
        if options.only is not None:
            reason = "No step is selected"
        below.append(Cell(kinds.HEADING, f"{reason}. The tree shows what was recorded."))
    if files.named:
        below.append(Cell(kinds.REMARK, _also_ran(files)))
    below.append(Cell(kinds.REMARK, _legend(rows)))
    return Sheet(rows, below)


def _with_alarms(row: Row) -> Row:
    """Mark in each cell the first text about numbers that are not finite."""
    cells: list[Cell] = []
    for cell in row.cells:
        alarms: list[tuple[int, int]] = []
        if cell.kind == kinds.GIVES:
            alarms = alarms_in(cell.text)
        if alarms:
            cells.append(cell._replace(mark=alarms[0]))
        else:
            cells.append(cell)
    row.cells = tuple(cells)
    return row


def _with_backward(rows: list[Row], words: dict[tuple[str, int], str]) -> Iterator[Row]:
    """Yield the rows, and below each line for which backward ran something a row that shows it."""
    for row in rows:
        yield row
        at = None
        if row.kind == kinds.LINE:
            at = row.place
        text = ""
        if at is not None:
            text = words.get((at.file, at.line), "")
        if text:
            yield Row(0, BACKWARD, (Cell(kinds.GIVES, text),))


def _also_ran(files: Files) -> str:
    """Return the sentence about files that ran and are not shown.

    An example is ``also ran: model.py (12 steps) and 3 files with fewer or none; path='model.py'
    lists one of them``.
    """
    with_steps = [each for each in files.named if each.steps]
    listed = with_steps[:MAX_FILES_NAMED] or files.named[:1]
    names = [f"{path_word(known_as(each.file))} ({plural(each.steps, 'step')})" for each in listed]
    more = len(files.named) - len(names)
    rest = ""
    if more:
        rest = f" and {plural(more, 'file')} with fewer or none"
    example = f"path={base_name(files.named[0].file)!r} lists one of them"
    return f"also ran: {', '.join(names)}{rest}; {example}"


# ---------------------------------------------------------------- one file


def _file(listing: FileListing, options: ListingOptions) -> Iterator[Row]:
    """Yield the rows of one file: a heading, its lines, and the lines whose text is not known."""
    name = Cell(kinds.NAME, path_word(known_as(listing.file)))
    steps = "no step of its own"
    if listing.steps:
        steps = f"{plural(listing.steps, 'step')} on {plural(listing.step_lines, 'line')}"
    yield Row(0, kinds.HEADING, (name, Cell(kinds.COUNT, steps)))
    if listing.problem:
        problem = f"{listing.problem}: only the lines with steps are known"
        yield Row(0, kinds.NOTE, (Cell(kinds.NOTE, problem),))
    shown = listing.shown
    if listing.text and not listing.text[-1] and shown and shown[-1] == len(listing.text):
        # The text ends with a line break, and no line follows it.
        shown = shown[:-1]
    for each in shown:
        if isinstance(each, Gap):
            yield Row(0, kinds.GAP, (Cell(kinds.COUNT, _gap(each)),))
        else:
            text = _printable(listing.text[each - 1])
            yield _line(listing, each, text, listing.lines.notes.get(each), options)
    if listing.lines.without_source and listing.text:
        title = "lines of code whose text is not in this file (changed, or made while it ran):"
        yield Row(0, kinds.NOTE, (Cell(kinds.NOTE, title),))
    for note in listing.lines.without_source:
        text = f"{clean(note.source) or '(text not known)'}  # in {clean(note.function)}"
        yield _line(listing, note.line, text, note, options)
    yield Row(0, kinds.BLANK)


def _printable(text: str) -> str:
    """Return a source line as it can be shown: tabs as spaces, and no terminal escapes."""
    return clean(text.rstrip().expandtabs(TAB_WIDTH))


def _line(
    listing: FileListing, line: int, text: str, note: LineNote | None, options: ListingOptions
) -> Row:
    """Return the row of a line. ``note`` is None if nothing is known of it."""
    at = Location(listing.file, line, line, 0, 0, "", text, "user")
    cells = [Cell(kinds.PLACE, str(line), at=at), *_state(note)]
    if options.times:
        time = ""
        if note is not None and note.spent_ns:
            time = duration(note.spent_ns)
        cells.append(Cell(kinds.TIME, time))
    cells.append(Cell(kinds.SOURCE, text, at=at))
    if note is not None and note.failed:
        cells.append(Cell(kinds.ERROR, f"{FAILED} {clean(note.failed)}"))
    if note is not None:
        for piece in pieces_of(note, options.by == "module"):
            kind = kinds.GIVES
            if piece.startswith(FAILED):
                kind = kinds.ERROR
            cells.append(Cell(kind, piece))
    return Row(0, kinds.LINE, tuple(cells))


def _state(note: LineNote | None) -> list[Cell]:
    """Return the cell of how often a line ran, ``3×``, or of a sign: ``✓``, ``·`` or ``✗``."""
    if note is None:
        return []
    if note.failed:
        return [Cell(kinds.NOTE, FAILED)]
    if note.runs is not None:
        text = f"{count(note.runs)}×"
    else:
        text = STATES.get(note.state, "")
    return [Cell(kinds.COUNT if note.state is LineState.RAN else kinds.REMARK, text)]


def _gap(gap: Gap) -> str:
    """Return how many lines are left out: ``12 lines: no step seen in reset, load and 2 more``."""
    text = plural(gap.lines, "line")
    if not gap.functions:
        return text
    # Methods such as ``__init__`` come last.
    ordered = sorted(gap.functions, key=lambda name: name.endswith("__"))
    names = [clean(name) for name in ordered[:MAX_FUNCTIONS_NAMED]]
    more = len(gap.functions) - len(names)
    text = f"{text}: no step seen in {', '.join(names)}"
    if more:
        return f"{text} and {more} more"
    return text


# ---------------------------------------------------------------- words

MAX_LABEL_LENGTH = 40
"""How many characters the names of targets before a result may take."""
UNKNOWN_PART = "…"
"""Stands for an element of a tuple of which the result is not known."""


def _form_word(form: Sequence[MergedTensor]) -> str:
    """Return the tensors of all results of one form, with statistics if there are any.

    Results have one form if they have tensors in the same places. An example is
    ``f32[2–8, 16] μ 0.1 σ 1 [−3, 3]``.
    """
    shapes = _shapes_word(form)
    tensors = [(tensor.stats, tensor.dtypes[0]) for tensor in form]
    if any(stats for stats, _ in tensors):
        return append_stats(Cell(GIVES, shapes), tensors).text
    return shapes


def _shapes_word(form: Sequence[MergedTensor]) -> str:
    """Return the shapes of a form: ``f32[8, 4], 2 of f32[3]``. Equal ones stay apart if each has statistics."""
    if len(form) == 1 and form[0].role in ("", "[0]"):
        return merged_word(form[0])
    has_statistics = len(form) <= MAX_TENSORS_WITH_STATS and any(tensor.stats for tensor in form)
    equal: list[list[str]] = []
    for tensor in form:
        word = _role_word(tensor.role) + merged_word(tensor)
        if equal and equal[-1][0] == word and not has_statistics:
            equal[-1].append(word)
        else:
            equal.append([word])
    parts: list[str] = []
    for words in equal[:MAX_ALTERNATIVES]:
        if len(words) == 1:
            parts.append(words[0])
        else:
            parts.append(f"{len(words)} of {words[0]}")
    rest = sum(map(len, equal[MAX_ALTERNATIVES:]))
    if rest:
        parts.append(f"+{rest} more")
    return ", ".join(parts)


def _role_word(role: str) -> str:
    """Return ``logits`` and a space for ``.logits``; "" for ``[0]``, an element of a tuple."""
    if role[:1] == "[" and role[1:-1].isdecimal():
        return ""
    name = one_line(role.removeprefix("."))
    return f"{cut(name, MAX_TEXT_LENGTH)} "


def _outcome_word(outcome: Outcome) -> str:
    """Return the results of all runs, such as ``f32[8, 4] | (f32[3], …) | 1 … 12``.

    There is one word for each form, one for a tuple that is written out, and one for results
    without tensors. Return "" if there is nothing to show.
    """
    words = [_form_word(form) for form in forms_of(outcome)]
    if outcome.parts is not None:
        parts: list[str] = []
        for part in outcome.parts:
            if part is None:
                parts.append(UNKNOWN_PART)
            else:
                parts.append(_outcome_word(part))
        words.append(f"({', '.join(parts)})")
    texts = dict.fromkeys(result.text for result, _ in outcome.counts if not result.tensors)
    other_results = [text for text in texts if text not in ("", "None")]
    if other_results:
        words.append(texts_word(other_results))
    if len(words) > MAX_ALTERNATIVES:
        words = [*words[: MAX_ALTERNATIVES - 1], f"+{len(words) - MAX_ALTERNATIVES + 1} more"]
    return " | ".join(words)


# ---------------------------------------------------------------- lines


def pieces_of(line: LineNote, by_module: bool, for_comment: bool = False) -> list[str]:
    """Return the results and errors of a line, in pieces that should not be broken.

    ``by_module`` shows the results apart for each module that was running. A comment stands alone,
    so ``for_comment`` adds the name of a target even if it is the only one, and makes one piece of
    a tuple.
    """
    pieces: list[str] = []
    returned = [note for note in line.notes if note.kind == "returned"]
    others = [note for note in line.notes if note.kind != "returned"]
    if len(returned) > 1 and any(note.outcome for note in returned) and not by_module:
        outcomes = [note.outcome for note in returned]
        pieces += _returned_tuple(outcomes, for_comment)
        pieces[-1] += _times_word(max(outcome.times for outcome in outcomes), line.runs)
    else:
        pieces += _pieces(returned, line.runs, by_module, is_named=False)
    is_named = for_comment or len(others) != 1
    pieces += _pieces(others, line.runs, by_module, is_named)
    for error, times in line.errors.items():
        if error == line.failed:
            continue
        piece = f"{FAILED} {clean(error)}"
        if times > 1:
            piece += f" ×{count(times)}"
        pieces.append(piece)
    return pieces


def _returned_tuple(returned: Sequence[Outcome], is_one_piece: bool) -> list[str]:
    """Return a tuple that was returned: ``→ (f32[3], f32[])``.

    With statistics it is long, so each element is a piece unless ``is_one_piece``.
    """
    words = [_outcome_word(each) or UNKNOWN_PART for each in returned]
    tensors = [tensor for each in returned for form in forms_of(each) for tensor in form]
    if is_one_piece or not any(tensor.stats for tensor in tensors):
        return [f"→ ({', '.join(words)})"]
    first, *middle, last = words
    return [f"→ ({first},", *(f"{word}," for word in middle), f"{last})"]


def _pieces(
    notes: Sequence[Note], line_runs: int | None, by_module: bool, is_named: bool
) -> list[str]:
    """Return a piece for each target. Consecutive targets with the same result share one."""
    targets: list[_Targets] = []
    for note in notes:
        for word in _note_words(note, line_runs, by_module):
            if targets and targets[-1].word == word and targets[-1].kind == note.kind:
                targets[-1].labels.append(note.label)
            else:
                targets.append(_Targets([note.label], word, note.kind))
    return [_piece(each, is_named) for each in targets]


def _note_words(note: Note, line_runs: int | None, by_module: bool) -> list[str]:
    """Return the results of a target: one word, or with ``by_module`` one for each group of modules."""
    if by_module and note.outcome.counts:
        words = _words_by_module(note)
        if words:
            return words
    word = _outcome_word(note.outcome)
    if not word:
        return []
    if note.is_one_per_run:
        word += _times_word(note.outcome.times, line_runs)
    return [word]


class _Targets(NamedTuple):
    """Targets of a line that were assigned the same result."""

    labels: list[str]
    word: str
    kind: str


def _piece(targets: _Targets, is_named: bool) -> str:
    """Return what targets got: ``→ f32[]`` for a return, ``(f32[])`` for what was only computed,
    ``f32[]`` or ``a, b: f32[]`` for an assignment.
    """
    if targets.kind == "returned":
        return f"→ {targets.word}"
    if targets.kind == "computed":
        return f"({targets.word})"
    if targets.kind == "assigned" and not is_named:
        return targets.word
    names = list(dict.fromkeys(one_line(label) for label in targets.labels))
    return f"{cut(', '.join(names), MAX_LABEL_LENGTH)}: {targets.word}"


def _times_word(times: int, line_runs: int | None) -> str:
    """Return how often there was a result, `` ×3``, or "" if that is how often the line ran."""
    if times == line_runs or (line_runs is None and times == 1):
        return ""
    return f" ×{count(times)}"


def _words_by_module(note: Note) -> list[str]:
    """Return the results of a target, one word for each group of modules that were running: ``f32[8]
    ×2 in blocks.0–1``.
    """
    words: list[str] = []
    groups = by_path(note.outcome)
    for paths, outcome in groups:
        word = _outcome_word(outcome)
        if not word:
            continue
        if len(groups) > 1:
            word += f" ×{count(outcome.times)}"
        words.append(f"{word} in {paths_word(paths)}")
    return words
