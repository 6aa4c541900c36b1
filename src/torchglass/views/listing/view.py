"""The listing: each file that ran, with what its lines assigned or returned, how often, and what differed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.events.selection import base_name
from torchglass.events.types import Location
from torchglass.views import row as kinds
from torchglass.views.backward import NOTHING, words_by_line
from torchglass.views.digest import Recorded
from torchglass.views.listing.files import FileListing, Files, files_of
from torchglass.views.listing.lines import RAN, UNSEEN, Gap, LineNote, Note
from torchglass.views.listing.results import Outcome, by_path, forms_of
from torchglass.views.options import ListingOptions
from torchglass.views.row import GIVES, Cell, Row, Sheet
from torchglass.views.text.tensors import (
    LONGEST_TEXT,
    MOST,
    MOST_WORDS,
    Spread,
    alarms_in,
    behind,
    is_measured,
    paths_word,
    spread_word,
    texts_word,
)
from torchglass.views.text.words import clean, count, cut, duration, known_as, one_line, path_word, plural

BACKWARD = "backward"
"""The kind of a row below a line: what backward ran for it."""
STATES = {RAN: "✓", UNSEEN: "·"}
FAILED = "✗"
TAB = 8
MOST_NAMED = 8
MOST_FUNCTIONS = 3
LEGEND = (
    ("count", "12×: how often it ran"),
    ("✓", "✓: ran, steps do not tell how often"),
    ("·", "·: no step seen, may not have run"),
    ("→", "→: returned"),
    ("(", "(…): computed on the line"),
    ("–", "1–12 {1, 7} f32|bf16: differed between calls"),
)


def sheet(trace: Recorded, options: ListingOptions) -> Sheet:
    """The rows of all files that are shown, and which others ran."""
    files = files_of(trace, options)
    rows = [row for each in files.shown for row in _file(each, options)]
    below: list[Cell] = []
    if is_measured(trace):
        rows = list(map(_with_alarms, rows))
    if options.backward:
        words = words_by_line(trace)
        rows = list(_with_backward(rows, words))
        below += [] if words else [Cell(kinds.REMARK, NOTHING)]
    if not files.shown and not files.named:
        what = "No step is selected" if options.only is not None else "No step has a line of your program"
        below.append(Cell(kinds.HEADING, f"{what}. The tree shows what was recorded."))
    if files.named:
        below.append(Cell(kinds.REMARK, _also_ran(files)))
    used = set[str]().union(*map(_signs, rows))
    below.append(Cell(kinds.REMARK, "; ".join(text for sign, text in LEGEND if sign in used)))
    return Sheet(rows, below)


def _with_alarms(row: Row) -> Row:
    """A row whose cells know where they first say what is not finite."""
    alarms = [alarms_in(cell.text)[:1] if cell.kind == kinds.GIVES else [] for cell in row.cells]
    pairs = zip(row.cells, alarms, strict=True)
    row.cells = tuple(cell._replace(mark=found[0]) if found else cell for cell, found in pairs)
    return row


def _with_backward(rows: list[Row], words: dict[tuple[str, int], str]) -> Iterator[Row]:
    """Below each line what backward ran for it."""
    for row in rows:
        yield row
        at = row.place if row.kind == kinds.LINE else None
        text = "" if at is None else words.get((at.file, at.line), "")
        if text:
            yield Row(0, BACKWARD, (Cell(kinds.GIVES, text),))


def _also_ran(files: Files) -> str:
    stepping = [each for each in files.named if each.steps][:MOST_NAMED] or files.named[:1]
    names = [f"{path_word(known_as(each.file))} ({plural(each.steps, 'step')})" for each in stepping]
    more = len(files.named) - len(names)
    rest = f" and {plural(more, 'file')} with fewer or none" if more else ""
    return f"also ran: {', '.join(names)}{rest}; path={base_name(files.named[0].file)!r} lists one of them"


# ---------------------------------------------------------------- one file


def _file(listing: FileListing, options: ListingOptions) -> Iterator[Row]:
    steps = f"{plural(listing.steps, 'step')} on {plural(listing.step_lines, 'line')}"
    name = Cell(kinds.NAME, path_word(known_as(listing.file)))
    yield Row(0, kinds.HEADING, (name, Cell(kinds.COUNT, steps if listing.steps else "no step of its own")))
    if listing.problem:
        yield Row(0, kinds.NOTE, (Cell(kinds.NOTE, f"{listing.problem}: only the lines with steps are known"),))
    shown = listing.lines.shown
    if listing.text and not listing.text[-1] and shown and shown[-1] == len(listing.text):
        shown = shown[:-1]  # the end of the last line is no line
    for each in shown:
        if isinstance(each, Gap):
            yield Row(0, kinds.GAP, (Cell(kinds.COUNT, _gap(each)),))
        else:
            yield _line(listing, each, _plain(listing.text[each - 1]), listing.lines.notes.get(each), options)
    if listing.lines.loose and listing.text:
        what = "lines of code whose text is not in this file (changed, or made while it ran):"
        yield Row(0, kinds.NOTE, (Cell(kinds.NOTE, what),))
    for note in listing.lines.loose:
        text = f"{clean(note.source) or '(text not known)'}  # in {clean(note.function)}"
        yield _line(listing, note.line, text, note, options)
    yield Row(0, kinds.BLANK)


def _plain(text: str) -> str:
    """A source line as it can be shown: tabs as spaces, nothing that a terminal obeys."""
    return clean(text.rstrip().expandtabs(TAB))


def _line(listing: FileListing, line: int, text: str, note: LineNote | None, options: ListingOptions) -> Row:
    at = Location(listing.file, line, line, 0, 0, "", text, "user")
    cells = [Cell(kinds.PLACE, str(line), at=at), *_state(note)]
    if options.times:
        cells.append(Cell(kinds.TIME, duration(note.spent_ns) if note is not None and note.spent_ns else ""))
    cells.append(Cell(kinds.SOURCE, text, at=at))
    if note is not None:
        pieces = pieces_of(note, options.by == "module", names=False)
        failed = [Cell(kinds.ERROR, f"{FAILED} {clean(note.failed)}")] if note.failed else []
        cells += [*failed, *(Cell(kinds.ERROR if piece[0] == FAILED else kinds.GIVES, piece) for piece in pieces)]
    return Row(0, kinds.LINE, tuple(cells))


def _state(note: LineNote | None) -> list[Cell]:
    """How often the line ran, or what is known instead."""
    if note is None:
        return []
    if note.failed:
        return [Cell(kinds.NOTE, FAILED)]
    text = f"{count(note.runs)}×" if note.runs is not None else STATES.get(note.state, "")
    return [Cell(kinds.COUNT if note.state == RAN else kinds.REMARK, text)]


def _gap(gap: Gap) -> str:
    text = plural(gap.lines, "line")
    if not gap.functions:
        return text
    ordered = sorted(gap.functions, key=lambda name: name.endswith("__"))
    names = [clean(name) for name in ordered[:MOST_FUNCTIONS]]
    more = len(gap.functions) - len(names)
    return f"{text}: no step seen in {', '.join(names)}" + (f" and {more} more" if more else "")


def _signs(row: Row) -> set[str]:
    """Which signs of a row the legend has to explain."""
    signs: set[str] = set()
    for cell in row.cells if row.kind == kinds.LINE else ():
        if cell.kind in (kinds.COUNT, kinds.REMARK) and cell.text:
            signs.add("count" if cell.text[:-1].replace(",", "").isdecimal() else cell.text)
        elif cell.kind in (kinds.GIVES, kinds.ERROR):
            signs.update(cell.text[:1])
            if any(sign in cell.text for sign in ("–", "{", "|")):
                signs.add("–")
    return signs


# ---------------------------------------------------------------- words

# Shapes over several calls, what a line gave, which modules it ran in.

LONGEST_LABEL = 40
UNKNOWN = "…"


def _form_word(form: Sequence[Spread]) -> str:
    """The tensors of one form of result, with what was in them where that is known."""
    shapes = _shapes_word(form)
    tensors = [(spread.stats, spread.dtypes[0]) for spread in form]
    return behind(Cell(GIVES, shapes), tensors).text if any(stats for stats, _ in tensors) else shapes


def _shapes_word(form: Sequence[Spread]) -> str:
    """Several equal ones in a row as ``4 of f32[3]``; each by itself where something is said of each."""
    if len(form) == 1 and form[0].role in ("", "[0]"):
        return spread_word(form[0])
    apart = len(form) <= MOST_WORDS and any(spread.stats for spread in form)
    words: list[list[str]] = []
    for spread in form:
        word = _role_word(spread.role) + spread_word(spread)
        if words and words[-1][0] == word and not apart:
            words[-1].append(word)
        else:
            words.append([word])
    told = [each[0] if len(each) == 1 else f"{len(each)} of {each[0]}" for each in words]
    rest = sum(map(len, words[MOST:]))
    return ", ".join([*told[:MOST], *([f"+{rest} more"] if rest else [])])


def _role_word(role: str) -> str:
    """``logits `` of ``.logits``; a number in a tuple says nothing."""
    plain = one_line(role.removeprefix("."))
    return "" if role[:1] == "[" and role[1:-1].isdecimal() else f"{cut(plain, LONGEST_TEXT)} "


def _outcome_word(outcome: Outcome) -> str:
    """All that came, over all calls; ``""`` when nothing is to be said."""
    words = [_form_word(form) for form in forms_of(outcome)]
    if outcome.parts is not None:
        words.append("(" + ", ".join(UNKNOWN if part is None else _outcome_word(part) for part in outcome.parts) + ")")
    texts = dict.fromkeys(result.text for result, _ in outcome.counted if not result.items)
    if told := [text for text in texts if text not in ("", "None")]:
        words.append(texts_word(told))
    return " | ".join(words if len(words) <= MOST else [*words[: MOST - 1], f"+{len(words) - MOST + 1} more"])


# ---------------------------------------------------------------- lines


def pieces_of(note: LineNote, by_module: bool, names: bool) -> list[str]:
    """What is said of a line, in pieces that should not be torn; ``names``: also that of a single target."""
    pieces: list[str] = []
    returned = [each for each in note.notes if each.kind == "returned"]
    if len(returned) > 1 and any(each.outcome for each in returned) and not by_module:
        pieces += _in_a_tuple([each.outcome for each in returned], names)
        pieces[-1] += _often(max(each.outcome.times for each in returned), note.runs)
    else:
        pieces += _each(returned, note, by_module, names)
    pieces += _each([each for each in note.notes if each.kind != "returned"], note, by_module, names)
    for error, times in note.errors.items():
        if error != note.failed:
            pieces.append(f"✗ {clean(error)}" + (f" ×{count(times)}" if times > 1 else ""))
    return pieces


def _in_a_tuple(returned: Sequence[Outcome], whole: bool) -> list[str]:
    """What was returned together; with what was in each it may need more than a line, unless ``whole``."""
    words = [_outcome_word(each) or UNKNOWN for each in returned]
    if whole or not any(spread.stats for each in returned for form in forms_of(each) for spread in form):
        return [f"→ ({', '.join(words)})"]
    return [f"→ ({words[0]},", *(f"{word}," for word in words[1:-1]), f"{words[-1]})"]


def _each(notes: Sequence[Note], line: LineNote, by_module: bool, names: bool) -> list[str]:
    """A piece for each target; targets that got the same share one."""
    alone = not names and len([each for each in line.notes if each.kind != "returned"]) == 1
    told: list[tuple[list[str], str, Note]] = []
    for note in notes:
        words = _by_module(note) if by_module and note.outcome.counted else []
        word = _outcome_word(note.outcome)
        often = _often(note.outcome.times, line.runs) if note.counts else ""
        for each in words or ([word + often] if word else []):
            if told and told[-1][1] == each and told[-1][2].kind == note.kind:
                told[-1][0].append(note.label)
            else:
                told.append(([note.label], each, note))
    return [_piece(labels, word, note.kind, alone) for labels, word, note in told]


def _piece(labels: list[str], word: str, kind: str, alone: bool) -> str:
    if kind == "returned":
        return f"→ {word}"
    if kind == "computed":
        return f"({word})"
    if alone and kind == "assigned":
        return word
    names = list(dict.fromkeys(one_line(label) for label in labels))
    return f"{cut(', '.join(names), LONGEST_LABEL)}: {word}"


def _often(times: int, runs: int | None) -> str:
    """How often, where that is not how often the line ran."""
    return "" if times == runs or (runs is None and times == 1) else f" ×{count(times)}"


def _by_module(note: Note) -> list[str]:
    told: list[str] = []
    groups = by_path(note.outcome)
    for paths, outcome in groups:
        word = _outcome_word(outcome)
        if word:
            often = f" ×{count(outcome.times)}" if len(groups) > 1 else ""
            told.append(f"{word}{often} in {paths_word(paths)}")
    return told
