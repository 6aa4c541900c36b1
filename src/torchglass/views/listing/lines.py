"""What stands beside the lines of one file: notes by line, and which lines are shown."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchglass.views.listing.frames import Frame, is_lambda
from torchglass.views.listing.made import last_made, made_by
from torchglass.views.listing.ran import is_in_with, may_be_left, proven
from torchglass.views.listing.ranges import outermost
from torchglass.views.listing.results import Outcome, merged
from torchglass.views.listing.statements import Function, Statement, Statements
from torchglass.views.listing.steps import Steps

RAN, UNSEEN, NEVER = "ran", "unseen", "never"
_UNMARKED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)


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
    """``ran``: its steps or later ones prove it. ``unseen``: no step tells. ``never``: it is known not to have run."""
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
class Lines:
    """The notes of a file by line, and the lines shown, in order, with what is left out between."""

    notes: dict[int, LineNote] = field(default_factory=dict[int, LineNote])
    shown: list[int | Gap] = field(default_factory=list[int | Gap])
    first_line: dict[int, int] = field(default_factory=dict[int, int])
    """The line that the notes of a statement stand on, for each of its lines."""
    loose: list[LineNote] = field(default_factory=list[LineNote])
    """Lines of code whose text is not known."""


def lines_of(file: str, steps: Steps, lines_run: frozenset[int] | None, whole: bool) -> Lines:
    """Notes for one file; ``lines_run`` is the exact set where a trace has it."""
    found = Lines()
    frames = [each for each in steps.frames if each.place.file == file]
    found.loose = _loose(steps, [each for each in frames if steps.statement[each.number] is None])
    source = steps.sources.get(file)
    if source is None:
        return found
    seen: dict[int, list[Frame]] = {}
    for frame in frames:
        statement = steps.statement[frame.number]
        if statement is not None:
            seen.setdefault(statement.number, []).append(frame)
    marks = _marks(file, steps, source, seen) if lines_run is None else _exact_marks(source, lines_run)
    suites = _Suites(file, steps)
    for statement in source.all:
        for line in range(statement.start[0], statement.last_line + 1):
            found.first_line.setdefault(line, statement.first_line)
        note = _note(file, steps, statement, seen.get(statement.number, []))
        note.state = marks.get(statement.number, "")
        if note.state in (UNSEEN, NEVER) and statement.number not in seen:
            note.notes = []  # what it would have returned
        if note.runs is None and note.state == RAN:
            note.runs = suites.as_often(statement)
        if note.state or note.notes or note.errors:
            around = source.all[statement.parent].node if statement.parent >= 0 else None
            _add(found.notes, note, isinstance(around, ast.If) and around.lineno == note.line)
    found.shown = list(range(1, len(source.lines) + 1)) if whole else _shown(file, steps, source)
    return found


def _add(notes: dict[int, LineNote], note: LineNote, sometimes: bool) -> None:
    """Two statements on one line share its margin; that of ``if c: …`` says how often the condition was asked."""
    known = notes.setdefault(note.line, note)
    if known is not note:
        known.notes += note.notes
        known.errors |= note.errors
        if not sometimes:
            known.runs = max(filter(None, (known.runs, note.runs)), default=None)
        known.spent_ns += note.spent_ns
        states = (RAN, UNSEEN, NEVER, "")
        known.state = min(known.state, note.state, key=states.index)


# ---------------------------------------------------------------- what ran


def _marks(file: str, steps: Steps, source: Statements, seen: dict[int, list[Frame]]) -> dict[int, str]:
    """The state of each statement that has one, as far as steps prove it."""
    finished = [number for number, frames in seen.items() if any(came_to_end(steps, each) for each in frames)]
    failed = _failed(source, [number for number, frames in seen.items() if any(each.failed for each in frames)])
    # A lambda runs when it is called, perhaps long after the statement that it is written in.
    begun = [number for number, frames in seen.items() if not all(map(is_lambda, frames))]
    ran = proven(source, begun, finished, failed)
    ran.update(seen)
    for (where, function), callers in steps.callers.items():
        if where == file and any(steps.calls(caller, file, function) for caller in callers):
            ran.update(each.number for each in source.by_function[function] if source.runs_once(each))
    own_code = bool(steps.callers.get((file, -1)))
    return {
        each.number: RAN if each.number in ran else UNSEEN
        for each in source.all
        if _is_marked(source, each) and (own_code or each.function >= 0 or each.number in seen)
    }


def _failed(source: Statements, numbers: Iterable[int]) -> set[int]:
    """Statements that an error may have left although their function went on: a context manager caught it."""
    found: set[int] = set()
    for number in numbers:
        while number >= 0 and number not in found and is_in_with(source, source.all[number]):
            found.add(number)
            number = source.all[number].parent
    return found


def _exact_marks(source: Statements, lines_run: frozenset[int]) -> dict[int, str]:
    """The same where the lines that ran are known."""
    marks: dict[int, str] = {}
    for each in source.all:
        if _is_marked(source, each):
            head = range(each.start[0], each.last_line + 1)
            marks[each.number] = RAN if any(line in lines_run for line in head) else NEVER
    own_code = [number for number in marks if source.all[number].function < 0]
    if not any(marks[number] == RAN for number in own_code):  # imported before the recording began
        for number in own_code:
            del marks[number]
    return marks


def _is_marked(source: Statements, statement: Statement) -> bool:
    """Not what only defines something, and no text alone: nobody asks whether these ran."""
    around = source.all[statement.parent].node if statement.parent >= 0 else None
    return not (isinstance(statement.node, _UNMARKED) or isinstance(around, ast.ClassDef) or _is_text(statement.node))


def came_to_end(steps: Steps, frame: Frame) -> bool:
    """Whether the calls that a frame belongs to are known to have ended: then what follows it ran too.

    That is so inside a module's call that came to its end, and where the caller went on, as long as no ``try``
    on the way can have caught an error.
    """
    while frame.parent >= 0:
        statement, around = steps.statement[frame.number], steps.frames[frame.parent]
        source = steps.sources.get(frame.place.file)
        if statement is None or source is None or may_be_left(source, statement):
            return False
        if statement.function < 0 or not source.is_plain_function(statement.function):
            return False
        if frame.failed and is_in_with(source, statement):
            return False
        if (frame.in_module and around.ended_modules) or (frame.called and steps.completed(around.number)):
            return True
        frame = around
    return False


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# ---------------------------------------------------------------- what it gave


def _note(file: str, steps: Steps, statement: Statement, frames: list[Frame]) -> LineNote:
    note = LineNote(statement.first_line)
    callers = steps.callers.get((file, statement.function), {})
    slots = [steps.slots(caller, file, statement) for caller in callers]
    for column in zip(*slots, strict=True):
        told = {(slot.label, slot.kind): None for slot, outcome in column if outcome}
        for label, kind in told or [(column[0][0].label, column[0][0].kind)]:
            outcome = merged(each for slot, each in column if (slot.label, slot.kind) == (label, kind))
            note.notes.append(Note(label, kind, outcome))
    if not any(each.outcome for each in note.notes):
        note.notes = _computed(steps, frames)
    if not frames:
        return note
    here = [caller for caller in callers if (caller, file, statement.number) in steps.below]
    runs = [steps.times(caller, file, statement) for caller in here]
    note.runs = None if not runs or None in runs else sum(filter(None, runs))
    note.errors = _errors(frames)
    note.spent_ns = _spent(frames)
    return note


_Counted = tuple[int, list[int]]
"""How often a statement ran, and its frames."""


class _Suites:
    """How often the statements without a step of their own ran."""

    def __init__(self, file: str, steps: Steps) -> None:
        self._file, self._steps = file, steps
        self._source = steps.sources[file]
        self._near: dict[tuple[int, tuple[int, str, int]], list[tuple[_Counted | None, _Counted | None]]] = {}

    def as_often(self, statement: Statement) -> int | None:
        """As often as the ``forward`` that it is in, or as one in its suite that has a step; None: not certain.

        Between two that ran equally often it ran so too. With one of them alone this holds only where no error
        and no ``return`` can have come between, in calls that came to their end.
        """
        total, steps = 0, self._steps
        for caller in steps.callers.get((self._file, statement.function), {}):
            calls = steps.calls(caller, self._file, statement.function)
            if calls and self._source.runs_once(statement):
                total += sum(look.count for look in calls)
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
        frames, statement = [self._steps.frames[at] for at in numbers], self._steps.statement[numbers[0]]
        if statement is None or (any(each.failed for each in frames) and is_in_with(self._source, statement)):
            return False
        return any(came_to_end(self._steps, each) for each in frames)

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
            times = self._steps.passes(caller, self._file, self._source.all[number])
            if times is not None:
                last = (times, self._steps.below[caller, self._file, number])
            if not backwards and number in self._source.jumping:
                last = None
        return found


def _errors(frames: Iterable[Frame]) -> dict[str, int]:
    """The errors that left steps of a line, and how many; what passed on through others is told once."""
    errors: dict[str, int] = {}
    for frame in frames:
        for look in made_by(frame):
            if look.event.error:
                errors[look.event.error] = errors.get(look.event.error, 0) + look.count
    return errors


def _computed(steps: Steps, frames: Iterable[Frame]) -> list[Note]:
    """The last value that was computed on a line which assigns and returns none."""
    made = [(max(look.last for look in looks), frame) for frame in frames if (looks := made_by(frame))]
    if not made:
        return []
    last = max(made, key=lambda each: each[0])[1]
    outcome = merged(steps.computed(frame) for _, frame in made if frame.place == last.place)
    return [Note("", "computed", outcome, bool(last_made(last)))] if outcome else []


def _spent(frames: list[Frame]) -> int:
    """Time in the steps of a line; those inside the expression of another are part of it."""
    made = {frame.place.where: 0 for frame in frames if made_by(frame)}
    for frame in frames:
        if frame.place.where in made:
            made[frame.place.where] += sum(look.spent_ns for look in made_by(frame))
    return sum(made[where] for where in outermost(made))


def _loose(steps: Steps, frames: list[Frame]) -> list[LineNote]:
    """Lines by number, function and text alone."""
    by_line: dict[tuple[str, int, str], list[Frame]] = {}
    for frame in frames:
        place = frame.place
        by_line.setdefault((place.function, place.where.line, place.source), []).append(frame)
    notes: list[LineNote] = []
    for (function, line, source), here in by_line.items():
        made = [frame for frame in here if made_by(frame)]
        last = max(made, key=lambda frame: max(look.last for look in made_by(frame)), default=None)
        note = LineNote(line, function=function, source=source)
        if last is not None:
            same = [frame for frame in made if frame.place == last.place]  # under each of its callers
            looks = [look for frame in same for look in last_made(frame)]
            note.runs = sum(look.count for look in looks) or None
            event = made_by(last)[0].event
            kind = "assigned" if event.target else "computed"
            note.notes = [Note(", ".join(event.target), kind, merged(map(steps.computed, same)), bool(looks))]
            note.source = source or event.code
        note.errors = _errors(here)
        notes.append(note)
    return sorted(notes, key=lambda each: each.line)


# ---------------------------------------------------------------- which lines are shown


def _shown(file: str, steps: Steps, source: Statements) -> list[int | Gap]:
    """The functions that ran, the classes around them, and, where it ran, the module's own code."""
    active = {function for where, function in steps.callers if where == file}
    idle = [each for each in source.functions() if each.number not in active]
    keep = bytearray(len(source.lines) + 2)
    if steps.callers.get((file, -1)):
        keep[1:-1] = b"\1" * len(source.lines)
    for statement in source.all:
        node = statement.node
        if isinstance(node, Function):
            _set(keep, statement, statement.number in active or _holds(source, statement, active))
        elif isinstance(node, ast.ClassDef):
            holds = _holds(source, statement, active)
            _set(keep, statement, False)
            if holds:
                first, last = statement.start[0], statement.last_line
                keep[first : last + 1] = b"\1" * (last + 1 - first)
        elif _is_text(node) and statement.end[0] - statement.start[0] > 2:
            keep[statement.start[0] + 1 : statement.end[0] + 1] = bytes(statement.end[0] - statement.start[0])
    for _, where, number in steps.below:
        if where == file:
            statement = source.all[number]
            for line in range(statement.start[0], statement.last_line + 1):
                keep[line] = 1
    return _with_gaps(source, keep, idle)


def _set(keep: bytearray, statement: Statement, value: bool) -> None:
    first, last = statement.start[0], statement.end[0]
    keep[first : last + 1] = bytes([value]) * (last + 1 - first)


def _holds(source: Statements, outer: Statement, active: set[int]) -> bool:
    return any(number > outer.number and source.all[number].start <= outer.end for number in active if number >= 0)


def _with_gaps(source: Statements, keep: bytearray, idle: list[Statement]) -> list[int | Gap]:
    shown: list[int | Gap] = []
    first = 0
    for line in range(1, len(source.lines) + 2):
        if line <= len(source.lines) and not keep[line]:
            first = first or line
            continue
        if first:
            names = tuple(_name(source, each) for each in idle if first <= each.start[0] < line)
            hidden = source.lines[first - 1 : line - 1]
            if names or any(text.strip() for text in hidden):
                shown.append(Gap(line - first, names))
            elif line <= len(source.lines):
                shown.append(line - 1)  # of blank lines one
            first = 0
        if line <= len(source.lines):
            shown.append(line)
    return shown


def _name(source: Statements, statement: Statement) -> str:
    """``Class.method``."""
    names: list[str] = []
    number = statement.number
    while number >= 0:
        names.append(getattr(source.all[number].node, "name", ""))
        number = source.all[number].parent
    return ".".join(filter(None, reversed(names)))
