"""Collects what is known of the lines of one file: how often each ran, what it gave, and what it raised.

These words are used in all files of this package:

- a *step* is an event that a line of the program made;
- a *frame* is a place in the program under the places that called it (no frame of Python: see ``frames.py``);
- a *caller* is the number of the frame that called the function of a statement; -1 is the top level of a file;
- a *slot* is one thing to which a statement gives a value: ``a, b = x`` has two, ``return x`` has one;
- a *suite* is a list of statements under one head, such as the body of an ``if``;
- the *outcome* of an expression is all that it gave in all its runs.

How often a line ran is found in three stages, each for what the one before left open or too low:

1. by its own steps (``SettledFrames.times``);
2. without steps, by its neighbours in the suite (``_SuiteCounts``);
3. by the calls and loops of the program tree (``_correct_by_program``), unless only some steps are selected. This may
   raise a count, or withdraw it.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.program.by_line.frames import Frame, is_lambda
from torchglass.program.by_line.made import all_made, last_made, made_by
from torchglass.program.by_line.results import Outcome, merged
from torchglass.program.by_line.settled import SettledFrames
from torchglass.program.counts import LoopTotal, StatementCounts
from torchglass.source.flow import ControlFlow, is_in_with, may_be_left, proven
from torchglass.source.jumps import LOOPS
from torchglass.source.statements import WITH, Statement, Suite, is_text

MAX_CALL_DEPTH = 20
"""Calls inside calls through which counts are passed on. Each level is a pass over the file."""
_WITHOUT_STATE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)
"""Statements that are never shown as run or not run."""


class LineState(enum.StrEnum):
    """Whether a line ran."""

    RAN = "ran"
    """It is proven to have run: by its steps, or by later ones."""
    UNSEEN = "unseen"
    """Nothing proves that it ran."""
    NONE = ""
    """It is not shown as run or not run: a ``def``, for example."""


@dataclass(slots=True)
class Note:
    """What a line assigned to one target, returned, or computed."""

    label: str
    kind: str
    """``assigned``, ``changed``, ``returned`` or ``computed``."""
    outcome: Outcome
    is_one_per_run: bool = True
    """Whether there was one result each time the line ran. Aten ops may give several."""


@dataclass(slots=True)
class LineNote:
    """The notes of one line."""

    line: int
    state: LineState = LineState.RAN
    runs: int | None = None
    """How often it ran; None if that is not known."""
    notes: list[Note] = field(default_factory=list[Note])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    """The errors that its steps raised, with how often."""
    spent_ns: int = 0
    """How long its steps took."""
    failed: str = ""
    """The error that ended the block here."""
    function: str = ""
    """The function that it is in, if the file's text is not known."""
    source: str = ""
    """The line's text as its steps have it, if the file's text is not known."""


@dataclass(slots=True)
class FileNotes:
    """What is known of the lines of one file."""

    notes: dict[int, LineNote] = field(default_factory=dict[int, LineNote])
    """By line. The note of a statement is at its first line."""
    first_line: dict[int, int] = field(default_factory=dict[int, int])
    """By line of a statement, the line with its note."""
    without_source: list[LineNote] = field(default_factory=list[LineNote])
    """The notes of lines whose text is not known."""


def notes_of(
    file: str, settled: SettledFrames, program_counts: StatementCounts | None
) -> FileNotes:
    """Return the notes for one file. Without ``program_counts`` only the selected steps are counted."""
    lines = FileNotes()
    without_statement: list[Frame] = []
    for frame in settled.frames:
        is_here = frame.place.file == file and settled.statement[frame.number] is None
        if is_here and not _only_received_arguments(frame):
            without_statement.append(frame)
    lines.without_source = _notes_without_source(settled, without_statement)
    source = settled.sources.get(file)
    if source is None:
        return lines
    for statement in source.all:
        for line in range(statement.start[0], statement.last_line + 1):
            lines.first_line.setdefault(line, statement.first_line)
    notes = _notes_of_statements(file, settled, source)
    if program_counts is not None:
        _correct_by_program(file, source, notes, program_counts)
    for statement, note in zip(source.all, notes, strict=True):
        if note.state is not LineState.NONE or note.notes or note.errors:
            _add(lines.notes, note, is_in_if=_is_on_line_of_if(source, statement))
    return lines


def _notes_of_statements(file: str, settled: SettledFrames, source: ControlFlow) -> list[LineNote]:
    """Return the notes of all statements of a file, in order."""
    frames_at = _by_statement(file, settled, settled.frames, settled.frames)
    consumers = [_consumer(settled, frame) for frame in settled.frames]
    results_at = _by_statement(file, settled, settled.frames, consumers)
    states = _states(file, settled, source, frames_at)
    suites = _SuiteCounts(file, settled)
    notes: list[LineNote] = []
    for statement in source.all:
        note = _note(file, settled, statement, results_at.get(statement.number, []))
        note.state = states.get(statement.number, LineState.NONE)
        if note.state is LineState.UNSEEN and statement.number not in frames_at:
            # These would be the results of a ``return`` that did not run.
            note.notes = []
        if note.runs is None and note.state is LineState.RAN:
            note.runs = suites.count_of(statement)
        notes.append(note)
    return notes


def _by_statement(
    file: str, settled: SettledFrames, frames: list[Frame], places: list[Frame]
) -> dict[int, list[Frame]]:
    """Return frames by statement of the file. A frame's statement is that of its neighbour in ``places``."""
    by_statement: dict[int, list[Frame]] = {}
    for frame, place in zip(frames, places, strict=True):
        statement = settled.statement[place.number]
        if statement is not None and place.place.file == file:
            by_statement.setdefault(statement.number, []).append(frame)
    return by_statement


def _is_on_line_of_if(source: ControlFlow, statement: Statement) -> bool:
    """Return whether a statement is on the line of the ``if`` around it, as in ``if c: x = 1``."""
    if statement.parent < 0:
        return False
    parent = source.all[statement.parent].node
    return isinstance(parent, ast.If) and parent.lineno == statement.first_line


def _correct_by_program(
    file: str, source: ControlFlow, notes: list[LineNote], program_counts: StatementCounts
) -> None:
    """Correct the counts of statements by those after them, and by the calls and loops of the program tree.

    A line has a step only if it computed with tensors. ``notes`` are those of all statements, in order. This is
    repeated until nothing changes, because the count of a call is also one of the function that it calls.
    """
    for _ in range(MAX_CALL_DEPTH):
        before = [note.runs for note in notes]
        for suite in source.suites.values():
            _correct_suite(file, source, suite, notes, program_counts)
        if [note.runs for note in notes] == before:
            break


def _correct_suite(
    file: str,
    source: ControlFlow,
    suite: list[int],
    notes: list[LineNote],
    program_counts: StatementCounts,
) -> None:
    """Raise the counts in one suite: a statement ran at least as often as each later one."""
    later = 0
    for number in reversed(suite):
        note = notes[number]
        statement = source.all[number]
        if note.state is not LineState.RAN or isinstance(statement.node, (*LOOPS, *WITH)):
            continue
        if note.runs is not None:
            calls = _calls_of(file, source, statement, notes, program_counts)
            note.runs = max(note.runs, later, calls)
            later = note.runs
        loop = program_counts.of_loop(file, statement)
        if loop is not None:
            reached = _reached_after(source, loop.statement, notes)
            _correct_by_loop(note, loop, later, reached)


def _calls_of(
    file: str,
    source: ControlFlow,
    statement: Statement,
    notes: list[LineNote],
    program_counts: StatementCounts,
) -> int:
    """Return how often a function was called, at least, if each call runs this statement once; otherwise 0."""
    if not source.runs_once_per_call(statement, caught=True):
        return 0
    callers = source.certain_callers.get(statement.function, ())
    by_callers = sum(notes[number].runs or 0 for number in callers if not notes[number].errors)
    return max(by_callers, program_counts.calls(file, statement.function))


def _correct_by_loop(note: LineNote, loop: LoopTotal, later: int, reached: int) -> None:
    """Correct the count of a line that every iteration runs, unless an error ends the iteration before it.

    ``later`` is how often it, or a line after it in the loop, ran. ``reached`` is how often the statement after the
    loop was reached. For example::

        for x in xs:            # 1 execution, 10 iterations
            n = f(x)            # 3 steps, because x is a tensor only in 3 iterations; later = 10
            y = x + n           # 10 steps
        print(y)                # reached = 1

    Two things prove that each iteration ran ``n = f(x)``, so that its count is 10: a later line of the loop ran in
    each, or the statement after the loop was reached after each execution, since then no error left the loop.
    Otherwise an error may have ended the last iteration of each execution. If the line has fewer steps than even that
    explains, its steps do not count its runs, and its count is not known.
    """
    is_in_each_iteration = later == loop.iterations
    no_error_left_the_loop = reached == loop.executions
    if is_in_each_iteration or no_error_left_the_loop:
        note.runs = max(later, loop.iterations)
    elif note.runs is not None and note.runs < loop.iterations - loop.executions:
        note.runs = None


def _reached_after(source: ControlFlow, number: int, notes: list[LineNote]) -> int:
    """Return how often a statement after this one in its suite ran; 0 if that is not known or an error was caught."""
    statement = source.all[number]
    if may_be_left(source, statement) or is_in_with(source, statement):
        return 0
    after = source.suites[statement.suite][statement.place + 1 :]
    return max((notes[each].runs or 0 for each in after), default=0)


def _consumer(settled: SettledFrames, frame: Frame) -> Frame:
    """Return the frame that shows a result: for a generator expression, the frame that consumes it."""
    while frame.parent >= 0 and frame.place.function.endswith("<genexpr>"):
        frame = settled.frames[frame.parent]
    return frame


def _only_received_arguments(frame: Frame) -> bool:
    """Return whether a frame only received its arguments, which have no text in the source."""
    has_text = bool(frame.place.where.end_col)
    return not has_text and all(each.event.kind == "variable" for each in frame.steps)


def _add(notes: dict[int, LineNote], note: LineNote, *, is_in_if: bool) -> None:
    """Add the note of a statement, and merge it with that of another statement on its line.

    For ``if c: …`` on one line (``is_in_if``) the count is how often the condition was evaluated.
    """
    if note.line not in notes:
        notes[note.line] = note
        return
    merged_note = notes[note.line]
    merged_note.notes += note.notes
    merged_note.errors |= note.errors
    merged_note.spent_ns += note.spent_ns
    if not is_in_if:
        merged_note.runs = max(merged_note.runs or 0, note.runs or 0) or None
    # The states are in the order of what they say: a line ran if one of its statements ran.
    states = list(LineState)
    merged_note.state = min(merged_note.state, note.state, key=states.index)


# ---------------------------------------------------------------- what ran


def _states(
    file: str, settled: SettledFrames, source: ControlFlow, frames_at: dict[int, list[Frame]]
) -> dict[int, LineState]:
    """Return the state of each statement that has one. ``frames_at`` has the frames at each statement."""
    begun: list[int] = []
    completed: list[int] = []
    failed: list[int] = []
    for number, frames in frames_at.items():
        # A lambda runs when it is called, perhaps long after the statement that it is written in.
        if not all(map(is_lambda, frames)):
            begun.append(number)
        if any(_call_completed(settled, each) for each in frames):
            completed.append(number)
        if any(each.failed for each in frames):
            failed.append(number)
    caught = _failed_in_with(source, failed)
    ran = proven(source, begun, completed, caught)
    ran.update(frames_at)
    for (where, function), callers in settled.callers.items():
        if where == file and any(settled.calls(caller, file, function) for caller in callers):
            ran.update(
                each.number
                for each in source.by_function[function]
                if source.runs_once_per_completed_call(each)
            )
    is_top_level_seen = bool(settled.callers.get((file, -1)))
    states: dict[int, LineState] = {}
    for each in source.all:
        is_reached = is_top_level_seen or each.function >= 0 or each.number in frames_at
        if not is_reached or not _has_state(source, each):
            continue
        if each.number in ran:
            states[each.number] = LineState.RAN
        else:
            states[each.number] = LineState.UNSEEN
    return states


def _failed_in_with(source: ControlFlow, numbers: Iterable[int]) -> set[int]:
    """Return the failed statements in a ``with``, and those around them: the context manager may catch the error."""
    failed: set[int] = set()
    for number in numbers:
        while number >= 0 and number not in failed and is_in_with(source, source.all[number]):
            failed.add(number)
            number = source.all[number].parent
    return failed


def _has_state(source: ControlFlow, statement: Statement) -> bool:
    """Return whether a statement is shown as run or not run; definitions and plain strings are not."""
    parent = None
    if statement.parent >= 0:
        parent = source.all[statement.parent].node
    return not (
        isinstance(statement.node, _WITHOUT_STATE)
        or isinstance(parent, ast.ClassDef)
        or is_text(statement.node)
    )


def _call_completed(settled: SettledFrames, frame: Frame) -> bool:
    """Return whether the call that a frame belongs to is known to have completed, so that later statements ran too.

    That is known if it ran inside a module's call that completed, or if its caller went on to a later statement,
    provided that no ``try`` in between can have caught an error.
    """
    while frame.parent >= 0:
        statement = settled.statement[frame.number]
        caller = settled.frames[frame.parent]
        source = settled.sources.get(frame.place.file)
        if statement is None or source is None or may_be_left(source, statement):
            return False
        if statement.function < 0 or not source.is_plain_function(statement.function):
            return False
        if frame.failed and is_in_with(source, statement):
            return False
        if frame.in_module and caller.modules_completed:
            return True
        if frame.called and settled.statement_completed(caller.number):
            return True
        frame = caller
    return False


# ---------------------------------------------------------------- what it gave


def _note(file: str, settled: SettledFrames, statement: Statement, frames: list[Frame]) -> LineNote:
    """Return the note of one statement, without its state. ``frames`` are those whose results it shows."""
    note = LineNote(statement.first_line)
    note.notes = _notes_by_slot(file, settled, statement)
    if not any(each.outcome for each in note.notes):
        note.notes = _computed(settled, frames)
    if not frames:
        return note
    times = [
        settled.times(caller, file, statement)
        for caller in settled.callers.get((file, statement.function), {})
        if (caller, file, statement.number) in settled.below
    ]
    if times:
        note.runs = _sum_if_all_known(times)
    note.errors = _errors(frames)
    note.spent_ns = _spent(frames)
    return note


def _sum_if_all_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of some numbers; None if one of them is None."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _notes_by_slot(file: str, settled: SettledFrames, statement: Statement) -> list[Note]:
    """Return a note for each slot of a statement, over all callers.

    A slot may have another label under another caller: ``x[0] = y`` changes ``x`` if that is a tensor, and otherwise
    assigns to ``x[0]``. Then it has a note for each label.
    """
    by_caller = [
        settled.outcomes_of_slots(caller, file, statement)
        for caller in settled.callers.get((file, statement.function), {})
    ]
    notes: list[Note] = []
    for one_slot in zip(*by_caller, strict=True):
        labels = list(
            dict.fromkeys((slot.label, slot.kind) for slot, outcome in one_slot if outcome)
        )
        if not labels:
            first, _ = one_slot[0]
            labels = [(first.label, first.kind)]
        for label, kind in labels:
            outcomes = [
                outcome for slot, outcome in one_slot if (slot.label, slot.kind) == (label, kind)
            ]
            notes.append(Note(label, kind, merged(outcomes)))
    return notes


class _Counted(NamedTuple):
    """A statement that has a count by its steps."""

    times: int
    """How often it ran."""
    frames: list[int]
    """The numbers of its frames."""


class _Neighbours(NamedTuple):
    """The nearest counted statements before and after a statement, up to one that may leave the suite."""

    before: _Counted | None
    after: _Counted | None


class _SuiteCounts:
    """Counts statements without a step by their neighbours in the same suite."""

    def __init__(self, file: str, settled: SettledFrames) -> None:
        self._file = file
        self._settled = settled
        self._source = settled.sources[file]
        self._neighbours: dict[tuple[int, Suite], list[_Neighbours]] = {}
        """By caller and suite, the neighbours of each statement of the suite."""

    def count_of(self, statement: Statement) -> int | None:
        """Return how often a statement ran; None if that is not certain.

        A statement that every ``forward`` runs once ran as often as the module was called. A statement between two
        that ran equally often ran as often as they did. With only one neighbour that is so if the calls completed,
        since then no error came in between.
        """
        total = 0
        settled = self._settled
        for caller in settled.callers.get((self._file, statement.function), {}):
            calls = settled.calls(caller, self._file, statement.function)
            if calls and self._source.runs_once_per_completed_call(statement):
                total += sum(each.count for each in calls)
                continue
            before, after = self._neighbours_of(caller, statement)
            neighbour = before or after
            if neighbour is None:
                return None
            is_between = before is not None and after is not None and before.times == after.times
            if not is_between and not self._calls_completed(neighbour.frames):
                return None
            total += neighbour.times
        return total or None

    def _calls_completed(self, numbers: list[int]) -> bool:
        """Return whether the calls of these frames, which are at one statement, completed."""
        frames = [self._settled.frames[number] for number in numbers]
        statement = self._settled.statement[numbers[0]]
        if statement is None:
            return False
        if any(each.failed for each in frames) and is_in_with(self._source, statement):
            return False
        return any(_call_completed(self._settled, each) for each in frames)

    def _neighbours_of(self, caller: int, statement: Statement) -> _Neighbours:
        key = (caller, statement.suite)
        if key not in self._neighbours:
            suite = self._source.suites[statement.suite]
            before = self._counted_before(caller, suite)
            after = self._counted_after(caller, suite)
            self._neighbours[key] = list(map(_Neighbours, before, after))
        return self._neighbours[key][statement.place]

    def _counted_before(self, caller: int, suite: list[int]) -> list[_Counted | None]:
        """Return for each statement of a suite the last counted one before it."""
        by_statement: list[_Counted | None] = []
        last: _Counted | None = None
        for number in suite:
            by_statement.append(last)
            last = self._counted(caller, number) or last
            if number in self._source.jumping:
                last = None
        return by_statement

    def _counted_after(self, caller: int, suite: list[int]) -> list[_Counted | None]:
        """Return for each statement of a suite the first counted one after it."""
        by_statement: list[_Counted | None] = []
        following: _Counted | None = None
        for number in reversed(suite):
            if number in self._source.jumping:
                following = None
            by_statement.append(following)
            following = self._counted(caller, number) or following
        by_statement.reverse()
        return by_statement

    def _counted(self, caller: int, number: int) -> _Counted | None:
        """Return how often a statement was reached, by its steps; None if they do not show it."""
        times = self._settled.passes(caller, self._file, self._source.all[number])
        if times is None:
            return None
        return _Counted(times, self._settled.below[caller, self._file, number])


def _errors(frames: Iterable[Frame]) -> dict[str, int]:
    """Return the errors that the steps of a line raised, with how often. One that passed through calls counts once."""
    errors: dict[str, int] = {}
    for frame in frames:
        for steps in made_by(frame):
            if steps.event.error:
                errors[steps.event.error] = errors.get(steps.event.error, 0) + steps.count
    return errors


def _computed(settled: SettledFrames, frames: Iterable[Frame]) -> list[Note]:
    """Return a note of the last value computed on a line that assigns and returns nothing; [] if there is none."""
    with_steps = [frame for frame in frames if made_by(frame)]
    if not with_steps:
        return []
    last = max(with_steps, key=_last_step)
    outcome = merged(settled.computed(frame) for frame in with_steps if frame.place == last.place)
    if outcome:
        return [Note("", "computed", outcome, bool(last_made(last)))]
    return []


def _last_step(frame: Frame) -> int:
    """Return the id of the last step that the expression of a frame made."""
    return max(steps.last for steps in made_by(frame))


def _spent(frames: list[Frame]) -> int:
    """Return how long the steps of a line took. The time of a call does not contain that of its arguments."""
    return sum(each.spent_ns for frame in frames for each in all_made(frame))


def _notes_without_source(settled: SettledFrames, frames: list[Frame]) -> list[LineNote]:
    """Return notes for frames whose source is not known, grouped by line, function and text."""
    by_line: dict[tuple[str, int, str], list[Frame]] = {}
    for frame in frames:
        place = frame.place
        by_line.setdefault((place.function, place.where.line, place.source), []).append(frame)
    notes: list[LineNote] = []
    for (function, line, source), here in by_line.items():
        with_steps = [frame for frame in here if made_by(frame)]
        last = max(with_steps, key=_last_step, default=None)
        note = LineNote(line, function=function, source=source)
        if last is not None:
            # The frames of the last expression, one under each of its callers.
            same = [frame for frame in with_steps if frame.place == last.place]
            steps = [each for frame in same for each in last_made(frame)]
            note.runs = sum(each.count for each in steps) or None
            event = made_by(last)[0].event
            kind = "computed"
            if event.target:
                kind = "assigned"
            note.notes = [
                Note(
                    ", ".join(event.target), kind, merged(map(settled.computed, same)), bool(steps)
                )
            ]
            note.source = source or event.code
        note.errors = _errors(here)
        notes.append(note)
    return sorted(notes, key=lambda each: each.line)
