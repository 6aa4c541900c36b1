"""What stands beside the lines of one file: notes by line."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchglass.source.flow import ControlFlow, is_in_with, may_be_left, proven
from torchglass.source.statements import Statement, is_text, outermost
from torchglass.views.listing.frames import Frame, is_lambda
from torchglass.views.listing.made import last_made, made_by
from torchglass.views.listing.results import Outcome, merged
from torchglass.views.listing.runs import Runs

RAN, UNSEEN = "ran", "unseen"
_WITHOUT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)


@dataclass(slots=True)
class Note:
    """What a line gave to one target, returned, or computed on the way."""

    label: str
    kind: str
    """``assigned``, ``changed``, ``returned`` or ``computed``."""
    outcome: Outcome
    counts: bool = True
    """Whether it came once for each time that the line computed it: not so for aten ops."""


@dataclass(slots=True)
class LineNote:
    """All that is known of one line."""

    line: int
    state: str = RAN
    """``ran``: its steps or later ones prove it. ``unseen``: no step tells."""
    runs: int | None = None
    """How often; None when steps do not tell."""
    notes: list[Note] = field(default_factory=list[Note])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    spent_ns: int = 0
    failed: str = ""
    """The error that ended the block here."""
    function: str = ""
    source: str = ""
    """The line's text as its steps know it, where the file's is not known."""


@dataclass(slots=True)
class Gap:
    """Lines that are left out, and the functions in them that no step was seen in."""

    lines: int
    functions: tuple[str, ...] = ()


@dataclass(slots=True)
class ListedLines:
    """The notes of a file by line, and the lines shown, in order, with what is left out between."""

    notes: dict[int, LineNote] = field(default_factory=dict[int, LineNote])
    shown: list[int | Gap] = field(default_factory=list[int | Gap])
    first_line: dict[int, int] = field(default_factory=dict[int, int])
    """The line that the notes of a statement stand on, for each of its lines."""
    loose: list[LineNote] = field(default_factory=list[LineNote])
    """Lines of code whose text is not known."""


def lines_of(file: str, runs: Runs) -> ListedLines:
    """Notes for one file."""
    found = ListedLines()
    frames = [each for each in runs.frames if each.place.file == file]
    found.loose = _loose(
        runs, [each for each in frames if runs.statement[each.number] is None and not _has_no_text(each)]
    )
    source = runs.sources.get(file)
    if source is None:
        return found
    seen: dict[int, list[Frame]] = {}
    told: dict[int, list[Frame]] = {}
    for frame in runs.frames:
        statement, consumer = runs.statement[frame.number], _consumer(runs, frame)
        if statement is not None and frame.place.file == file:
            seen.setdefault(statement.number, []).append(frame)
        if consumer.place.file == file and (statement := runs.statement[consumer.number]) is not None:
            told.setdefault(statement.number, []).append(frame)
    states = _states(file, runs, source, seen)
    suites = _Suites(file, runs)
    for statement in source.all:
        for line in range(statement.start[0], statement.last_line + 1):
            found.first_line.setdefault(line, statement.first_line)
        note = _note(file, runs, statement, told.get(statement.number, []))
        note.state = states.get(statement.number, "")
        if note.state == UNSEEN and statement.number not in seen:
            note.notes = []  # what it would have returned
        if note.runs is None and note.state == RAN:
            note.runs = suites.as_often(statement)
        if note.state or note.notes or note.errors:
            around = source.all[statement.parent].node if statement.parent >= 0 else None
            _add(found.notes, note, isinstance(around, ast.If) and around.lineno == note.line)
    return found


def _consumer(runs: Runs, frame: Frame) -> Frame:
    """Where it is told what a frame gave: a generator expression runs where it is consumed, not where it was made."""
    while frame.parent >= 0 and frame.place.function.endswith("<genexpr>"):
        frame = runs.frames[frame.parent]
    return frame


def _has_no_text(frame: Frame) -> bool:
    """What a call gets as its arguments stands at no text of its own."""
    return not frame.place.where.end_col and all(each.event.kind == "variable" for each in frame.steps)


def _add(notes: dict[int, LineNote], note: LineNote, sometimes: bool) -> None:
    """Two statements on one line share its margin; that of ``if c: …`` says how often the condition was asked."""
    known = notes.setdefault(note.line, note)
    if known is not note:
        known.notes += note.notes
        known.errors |= note.errors
        if not sometimes:
            known.runs = max(filter(None, (known.runs, note.runs)), default=None)
        known.spent_ns += note.spent_ns
        states = (RAN, UNSEEN, "")
        known.state = min(known.state, note.state, key=states.index)


# ---------------------------------------------------------------- what ran


def _states(file: str, runs: Runs, source: ControlFlow, seen: dict[int, list[Frame]]) -> dict[int, str]:
    """The state of each statement that has one, as far as steps prove it."""
    finished = [number for number, frames in seen.items() if any(came_to_end(runs, each) for each in frames)]
    failed = _failed(source, [number for number, frames in seen.items() if any(each.failed for each in frames)])
    # A lambda runs when it is called, perhaps long after the statement that it is written in.
    begun = [number for number, frames in seen.items() if not all(map(is_lambda, frames))]
    ran = proven(source, begun, finished, failed)
    ran.update(seen)
    for (where, function), callers in runs.callers.items():
        if where == file and any(runs.calls(caller, file, function) for caller in callers):
            ran.update(each.number for each in source.by_function[function] if source.runs_once(each))
    own_code = bool(runs.callers.get((file, -1)))
    return {
        each.number: RAN if each.number in ran else UNSEEN
        for each in source.all
        if _has_state(source, each) and (own_code or each.function >= 0 or each.number in seen)
    }


def _failed(source: ControlFlow, numbers: Iterable[int]) -> set[int]:
    """Statements that an error may have left although their function went on: a context manager caught it."""
    found: set[int] = set()
    for number in numbers:
        while number >= 0 and number not in found and is_in_with(source, source.all[number]):
            found.add(number)
            number = source.all[number].parent
    return found


def _has_state(source: ControlFlow, statement: Statement) -> bool:
    """Not what only defines something, and no text alone: nobody asks whether these ran."""
    around = source.all[statement.parent].node if statement.parent >= 0 else None
    return not (isinstance(statement.node, _WITHOUT) or isinstance(around, ast.ClassDef) or is_text(statement.node))


def came_to_end(runs: Runs, frame: Frame) -> bool:
    """Whether the calls that a frame belongs to are known to have ended: then what follows it ran too.

    That is so inside a module's call that came to its end, and where the caller went on, as long as no ``try``
    on the way can have caught an error.
    """
    while frame.parent >= 0:
        statement, around = runs.statement[frame.number], runs.frames[frame.parent]
        source = runs.sources.get(frame.place.file)
        if statement is None or source is None or may_be_left(source, statement):
            return False
        if statement.function < 0 or not source.is_plain_function(statement.function):
            return False
        if frame.failed and is_in_with(source, statement):
            return False
        if (frame.in_module and around.ended_modules) or (frame.called and runs.completed(around.number)):
            return True
        frame = around
    return False


# ---------------------------------------------------------------- what it gave


def _note(file: str, runs: Runs, statement: Statement, frames: list[Frame]) -> LineNote:
    note = LineNote(statement.first_line)
    callers = runs.callers.get((file, statement.function), {})
    slots = [runs.slots(caller, file, statement) for caller in callers]
    for column in zip(*slots, strict=True):
        told = {(slot.label, slot.kind): None for slot, outcome in column if outcome}
        for label, kind in told or [(column[0][0].label, column[0][0].kind)]:
            outcome = merged(each for slot, each in column if (slot.label, slot.kind) == (label, kind))
            note.notes.append(Note(label, kind, outcome))
    if not any(each.outcome for each in note.notes):
        note.notes = _computed(runs, frames)
    if not frames:
        return note
    here = [caller for caller in callers if (caller, file, statement.number) in runs.below]
    times = [runs.times(caller, file, statement) for caller in here]
    note.runs = None if not times or None in times else sum(filter(None, times))
    note.errors = _errors(frames)
    note.spent_ns = _spent(frames)
    return note


_Counted = tuple[int, list[int]]
"""How often a statement ran, and its frames."""


class _Suites:
    """How often the statements without a step of their own ran."""

    def __init__(self, file: str, runs: Runs) -> None:
        self._file, self._runs = file, runs
        self._source = runs.sources[file]
        self._near: dict[tuple[int, tuple[int, str, int]], list[tuple[_Counted | None, _Counted | None]]] = {}

    def as_often(self, statement: Statement) -> int | None:
        """As often as the ``forward`` that it is in, or as one in its suite that has a step; None: not certain.

        Between two that ran equally often it ran so too. With one of them alone this holds only where no error
        and no ``return`` can have come between, in calls that came to their end.
        """
        total, runs = 0, self._runs
        for caller in runs.callers.get((self._file, statement.function), {}):
            calls = runs.calls(caller, self._file, statement.function)
            if calls and self._source.runs_once(statement):
                total += sum(each.count for each in calls)
                continue
            before, after = self._neighbours(caller, statement)
            if before is None or after is None or before[0] != after[0]:
                before = before or after
                if before is None or not self._came_to_end(before[1]):
                    return None
            total += before[0]
        return total or None

    def _came_to_end(self, numbers: list[int]) -> bool:
        """Whether what follows the statement of these frames ran as often: one that failed may have been left."""
        frames, statement = [self._runs.frames[at] for at in numbers], self._runs.statement[numbers[0]]
        if statement is None or (any(each.failed for each in frames) and is_in_with(self._source, statement)):
            return False
        return any(came_to_end(self._runs, each) for each in frames)

    def _neighbours(self, caller: int, statement: Statement) -> tuple[_Counted | None, _Counted | None]:
        """The nearest counted statements before and after, with no way out of the suite between."""
        key = (caller, statement.suite)
        if key not in self._near:
            suite = self._source.suites[statement.suite]
            before, after = self._nearest(caller, suite, False), self._nearest(caller, suite[::-1], True)
            self._near[key] = list(zip(before, after[::-1], strict=True))
        return self._near[key][statement.place]

    def _nearest(self, caller: int, suite: list[int], backwards: bool) -> list[_Counted | None]:
        """For each statement the last counted one that comes earlier in this order."""
        found: list[_Counted | None] = []
        last: _Counted | None = None
        for number in suite:
            if backwards and number in self._source.jumping:
                last = None
            found.append(last)
            times = self._runs.passes(caller, self._file, self._source.all[number])
            if times is not None:
                last = (times, self._runs.below[caller, self._file, number])
            if not backwards and number in self._source.jumping:
                last = None
        return found


def _errors(frames: Iterable[Frame]) -> dict[str, int]:
    """The errors that left steps of a line, and how many; what passed on through others is told once."""
    errors: dict[str, int] = {}
    for frame in frames:
        for steps in made_by(frame):
            if steps.event.error:
                errors[steps.event.error] = errors.get(steps.event.error, 0) + steps.count
    return errors


def _computed(runs: Runs, frames: Iterable[Frame]) -> list[Note]:
    """The last value that was computed on a line which assigns and returns none."""
    made = [(max(each.last for each in steps), frame) for frame in frames if (steps := made_by(frame))]
    if not made:
        return []
    last = max(made, key=lambda each: each[0])[1]
    outcome = merged(runs.computed(frame) for _, frame in made if frame.place == last.place)
    return [Note("", "computed", outcome, bool(last_made(last)))] if outcome else []


def _spent(frames: list[Frame]) -> int:
    """Time in the steps of a line; those inside the expression of another are part of it."""
    made = {frame.place.where: 0 for frame in frames if made_by(frame)}
    for frame in frames:
        if frame.place.where in made:
            made[frame.place.where] += sum(each.spent_ns for each in made_by(frame))
    return sum(made[where] for where in outermost(made))


def _loose(runs: Runs, frames: list[Frame]) -> list[LineNote]:
    """Lines by number, function and text alone."""
    by_line: dict[tuple[str, int, str], list[Frame]] = {}
    for frame in frames:
        place = frame.place
        by_line.setdefault((place.function, place.where.line, place.source), []).append(frame)
    notes: list[LineNote] = []
    for (function, line, source), here in by_line.items():
        made = [frame for frame in here if made_by(frame)]
        last = max(made, key=lambda frame: max(each.last for each in made_by(frame)), default=None)
        note = LineNote(line, function=function, source=source)
        if last is not None:
            same = [frame for frame in made if frame.place == last.place]  # under each of its callers
            steps = [each for frame in same for each in last_made(frame)]
            note.runs = sum(each.count for each in steps) or None
            event = made_by(last)[0].event
            kind = "assigned" if event.target else "computed"
            note.notes = [Note(", ".join(event.target), kind, merged(map(runs.computed, same)), bool(steps))]
            note.source = source or event.code
        note.errors = _errors(here)
        notes.append(note)
    return sorted(notes, key=lambda each: each.line)
