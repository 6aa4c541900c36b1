"""Makes the data of a diff for the page: run A, the code of run B next to it, and the error of
every value of A.
"""

# The text of a diff is the same as the terminal prints.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from torchglass.answers.diff.result import (
    MOST_INPUTS,
    STRUCTURE,
    AlignedValue,
    Diff,
    DifferingRegion,
    RunPlace,
    _agreeing,
    _named,
    _output_name,
    _output_words,
    _summary,
    diff_lines,
    place_words,
    suspect_lines,
)
from torchglass.answers.diff.structure import SAME, OutlineChange
from torchglass.program.recorded import Recorded
from torchglass.views.graph.flow import flow_of
from torchglass.views.page.columns import Texts
from torchglass.views.page.rounding import rounded
from torchglass.views.page.sources import sources_of
from torchglass.views.page.verdict import Files, place_data
from torchglass.views.text.words import clean, plural

MOST_REGIONS = 20
MOST_STRUCTURE = 200
"""How many rows of a diff without numbers the page has."""


def diff_data(diff: Diff, b: Recorded, files_a: Files, places: Mapping[int, int]) -> dict[str, Any]:
    """Return the card of a diff, B's files, and the values of A next to those of B."""
    texts = Texts()
    files = sources_of(flow_of(b).outline, texts)
    files_b: Files = {texts.all[file["path"]]: at for at, file in enumerate(files)}
    heading = next(iter(diff_lines(diff)), "")
    return {
        "verdict": diff.verdict,
        "text": clean(heading),
        "event": _first_event(diff),
        "sections": list(_sections(diff, b, files_a, files_b)),
        "summary": clean(_summary(diff)) if diff.regions else "",
        "notes": [clean(note) for note in diff.notes],
        "first": [] if diff.first is None else list(diff.first.events_a),
        "rows": [_row(row, b, files_b, places) for row in diff.rows if row.value_a in places],
        "name": clean(b.name) or "B",
        "files": files,
        "text_of_files": texts.all,
    }


def _first_event(diff: Diff) -> int:
    """Return A's event at which the runs first differ, or -1 if it has none.

    For runs without numbers it is the innermost event of the first change.
    """
    for region in diff.regions:
        for place in region.a:
            return place.event
    if diff.verdict != STRUCTURE:
        return -1
    first = -1
    depth = -1
    for row in diff.structure.rows:
        is_inner = row.sign != SAME and row.event_a is not None and row.depth > depth
        if not is_inner:
            if first >= 0:
                break
            continue
        first = _number(row.event_a)
        depth = row.depth
    return first


def _row(row: AlignedValue, b: Recorded, files_b: Files, places: Mapping[int, int]) -> list[Any]:
    """Return a value's place, the event that made it, its error, the tolerance, and where B made
    it.
    """
    error = None
    if isfinite(row.error):
        error = rounded(row.error, 3)
    at = None
    if row.event_b is not None:
        at = b.event(row.event_b).location
    if at is None:
        file, line = (-1, 0)
    else:
        file = files_b.get(at.file, -1)
        line = at.line
    event = -1
    if row.event_a is not None:
        event = row.event_a
    return [
        places[row.value_a],
        event,
        error,
        rounded(row.tolerance, 3),
        int(row.agrees),
        file,
        line,
    ]


# ---------------------------------------------------------------- card


def _sections(diff: Diff, b: Recorded, files_a: Files, files_b: Files) -> Iterator[dict[str, Any]]:
    """Yield for each region a title, and rows that lead to a line of A or of B."""
    if diff.verdict == STRUCTURE:
        rows = diff.structure.rows
        shown = [_change_row(row, b, files_a, files_b) for row in rows[:MOST_STRUCTURE]]
        more = len(rows) - len(shown)
        if more > 0:
            shown.append(_words("line", "", f"and {plural(more, 'more row')}"))
        yield {"title": "", "rows": shown}
        return
    for number, region in enumerate(diff.regions[:MOST_REGIONS]):
        title = ""
        if number:
            title = f"also, independently: {clean(region.title)}"
        yield {"title": title, "rows": list(_region_rows(region, files_a, files_b))}


def _change_row(row: OutlineChange, b: Recorded, files_a: Files, files_b: Files) -> dict[str, Any]:
    """Return a row of the tree of changes. It leads to its event in A, or to the line of B if A has
    none.
    """
    parts = [row.text]
    if row.was or row.now:
        parts.append(f"{row.was} → {row.now}")
    if row.times > 1:
        parts.append(f"(× {row.times})")
    if row.event_a is None:
        kind = "b"
        at = place_data(row.location, files_b)
    else:
        kind = "a"
        at = place_data(row.location, files_a)
    if row.sign == SAME:
        kind = "line"
    other = None
    if row.event_b is not None:
        other = place_data(b.event(row.event_b).location, files_b)
    words = _words(kind, row.sign.strip(), clean("  ".join(parts)), _number(row.event_a))
    return {**words, "depth": row.depth, "at": at, "other": other}


def _region_rows(
    region: DifferingRegion, files_a: Files, files_b: Files
) -> Iterator[dict[str, Any]]:
    yield from _side("a", region.a, files_a)
    yield from _side("b", region.b, files_b)
    for each in region.inputs[:MOST_INPUTS]:
        yield _words(
            "agrees", "in", f"{clean(_named(each))}  {_agreeing(each)}", _number(each.event_a)
        )
    more = len(region.inputs) - MOST_INPUTS
    if more > 0:
        yield _words("agrees", "", f"and {more} more that agree")
    if region.output is not None:
        words = f"{clean(_output_name(region))}  {_output_words(region.output)}"
        yield _words("differs", "out", words, _number(region.output.event_a))
    for suspect in region.suspects:
        for line in suspect_lines(suspect):
            label, _, text = clean(line).partition(" ")
            yield _words("suspect", label, text.strip())


def _side(side: str, places: Iterable[RunPlace], files: Files) -> Iterator[dict[str, Any]]:
    several = list(places)
    if not several:
        yield _words(side, side.upper(), "goes on without it")
    for number, place in enumerate(several):
        module, code, _ = place_words(place)
        row = _words(
            side,
            side.upper() if not number else "",
            clean(code),
            place.event if side == "a" else -1,
        )
        yield {**row, "module": clean(module), "at": place_data(place.location, files)}


def _words(kind: str, label: str, text: str, event: int = -1) -> dict[str, Any]:
    return {"kind": kind, "label": label, "text": text, "event": event, "module": "", "at": None}


def _number(event: int | None) -> int:
    if event is None:
        return -1
    return event


def diff_words(data: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the card as text, each line with its depth: for readers without scripts."""
    yield 0, data["text"]
    for section in data["sections"]:
        if section["title"]:
            yield 0, section["title"]
        for row in section["rows"]:
            at = ""
            if row["at"]:
                at = f"  at {row['at']['word']}"
            yield 1, "  ".join(filter(None, (row["label"], row["module"], row["text"]))) + at
    if data["summary"]:
        yield 1, data["summary"]
