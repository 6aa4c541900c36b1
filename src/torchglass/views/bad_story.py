"""The first bad value told as a story: what made it, at which line, from what, and what it reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchglass.events.types import Event, Stats, Value
from torchglass.events.unwritten import gives_unwritten
from torchglass.views.digest import Recorded
from torchglass.views.first_bad import Found, base_name
from torchglass.views.text.cells import expression_of
from torchglass.views.text.tensors import alarm_word, stats_word
from torchglass.views.text.words import clean, count, one_line, path_word, plural, tensor_word

MOST_PLACES = 3
WITHOUT_OPS = "backward was not looked into: record(ops=True) shows where in it a gradient turned bad"


@dataclass(frozen=True)
class FirstBad:
    """The first bad values of a trace; ``print`` tells the story."""

    event: Event
    """What made them; where they came from outside, what first took them."""
    values: tuple[Value, ...]
    came_in: bool
    """Whether they were bad already when they were first seen."""
    after: tuple[int, ...]
    """The ids of the events that passed it on, in the order in which they ended."""
    story: str

    def __str__(self) -> str:
        return self.story


def story_of(trace: Recorded, found: Found) -> FirstBad:
    """What was found, with its story."""
    lines = [
        _heading(found),
        _where(found.event),
        *_forward(trace, found.event),
        *_takes(trace, found),
        *_gives(trace, found),
        *_after(trace, found),
    ]
    lines += found.notes
    story = "\n".join([lines[0], *(f"  {line}" for line in lines[1:])])
    return FirstBad(found.event, found.values, found.came_in, tuple(event.id for event in found.after), story)


def _heading(found: Found) -> str:
    value = found.values[0]
    what = _badness(value.stats)
    if found.came_in:
        name = _operand(found.event, value)
        return f"{what} came in with {name} of {clean(found.event.name)}: it was so when it was first seen"
    hint = hint_of(found.event)
    return f"{what} from {clean(found.event.name)}" + (f": {hint}" if hint else "")


def _badness(stats: Stats | None) -> str:
    if stats is None:
        return "?"
    return f"{alarm_word([stats]) or stats_word(stats)} of {plural(stats.count, 'number')}"


def _where(event: Event) -> str:
    """``out = scores.softmax(-1) in Net (blocks.0.attn), model.py:31``."""
    parts = [expression_of(event, event.module or "") if event.code else clean(event.name)]
    if event.root is not None:
        parts.append(f"in {clean(event.root)}{f' ({clean(event.module)})' if event.module else ''}")
    if event.phase == "backward":
        parts.append("in backward")
    return f"{' '.join(parts)}{_at(event)}"


def _forward(trace: Recorded, event: Event) -> list[str]:
    """Of an event in backward: the forward step whose gradient it is."""
    if event.forward_event is None:
        return []
    return [f"the gradient of {_where(trace.event(event.forward_event))}"]


def _at(event: Event) -> str:
    return f"  at {path_word(event.file)}:{event.line}" if event.file else ""


def _operand(event: Event, value: Value) -> str:
    """What the program calls an input."""
    for index, each in enumerate(event.inputs):
        if each.id == value.id and len(event.operands) == len(event.inputs) and event.operands[index]:
            return one_line(event.operands[index])
    return clean(next((each.role for each in event.inputs if each.id == value.id), value.role)) or "an input"


def _takes(trace: Recorded, found: Found) -> list[str]:
    event = found.event
    lines = [
        f"took {_operand(event, value)}: {_described(trace, value)}{_origin(trace, value)}" for value in event.inputs
    ]
    return list(dict.fromkeys(lines))


def _origin(trace: Recorded, value: Value) -> str:
    if value.producer is None:
        return ", a parameter" if value.type == "Parameter" else ", made before the recording or out of its sight"
    made = trace.event(value.producer)
    around = None if made.parent is None else trace.event(made.parent)
    if made.kind == "op" and around is not None and any(each.id == value.id for each in around.outputs):
        made = around  # it has the expression
    written = expression_of(made, made.module or "") if made.code else clean(made.name)
    return f", from {written}{_at(made)}"


def _described(trace: Recorded, value: Value) -> str:
    return f"{tensor_word(value)} {_numbers(trace, value)}"


def _numbers(trace: Recorded, value: Value) -> str:
    if value.stats is not None:
        return stats_word(value.stats, value.dtype) or "empty"
    is_fresh = value.producer is not None and gives_unwritten(trace.event(value.producer).name)
    return "not written yet" if is_fresh else "not measured"


def _gives(trace: Recorded, found: Found) -> list[str]:
    given = [value for value in found.event.outputs if found.came_in or value in found.values]
    return [f"gave {_described(trace, value)}" for value in given]


def _after(trace: Recorded, found: Found) -> list[str]:
    """What was bad afterwards, by place."""
    if not found.after:
        return ["nothing that was measured passed it on"]
    places = [place for place in dict.fromkeys(map(_place, found.after)) if place]
    backward = sum(event.phase == "backward" for event in found.after)
    first = [*places[:MOST_PLACES], *(["…"] if len(places) > MOST_PLACES else [])]
    where = f": {', '.join(first)}" if first else ""
    lines = [f"{plural(len(found.after), 'event')} passed it on{where}" + _in_backward(backward)]
    ran = any(event.name.endswith("backward") and event.kind == "function" for event in trace.events())
    has_ops = any(event.kind == "op" for event in found.after) or found.event.kind == "op"
    return [*lines, WITHOUT_OPS] if ran and not backward and not has_ops else lines


def _in_backward(backward: int) -> str:
    return f"; {count(backward)} of them in backward" if backward else ""


def _place(event: Event) -> str:
    return f"{clean(event.name)}{_at(event).replace('  at ', ' at ')}" if event.file else ""


# ---------------------------------------------------------------- hints

# Why a function gave something bad, where its inputs tell: the log of 0, a division by 0, a half that overflowed.

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38}
Hint = Callable[[Event], str]


def hint_of(event: Event) -> str:
    """A few words, or ``""`` where nothing certain can be said."""
    name = base_name(event)
    found = _HINTS[name](event) if name in _HINTS else ""
    return found or _overflow(event)


def _first(event: Event) -> Value | None:
    return next((value for value in event.inputs if value.stats is not None and value.stats.finite), None)


def _of_small(what: str, zero_is_bad: bool) -> Hint:
    def hint(event: Event) -> str:
        value = _first(event)
        if value is None or value.stats is None:
            return ""
        if value.stats.min < 0:
            return f"the {what} of a negative number"
        return f"the {what} of 0" if zero_is_bad and value.stats.zeros else ""

    return hint


def _division(event: Event) -> str:
    divisor = event.inputs[-1].stats if len(event.inputs) > 1 else None
    if divisor is None or not divisor.zeros:
        return "division by 0" if event.args.endswith((", 0", ", 0.0")) else ""
    above = next(iter(event.inputs)).stats
    return "0 / 0" if above is not None and above.zeros == above.count else "division by 0"


def _softmax(event: Event) -> str:
    value = event.inputs[0] if event.inputs else None
    return "a row of -inf only" if value is not None and value.stats is not None and value.stats.neginf else ""


def _exp(event: Event) -> str:
    value = _first(event)
    return f"the exponential of {value.stats.max:.4g}" if value is not None and value.stats is not None else ""


def _one_number(event: Event) -> str:
    value = event.inputs[0] if event.inputs else None
    if value is None or value.shape is None or value.stats is None:
        return ""
    return "no numbers to take it of" if value.stats.count == 0 else ""


def _overflow(event: Event) -> str:
    """Results beyond the largest number of a small dtype, from inputs within it."""
    for value in event.outputs:
        if value.stats is not None and (value.stats.posinf or value.stats.neginf) and value.dtype in LARGEST:
            return f"beyond the largest {value.dtype} ({LARGEST[value.dtype]:.4g})"
    return ""


def _accumulated(event: Event) -> str:
    return "a gradient; record(ops=True) names the step of backward that made it"


_HINTS: dict[str, Hint] = {
    "AccumulateGrad": _accumulated,
    **dict.fromkeys(["log", "log2", "log10"], _of_small("logarithm", zero_is_bad=True)),
    **dict.fromkeys(["sqrt", "rsqrt"], _of_small("square root", zero_is_bad=False)),
    **dict.fromkeys(["div", "true_divide", "div_", "__truediv__", "__div__", "__rdiv__", "__rtruediv__"], _division),
    **dict.fromkeys(["softmax", "log_softmax", "_softmax", "_log_softmax"], _softmax),
    **dict.fromkeys(["exp", "exp_", "expm1", "exp2"], _exp),
    **dict.fromkeys(["mean", "std", "var", "nanmean"], _one_number),
}
