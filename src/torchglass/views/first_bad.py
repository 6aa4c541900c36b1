"""The first event, in the order in which they ended, whose outputs are bad while its inputs are not."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torchglass.errors import UsageError, WrongType
from torchglass.events.gradients import CHECKS
from torchglass.events.types import Event, Stats, Value
from torchglass.events.unwritten import gives_unwritten, overwrites, plain_name
from torchglass.views.digest import Recorded
from torchglass.views.text.words import file_name

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


def first_bad(trace: Recorded, test: Test, allow: tuple[str, ...] = ()) -> Found | None:
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

    def __init__(self, trace: Recorded, test: Test, allow: tuple[str, ...]) -> None:
        self._test, self._allow = test, allow
        self._events = list(trace.events())
        known = [event for event in self._events if event.kind not in ("variable", "mark") and event.end_ns is not None]
        self._ended = sorted(known, key=lambda event: (event.end_ns or 0, -event.id))
        self._excused: set[int] = set()
        """Values that are bad and were meant to be."""
        self._uses: dict[int, list[Event]] | None = None
        self._skipped = self._steps_skipped(trace.complete)

    def found(self) -> Found | None:
        """The first that is not excused, with what came after it."""
        met: set[int] = set()
        notes: list[str] = []
        for event in self._ended:
            if event.inputs and overwrites(event.name):
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
            gives_unwritten(event.name)
            or base_name(event) == "set_"
            or is_allowed(event, self._allow)
            or is_written(event, made)
            or (inherits and all(only_minus(value) for value in made))
            or (inherits and base_name(event) in PASSES and all(map(only_infinite, made)))
        )
        if meant:
            self._excused.update(value.id for value in made)
        return meant or all(map(self._is_mask, made))

    # Masks that are known by what becomes of them

    def _is_mask(self, value: Value) -> bool:
        """Whether -inf is added to scores that then go through a softmax, and to nothing else."""
        if not only_minus(value) or not self._ends_in_softmax(value.id):
            return False
        self._excused.add(value.id)
        return True

    def _ends_in_softmax(self, value: int) -> bool:
        uses, pending, seen, reached = self._all_uses(), [value], {value}, False
        while pending:
            for event in uses.get(pending.pop(), ()):
                name = base_name(event)
                if name in ENDS:
                    reached = True
                    continue
                if name not in ADDS and name not in PASSES:
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
                if any(value.stats is not None and is_nonfinite(value.stats) for value in event.inputs):
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


# ---------------------------------------------------------------- judge

# What counts as bad, and what of it was meant: masks of -inf, memory that nobody has filled yet.

Test = Callable[[Stats], bool]
NONFINITE = "nonfinite"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(abs|min|max|mean|std|norm|nan|posinf|neginf|zeros)\s*(>=|<=|>|<)\s*(\S+)\s*")
_LITERAL = re.compile(r"(?<![\w.])-?inf(?!\w)")
"""An infinity among the arguments of a call."""
ADDS = frozenset("add add_ __add__ __radd__ __iadd__ + += where masked_fill masked_fill_".split())
ENDS = frozenset(
    "softmax log_softmax _softmax _safe_softmax _log_softmax logsumexp scaled_dot_product_attention max argmax topk "
    "cross_entropy multi_head_attention_forward".split()
)
"""After which a mask of -inf has done what it is for."""
PASSES = frozenset(
    "view reshape expand expand_as unsqueeze squeeze transpose permute t T mT contiguous to _to_copy clone detach type "
    "__getitem__ slice select float half bfloat16 double unsafe_view _unsafe_view repeat flatten triu tril alias cat "
    "broadcast_to lift_fresh clone type_as split chunk narrow requires_grad_ masked_fill neg mul div".split()
)


def test_of(when: object) -> Test:
    """What ``first_bad(when=…)`` was given, as a function of statistics."""
    if when == NONFINITE:
        return is_nonfinite
    if callable(when):
        return lambda stats: bool(when(stats))
    if not isinstance(when, str):
        raise WrongType(f"first_bad(when=…) takes a condition or a function of statistics, not {type(when).__name__}")
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
    compare, name = _COMPARE[found[2]], found[1]
    return lambda stats: compare(_measure(stats, name), limit)


def _measure(stats: Stats, name: str) -> float:
    if name != "abs":
        return getattr(stats, name)
    if stats.posinf or stats.neginf:
        return float("inf")
    return max(abs(stats.min), abs(stats.max))


def is_nonfinite(stats: Stats) -> bool:
    """Whether any number is NaN or infinite."""
    return bool(stats.nan or stats.posinf or stats.neginf)


def base_name(event: Event) -> str:
    """``softmax`` of ``F.softmax``, ``aten::_softmax.int``."""
    return plain_name(event.name)


def only_infinite(value: Value) -> bool:
    """Whether nothing is NaN, but something infinite."""
    stats = value.stats
    return stats is not None and not stats.nan and bool(stats.posinf or stats.neginf)


def only_minus(value: Value) -> bool:
    """Whether nothing is NaN or +inf, but something -inf."""
    return only_infinite(value) and value.stats is not None and not value.stats.posinf


def is_allowed(event: Event, allow: tuple[str, ...]) -> bool:
    """Whether an event is one of those that may give what it likes: by function, or by ``file.py:12``."""
    place = f"{file_name(event.file)}:{event.line}" if event.file else ""
    return any(
        fnmatchcase(event.name, each)
        or fnmatchcase(base_name(event), each)
        or each in (place, f"{event.file}:{event.line}")
        for each in allow
    )


def is_written(event: Event, made: list[Value]) -> bool:
    """Whether an infinity stands among the arguments themselves: ``masked_fill(mask, -inf)``."""
    return bool(_LITERAL.search(event.args)) and all(map(only_infinite, made))
