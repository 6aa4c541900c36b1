"""The words of the listing: shapes over several calls, what a line gave, which modules it ran in."""

from __future__ import annotations

from collections.abc import Sequence

from torchglass.views.listing.lines import LineNote, Note
from torchglass.views.listing.results import Summary, by_path, summary_of
from torchglass.views.row import GIVES, Cell
from torchglass.views.text.ranges import LONGEST_TEXT, MOST, Spread, paths_word, spread_word, texts_word
from torchglass.views.text.statistics import MOST_WORDS, behind
from torchglass.views.text.words import clean, count, cut, one_line

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


def summary_word(summary: Summary) -> str:
    """All that came, over all calls; ``""`` when nothing is to be said."""
    words = [_form_word(form) for form in summary.forms]
    if summary.parts is not None:
        words.append("(" + ", ".join(UNKNOWN if part is None else summary_word(part) for part in summary.parts) + ")")
    if summary.texts:
        words.append(texts_word(summary.texts))
    return " | ".join(words if len(words) <= MOST else [*words[: MOST - 1], f"+{len(words) - MOST + 1} more"])


# ---------------------------------------------------------------- lines


def pieces_of(note: LineNote, by_module: bool, names: bool) -> list[str]:
    """What is said of a line, in pieces that should not be torn; ``names``: also that of a single target."""
    pieces: list[str] = []
    returned = [each for each in note.notes if each.kind == "returned"]
    if len(returned) > 1 and any(each.outcome for each in returned) and not by_module:
        pieces += _in_a_tuple([summary_of(each.outcome) for each in returned], names)
        pieces[-1] += _often(max(each.outcome.times for each in returned), note.runs)
    else:
        pieces += _each(returned, note, by_module, names)
    pieces += _each([each for each in note.notes if each.kind != "returned"], note, by_module, names)
    for error, times in note.errors.items():
        if error != note.failed:
            pieces.append(f"✗ {clean(error)}" + (f" ×{count(times)}" if times > 1 else ""))
    return pieces


def _in_a_tuple(returned: Sequence[Summary], whole: bool) -> list[str]:
    """What was returned together; with what was in each it may need more than a line, unless ``whole``."""
    words = [summary_word(each) or UNKNOWN for each in returned]
    is_measured = any(spread.stats for each in returned for form in each.forms for spread in form)
    if whole or not is_measured:
        return [f"→ ({', '.join(words)})"]
    return [f"→ ({words[0]},", *(f"{word}," for word in words[1:-1]), f"{words[-1]})"]


def _each(notes: Sequence[Note], line: LineNote, by_module: bool, names: bool) -> list[str]:
    """A piece for each target; targets that got the same share one."""
    alone = not names and len([each for each in line.notes if each.kind != "returned"]) == 1
    told: list[tuple[list[str], str, Note]] = []
    for note in notes:
        words = _by_module(note) if by_module and note.outcome.counted else []
        word = summary_word(summary_of(note.outcome))
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
        word = summary_word(summary_of(outcome))
        if word:
            often = f" ×{count(outcome.times)}" if len(groups) > 1 else ""
            told.append(f"{word}{often} in {paths_word(paths)}")
    return told
