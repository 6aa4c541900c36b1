"""The first event, in the order in which they ended, whose outputs are bad while its inputs are not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from torchglass.events.gradients import CHECKS
from torchglass.events.types import Event, Value
from torchglass.views.bad import judge
from torchglass.views.digest import Recorded

NEVER = 1 << 62
MOST_USES = 1000
"""Uses of a mask that are followed."""
SKIPPED = "an overflow of scaled gradients before it is not counted: GradScaler saw it, and skipped the step"


@dataclass(slots=True)
class Found:
    """The first bad values: what made them, or what first took them where they came from outside."""

    event: Event
    values: tuple[Value, ...]
    came_in: bool
    """They were bad already when they were first seen."""
    after: list[Event] = field(default_factory=list[Event])
    """Events that passed it on, in order."""
    notes: list[str] = field(default_factory=list[str])


def first_bad(trace: Recorded, test: judge.Test, allow: tuple[str, ...] = ()) -> Found | None:
    """None when there is no bad value, or only such as were meant."""
    return _Search(trace, test, allow).found()


def _is_new_in(around: Event, value: Value) -> bool:
    """Whether what an op took was made by the function around it, out of sight: from a number, as in ``x[0] = inf``."""
    return all(value.id != each.id for each in around.inputs)


def _scales(event: Event, function: str = "") -> bool:
    """Whether a GradScaler did it: the scaled loss may overflow, too."""
    return any(
        frame.origin == "torch" and frame.file.endswith("grad_scaler.py") and function in frame.function
        for frame in event.stack
    )


class _Search:
    """One trace while it is gone through."""

    def __init__(self, trace: Recorded, test: judge.Test, allow: tuple[str, ...]) -> None:
        self._test, self._allow = test, allow
        self._events = list(trace.events())
        known = [event for event in self._events if event.kind not in ("variable", "mark") and event.end_ns is not None]
        self._ended = sorted(known, key=lambda event: (event.end_ns or 0, -event.id))
        self._excused: set[int] = set()
        """Values that are bad and were meant to be."""
        self._checked: set[int] = set()
        self._uses: dict[int, list[Event]] | None = None
        self._skipped = self._steps_skipped(trace.complete)

    def found(self) -> Found | None:
        """The first that is not excused, with what came after it."""
        met: set[int] = set()
        notes: list[str] = []
        for event in self._ended:
            if event.inputs and judge.overwrites(event):
                self._excused.add(event.inputs[0].id)
            taken = [value for value in event.inputs if self._is_bad(value)]
            outside = [value for value in taken if value.producer is None and value.id not in met]
            met.update(value.id for value in outside)
            made = [value for value in event.outputs if value.producer == event.id and self._is_bad(value)]
            if self._is_skipped(event):
                self._excused.update(value.id for value in (*outside, *made))
                notes = [SKIPPED] if outside or made else notes
                continue
            outside = [value for value in outside if not self._is_mask(value)]
            around = self._function_around(event)
            inner = [value for value in outside if around is not None and _is_new_in(around, value)]
            if inner and around is not None:
                outside = [value for value in outside if value not in inner]
                if not self._is_meant(around, inner):
                    given = [value for value in around.outputs if self._is_bad(value)]
                    return self._told(around, given or inner, False, notes)
            if outside:
                return self._told(self._first_taker(outside[0], event), outside, True, notes)
            if made and not any(map(self._is_bad, taken)) and not self._is_meant(event, made):
                return self._told(self._shown(event, made), made, False, notes)
        return None

    def _function_around(self, event: Event) -> Event | None:
        """The function that an op ran in."""
        around = None if event.kind != "op" or event.parent is None else self._events[event.parent]
        return around if around is not None and around.kind == "function" and event.phase == "forward" else None

    def _is_bad(self, value: Value) -> bool:
        return value.stats is not None and value.id not in self._excused and self._test(value.stats)

    def _is_meant(self, event: Event, made: list[Value]) -> bool:
        """Whether an event did what it was told; then what it made is no longer bad."""
        inherits = any(value.id in self._excused for value in event.inputs)
        meant = (
            judge.UNFILLED.match(judge.base_name(event)) is not None
            or judge.is_allowed(event, self._allow)
            or judge.is_written(event, made)
            or (inherits and all(judge.only_minus(value) for value in made))
            or (inherits and judge.base_name(event) in judge.PASSES and all(map(judge.only_infinite, made)))
        )
        if meant:
            self._excused.update(value.id for value in made)
        return meant or all(map(self._is_mask, made))

    # Masks that are known by what becomes of them

    def _is_mask(self, value: Value) -> bool:
        """Whether -inf is added to scores that then go through a softmax, and to nothing else."""
        if not judge.only_minus(value) or not self._ends_in_softmax(value.id):
            return False
        self._excused.add(value.id)
        return True

    def _ends_in_softmax(self, value: int) -> bool:
        uses, pending, seen, reached = self._all_uses(), [value], {value}, False
        while pending:
            for event in uses.get(pending.pop(), ()):
                name = judge.base_name(event)
                if name in judge.ENDS:
                    reached = True
                    continue
                if name not in judge.ADDS and name not in judge.PASSES:
                    return False
                fresh = [each.id for each in event.outputs if each.id not in seen]
                seen.update(fresh)
                pending += fresh
                if len(seen) > MOST_USES:
                    return False
        return reached

    def _all_uses(self) -> dict[int, list[Event]]:
        """By value: the functions and ops that took it."""
        if self._uses is None:
            self._uses = defaultdict(list)
            for event in self._ended:
                if event.kind in ("function", "op") and event.phase == "forward":
                    for value in event.inputs:
                        self._uses[value.id].append(event)
        return self._uses

    # Steps that a GradScaler skipped

    def _steps_skipped(self, is_over: bool) -> list[tuple[int, int]]:
        """From when to when backward ran whose overflow was seen: up to the check, from the check before it.

        In a recording that is not over, a scaled loss whose gradients are still to be checked is left to the check.
        """
        spans: list[tuple[int, int]] = []
        before, scaled = 0, 0
        for event in self._ended:
            if CHECKS in event.name:
                if any(value.stats is not None and judge.is_nonfinite(value.stats) for value in event.inputs):
                    spans.append((before, event.end_ns or 0))
                before = event.end_ns or 0
            elif not is_over and _scales(event, "GradScaler.scale"):
                scaled = event.end_ns or 0
        return [*spans, (before, NEVER)] if scaled > before else spans

    def _is_skipped(self, event: Event) -> bool:
        if not self._skipped or (event.phase != "backward" and CHECKS not in event.name and not _scales(event)):
            return False
        return any(first < (event.end_ns or 0) <= last for first, last in self._skipped)

    # What is told

    def _first_taker(self, value: Value, event: Event) -> Event:
        """The first event that took it, from the outside: a call of the model rather than an op in it."""
        return next((each for each in self._events if any(value.id == one.id for one in each.inputs)), event)

    def _shown(self, event: Event, made: list[Value]) -> Event:
        """The function that ran an op: it has the expression."""
        around = None if event.parent is None else self._events[event.parent]
        given = {value.id for value in made}
        if event.kind == "op" and around is not None and around.kind == "function":
            return around if given & {value.id for value in around.outputs} else event
        return event

    def _told(self, event: Event, values: list[Value], came_in: bool, notes: list[str]) -> Found:
        since = event.start_ns if came_in else (event.end_ns or 0)
        after = [each for each in self._ended if (each.end_ns or 0) > since and each.id != event.id]
        spread = [
            each for each in after if any(map(self._is_bad, each.outputs)) and any(map(self._is_bad, each.inputs))
        ]
        return Found(event, tuple(values), came_in, spread, notes)
