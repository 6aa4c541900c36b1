"""Holds the result of a diff as data, and prints it: the verdict, where the runs first differ, why,
and by how much.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchglass.answers.diff.suspects import Suspect
from torchglass.answers.finding import ERROR, Evidence, Finding, location_dict
from torchglass.events.spelling import tensor_text
from torchglass.events.types import Location
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, one_line, path_word, plural, width_of

BITS, ROUNDING, DIFFERENT, UNRELATED, STRUCTURE = (
    "bits",
    "rounding",
    "different",
    "unrelated",
    "structure",
)
# How much a report shows, so that it fits on a screen: lines of each run and inputs of a region.
MOST_LINES = 3
MOST_INPUTS = 4
# Columns of the terminal: how wide each part of a line may be, and the whole line if the width is not known.
LONGEST_CODE = 60
LONGEST_MODULE = 36
LONGEST_NAME = 44
WIDTH = 120


@dataclass(frozen=True, slots=True)
class RunPlace:
    """One line of one run."""

    event: int
    module: str
    """The path of the innermost module, or ``""`` outside of all modules."""
    code: str
    location: Location | None
    op: str
    caller: Location | None = None
    """The line that called the function of this line, if the program calls that function from
    several lines.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "event": self.event, "module": self.module, "code": self.code, "op": self.op,
            "location": location_dict(self.location), "caller": location_dict(self.caller),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class AlignedValue:
    """A value of A and its counterpart in B."""

    name: str
    value_a: int
    value_b: int
    event_a: int | None
    event_b: int | None
    shape: tuple[int, ...]
    dtype: str
    error: float
    """About how far apart the two are, relative to their norm. NaN if not known."""
    tolerance: float
    """How far apart rounding alone may bring the two."""
    how: str
    """``bits``, ``close``, ``transposed``, ``order``, ``place``, ``pieces`` or ``differs``."""

    @property
    def agrees(self) -> bool:
        return self.how != "differs"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name, "value_a": self.value_a, "value_b": self.value_b, "event_a": self.event_a,
            "event_b": self.event_b, "shape": list(self.shape), "dtype": self.dtype,
            "error": None if self.error != self.error else self.error, "tolerance": self.tolerance, "how": self.how,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class DifferingRegion:
    """A part of both runs that gets the same inputs and makes something different of them."""

    title: str
    """What the region does, such as ``the activation of layer 1``."""
    a: tuple[RunPlace, ...]
    """The lines of A, the most informative first. Empty if A does nothing here."""
    b: tuple[RunPlace, ...]
    inputs: tuple[AlignedValue, ...]
    """The inputs of the region, which agree."""
    output: AlignedValue | None
    """The output of the region, which differs."""
    after: str
    """What uses the output in both runs, or ``""`` if the runs end here."""
    suspects: tuple[Suspect, ...]
    events_a: tuple[int, ...]
    events_b: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "title": self.title, "a": [each.to_dict() for each in self.a], "b": [each.to_dict() for each in self.b],
            "inputs": [each.to_dict() for each in self.inputs],
            "output": None if self.output is None else self.output.to_dict(), "after": self.after,
            "suspects": [each.to_dict() for each in self.suspects], "events_a": list(self.events_a),
            "events_b": list(self.events_b),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """How two runs compare; print it for the story."""

    verdict: str
    """``bits`` (equal bits), ``rounding`` (equal up to rounding), ``different``, ``unrelated`` (no value in common) or
    ``structure`` (no numbers were recorded: what ran is compared instead)."""
    regions: tuple[DifferingRegion, ...] = ()
    """Where they differ, in order; an earlier difference can hide later ones."""
    rows: tuple[AlignedValue, ...] = field(default=(), repr=False)
    """Every value of A that has a counterpart in B."""
    compared: int = 0
    """How many values of A were compared."""
    agree: int = 0
    largest: float = 0.0
    """The largest error of values that agree."""
    before: int = 0
    """Values of A that agree before the first difference …"""
    differ_after: int = 0
    after: int = 0
    """… and of those after it how many do not."""
    result: AlignedValue | None = None
    """The last result of A next to that of B."""
    structure: Any = None
    """For runs without numbers: what ran in only one of them."""
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> DifferingRegion | None:
        """Where they first differ."""
        if self.regions:
            return self.regions[0]
        return None

    @property
    def equal(self) -> bool:
        """Whether both runs come to the same, up to rounding."""
        if self.verdict == STRUCTURE:
            return not self.structure.changes
        return self.verdict in (BITS, ROUNDING)

    def finding(self) -> Finding | None:
        """The first difference in the shape that all answers share."""
        region = self.first
        if region is None:
            return None
        place = None
        if region.a or region.b:
            place = (region.a or region.b)[0]
        evidence = [
            Evidence(f"B: {each.code}", each.event, each.location, "b") for each in region.b[:1]
        ]
        evidence += [
            Evidence(f"{each.kind} {each.name}: {each.a} / {each.b}", kind=each.kind)
            for each in region.suspects
        ]
        return Finding(
            kind="diff", severity=ERROR, text=f"the runs first differ in {region.title}",
            event=None if place is None else place.event, location=None if place is None else place.location,
            code="" if place is None else place.code, evidence=tuple(evidence),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form (docs/diff.md)."""
        found = self.finding()
        return {
            "verdict": self.verdict, "equal": self.equal, "compared": self.compared, "agree": self.agree,
            "largest": self.largest, "before": self.before, "after": self.after, "differ_after": self.differ_after,
            "result": None if self.result is None else self.result.to_dict(),
            "first": None if self.first is None else self.first.to_dict(),
            "finding": None if found is None else found.to_dict(),
            "regions": [each.to_dict() for each in self.regions], "rows": [each.to_dict() for each in self.rows],
            "structure": None if self.structure is None else self.structure.to_dict(), "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(diff_lines(self))


# ---------------------------------------------------------------- text


def diff_lines(diff: Diff, page: Page | None = None) -> Iterator[str]:
    """Yield a diff as lines of text."""
    width = WIDTH
    if page is not None:
        width = max(page.width, 40)
    for text, style in _lines(diff):
        lines = [cut(clean(text), width)]
        if style == "note":
            lines = textwrap.wrap(clean(text), width, initial_indent="  ", subsequent_indent="    ")
        for line in lines:
            yield page.paint(style, line) if page is not None and style else line


def _lines(diff: Diff) -> Iterator[tuple[str, str]]:
    if diff.verdict == BITS:
        yield f"= equal bits ({plural(diff.agree, 'value')})", "heading"
    elif diff.verdict == ROUNDING:
        text = f"≈ equal up to rounding: at most {diff.largest:.1e} of a value's norm ({plural(diff.agree, 'value')})"
        yield text, "heading"
    elif diff.verdict == UNRELATED:
        yield (
            f"? these two runs share no values: none of {plural(diff.compared, 'value')} of A occurs in B",
            "error",
        )
    elif diff.verdict == STRUCTURE:
        for line in diff.structure.lines():
            yield line, ""
    elif diff.first is not None:
        yield from _region(diff.first, diff)
        if len(diff.regions) > 1:
            places = ", ".join(filter(None, (_where(each) for each in diff.regions[1:4])))
            yield (
                f"  they also differ, independently, in {plural(len(diff.regions) - 1, 'other place')}: {places}",
                "",
            )
    else:
        yield "≠ their results differ", "error"
    for note in diff.notes:
        yield f"note: {note}", "note"


def _region(region: DifferingRegion, diff: Diff) -> Iterator[tuple[str, str]]:
    yield f"≠ they first differ in {region.title}", "error"
    for line in _table([*_sides(region)]):
        yield line, ""
    facts = [("in", *_input(each)) for each in region.inputs[:MOST_INPUTS]]
    if len(region.inputs) > MOST_INPUTS:
        facts.append(("", f"and {len(region.inputs) - MOST_INPUTS} more", "that agree"))
    if region.output is not None:
        facts.append(("out", _output_name(region), _output_words(region.output)))
    for line in _table(facts):
        yield line, ""
    for each in region.suspects:
        yield from (("  " + line, "") for line in suspect_lines(each))
    yield "  " + _summary(diff), ""


def _sides(region: DifferingRegion) -> Iterator[tuple[str, ...]]:
    for label, places in (("A", region.a), ("B", region.b)):
        if not places:
            yield label, "", "goes on without it", ""
            continue
        for number, place in enumerate(places[:MOST_LINES]):
            yield label if not number else "", *place_words(place)
        if len(places) > MOST_LINES:
            yield "", "", f"… and {plural(len(places) - MOST_LINES, 'more line')}", ""


def place_words(place: RunPlace) -> tuple[str, str, str]:
    """Return the module, the code and the place of a line."""
    at = ""
    if place.location is not None:
        at = f"{path_word(place.location.file)}:{place.location.line}"
    if place.caller is not None and place.location is not None:
        file = ""
        if place.caller.file != place.location.file:
            file = path_word(place.caller.file) + ":"
        at += f" ← {file}{place.caller.line}"
    return (
        cut(place.module, LONGEST_MODULE),
        cut(one_line(place.code) or place.op, LONGEST_CODE),
        at,
    )


def _where(region: DifferingRegion) -> str:
    places = region.a or region.b
    if places:
        return place_words(places[0])[2]
    return ""


def _input(row: AlignedValue) -> tuple[str, str]:
    return _named(row), _agreeing(row)


def _named(row: AlignedValue) -> str:
    return f"{cut(one_line(row.name), LONGEST_NAME)} {tensor_text(row.dtype, row.shape)}"


def _agreeing(row: AlignedValue) -> str:
    if row.how == "bits":
        return "= equal bits"
    if row.how == "order":
        return "the same numbers in another order"
    if row.how == "pieces":
        return "≈ in pieces"
    if row.how == "place" or row.error != row.error:
        return "judged by its place"
    return f"≈ {row.error:.1e}   (rounding)"


def _output_name(region: DifferingRegion) -> str:
    if region.after:
        return f"what {cut(one_line(region.after), LONGEST_NAME)} gets"
    return "the result"


def _output_words(row: AlignedValue) -> str:
    if row.error != row.error:
        return "≠"
    if row.error <= row.tolerance:
        return f"≈ {row.error:.1e}   (more than its like in other layers)"
    return f"≠ {row.error:.1e}   (rounding would be {row.tolerance:.0e})"


def suspect_lines(suspect: Suspect) -> Iterator[str]:
    """Yield a suspect as lines of text."""
    kind = suspect.kind
    name = suspect.name
    a = suspect.a
    b = suspect.b
    if kind == "setting":
        if name.isdecimal():
            yield f"argument {int(name) + 1}: {a} / {b}"
        else:
            yield f"setting   {name}: {a} / {b}"
    elif kind == "constant":
        yield f"constant  {a} / {b}"
    elif kind == "parameter":
        yield f"parameter {a} / {b}"
    elif kind == "moved":
        of = ""
        if name:
            of = f" of {name}"
        yield f"moved     the same numbers{of} in another order: {a} / {b}"
    elif kind == "exchanged":
        yield f"exchanged {name} takes ({a}) / ({b})"
    elif kind == "random":
        yield f"random    A: {a}, B: {b}; what follows is judged only where both draw the same numbers"
    elif kind == "fused":
        yield f"fused     {name} does all of this in one step: look inside for the line"


def _summary(diff: Diff) -> str:
    largest = ""
    if diff.largest:
        largest = f" (largest {diff.largest:.0e})"
    parts = [f"before: {plural(diff.before, 'value')} agree{largest}"]
    parts.append(f"after: {count(diff.differ_after)} of {count(diff.after)} differ")
    if diff.result is not None and diff.result.error == diff.result.error:
        sign = "≠"
        if diff.result.agrees:
            sign = "≈"
        parts.append(
            f"{cut(one_line(diff.result.name), LONGEST_NAME)} {sign} {diff.result.error:.1e}"
        )
    return " · ".join(parts)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns."""
    if not rows:
        return
    widths = [max(width_of(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [
            text + " " * (width - width_of(text)) for text, width in zip(row, widths, strict=True)
        ]
        yield (
            "  " + "  ".join(cell for cell, width in zip(cells, widths, strict=True) if width)
        ).rstrip()
