"""Describes the first bad value as a finding: what made it, at which line, from which inputs, and what it reached."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchglass.answers.finding import ERROR, Evidence, Finding
from torchglass.answers.first_bad import NONFINITE, Found, base_name, first_bad, test_of
from torchglass.answers.when import history_of, iterations_of
from torchglass.errors import NotRecorded
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location, Stats, Value
from torchglass.events.uninitialised import returns_uninitialised
from torchglass.program.recorded import Recorded, tables_of
from torchglass.views.text.cells import expression_of
from torchglass.views.text.tensors import alarm_word, stats_word
from torchglass.views.text.words import clean, count, one_line, path_word, plural, tensor_word

MAX_PLACES = 3
"""Places that a bad value reached that are named; more would not fit a line."""
UNMEASURED = "this trace has no statistics, so nothing is known of its numbers: record(values='stats') takes them"
WITHOUT_OPS = (
    "backward was not looked into: record(ops=True) shows where in it a gradient turned bad"
)

NOT_KEPT = "events before it were not kept, so the one that made it is not known; record(max_events=…) keeps more"


@dataclass(frozen=True)
class FirstBad:
    """The first bad values of a trace. ``print`` shows them as text, ``to_dict`` returns them as data."""

    event: Event
    """The event that made them or, if they came from outside, the first one that took them."""
    values: tuple[Value, ...]
    came_in: bool
    """Whether they were bad already when they were first seen."""
    after: tuple[int, ...]
    """The ids of the later events that took and gave bad values, in the order in which they ended."""
    reached: frozenset[int]
    """The ids of all bad values from there on."""
    finding: Finding
    """What was found, in the form that all answers share."""

    @property
    def story(self) -> str:
        """The finding as text."""
        return str(self.finding)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding in its JSON form, with the ids of values and events (docs/json.md)."""
        return {
            **self.finding.to_dict(),
            "values": [value.id for value in self.values],
            "came_in": self.came_in,
            "after": list(self.after),
        }

    def __str__(self) -> str:
        return self.story


def first_bad_story(
    trace: Recorded,
    when: object = NONFINITE,
    allow: tuple[str, ...] = (),
    only: Selection | None = None,
) -> FirstBad | None:
    """Find the first bad value in a trace with statistics, and where it came from; return None if there is none."""
    test = test_of(when)
    if len(trace) and not trace.measured:
        raise NotRecorded(UNMEASURED)
    found = first_bad(trace, test, allow, only)
    if found is None:
        return None
    return story_of(trace, found)


def story_of(trace: Recorded, found: Found) -> FirstBad:
    """Return what was found, with its finding."""
    event = found.event
    finding = Finding(
        kind="first_bad",
        severity=ERROR,
        text=_heading(trace, found),
        event=event.id,
        location=event.location,
        code=_written_in(event),
        evidence=(
            *iterations_of(trace, event),
            *_forward(trace, event),
            *_takes(trace, found),
            *history_of(trace, event),
            *_gives(trace, found),
            *_after(trace, found),
            *(Evidence(note, kind="note") for note in found.notes),
        ),
    )
    return FirstBad(
        event, found.values, found.came_in, tuple(found.after), frozenset(found.reached), finding
    )


def _heading(trace: Recorded, found: Found) -> str:
    value = found.values[0]
    what = _badness(value.stats)
    called = clean(found.event.name)
    name = _operand(found.event, value)
    if found.came_in and _is_after_gap(trace, found.event):
        where = f"{name} of {called}"
        if value in found.event.outputs:
            where = f"the result of {called}"
        return f"{what} first seen in {where}: {NOT_KEPT}"
    if found.came_in:
        return f"{what} came in with {name} of {called}: it was so when it was first seen"
    text = f"{what} from {clean(found.event.name)}"
    hint = hint_of(found.event)
    if hint:
        return f"{text}: {hint}"
    return text


def _is_after_gap(trace: Recorded, event: Event) -> bool:
    """Return whether events before this one were dropped."""
    return next(tables_of(trace).gaps(), event.id) < event.id


def _badness(stats: Stats | None) -> str:
    if stats is None:
        return "?"
    return f"{alarm_word([stats]) or stats_word(stats)} of {plural(stats.count, 'number')}"


def _written_in(event: Event) -> str:
    """Return ``out = scores.softmax(-1) in Net (blocks.0.attn)``."""
    text = _expression_or_name(event)
    if event.root is not None:
        text += f" in {clean(event.root)}"
        if event.module:
            text += f" ({clean(event.module)})"
    if event.phase == "backward":
        text += " in backward"
    return text


def _expression_or_name(event: Event) -> str:
    if event.code:
        return expression_of(event, event.module or "")
    return clean(event.name)


def _forward(trace: Recorded, event: Event) -> list[Evidence]:
    """Return the forward step whose gradient an event in backward computes."""
    if event.forward_event is None:
        return []
    forward = trace.event(event.forward_event)
    return [
        Evidence(f"the gradient of {_written_in(forward)}", forward.id, forward.location, "forward")
    ]


def _operand(event: Event, value: Value) -> str:
    """Return the name by which the program calls an input."""
    if len(event.operands) == len(event.inputs):
        for taken, operand in zip(event.inputs, event.operands, strict=True):
            if taken.id == value.id and operand:
                return one_line(operand)
    role = value.role
    for taken in event.inputs:
        if taken.id == value.id:
            role = taken.role
            break
    return clean(role) or "an input"


def _takes(trace: Recorded, found: Found) -> list[Evidence]:
    lines: dict[tuple[str, Location | None], Evidence] = {}
    for value in found.event.inputs:
        taken = _taken(trace, found.event, value)
        lines.setdefault((taken.text, taken.location), taken)
    return list(lines.values())


def _taken(trace: Recorded, event: Event, value: Value) -> Evidence:
    text = f"took {_operand(event, value)}: {_described(trace, value)}"
    if value.producer is None:
        if value.type == "Parameter":
            origin = "a parameter"
        elif _is_after_gap(trace, event):
            origin = "made by an event that was not kept, or out of the recording's sight"
        else:
            origin = "made before the recording or out of its sight"
        return Evidence(f"{text}, {origin}", kind="input")
    maker = trace.event(value.producer)
    if maker.kind == "op" and maker.parent is not None:
        # The function around an op has the expression.
        function = trace.event(maker.parent)
        if any(given.id == value.id for given in function.outputs):
            maker = function
    return Evidence(f"{text}, from {_expression_or_name(maker)}", maker.id, maker.location, "input")


def _described(trace: Recorded, value: Value) -> str:
    return f"{tensor_word(value)} {_numbers(trace, value)}"


def _numbers(trace: Recorded, value: Value) -> str:
    if value.stats is not None:
        return stats_word(value.stats, value.dtype) or "empty"
    is_fresh = value.producer is not None and returns_uninitialised(
        trace.event(value.producer).name
    )
    if is_fresh:
        return "not written yet"
    return "not measured"


def _gives(trace: Recorded, found: Found) -> list[Evidence]:
    given = [value for value in found.event.outputs if found.came_in or value in found.values]
    return [
        Evidence(f"gave {_described(trace, value)}", found.event.id, kind="output")
        for value in given
    ]


def _after(trace: Recorded, found: Found) -> list[Evidence]:
    """Return how many later events passed the bad value on, and where the first of them are."""
    if not found.after:
        return [Evidence("nothing that was measured passed it on", kind="after")]
    tables = tables_of(trace)
    alike: dict[tuple[int, int], int] = {}
    for number in found.after:
        alike.setdefault((tables.callee[number], tables.stack[number]), number)
    samples = list(map(trace.event, alike.values()))
    places = [place for place in dict.fromkeys(map(_place, samples)) if place]
    backward = sum(tables.backward[number] for number in found.after)
    named = places[:MAX_PLACES]
    if len(places) > MAX_PLACES:
        named.append("…")
    where = ""
    if named:
        where = f": {', '.join(named)}"
    word = "event"
    if any(True for _ in tables.gaps()):
        word = "kept event"
    text = f"{plural(len(found.after), word)} passed it on{where}" + _in_backward(backward)
    lines = [Evidence(text, found.after[0], kind="after")]
    ran = any(
        callee.name.endswith("backward") and callee.kind == "function" for callee in tables.callees
    )
    has_ops = any(event.kind == "op" for event in samples) or found.event.kind == "op"
    if ran and not backward and not has_ops:
        lines.append(Evidence(WITHOUT_OPS, kind="note"))
    return lines


def _in_backward(backward: int) -> str:
    if backward:
        return f"; {count(backward)} of them in backward"
    return ""


def _place(event: Event) -> str:
    if event.file:
        return f"{clean(event.name)} at {path_word(event.file)}:{event.line}"
    return ""


# ---------------------------------------------------------------- hints: why a function gave something bad

LARGEST_NUMBER = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38}
Hint = Callable[[Event], str]
DIVISIONS = (
    "div",
    "div_",
    "divide",
    "divide_",
    "true_divide",
    "true_divide_",
    "__truediv__",
    "__div__",
)
DIVISIONS_REVERSED = ("__rtruediv__", "__rdiv__")
"""Methods of the divisor: ``x.__rtruediv__(1)`` is ``1 / x``."""
_FIRST_NUMBER = re.compile(r"-?\d[\d.e+-]*(?=,|$)")
_SECOND_NUMBER = re.compile(r"\w+\[[^\]]*\], (?:\w+=)?(-?\d[\d.e+-]*)(?=,|$)")
_INFINITY = re.compile(r"\binf\b")


def hint_of(event: Event) -> str:
    """Return why a function gave a bad value (``the logarithm of 0``); "" if that is not certain."""
    name = base_name(event)
    hint = ""
    if name in _HINTS:
        hint = _HINTS[name](event)
    return hint or _overflow(event)


def _first_finite(event: Event) -> Value | None:
    """Return the first input that has finite numbers."""
    for value in event.inputs:
        if value.stats is not None and value.stats.finite:
            return value
    return None


def _of_small(what: str, zero_is_bad: bool) -> Hint:
    """Return the hint of a function that is not defined for negative numbers (and 0)."""

    def hint(event: Event) -> str:
        value = _first_finite(event)
        if value is None or value.stats is None:
            return ""
        if value.stats.min < 0:
            return f"the {what} of a negative number"
        if zero_is_bad and value.stats.zeros:
            return f"the {what} of 0"
        return ""

    return hint


def _division(event: Event) -> str:
    """Return the hint of ``a / b``, where one of the two may be a number."""
    first_number = _FIRST_NUMBER.match(event.args)
    second_number = _SECOND_NUMBER.match(event.args)
    if not event.inputs:
        return ""
    first = _zeros(event.inputs[0])
    if len(event.inputs) > 1:
        second = _zeros(event.inputs[1])
    elif first_number is not None:
        second = first
        first = _zeros_of_number(first_number[0])
    elif second_number is not None:
        second = _zeros_of_number(second_number[1])
    else:
        return ""
    dividend = first
    divisor = second
    if base_name(event) in DIVISIONS_REVERSED:
        dividend = second
        divisor = first
    if divisor == "":
        return ""
    if dividend == "all":
        return "0 / 0"
    return "division by 0"


def _zeros(value: Value) -> str:
    """Return how many numbers are 0: "all", "some" or "" for none."""
    if value.stats is None or not value.stats.zeros:
        return ""
    if value.stats.zeros == value.stats.count:
        return "all"
    return "some"


def _zeros_of_number(text: str) -> str:
    """Return "all" for the text of the number 0; otherwise ""."""
    if float(text) == 0:
        return "all"
    return ""


def _reciprocal(event: Event) -> str:
    if event.inputs and _zeros(event.inputs[0]):
        return "division by 0"
    return ""


def _reciprocal_root(event: Event) -> str:
    return _of_small("square root", zero_is_bad=False)(event) or _reciprocal(event)


def _power(event: Event) -> str:
    exponent = _SECOND_NUMBER.match(event.args)
    if exponent is None or not event.inputs:
        return ""
    if float(exponent[1]) < 0 and _zeros(event.inputs[0]):
        return "division by 0: a negative power of 0"
    return ""


def _softmax(event: Event) -> str:
    value = None
    if event.inputs:
        value = event.inputs[0]
    if value is not None and value.stats is not None and value.stats.neginf:
        return "a row of -inf only"
    return ""


def _exp(event: Event) -> str:
    value = _first_finite(event)
    if value is not None and value.stats is not None:
        return f"the exponential of {value.stats.max:.4g}"
    return ""


def _no_numbers(event: Event) -> str:
    value = None
    if event.inputs:
        value = event.inputs[0]
    if value is None or value.shape is None or value.stats is None:
        return ""
    if value.stats.count == 0:
        return "no numbers to take it of"
    return ""


def _overflow(event: Event) -> str:
    """Return the hint for infinite results of finite numbers: they are beyond the largest number of the dtype."""
    name = base_name(event)
    if name in _POLES or _INFINITY.search(event.args):
        return ""
    if name in _POWERS and _SECOND_NUMBER.match(event.args) is None:
        return ""  # a negative power of 0, perhaps
    for value in event.inputs:
        if value.stats is None or value.stats.finite < value.stats.count:
            return ""
    for value in event.outputs:
        is_infinite = value.stats is not None and (value.stats.posinf or value.stats.neginf)
        if is_infinite and value.dtype in LARGEST_NUMBER:
            return f"beyond the largest {value.dtype} ({LARGEST_NUMBER[value.dtype]:.4g})"
    return ""


def _accumulated(event: Event) -> str:
    return "a gradient; record(ops=True) names the step of backward that made it"


_POLES = frozenset(
    """
    log1p logit atanh arctanh lgamma digamma polygamma mvlgamma erfinv ndtri xlogy xlog1py zeta cond
    log1p_ logit_ atanh_ arctanh_ lgamma_ digamma_ polygamma_ mvlgamma_ erfinv_ xlogy_
    floor_divide floor_divide_ __floordiv__ __rfloordiv__
    """.split()
)
"""Functions that are infinite at numbers that are not large."""
_POWERS = ("pow", "pow_", "__pow__", "__rpow__", "float_power")
_HINTS: dict[str, Hint] = {
    "AccumulateGrad": _accumulated,
    **dict.fromkeys(
        ["log", "log2", "log10", "log_", "log2_", "log10_"],
        _of_small("logarithm", zero_is_bad=True),
    ),
    **dict.fromkeys(["sqrt", "sqrt_"], _of_small("square root", zero_is_bad=False)),
    **dict.fromkeys(["rsqrt", "rsqrt_"], _reciprocal_root),
    **dict.fromkeys(["reciprocal", "reciprocal_"], _reciprocal),
    **dict.fromkeys(_POWERS, _power),
    **dict.fromkeys([*DIVISIONS, *DIVISIONS_REVERSED], _division),
    **dict.fromkeys(["softmax", "log_softmax", "_softmax", "_log_softmax"], _softmax),
    **dict.fromkeys(["exp", "exp_", "expm1", "exp2"], _exp),
    **dict.fromkeys(["mean", "std", "var", "nanmean"], _no_numbers),
}
