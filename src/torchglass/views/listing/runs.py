"""What is known of each frame: its statement, how often it ran, and what its expression gave."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchglass.events.types import Event
from torchglass.source.flow import ControlFlow, definition, is_in_with, may_be_left, runs_as_often
from torchglass.source.statements import Span, Statement
from torchglass.views.listing.frames import AlikeSteps, Frame, is_lambda, is_nested
from torchglass.views.listing.made import CALLING_BACK, AssignedSlot, last_made, last_op, slots_of
from torchglass.views.listing.results import Outcome, changed_by, merged, part, result_of

_Under = tuple[int, str, int]
"""A caller's frame, a file, and the number of a statement or function in it."""


class Runs:
    """What is known of every frame: its statement, how often it ran, what its expression gave."""

    def __init__(self, frames: list[Frame], sources: Mapping[str, ControlFlow]) -> None:
        self.frames = frames
        self.sources = sources
        self.statement: list[Statement | None] = [self._statement(frame) for frame in frames]
        self.outcome: list[Outcome] = [Outcome()] * len(frames)
        self.runs: list[int | None] = [None] * len(frames)
        self.below: dict[_Under, list[int]] = {}
        """The frames of a statement under one caller."""
        self._at: dict[_Under, dict[Span, list[int]]] = {}
        """The same by place."""
        self._times: dict[_Under, int | None] = {}
        self._counts: dict[_Under, int | None] = {}
        self._slots: dict[tuple[str, int], list[AssignedSlot]] = {}
        self._forwards: dict[_Under, set[str]] = {}
        """Functions that are the ``forward`` of modules, under the frame that called these: their classes."""
        self._caught: set[_Under] = set()
        """Functions in which a context manager may have caught an error."""
        self.callers: dict[tuple[str, int], dict[int, None]] = {}
        """The frames that a function (-1: the module's own code) was called from."""
        for frame, statement in zip(frames, self.statement, strict=True):
            if statement is not None and frame.live:
                file = frame.place.file
                under = (frame.parent, file, statement.number)
                self.below.setdefault(under, []).append(frame.number)
                self._at.setdefault(under, {}).setdefault(frame.place.where, []).append(frame.number)
                self._note_forward(frame, statement)
                callers = self.callers.setdefault((file, statement.function), {})
                if not is_nested(frame):
                    callers[frame.parent] = None
        for frame in reversed(frames):  # what is called is known before its caller
            self._settle(frame)

    def slots(self, caller: int, file: str, statement: Statement) -> list[tuple[AssignedSlot, Outcome]]:
        """What a statement gave to each of its targets, or returned, under one caller."""
        found: list[tuple[AssignedSlot, Outcome]] = []
        for slot in self._slots_of(file, statement):
            stored = self._from_store(caller, file, statement, slot)
            if stored:
                found.append((slot._replace(label=slot.whole, kind="changed"), stored))
                continue
            if slot.kind == "changed" and isinstance(statement.node, ast.Expr):
                slot = self._changed(caller, file, statement, slot)
            outcome = self._from_nodes(caller, file, statement, slot)
            if not outcome and slot.kind == "returned":
                outcome = self._from_name(caller, file, statement, slot)
                outcome = outcome or self._from_module(caller, file, statement, slot)
            if slot.part is not None and slot.length >= 0:
                outcome = part(outcome, slot.part, slot.length, slot.starred)
            found.append((slot, outcome))
        return found

    def _slots_of(self, file: str, statement: Statement) -> list[AssignedSlot]:
        key = (file, statement.number)
        if key not in self._slots:
            self._slots[key] = slots_of(statement.node, self.sources[file].text)
        return self._slots[key]

    def times(self, caller: int, file: str, statement: Statement) -> int | None:
        """How often a statement ran under one caller; None when its steps do not tell."""
        under = (caller, file, statement.number)
        if under not in self._times:
            runs = [
                self.runs[number] or 0
                for number in self.below.get(under, ())
                if not self._is_irregular(self.frames[number], statement)
            ]
            self._times[under] = max(runs, default=0) or None
        return self._times[under]

    def calls(self, caller: int, file: str, function: int) -> list[AlikeSteps]:
        """The module calls under one caller that ran this function as ``forward``.

        ``[]``: not known, or not all came to their end. Else each of them ran what every call runs once.
        """
        names = self._forwards.get((caller, file, function))
        if not names or caller < 0 or (caller, file, function) in self._caught:
            return []
        made = [each for each in self.frames[caller].module_calls if each.event.name in names]
        return made if all(each.ended_well for each in made) else []

    def computed(self, frame: Frame) -> Outcome:
        """What a frame gave last, be it known what became of it or not."""
        return self.outcome[frame.number] or _outcome(last_op(frame))

    def completed(self, number: int) -> bool:
        """Whether every run of a frame's statement is known to have come to its end: a later one ran as often."""
        frame, statement = self.frames[number], self.statement[number]
        if statement is None or hasattr(statement.node, "body"):
            return False
        file = frame.place.file
        source, times = self.sources[file], self.times(frame.parent, file, statement)
        later = source.suites[statement.suite][statement.place + 1 :] if times is not None else []
        return any(self.passes(frame.parent, file, source.all[each]) == times for each in later)

    def passes(self, caller: int, file: str, statement: Statement) -> int | None:
        """How often a statement was come to: the condition of a ``while`` runs more often than that."""
        return None if isinstance(statement.node, ast.While) else self.times(caller, file, statement)

    def _statement(self, frame: Frame) -> Statement | None:
        source = None if frame.unproven else self.sources.get(frame.place.file)
        return None if source is None else source.at(frame.place.where.line, frame.place.where.col)

    def _from_nodes(self, caller: int, file: str, statement: Statement, slot: AssignedSlot) -> Outcome:
        if slot.part is not None and len(slot.nodes) > 1:
            # A tensor was unpacked: that is a step at the targets, and what it was made from must not count again.
            unpacked = self._at_nodes(caller, file, statement, slot.nodes[-1:])
            return unpacked or self._at_nodes(caller, file, statement, slot.nodes[:-1])
        return self._at_nodes(caller, file, statement, slot.nodes)

    def _at_nodes(self, caller: int, file: str, statement: Statement, nodes: Sequence[ast.expr | ast.stmt]) -> Outcome:
        source, at = self.sources[file], self._at.get((caller, file, statement.number), {})
        ranges = {where for node in nodes for where in source.ranges(node)}
        return merged(self.outcome[number] for number in sorted(_numbers(at, ranges)))

    def _changed(self, caller: int, file: str, statement: Statement, slot: AssignedSlot) -> AssignedSlot:
        """What ``a.b_(x)`` changed: ``a`` by a method of a tensor, ``x`` by a function; else it is not known."""
        at = self._at.get((caller, file, statement.number), {})
        ranges = {where for node in slot.nodes for where in self.sources[file].ranges(node)}
        events = [each.event for number in _numbers(at, ranges) for each in last_made(self.frames[number])]
        if events and all(event.name.startswith("Tensor.") for event in events):
            return slot
        if slot.whole and events and all(_changes_what_it_is_given(event) for event in events):
            return slot._replace(label=slot.whole)
        return slot._replace(label="", kind="computed")

    def _from_store(self, caller: int, file: str, statement: Statement, slot: AssignedSlot) -> Outcome:
        """The tensor of which a part was set; nothing where the object is another, as a dict."""
        if slot.target is None:
            return Outcome()
        at = self._at.get((caller, file, statement.number), {})
        numbers = sorted(_numbers(at, set(self.sources[file].ranges(slot.target))))
        stores = [last for number in numbers if (last := last_made(self.frames[number]))]
        return merged(_outcome(steps) for steps in stores if steps[0].event.operator == "[]=")

    def _from_name(self, caller: int, file: str, statement: Statement, slot: AssignedSlot) -> Outcome:
        node = slot.nodes[0] if slot.nodes else None
        if not isinstance(node, ast.Name):
            return Outcome()
        given = definition(self.sources[file], statement, node.id)
        if given is None or not runs_as_often(self.sources[file], given, statement):
            return Outcome()
        return merged(
            outcome
            for each, outcome in self.slots(caller, file, given)
            if each.label == node.id and each.kind != "returned"
        )

    def _from_module(self, caller: int, file: str, statement: Statement, slot: AssignedSlot) -> Outcome:
        """What the only ``return`` of a ``forward`` gave: that is what the module gave."""
        if not self.sources[file].is_only_return(statement):
            return Outcome()
        given = _outcome(each for each in self.calls(caller, file, statement.function) if each.count)
        if slot.part is None:
            return given
        given.counted = {
            key: n for key, n in given.counted.items() if all(item.role[:1] == "[" for item in key[0].items)
        }
        return part(given, slot.part, 0)

    def _note_forward(self, frame: Frame, statement: Statement) -> None:
        file, function = frame.place.file, statement.function
        source = self.sources[file]
        if frame.failed and is_in_with(source, statement):
            self._caught.add((frame.parent, file, function))
        if not frame.run_by or function < 0 or frame.called or is_nested(frame):
            return
        if getattr(source.all[function].node, "name", "") == "forward" and source.is_plain_function(function):
            names = self._forwards.setdefault((frame.parent, file, function), set())
            names.update(each.event.name for each in frame.run_by.values())

    def _settle(self, frame: Frame) -> None:
        """By the calls recorded at its place, and by those of one function of the program: ``act(x)`` may be either."""
        direct, number = last_made(frame), frame.number
        if not direct and (frame.steps or is_nested(frame)):
            return
        called = self._called(frame)
        if len(called) == 1:
            self._settle_call(frame, *called.pop(), not direct)
            if direct:
                runs, outcome = self.runs[number], self.outcome[number]
                self.runs[number] = None if runs is None else runs + sum(each.count for each in direct)
                self.outcome[number] = merged([_outcome(direct), outcome]) if outcome else outcome
        elif direct and not called:
            inside = (self.frames[child] for child in frame.children)
            if not any(each.called and not each.in_step and is_lambda(each) for each in inside):
                self.runs[number] = sum(each.count for each in direct)
                self.outcome[number] = _outcome(direct)

    def _called(self, frame: Frame) -> set[tuple[str, int]]:
        """The functions of the program's own that a frame's expression called, with their files."""
        return {
            (each.place.file, statement.function)
            for each, statement in ((self.frames[child], self.statement[child]) for child in frame.children)
            if statement is not None and self._calls(frame, each, statement)
        }

    def _settle_call(self, frame: Frame, file: str, function: int, alone: bool) -> None:
        """A call of a function of the program's own: known by what it returns; ``alone``: it is always that one."""
        source, statement = self.sources[file], self.statement[frame.number]
        inside = source.by_function[function]
        caught = statement is None or may_be_left(self.sources[frame.place.file], statement)
        told = (self.times(frame.number, file, each) for each in inside if source.tells_calls(each, caught))
        runs = max((each for each in told if each is not None), default=None)
        self.runs[frame.number] = self._beside(frame) if runs is None and alone else runs
        self.outcome[frame.number] = self._returned(frame.number, file, inside)

    def _beside(self, frame: Frame) -> int | None:
        """How often a call ran by the steps in its arguments, or elsewhere in its statement; None when unknown."""
        file, statement = frame.place.file, self.statement[frame.number]
        if statement is None or self._is_irregular(frame, statement):
            return None
        under = (frame.parent, file, statement.number)
        if under not in self._counts:
            others = [self.frames[at] for at in self.below.get(under, ())]
            regular = [each for each in others if not self._is_irregular(each, statement)]
            counts = [sum(each.count for each in last_made(each)) for each in regular]
            self._counts[under] = max(counts, default=0) or None
        return self._counts[under]

    def _is_irregular(self, frame: Frame, statement: Statement) -> bool:
        """Whether a frame may run more or less often than its statement."""
        source, where = self.sources[frame.place.file], frame.place.where
        return is_nested(frame) or source.is_repeated(statement, where) or source.is_conditional(statement, where)

    def _returned(self, caller: int, file: str, inside: list[Statement]) -> Outcome:
        """What a function returned; nothing when one of its returns may have given something unknown."""
        found: list[Outcome] = []
        unknown = False
        returns = [each for each in inside if isinstance(each.node, ast.Return)]
        for statement in returns:
            slots = self.slots(caller, file, statement)
            outcomes = [outcome for _, outcome in slots]
            if not any(outcomes):
                unknown = True
            elif slots[0][0].part is not None:
                found.append(Outcome(parts=tuple(outcome or None for outcome in outcomes)))
            else:
                found.append(outcomes[0])
        outcome = merged(found)
        runs = self.runs[caller]
        return Outcome() if unknown and (runs is None or outcome.times < runs) else outcome

    def _calls(self, caller: Frame, callee: Frame, inside: Statement) -> bool:
        """Whether the caller's expression is a call of the callee's function, so that it gives what that returns."""
        if not callee.called or callee.in_step or is_nested(callee) or inside.function < 0:
            return False
        statement = self.statement[caller.number]
        if statement is None or not self.sources[callee.place.file].is_plain_function(inside.function):
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
        given = {_last_name(each) for argument in _arguments(node) for each in ast.walk(argument)}
        special = name.startswith("__") and name != "__call__"
        return called not in CALLING_BACK and name not in given and not special


def _outcome(steps: Iterable[AlikeSteps]) -> Outcome:
    outcome = Outcome()
    for each in steps:
        event = each.event
        if each.ended_well:
            tells = changed_by if event.operator == "[]=" else result_of
            result = tells(event, each.measured)
            key = (result, event.module or (event.root if event.module == "" else None))
            outcome.counted[key] = outcome.counted.get(key, 0) + each.count
    return outcome


def _changes_what_it_is_given(event: Event) -> bool:
    given, made = event.inputs[:1], event.outputs[:1]
    return bool(given and made) and given[0].storage == made[0].storage


def _numbers(at: Mapping[Span, list[int]], ranges: Iterable[Span]) -> Iterator[int]:
    return (number for where in ranges for number in at.get(where, ()))


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _arguments(node: ast.Call) -> Iterator[ast.expr]:
    yield from node.args
    yield from (each.value for each in node.keywords)
