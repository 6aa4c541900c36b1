"""A copy of a file with shapes as trailing comments: Python that does the same; the file itself is not touched."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from torchglass.views.digest import Recorded
from torchglass.views.listing import Options
from torchglass.views.listing.files import FileListing, files_of
from torchglass.views.listing.lines import LineNote
from torchglass.views.listing.words import pieces_of
from torchglass.views.text.words import clean, count, known_as, path_word, plural

LEGEND = (
    "x: f32[2, 3] ×12: what x got, and how often; →: returned; (…): computed on the line; "
    "1–12 {1, 7} f32|bf16: differed between calls"
)
NOT_EXACT = "characters that a terminal obeys are spelt out: this copy may differ from the file in them"
MOST_NAMED = 8
_SPACE = re.compile(r"([\t\f])")


def copy(trace: Recorded, options: Options) -> Iterator[str]:
    """The lines of one file, each with what it gave; what else is to be said stands in comments below."""
    files = files_of(trace, options)
    remarks: list[str] = []
    if not files.shown:
        what = "no step is selected" if options.only is not None and len(trace) else "no file of the program was seen"
        remarks.append(what)
    for listing in files.shown[:1]:
        lines, failed = _copied(listing, options)
        yield from lines
        remarks += failed
    others = [*files.shown[1:], *files.named]
    if others:
        names = ", ".join(path_word(known_as(each.file)) for each in others[:MOST_NAMED])
        more = len(others) - MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        remarks.append(f"also ran: {names}{rest}; path= chooses the file")
    for remark in (*remarks, *trace.notes):
        yield f"# torchglass: {clean(' '.join(remark.split()))}"


def _copied(listing: FileListing, options: Options) -> tuple[list[str], list[str]]:
    """The copy and what is to be said of it."""
    if not listing.text:
        return [], [f"{path_word(known_as(listing.file))}: {listing.problem}"]
    text = "\n".join(listing.text)
    free = free_lines(text)
    lines = list(map(_safe, listing.text))
    told = left_out = 0
    for line, note in sorted(listing.lines.notes.items()):
        comment = _comment(note, options)
        place = _place(listing, line, free)
        if comment and place:
            lines[place - 1] = f"{lines[place - 1].rstrip()}  # {comment}"
            told += 1
        left_out += bool(comment and not place)
    remarks = [LEGEND] if told else []
    if left_out:
        remarks.append(f"{plural(left_out, 'line')} had no place for a comment")
    if listing.lines.loose:
        remarks.append(f"{plural(len(listing.lines.loose), 'line')} with steps are not in this text")
    if not _is_same(text, "\n".join(lines)):
        remarks.append(NOT_EXACT)
    return lines[:-1] if not lines[-1] else lines, remarks


def _comment(note: LineNote, options: Options) -> str:
    pieces = pieces_of(note, options.by == "module", names=True)
    if note.failed:
        pieces.insert(0, f"✗ {clean(note.failed)}")
    told = ", ".join(pieces)
    return f"{told} ×{count(note.runs)}" if told and note.runs is not None and note.runs > 1 else told


def _place(listing: FileListing, line: int, free: set[int]) -> int:
    """The first line of a statement, or the next of its lines that can end in a comment; 0: none can."""
    last = len(listing.text)
    at = line
    while at <= last and (at == line or listing.lines.first_line.get(at) == line):
        if at in free:
            return at
        at += 1
    return 0


def free_lines(text: str) -> set[int]:
    """Lines that can end in a comment: not inside a string, not before a backslash's continuation."""
    free: set[int] = set()
    strings = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
            name = tokenize.tok_name[token.type]
            strings += (name == "FSTRING_START") - (name == "FSTRING_END")
            if name in ("NEWLINE", "NL") and not strings:
                free.add(token.start[0])
    except (tokenize.TokenError, SyntaxError, UnicodeEncodeError):
        return set()
    return free


def _safe(line: str) -> str:
    """A line of source without what a terminal obeys; tabs and form feeds are Python's own space and stay."""
    return (
        line if line.isprintable() else "".join(each if each in "\t\f" else clean(each) for each in _SPACE.split(line))
    )


def _is_same(text: str, copy: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(copy))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
