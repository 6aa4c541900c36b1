"""Makes the text of the boxes in a picture of the data flow: a short name, a class, shapes.

The box of ``h = self.fc1(x)`` has, with ``x`` a batch of 8, this label::

    Label(kind="layer", title="fc1", detail="Linear(4, 16)", variable="h", gives="f32[8, 16]",
          code="h = fc1(x)", times="", rounds="")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from torchglass.events.types import Event
from torchglass.program.inner import is_summed_up
from torchglass.program.paths import range_label, settings_of
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.outline import Box, Outline
from torchglass.views.text.cells import (
    BINARY,
    class_word,
    expression,
    expression_of,
    shape_words,
)
from torchglass.views.text.scopes import (
    MODULE_LEVEL,
    call_word,
    count_word,
    loop_word,
    range_word,
    short_call,
)
from torchglass.views.text.tensors import values_words
from torchglass.views.text.words import clean, cut, one_line, plural

MAX_TITLE_LENGTH = 40
MAX_LOOP_LENGTH = 60
MOVES_DATA = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze transpose permute contiguous expand expand_as view_as to type"
    " float half bfloat16 long int bool t T mT H mH data detach clone split chunk unbind narrow select __getitem__"
    " movedim swapaxes ravel dropout alias slice _unsafe_view lift_fresh".split()
)
"""Functions that only move data. Their boxes are drawn less prominently."""


class BoxKind(StrEnum):
    """What a box stands for. The page colours boxes by these words."""

    LAYER = "layer"
    """A module without boxes inside."""
    CONTAINER = "container"
    """A module with boxes inside."""
    SIGN = "sign"
    """A binary operator such as ``+``."""
    FUNCTION = "function"
    VIEW = "view"
    """A function that only moves data (``MOVES_DATA``)."""
    STEP = "step"
    """An optimizer's step."""
    MARK = "mark"
    UNSEEN = "unseen"
    REPEAT = "repeat"
    """Several boxes that repeat together."""
    CALL = "called"
    """A call of one of the program's functions."""
    LOOP = "loop"
    LIBRARY = "library"
    """Steps of one installed package (``libraries.py``)."""


@dataclass(frozen=True, slots=True)
class Label:
    """The text of a box."""

    kind: BoxKind
    title: str
    detail: str = ""
    """For a layer its class and settings. For a repeat or a library how many steps it holds."""
    variable: str = ""
    """The names to which the result is assigned."""
    gives: str = ""
    """The shapes of the results."""
    code: str = ""
    """The expression as written, with the names to which it is assigned."""
    times: str = ""
    """How often it repeats, or how many iterations there are: ``× 12``."""
    rounds: str = ""
    """In which iterations it happened, as text, if not in all."""

    @property
    def title_and_times(self) -> str:
        """Return ``blocks.0–11 × 12``, or only one of the two if the other is empty."""
        return f"{self.title} {self.times}".strip()


def label_of(flow: Flow, box: Box) -> Label:
    """Return the label of a box."""
    outline = flow.outline
    tree = outline.shown.tree
    if box.loops:
        title = cut(loop_word(tree, box.loops[0]), MAX_LOOP_LENGTH)
        times = count_word(tree, box.loops)
        return Label(BoxKind.LOOP, title, code=title, times=times, rounds=box.rounds)
    if box.library:
        title = f"in {clean(box.library)}"
        steps = plural(len(box.children), "step")
        return Label(BoxKind.LIBRARY, title, steps, code=title, rounds=box.rounds)
    least, most = box.in_a_row()
    times = ""
    if most > 1:
        times = f"× {range_word((least, most))}"
    if box.runs:
        steps = f"{len(box.children)} steps each"
        return Label(BoxKind.REPEAT, _repeat_title(outline, box), steps, times=times)
    scope = outline.scope(box)
    if scope >= 0:
        site = tree.site(scope)
        code = call_word(site)
        title = code
        if site.function != MODULE_LEVEL:
            title = short_call(site.function)
        return Label(BoxKind.CALL, title, code=code, times=times, rounds=box.rounds)
    return replace(_event_label(outline, box), times=times, rounds=box.rounds)


def _event_label(outline: Outline, box: Box) -> Label:
    """Return the label of a box that stands for events, without its times and rounds."""
    node = box.nodes[0]
    event = outline.events[node]
    # Torch made several events in one expression. The box then shows the expression, since the
    # name of its first event would say too little.
    is_expression = len(outline.shown.helpers.get(node, ())) > 1 and bool(event.code)
    samples = outline.samples(box.nodes)
    gives = ""
    if not (event.error or is_expression or is_summed_up(event)):
        gives = ", ".join(_results_words(samples))
    variable = ", ".join(clean(name.removeprefix("self.")) for name in event.target)
    if event.kind == "module":
        kind = BoxKind.LAYER
        if box.children:
            kind = BoxKind.CONTAINER
        title = range_label(map(outline.layers.name, box.nodes))
        detail = _class_and_settings(event, samples)
        if detail == title:
            detail = ""
        return Label(kind, clean(title), detail, variable, gives, _code(event, title))
    if is_expression:
        title = cut(one_line(event.code), MAX_TITLE_LENGTH)
        return Label(_kind(event), title, "", variable, gives, title)
    return Label(_kind(event), _title(event), "", variable, gives, _code(event, ""))


def _class_and_settings(event: Event, samples: Sequence[Event]) -> str:
    """Return the class of a module, with its settings if all calls have the same."""
    settings = {settings_of(each.detail, each.module) for each in samples}
    if len(settings) == 1:
        return class_word(event.name, settings.pop())
    return class_word(event.name, "")


def _results_words(samples: Sequence[Event]) -> tuple[str, ...]:
    """Return the shapes of the results, as ranges if they differ between calls."""
    different = dict.fromkeys(shape_words(each.outputs) for each in samples)
    if len(different) == 1:
        return next(iter(different))
    return values_words([each.outputs for each in samples])


def _repeat_title(outline: Outline, box: Box) -> str:
    """Return ``layers.0–23`` if all modules that repeat are numbered under one name; else ""."""
    names: list[str] = []
    for child in box.children:
        for node in child.nodes:
            is_event = 0 <= node < len(outline.events)
            if is_event and outline.events[node].kind == "module":
                names.append(outline.layers.name(node))
    heads = {name.rpartition(".")[0] for name in names}
    if len(heads) == 1:
        return clean(range_label(names))
    return ""


def short_name(event: Event) -> str:
    """Return ``softmax`` for ``Tensor.softmax`` and ``mm`` for ``aten::mm``. ``F.`` stays, because
    programs write it.
    """
    name = event.name.removeprefix("Tensor.").removeprefix("aten::")
    return clean(name)


def _kind(event: Event) -> BoxKind:
    """Return the kind of the box of an event that is no module."""
    if event.kind in ("step", "mark", "unseen"):
        return BoxKind(event.kind)
    if event.kind == "call":
        return BoxKind.CALL
    if event.operator in BINARY:
        return BoxKind.SIGN
    if short_name(event).rpartition(".")[2].removeprefix("aten::") in MOVES_DATA:
        return BoxKind.VIEW
    return BoxKind.FUNCTION


def _title(event: Event) -> str:
    if event.operator in BINARY:
        return event.operator
    if event.kind == "mark":
        return f"▸ {clean(event.name)}"
    if event.kind == "step":
        return f"{clean(event.name)}.step"
    if event.kind == "call":
        return cut(short_call(event.name), MAX_TITLE_LENGTH)
    if event.operator == "[]" and event.code.endswith("]"):
        return cut(_subscript(event.code), MAX_TITLE_LENGTH)
    return cut(short_name(event) or "?", MAX_TITLE_LENGTH)


def _subscript(code: str) -> str:
    """Return the last subscript of an expression: ``[:, -1]`` for ``model(x)[:, -1]``."""
    depth = 0
    for at in range(len(code) - 1, -1, -1):
        if code[at] in "])}":
            depth += 1
        elif code[at] in "[({":
            depth -= 1
        if depth == 0:
            return one_line(code[at:])
    return "[…]"


def _code(event: Event, name: str) -> str:
    """Return the expression as written; if torch made the call, the name of what it called."""
    if event.code and event.direct:
        return expression(event.target, event.code, event.operator)
    return expression_of(event, name)
