"""The first bad value told as a story: what made it, at which line, from what, and what it reached."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.events.types import Event, Stats, Value
from torchglass.views.bad.hints import hint_of
from torchglass.views.bad.search import Found
from torchglass.views.digest import Recorded
from torchglass.views.text.cells import expression_of
from torchglass.views.text.statistics import alarm_word, stats_word
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
        *_gives(found),
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
    lines = [f"took {_operand(event, value)}: {_described(value)}{_origin(trace, value)}" for value in event.inputs]
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


def _described(value: Value) -> str:
    numbers = "not measured" if value.stats is None else stats_word(value.stats, value.dtype) or "empty"
    return f"{tensor_word(value)} {numbers}"


def _gives(found: Found) -> list[str]:
    return [f"gave {_described(value)}" for value in found.event.outputs if found.came_in or value in found.values]


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
