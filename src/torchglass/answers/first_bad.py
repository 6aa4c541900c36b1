"""Finds the first bad value: the first event, in the order of their ends, with a bad output and no bad input.

Bad values that are intended are *excused*: masks of -inf, memory that nothing has been written to yet, infinities that
the program writes itself, and the overflows that a GradScaler skips.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from torchglass.answers.carriers import Carriers
from torchglass.errors import UsageError, WrongType
from torchglass.events.gradients import OVERFLOW_CHECK
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Stats, Value
from torchglass.events.uninitialised import overwrites, plain_name, returns_uninitialised
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded, tables_of
from torchglass.views.text.words import file_name

NEVER = 1 << 62
"""Later than any time, and after any event."""
MAX_USES = 1000
"""Values made from a mask that are followed. A mask that is used more often is no ordinary one."""
SKIPPED = "an overflow of scaled gradients before it is not counted: GradScaler saw it, and skipped the step"


@dataclass(slots=True)
class Found:
    """The first bad values."""

    event: Event
    """The event that made them or, if they came from outside, the first one that took them."""
    values: tuple[Value, ...]
    came_in: bool
    """Whether they were bad already when they were first seen."""
    after: list[int] = field(default_factory=list[int])
    """The ids of the later events that took and gave bad values, in order."""
    notes: list[str] = field(default_factory=list[str])
    reached: set[int] = field(default_factory=set[int])
    """The ids of all bad values that are not excused."""


def first_bad(
    trace: Recorded, test: Test, allow: tuple[str, ...] = (), only: Selection | None = None
) -> Found | None:
    """Return the first bad value that is not intended; None if there is none.

    The values of events that ``allow`` names, or that ``only`` does not select, are excused.
    """
    return _Search(trace, test, allow, only).search()


def _is_new_in(function: Event, value: Value) -> bool:
    """Return whether a function made the input of an op in it from a number, as in ``x[0] = inf``."""
    return all(value.id != given.id for given in function.inputs)


def _is_by_scaler(event: Event, function: str = "") -> bool:
    """Return whether a GradScaler made an event. The loss that it scales may overflow."""
    for frame in event.stack:
        is_of_scaler = frame.origin == "torch" and frame.file.endswith("grad_scaler.py")
        if is_of_scaler and function in frame.function:
            return True
    return False


class _Span(NamedTuple):
    """A span of time, without its begin."""

    begin: int
    end: int


class _Search:
    """Searches one trace: looks at each event that has a bad value, until one made it without a reason to excuse it."""

    def __init__(
        self, trace: Recorded, test: Test, allow: tuple[str, ...], only: Selection | None
    ) -> None:
        self._trace = trace
        self._test = test
        self._allow = allow
        self._only = only
        self._carriers = Carriers(tables_of(trace), test, test is is_nonfinite)
        self._excused: set[int] = set()
        """Values that are bad but intended."""
        self._met: set[int] = set()
        """Bad values that no recorded event made, and that an event has taken."""
        self._unknown: Found | None = None
        """The first bad value whose maker was dropped. It is returned if no other one is found."""
        self._notes: list[str] = []
        self._first_gap = next(iter(tables_of(trace).gaps()), NEVER)
        self._skipped = self._steps_skipped(trace.complete)

    def search(self) -> Found | None:
        """Return the first bad value that is not excused, and what it reached."""
        for number in self._carriers.in_order_of_end():
            found = self._found_at(self._trace.event(number))
            if found is not None:
                return found
        return self._unknown

    def _found_at(self, event: Event) -> Found | None:
        """Return the bad values that an event took from outside or made; None if they are excused or there are none."""
        if event.inputs and overwrites(event.name):
            self._excused.add(event.inputs[0].id)
        taken = [value for value in event.inputs if self._is_bad(value)]
        outside = self._first_met(taken)
        made = self._bad_made_by(event)
        if self._is_skipped(event):
            self._excuse([*outside, *made])
            if outside or made:
                self._notes = [SKIPPED]
            return None
        if self._only is not None and not self._only.matches(event):
            self._excuse([*outside, *made])
            return None
        outside = [value for value in outside if not self._is_mask(event, value)]
        function = self._function_around(event)
        if function is not None:
            inner = [value for value in outside if _is_new_in(function, value)]
            outside = [value for value in outside if value not in inner]
            if inner and not self._is_intended(function, inner):
                given = [value for value in function.outputs if self._is_bad(value)]
                return self._result(function, given or inner)
        if outside:
            found = self._found_outside(event, outside)
            if found is not None:
                return found
        if made and not any(map(self._is_bad, taken)) and not self._is_intended(event, made):
            return self._found_made(event, made)
        return None

    def _first_met(self, taken: list[Value]) -> list[Value]:
        """Return the values that no recorded event made and that no event took before."""
        outside = [value for value in taken if value.producer is None and value.id not in self._met]
        self._met.update(value.id for value in outside)
        return outside

    def _bad_made_by(self, event: Event) -> list[Value]:
        return [
            value for value in event.outputs if value.producer == event.id and self._is_bad(value)
        ]

    def _found_outside(self, event: Event, values: list[Value]) -> Found | None:
        """Return values that were bad when they were first seen; None if their maker may have been dropped."""
        is_after_gap = event.id > self._first_gap
        if is_after_gap and self._unknown is not None:
            return None
        taker = self._first_taker(values[0], event)
        found = self._result(taker, values, came_in=True)
        if is_after_gap:
            self._unknown = found
            return None
        return found

    def _found_made(self, event: Event, made: list[Value]) -> Found | None:
        """Return the bad values that an event made; None if what it took may have been bad, which is not known."""
        if event.id > self._first_gap and any(map(_is_lost, event.inputs)):
            if self._unknown is None:
                self._unknown = self._result(event, made, came_in=True)
            return None
        if self._unknown is not None:
            self._notes = [*self._notes, _earlier(self._unknown)]
        return self._result(self._shown(event, made), made)

    def _excuse(self, values: list[Value]) -> None:
        self._excused.update(value.id for value in values)

    def _function_around(self, event: Event) -> Event | None:
        """Return the function that an op ran in, in the forward pass."""
        if event.kind != "op" or event.parent is None or event.phase != "forward":
            return None
        around = self._trace.event(event.parent)
        if around.kind == "function":
            return around
        return None

    def _is_bad(self, value: Value) -> bool:
        return value.stats is not None and value.id not in self._excused and self._test(value.stats)

    def _is_intended(self, event: Event, made: list[Value]) -> bool:
        """Return whether the bad values that an event made are intended, and excuse them if so."""
        inherits = any(value.id in self._excused for value in event.inputs)
        is_intended = (
            returns_uninitialised(event.name)
            or base_name(event) == "set_"
            or is_allowed(event, self._allow)
            or is_written(event, made)
            or (inherits and all(only_minus(value) for value in made))
            or (inherits and base_name(event) in PASSES and all(map(only_infinite, made)))
        )
        if is_intended:
            self._excuse(made)
        return is_intended or all(self._is_mask(event, value) for value in made)

    # ------------------------------------------------------------ masks, recognised by how they are used

    def _is_mask(self, event: Event, value: Value) -> bool:
        """Return whether a value is -inf that is added to scores for a softmax, and used for nothing else.

        If so, excuse it.
        """
        if not only_minus(value) or not self._ends_in_softmax(self._in_flow(event, value)):
            return False
        self._excused.add(value.id)
        return True

    def _in_flow(self, event: Event, value: Value) -> int:
        """Return the number that the data flow has for an input or output: the value last written to its memory."""
        flow = program_of(self._trace).flow
        inputs = zip(event.inputs, flow.takes[event.id], strict=False)
        outputs = zip(event.outputs, flow.gives[event.id], strict=False)
        for recorded, number in (*inputs, *outputs):
            if recorded.id == value.id:
                return number
        return value.id

    def _ends_in_softmax(self, value: int) -> bool:
        """Return whether all uses of a value lead to a softmax."""
        flow = program_of(self._trace).flow
        pending = [value]
        seen = {value}
        reached_softmax = False
        while pending:
            value = pending.pop()
            for number in flow.users(value):
                event = self._trace.event(number)
                if not _is_forward_call(event):
                    continue
                name = base_name(event)
                if overwrites(event.name) and flow.takes[number][0] == value:
                    # The value is gone: later events read what was written.
                    continue
                if name in ENDS:
                    reached_softmax = True
                    continue
                if name not in ADDS and name not in PASSES:
                    return False
                new = [given for given in flow.gives[number] if given not in seen]
                seen.update(new)
                pending += new
                if len(seen) > MAX_USES:
                    return False
        return reached_softmax

    # ------------------------------------------------------------ steps that a GradScaler skipped

    def _steps_skipped(self, is_over: bool) -> list[_Span]:
        """Return the spans of time before each overflow that a GradScaler noticed, from its last check on.

        While the recording runs, the time since a loss was scaled counts too: the scaler has not checked it yet.
        """
        spans: list[_Span] = []
        last_check = 0
        last_scaled = 0
        has_check = any(OVERFLOW_CHECK in callee.name for callee in tables_of(self._trace).callees)
        if is_over and not has_check:
            return spans
        for event in _ended(self._trace):
            end = event.end_ns or 0
            if OVERFLOW_CHECK in event.name:
                measured = [value.stats for value in event.inputs if value.stats is not None]
                if any(map(is_nonfinite, measured)):
                    spans.append(_Span(last_check, end))
                last_check = end
            elif not is_over and _is_by_scaler(event, "GradScaler.scale"):
                last_scaled = end
        if last_scaled > last_check:
            spans.append(_Span(last_check, NEVER))
        return spans

    def _is_skipped(self, event: Event) -> bool:
        """Return whether an event is part of a step that a GradScaler skipped."""
        end = event.end_ns or 0
        if not any(span.begin < end <= span.end for span in self._skipped):
            return False
        is_check = OVERFLOW_CHECK in event.name
        return event.phase == "backward" or is_check or _is_by_scaler(event)

    # ------------------------------------------------------------ the result

    def _first_taker(self, value: Value, event: Event) -> Event:
        """Return the first event that took a value, in the order of their begins: the model's call, not an op in it."""
        for number in self._carriers.numbers:
            carrier = self._trace.event(number)
            if any(taken.id == value.id for taken in carrier.inputs):
                return carrier
        return event

    def _shown(self, event: Event, made: list[Value]) -> Event:
        """Return the function that gave the values of an op, since it has the expression; else the op itself."""
        if event.kind != "op" or event.parent is None:
            return event
        function = self._trace.event(event.parent)
        made_ids = {value.id for value in made}
        if function.kind == "function" and any(given.id in made_ids for given in function.outputs):
            return function
        return event

    def _result(self, event: Event, values: list[Value], came_in: bool = False) -> Found:
        """Return what was found, with the later events and values that it reached."""
        since = event.end_ns or 0
        if came_in:
            since = event.start_ns
        later = self._carriers.ended_after(since, event.id)
        for number in later:
            self._excuse_masks(number)
        giving = [number for number in later if self._not_excused(self._carriers.given(number))]
        reached = {value.id for value in values}
        for number in giving:
            reached.update(self._not_excused(self._carriers.given(number)))
        after = [number for number in giving if self._not_excused(self._carriers.taken(number))]
        return Found(event, tuple(values), came_in, after, self._notes, reached)

    def _excuse_masks(self, number: int) -> None:
        """Excuse the intended bad values of an event without bad inputs: masks are made in later steps too."""
        if self._not_excused(self._carriers.taken(number)):
            return
        if not self._not_excused(self._carriers.given(number)):
            return
        event = self._trace.event(number)
        made = self._bad_made_by(event)
        if made:
            self._is_intended(event, made)

    def _not_excused(self, values: list[int]) -> list[int]:
        return [value for value in values if value not in self._excused]


def _is_forward_call(event: Event) -> bool:
    """Return whether an event is a function or an op of the forward pass that came to its end."""
    is_call = event.kind in ("function", "op")
    return is_call and event.phase == "forward" and event.end_ns is not None


def _is_lost(value: Value) -> bool:
    """Return whether the statistics of a tensor were lost, because the event that made it was dropped."""
    return value.kind == "tensor" and value.stats is None and value.producer is None


def _earlier(unknown: Found) -> str:
    """Return a note about an earlier bad value whose maker was dropped."""
    event = unknown.event
    place = ""
    if event.file:
        place = f" at {file_name(event.file)}:{event.line}"
    return f"{event.name}{place} had taken something bad before; what made that was not kept"


def _ended(trace: Recorded) -> list[Event]:
    """Return all events that ended, in the order of their ends."""
    ended = [
        event
        for event in trace.events()
        if event.kind not in ("variable", "mark") and event.end_ns is not None
    ]
    return sorted(ended, key=lambda event: (event.end_ns or 0, -event.id))


# ---------------------------------------------------------------- what counts as bad, and what is intended

Test = Callable[[Stats], bool]
NONFINITE = "nonfinite"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_CONDITION = re.compile(
    r"\s*(abs|min|max|mean|std|norm|nan|posinf|neginf|zeros)\s*(>=|<=|>|<)\s*(\S+)\s*"
)
_LITERAL = re.compile(r"(?<![\w.])-?inf(?!\w)")
"""An infinity among the arguments of a call."""
ADDS = frozenset("add add_ __add__ __radd__ __iadd__ + += where masked_fill masked_fill_".split())
ENDS = frozenset(
    "softmax log_softmax _softmax _safe_softmax _log_softmax logsumexp scaled_dot_product_attention max argmax topk "
    "cross_entropy multi_head_attention_forward".split()
)
"""Functions that a mask of -inf is made for: their result has no -inf from it."""
PASSES = frozenset(
    "view reshape expand expand_as unsqueeze squeeze transpose permute t T mT contiguous to _to_copy clone detach type "
    "__getitem__ slice select float half bfloat16 double unsafe_view _unsafe_view repeat flatten triu tril alias cat "
    "broadcast_to lift_fresh clone type_as split chunk narrow requires_grad_ masked_fill neg mul div".split()
)


def test_of(when: object) -> Test:
    """Return the condition of ``first_bad(when=…)`` as a function of statistics."""
    if when == NONFINITE:
        return is_nonfinite
    if callable(when):
        return lambda stats: bool(when(stats))
    if not isinstance(when, str):
        raise WrongType(
            f"first_bad(when=…) takes a condition or a function of statistics, not {type(when).__name__}"
        )
    found = _CONDITION.fullmatch(when)
    try:
        if found is None:
            raise ValueError
        limit = float(found[3])
    except ValueError:
        raise UsageError(
            f"first_bad(when={when!r}): give 'nonfinite', a condition such as 'abs>1e4', 'std<1e-6' or 'nan>0', "
            "or a function of statistics"
        ) from None
    compare = _COMPARE[found[2]]
    name = found[1]
    return lambda stats: compare(_measure(stats, name), limit)


def _measure(stats: Stats, name: str) -> float:
    if name != "abs":
        return getattr(stats, name)
    if stats.posinf or stats.neginf:
        return float("inf")
    return max(abs(stats.min), abs(stats.max))


def is_nonfinite(stats: Stats) -> bool:
    """Return whether any number is NaN or infinite."""
    return bool(stats.nan or stats.posinf or stats.neginf)


def base_name(event: Event) -> str:
    """Return ``softmax`` for ``F.softmax`` and ``aten::_softmax.int``."""
    return plain_name(event.name)


def only_infinite(value: Value) -> bool:
    """Return whether a value has infinite numbers and no NaN."""
    stats = value.stats
    return stats is not None and not stats.nan and bool(stats.posinf or stats.neginf)


def only_minus(value: Value) -> bool:
    """Return whether a value has -inf, but neither +inf nor NaN."""
    return only_infinite(value) and value.stats is not None and not value.stats.posinf


def is_allowed(event: Event, allow: tuple[str, ...]) -> bool:
    """Return whether ``allow`` names an event, by its function or its place (``file.py:12``)."""
    place = ""
    if event.file:
        place = f"{file_name(event.file)}:{event.line}"
    return any(
        fnmatchcase(event.name, each)
        or fnmatchcase(base_name(event), each)
        or each in (place, f"{event.file}:{event.line}")
        for each in allow
    )


def is_written(event: Event, made: list[Value]) -> bool:
    """Return whether the infinite numbers come from an argument, as in ``masked_fill(mask, -inf)``."""
    return bool(_LITERAL.search(event.args)) and all(map(only_infinite, made))
