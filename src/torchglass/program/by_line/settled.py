"""Finds for each frame its statement, how often it ran, and what its expression gave.

The words *frame*, *step*, *caller* and *slot* are explained in ``notes.py``.

A frame with steps has its count and its result from them. If the expression calls a function of the program instead,
the frame takes both from the frames in that function::

    h = encode(x)           # a frame without steps: ran 8 times, and gave what ``return y`` gave
    def encode(x):
        y = x.exp()         # every call runs this once, and it ran 8 times
        return y

To *settle* a frame is to find its count and its result. Frames are settled from the innermost outwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchglass.events.types import Event
from torchglass.program.by_line.frames import AlikeSteps, Frame, is_lambda, is_nested
from torchglass.program.by_line.made import CALLING_BACK, last_made, last_op
from torchglass.program.by_line.results import (
    Outcome,
    changed_by,
    merged,
    module_path,
    part,
    result_of,
)
from torchglass.source.definitions import definition, runs_as_often
from torchglass.source.flow import ControlFlow, is_in_with, may_be_left
from torchglass.source.slots import AssignedSlot, slots_of
from torchglass.source.statements import Span, Statement

_Under = tuple[int, str, int]
"""What ran under one caller: the number of the caller's frame, a file, and a statement or function in that file."""


class SettledFrames:
    """The statement of every frame, how often it ran, and what its expression gave.

    ``caller`` is always the number of the frame that called the function of a statement (-1: none).
    """

    def __init__(self, frames: list[Frame], sources: Mapping[str, ControlFlow]) -> None:
        self.frames = frames
        self.sources = sources
        self.statement: list[Statement | None] = [self._statement(frame) for frame in frames]
        """By frame, the statement that it is in; None if the text of its file is not known."""
        self.outcome: list[Outcome] = [Outcome()] * len(frames)
        """By frame, what its expression gave."""
        self.times_run: list[int | None] = [None] * len(frames)
        """By frame, how often its expression ran; None if that is not known."""
        self.below: dict[_Under, list[int]] = {}
        """The frames of each statement under one caller."""
        self._at: dict[_Under, dict[Span, list[int]]] = {}
        """The same, by the place of the frame."""
        self._times: dict[_Under, int | None] = {}
        """Cached results of ``times``."""
        self._step_counts: dict[_Under, int | None] = {}
        """Cached results of ``_from_same_statement``."""
        self._slots: dict[tuple[str, int], list[AssignedSlot]] = {}
        self._forwards: dict[_Under, set[str]] = {}
        """For functions that ran as the ``forward`` of modules under one caller, the classes of these modules."""
        self._may_catch: set[_Under] = set()
        """Functions in which a context manager may have caught an error."""
        self.callers: dict[tuple[str, int], dict[int, None]] = {}
        """By file and function (-1: the top level of the file), the frames that called it, in order."""
        for frame, statement in zip(frames, self.statement, strict=True):
            if statement is not None and frame.is_selected:
                file = frame.place.file
                under = (frame.parent, file, statement.number)
                self.below.setdefault(under, []).append(frame.number)
                self._at.setdefault(under, {}).setdefault(frame.place.where, []).append(
                    frame.number
                )
                self._note_forward(frame, statement)
                callers = self.callers.setdefault((file, statement.function), {})
                if not is_nested(frame):
                    callers[frame.parent] = None
        # Callers come before what they call, so this goes from the innermost frames outwards.
        for frame in reversed(frames):
            self._settle(frame)

    def outcomes_of_slots(
        self, caller: int, file: str, statement: Statement
    ) -> list[tuple[AssignedSlot, Outcome]]:
        """Return what a statement assigned to each of its targets, or returned, under one caller."""
        outcomes: list[tuple[AssignedSlot, Outcome]] = []
        for slot in self._slots_of(file, statement):
            stored = self._from_store(caller, file, statement, slot)
            if stored:
                outcomes.append((slot._replace(label=slot.whole, kind="changed"), stored))
                continue
            if slot.kind == "changed" and isinstance(statement.node, ast.Expr):
                slot = self._changed(caller, file, statement, slot)
            outcome = self._from_nodes(caller, file, statement, slot)
            if not outcome and slot.kind == "returned":
                outcome = self._from_name(caller, file, statement, slot)
                outcome = outcome or self._from_module(caller, file, statement, slot)
            if slot.part is not None and slot.length >= 0:
                outcome = part(outcome, slot.part, slot.length, slot.starred)
            outcomes.append((slot, outcome))
        return outcomes

    def _slots_of(self, file: str, statement: Statement) -> list[AssignedSlot]:
        key = (file, statement.number)
        if key not in self._slots:
            self._slots[key] = slots_of(statement.node, self.sources[file].text)
        return self._slots[key]

    def times(self, caller: int, file: str, statement: Statement) -> int | None:
        """Return how often a statement ran under one caller; None if its steps do not show it."""
        under = (caller, file, statement.number)
        if under not in self._times:
            runs = [
                self.times_run[number] or 0
                for number in self.below.get(under, ())
                if not self._is_irregular(self.frames[number], statement)
            ]
            self._times[under] = max(runs, default=0) or None
        return self._times[under]

    def calls(self, caller: int, file: str, function: int) -> list[AlikeSteps]:
        """Return the module calls under one caller that ran a function as ``forward``, if all of them completed.

        Then each of them ran once what every completed call runs once. Otherwise return ``[]``.
        """
        names = self._forwards.get((caller, file, function))
        if not names or caller < 0 or (caller, file, function) in self._may_catch:
            return []
        calls = [each for each in self.frames[caller].module_calls if each.event.name in names]
        if all(each.completed for each in calls):
            return calls
        return []

    def computed(self, frame: Frame) -> Outcome:
        """Return what a frame computed last, even if it is not known what became of it."""
        return self.outcome[frame.number] or _outcome(last_op(frame))

    def statement_completed(self, number: int) -> bool:
        """Return whether all runs of a frame's statement completed: a later statement of its suite ran as often."""
        frame = self.frames[number]
        statement = self.statement[number]
        if statement is None or hasattr(statement.node, "body"):
            return False
        file = frame.place.file
        source = self.sources[file]
        times = self.times(frame.parent, file, statement)
        if times is None:
            return False
        later = source.suites[statement.suite][statement.place + 1 :]
        return any(self.passes(frame.parent, file, source.all[each]) == times for each in later)

    def passes(self, caller: int, file: str, statement: Statement) -> int | None:
        """Return how often a statement was reached; None for a ``while``, whose condition runs more often."""
        if isinstance(statement.node, ast.While):
            return None
        return self.times(caller, file, statement)

    def _statement(self, frame: Frame) -> Statement | None:
        source = None
        if not frame.has_other_text:
            source = self.sources.get(frame.place.file)
        if source is None:
            return None
        return source.at(frame.place.where.line, frame.place.where.col)

    def _from_nodes(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return what the nodes of a slot gave."""
        if slot.part is not None and len(slot.nodes) > 1:
            # If a tensor was unpacked, that is a step at the targets; the value itself must not be counted too.
            unpacked = self._at_nodes(caller, file, statement, slot.nodes[-1:])
            return unpacked or self._at_nodes(caller, file, statement, slot.nodes[:-1])
        return self._at_nodes(caller, file, statement, slot.nodes)

    def _at_nodes(
        self, caller: int, file: str, statement: Statement, nodes: Sequence[ast.expr | ast.stmt]
    ) -> Outcome:
        source = self.sources[file]
        at = self._at.get((caller, file, statement.number), {})
        ranges = {where for node in nodes for where in source.ranges(node)}
        return merged(self.outcome[number] for number in sorted(_numbers(at, ranges)))

    def _changed(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> AssignedSlot:
        """Return the slot of what ``a.b_(x)`` changed: ``a`` for a method of a tensor, ``x`` for a function.

        For any other call it is a slot of kind ``computed``.
        """
        at = self._at.get((caller, file, statement.number), {})
        ranges = {where for node in slot.nodes for where in self.sources[file].ranges(node)}
        events = [
            each.event for number in _numbers(at, ranges) for each in last_made(self.frames[number])
        ]
        if events and all(event.name.startswith("Tensor.") for event in events):
            return slot
        if slot.whole and events and all(map(_changes_its_input, events)):
            return slot._replace(label=slot.whole)
        return slot._replace(label="", kind="computed")

    def _from_store(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return the tensor that ``x[i] = y`` changed; an empty outcome if ``x`` is no tensor (but a dict …)."""
        if slot.target is None:
            return Outcome()
        at = self._at.get((caller, file, statement.number), {})
        numbers = sorted(_numbers(at, set(self.sources[file].ranges(slot.target))))
        stores = [last for number in numbers if (last := last_made(self.frames[number]))]
        return merged(_outcome(steps) for steps in stores if steps[0].event.operator == "[]=")

    def _from_name(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return what ``return x`` gave, from the statement that assigned ``x``."""
        node = None
        if slot.nodes:
            node = slot.nodes[0]
        if not isinstance(node, ast.Name):
            return Outcome()
        assignment = definition(self.sources[file], statement, node.id)
        if assignment is None or not runs_as_often(self.sources[file], assignment, statement):
            return Outcome()
        return merged(
            outcome
            for each, outcome in self.outcomes_of_slots(caller, file, assignment)
            if each.label == node.id and each.kind != "returned"
        )

    def _from_module(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return what the only ``return`` of a ``forward`` gave: what the module returned."""
        if not self.sources[file].is_only_return(statement):
            return Outcome()
        returned = _outcome(
            each for each in self.calls(caller, file, statement.function) if each.count
        )
        if slot.part is None:
            return returned
        tuples = Outcome()
        for (result, path), times in returned.counted.items():
            if all(item.role[:1] == "[" for item in result.items):
                tuples.add(result, path, times)
        return part(tuples, slot.part, 0)

    def _note_forward(self, frame: Frame, statement: Statement) -> None:
        """Note whether the function of a statement is the ``forward`` of the modules that ran the frame."""
        file = frame.place.file
        function = statement.function
        source = self.sources[file]
        if frame.failed and is_in_with(source, statement):
            self._may_catch.add((frame.parent, file, function))
        if not frame.run_by or function < 0 or frame.called or is_nested(frame):
            return
        if getattr(source.all[function].node, "name", "") == "forward" and source.is_plain_function(
            function
        ):
            names = self._forwards.setdefault((frame.parent, file, function), set())
            names.update(each.event.name for each in frame.run_by.values())

    def _settle(self, frame: Frame) -> None:
        """Find how often a frame ran and what it gave: from its own steps, or from the function that it called."""
        direct = last_made(frame)
        number = frame.number
        if not direct and (frame.steps or is_nested(frame)):
            return
        called = self._called_functions(frame)
        if len(called) == 1:
            file, function = called.pop()
            self._settle_call(frame, file, function, is_only_call=not direct)
            runs = self.times_run[number]
            if direct and runs is not None:
                self.times_run[number] = runs + sum(each.count for each in direct)
            outcome = self.outcome[number]
            if direct and outcome:
                self.outcome[number] = merged([_outcome(direct), outcome])
        elif direct and not called and not self._calls_lambda(frame):
            self.times_run[number] = sum(each.count for each in direct)
            self.outcome[number] = _outcome(direct)

    def _calls_lambda(self, frame: Frame) -> bool:
        """Return whether a frame's expression called a lambda of the program."""
        for number in frame.children:
            child = self.frames[number]
            if child.called and not child.in_step and is_lambda(child):
                return True
        return False

    def _called_functions(self, frame: Frame) -> set[tuple[str, int]]:
        """Return the program's functions that a frame's expression called, with their files."""
        found: set[tuple[str, int]] = set()
        for number in frame.children:
            child = self.frames[number]
            statement = self.statement[number]
            if statement is not None and self._calls(frame, child, statement):
                found.add((child.place.file, statement.function))
        return found

    def _settle_call(self, frame: Frame, file: str, function: int, is_only_call: bool) -> None:
        """Find how often a call of one of the program's functions ran, and what it returned."""
        source = self.sources[file]
        statement = self.statement[frame.number]
        inside = source.by_function[function]
        may_catch = statement is None or may_be_left(self.sources[frame.place.file], statement)
        counts: list[int] = []
        for each in inside:
            if source.runs_once_per_call(each, may_catch):
                times = self.times(frame.number, file, each)
                if times is not None:
                    counts.append(times)
        runs = max(counts, default=None)
        if runs is None and is_only_call:
            runs = self._from_same_statement(frame)
        self.times_run[frame.number] = runs
        self.outcome[frame.number] = self._returned(frame.number, file, inside)

    def _from_same_statement(self, frame: Frame) -> int | None:
        """Return how often a frame ran, by steps elsewhere in its statement; None if there are none."""
        file = frame.place.file
        statement = self.statement[frame.number]
        if statement is None or self._is_irregular(frame, statement):
            return None
        under = (frame.parent, file, statement.number)
        if under not in self._step_counts:
            others = [self.frames[at] for at in self.below.get(under, ())]
            regular = [each for each in others if not self._is_irregular(each, statement)]
            counts = [sum(each.count for each in last_made(each)) for each in regular]
            self._step_counts[under] = max(counts, default=0) or None
        return self._step_counts[under]

    def _is_irregular(self, frame: Frame, statement: Statement) -> bool:
        """Return whether a frame may run more or less often than its statement."""
        source = self.sources[frame.place.file]
        where = frame.place.where
        return (
            is_nested(frame)
            or source.is_repeated(statement, where)
            or source.is_conditional(statement, where)
        )

    def _returned(self, caller: int, file: str, inside: list[Statement]) -> Outcome:
        """Return what a function returned; an empty outcome if one of its returns may have given something else."""
        known: list[Outcome] = []
        is_one_unknown = False
        returns = [each for each in inside if isinstance(each.node, ast.Return)]
        for statement in returns:
            slots = self.outcomes_of_slots(caller, file, statement)
            outcomes = [outcome for _, outcome in slots]
            if not any(outcomes):
                is_one_unknown = True
            elif slots[0][0].part is not None:
                known.append(Outcome(parts=tuple(outcome or None for outcome in outcomes)))
            else:
                known.append(outcomes[0])
        outcome = merged(known)
        runs = self.times_run[caller]
        if is_one_unknown and (runs is None or outcome.times < runs):
            return Outcome()
        return outcome

    def _calls(self, caller: Frame, callee: Frame, inside: Statement) -> bool:
        """Return whether the caller's expression is a call of the callee's function, so that it has its result."""
        if not callee.called or callee.in_step or is_nested(callee) or inside.function < 0:
            return False
        statement = self.statement[caller.number]
        if statement is None or not self.sources[callee.place.file].is_plain_function(
            inside.function
        ):
            return False
        node = self.sources[caller.place.file].node_at(statement, caller.place.where)
        name = callee.place.function.rpartition(".")[2]
        if isinstance(node, ast.Attribute):
            return node.attr == name
        if not isinstance(node, ast.Call):
            return False
        called = _last_name(node.func)
        if called == name:
            return True
        # Under another name: an alias, unless the function is called back by torch or by a function in C.
        arguments = {
            _last_name(each) for argument in _arguments(node) for each in ast.walk(argument)
        }
        is_special = name.startswith("__") and name != "__call__"
        return called not in CALLING_BACK and name not in arguments and not is_special


def _outcome(steps: Iterable[AlikeSteps]) -> Outcome:
    """Return what these steps gave."""
    outcome = Outcome()
    for each in steps:
        event = each.event
        if not each.completed:
            continue
        if event.operator == "[]=":
            result = changed_by(event, each.measured)
        else:
            result = result_of(event, each.measured)
        outcome.add(result, module_path(event), each.count)
    return outcome


def _changes_its_input(event: Event) -> bool:
    """Return whether the first output of an event has the memory of its first input."""
    inputs = event.inputs[:1]
    outputs = event.outputs[:1]
    return bool(inputs and outputs) and inputs[0].storage == outputs[0].storage


def _numbers(at: Mapping[Span, list[int]], ranges: Iterable[Span]) -> Iterator[int]:
    return (number for where in ranges for number in at.get(where, ()))


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


def _arguments(node: ast.Call) -> Iterator[ast.expr]:
    yield from node.args
    yield from (each.value for each in node.keywords)
