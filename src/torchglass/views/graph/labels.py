"""What is written on a box and on an edge: short names, the class of a layer, shapes."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.events.types import Event, Value
from torchglass.views.fold import range_label
from torchglass.views.graph.flow import Flow, Outside
from torchglass.views.graph.outline import Item
from torchglass.views.nesting import settings_of
from torchglass.views.text.cells import BINARY, class_word, expression, expression_of, shape_words
from torchglass.views.text.words import clean, cut, one_line, shape_word

LONGEST_TITLE = 40
QUIET = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze transpose permute contiguous expand expand_as view_as to type"
    " float half bfloat16 long int bool t T mT H mH data detach clone split chunk unbind narrow select __getitem__"
    " movedim swapaxes ravel dropout alias slice _unsafe_view lift_fresh".split()
)
"""Functions that move data about and compute nothing: drawn quietly."""

LAYER, CONTAINER, SIGN, FUNCTION, VIEW, STEP, MARK, UNSEEN, REPEAT = (
    "layer", "container", "sign", "function", "view", "step", "mark", "unseen", "repeat"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Label:
    """What a box says."""

    kind: str
    title: str
    detail: str = ""
    """Of a layer its class and settings."""
    variable: str = ""
    """The names that the result is assigned to."""
    gives: str = ""
    """The shapes that come out."""
    code: str = ""
    """What was written, with the names it is assigned to."""


def label_of(flow: Flow, item: Item) -> Label:
    """The label of a box."""
    if item.is_repeat:
        return Label(REPEAT, _repeat_title(flow, item), f"{len(item.children)} steps each")
    event = flow.outline.events[item.nodes[0]]
    is_helper = item.nodes[0] in flow.outline.helpers and bool(event.code)
    gives = "" if event.error or is_helper else ", ".join(shape_words(event.outputs))
    variable = ", ".join(clean(name.removeprefix("self.")) for name in event.target)
    if event.kind == "module":
        title = range_label([flow.outline.names[node] for node in item.nodes])
        kind = CONTAINER if item.children else LAYER
        detail = class_word(event.name, settings_of(event.detail, event.module))
        return Label(kind, clean(title), "" if detail == title else detail, variable, gives, _written(event, title))
    title = cut(one_line(event.code), LONGEST_TITLE) if is_helper else _title(event)
    return Label(_kind(event), title, "", variable, gives, title if is_helper else _written(event, ""))


def _repeat_title(flow: Flow, item: Item) -> str:
    names = [flow.outline.names[node] for child in item.children for node in child.nodes if node in flow.outline.names]
    heads = {name.rpartition(".")[0] for name in names}
    return clean(range_label(names)) if len(heads) == 1 and names else ""


def short_name(event: Event) -> str:
    """``softmax`` of ``Tensor.softmax``, ``mm`` of ``aten::mm``; ``F.`` stays, as it is written so."""
    name = event.name.removeprefix("Tensor.").removeprefix("aten::")
    return clean(name)


def _kind(event: Event) -> str:
    if event.kind in ("step", "mark", "unseen"):
        return event.kind
    if event.operator in BINARY:
        return SIGN
    return VIEW if short_name(event).rpartition(".")[2].removeprefix("aten::") in QUIET else FUNCTION


def _title(event: Event) -> str:
    if event.operator in BINARY:
        return event.operator
    if event.kind == "mark":
        return f"▸ {clean(event.name)}"
    if event.kind == "step":
        return f"{clean(event.name)}.step"
    if event.operator == "[]" and event.code.endswith("]"):
        return cut(_subscript(event.code), LONGEST_TITLE)
    return cut(short_name(event) or "?", LONGEST_TITLE)


def _subscript(code: str) -> str:
    """``[:, -1]`` of ``model(x)[:, -1]``: from the bracket that the last one closes."""
    depth = 0
    for at in range(len(code) - 1, -1, -1):
        depth += (code[at] in "])}") - (code[at] in "[({")
        if depth == 0:
            return one_line(code[at:])
    return "[…]"


def _written(event: Event, name: str) -> str:
    if event.code and event.direct:
        return expression(event.target, event.code, event.operator)
    return expression_of(event, name)


# ---------------------------------------------------------------- edges


def role_in(event: Event, value: int) -> str:
    """Under which names an event takes a value."""
    return ", ".join(dict.fromkeys(clean(each.role) for each in event.inputs if each.id == value))


def outside_word(flow: Flow, outside: Outside) -> str:
    """What a value is called that nothing in the trace made: as it is written where it is first taken."""
    if outside.times > 1:
        return f"{outside.times} tensors"
    event = flow.outline.digest.trace.event(outside.reader)
    for index, value in enumerate(event.inputs):
        if value.id == outside.value:
            written = event.operands[index] if index < len(event.operands) else ""
            word = "" if written.startswith("*") else one_line(written).removeprefix("self.")
            word = word or clean(value.role)
            return cut(f"{word} ?" if outside.is_unknown else word, LONGEST_TITLE)
    return "?"


class Shapes:
    """The words for shapes of values; a value is looked for in the event that made it, or that first takes it."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._known: dict[int, str] = {}
        self._readers: dict[int, int] = {}
        for event, takes in enumerate(flow.values.takes):
            for value in takes:
                self._readers.setdefault(value, event)

    def word(self, value: int) -> str:
        """``f32[8, 3]``; empty where nothing is known."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._word(value)
        return found

    def _word(self, value: int) -> str:
        trace, at = self._flow.outline.digest.trace, self._flow.values.producers[value]
        events = [trace.event(each) for each in (at, self._readers.get(value, -1)) if each >= 0]
        given: list[Value] = [each for event in events for each in (*event.outputs, *event.inputs)]
        return next((shape_word(each.dtype, each.shape, each.layout) for each in given if each.id == value), "")
