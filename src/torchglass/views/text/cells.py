"""Describes one event as cells: its expression, its class and settings, its inputs and its outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torchglass.events.types import Event, Value
from torchglass.program.inner import is_recomputed, is_summed_up
from torchglass.program.paths import settings_of
from torchglass.program.variables.targets import assigned_to
from torchglass.views.row import (
    CLASS,
    COUNT,
    ERROR,
    EXPRESSION,
    FOLD,
    GIVES,
    NAME,
    PLACE,
    ROUNDS,
    TAKES,
    Cell,
    Cells,
)
from torchglass.views.text.tensors import texts_word, values_words
from torchglass.views.text.words import clean, cut, one_line, shape_word

MAX_GROUPS = 4
"""How many shapes, or roles of inputs, a cell lists."""
MAX_RESULT_LENGTH = 24
"""How many characters of a result that is not a tensor are shown."""
_SIGNS = frozenset("+ - * / // % ** @ & | ^ << >> == != < <= > >=".split())
BINARY = _SIGNS | frozenset(sign + "=" for sign in _SIGNS if sign[-1] not in "=<>") | {"<<=", ">>="}
_SELF = re.compile(r"(?<![\w.])self\.")

RECOMPUTED = "recomputed"


# ---------------------------------------------------------------- the expression


def expression_of(event: Event, name: str) -> str:
    """Return the expression of an event and the names it is assigned to.

    If torch made the call, there is no such expression, so it is the name of the function that
    torch called.
    """
    if event.kind == "mark":
        return f"▸ {clean(event.name)}"
    if tells_its_call(event):
        return expression(assigned_to(event), event.code, event.operator)
    if event.kind == "module" and not event.module:
        roles = [clean(value.role) for value in event.inputs[:MAX_GROUPS]]
        return f"{clean(name)}({', '.join(roles)})"
    if event.kind == "step":
        if ".step(" in event.code:
            return expression((), event.code, None)
        return f"{clean(event.name)}.step"
    return clean(name or event.name) or "?"


def tells_its_call(event: Event) -> bool:
    """Return whether the expression shows what was called. ``super().__call__(*args)`` in a wrapper
    does not.
    """
    return event.direct and bool(event.code) and not event.code.startswith("super()")


@lru_cache(maxsize=8192)
def expression(target: tuple[str, ...], code: str, operator: str | None) -> str:
    """Return an assignment on one line, such as ``queries = query_weights(x)``.

    ``self.`` is left out, because it would be on nearly every line.
    """
    text = _SELF.sub("", one_line(code))
    written_with_target = operator is not None and operator not in _SIGNS and operator[-1:] == "="
    if not target or written_with_target:
        return text
    names = ", ".join(_SELF.sub("", one_line(name)) for name in target)
    return f"{names} = {text}"


def path_prefix(event: Event, name: str) -> str:
    """Return a module's path if its expression does not show it, as in ``for block in blocks: x =
    block(x)``.
    """
    if event.kind != "module" or not event.module or not tells_its_call(event):
        return ""
    last = name.rpartition(".")[2]
    if last in event.code and not last.isdecimal():
        return ""
    return clean(name)


# ---------------------------------------------------------------- class and settings

_POSITIONAL = frozenset(
    ("in_features", "out_features", "in_channels", "out_channels", "num_features")
)
_USUAL = frozenset(
    "bias=True inplace=False elementwise_affine=True affine=True track_running_stats=True momentum=0.1"
    " eps=1e-05 eps=1e-5 stride=1 padding=0 dilation=1 ceil_mode=False approximate='none' dim=None".split()
)
"""Defaults of common layers, which need not be shown."""


@lru_cache(maxsize=4096)
def class_word(name: str, detail: str) -> str:
    """Return a class with its settings, without usual defaults: ``Conv2d(3, 64, kernel_size=7,
    stride=2)``.
    """
    settings = [_setting(part) for part in split_arguments(one_line(detail))]
    unusual = [setting for setting in settings if setting and setting not in _USUAL]
    if unusual:
        return f"{clean(name)}({', '.join(unusual)})"
    return clean(name)


def _setting(part: str) -> str:
    key, equals, value = part.partition("=")
    if not equals:
        alone = re.fullmatch(r"\((\d+),\)", part)
        if alone:
            return alone[1]
        return part
    same = re.fullmatch(r"\((\d+)(?:, \1)*,?\)", value)
    if same:
        value = same[1]
    if key in _POSITIONAL:
        return value
    return f"{key}={value}"


@lru_cache(maxsize=4096)
def split_arguments(text: str) -> tuple[str, ...]:
    """Split a text such as ``a, (b, c), d='x, y'`` at the commas outside brackets and quotes."""
    parts: list[str] = []
    start = 0
    depth = 0
    quote = ""
    for at, char in enumerate(text):
        if quote:
            if char == quote and text[at - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth <= 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)


# ---------------------------------------------------------------- shapes


def shape_words(values: tuple[Value, ...], device: bool = False) -> tuple[str, ...]:
    """Return a word for each tensor; several equal ones in a row as ``f32[3] ×4``; at most four."""
    if len(values) == 1 and not device:
        value = values[0]
        return (shape_word(value.dtype, value.shape, value.layout),)
    return _grouped(tuple([_word(value, device) for value in values]))


def _word(value: Value, device: bool) -> str:
    word = shape_word(value.dtype, value.shape, value.layout)
    if device and value.device:
        return f"{word} @ {clean(value.device)}"
    return word


@lru_cache(maxsize=8192)
def _grouped(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(words) <= 2:
        return words
    groups: list[list[str]] = []
    for word in words:
        if groups and groups[-1][0] == word:
            groups[-1].append(word)
        else:
            groups.append([word])
    shown = [group[0] if len(group) == 1 else f"{group[0]} ×{len(group)}" for group in groups]
    rest = sum(map(len, groups[MAX_GROUPS:]))
    if rest:
        return (*shown[:MAX_GROUPS], f"+{rest} more")
    return tuple(shown)


def devices_differ(event: Event) -> bool:
    """Return whether tensors moved between devices, so that the devices are worth showing."""
    first = None
    for values in (event.inputs, event.outputs):
        for value in values:
            if first is None:
                first = value.device
            elif value.device != first:
                return True
    return False


def gives_cell(
    event: Event, device: bool = False, brief: bool = False, others: Sequence[Event] = ()
) -> Cell:
    """Return the shapes that came out, or the plain result, or the error that left the call (``brief``: only its
    type).
    """
    if event.error is not None:
        text = "✗ " + clean(event.error)
        return Cell(ERROR, text.partition(":")[0] if brief else text)
    if is_summed_up(event):
        return Cell(GIVES, "")
    if others:
        return Cell(GIVES, _gives_of([event, *others], device))
    if event.outputs:
        return Cell(GIVES, ", ".join(shape_words(event.outputs, device)))
    if event.result in ("", "None"):
        return Cell(GIVES, "")
    return Cell(GIVES, cut(clean(event.result), MAX_RESULT_LENGTH))


def _gives_of(events: Sequence[Event], device: bool) -> str:
    """Return what several calls gave: shapes as ranges, other results from the first to the last."""
    words: list[str] = []
    outputs = [event.outputs for event in events if event.outputs]
    if outputs:
        words.append(", ".join(_grouped(values_words(outputs, device))))
    results = dict.fromkeys(event.result for event in events if not event.outputs)
    texts = [result for result in results if result not in ("", "None")]
    if texts:
        words.append(texts_word(texts))
    return " | ".join(words)


def takes_cell(words: tuple[str, ...], sign: str = ", ") -> Cell:
    """Return the cell of the inputs, with an operator or commas between them. Its short form has
    only the first: ``f32[8, 3], …``.
    """
    text = sign.join(words)
    if len(words) < 2:
        return Cell(TAKES, text, text)
    return Cell(TAKES, text, f"{words[0]}{sign.rstrip()} …")


# ---------------------------------------------------------------- one event


@dataclass(frozen=True, slots=True)
class RowLabels:
    """Extra labels for the row of an event."""

    name: str
    """The path of a module, as it is shown."""
    fold: str = ""
    """Which calls the row stands for, and how often."""
    same_code: bool = True
    """Whether all calls have the same expression. If not, it is left out."""
    inside: str = ""
    """How many events the row hides, as text."""
    rounds: str = ""
    """In which iterations of the surrounding loop it happened, as text, if not in all."""
    brief: bool = False
    """Whether the text of an error is shown elsewhere."""
    others: tuple[Event, ...] = ()
    """Further events that share the row but differ from it."""


def event_cells(event: Event, labels: RowLabels) -> Cells:
    """Return all cells of a row for one event, or for several that share it."""
    fold = labels.fold
    others = labels.others
    prefix = fold or path_prefix(event, labels.name)
    label = expression_of(event, labels.name)
    if fold and event.kind == "module" and not (labels.same_code and tells_its_call(event)):
        label = ""
    device = any(map(devices_differ, (event, *others)))
    hidden = [labels.inside]
    if is_recomputed(event):
        hidden.insert(0, RECOMPUTED)
    cells = [
        Cell(FOLD if fold else NAME, prefix),
        Cell(EXPRESSION, label),
        _class_cell(event, label or fold, others),
        Cell(COUNT, ", ".join(filter(None, hidden)), short=""),
        Cell(ROUNDS, labels.rounds),
        _inputs_cell(event, others, device),
        gives_cell(event, device, labels.brief, others),
    ]
    return _with_place([cell for cell in cells if cell.text], event)


def _inputs_cell(event: Event, others: Sequence[Event], device: bool) -> Cell:
    """Return the shapes of the inputs, for a binary operator with its sign between them."""
    if is_summed_up(event):
        words = ()
    elif others:
        words = values_words([each.inputs for each in (event, *others)], device)
    elif event.operator in BINARY and len(event.inputs) == 2:
        words = tuple([_word(value, device) for value in event.inputs])
    else:
        words = shape_words(event.inputs, device)
    if event.operator in BINARY and len(words) == 2:
        return takes_cell(words, f" {event.operator} ")
    return takes_cell(_grouped(words))


def helper_cells(event: Event, labels: RowLabels, functions: str) -> Cells:
    """Return the cells of an expression without an event: which functions torch called there, or
    how many.
    """
    if event.code:
        label = expression(assigned_to(event), event.code, None)
    else:
        label = clean(event.name)
    if functions:
        called = Cell(COUNT, functions)
    else:
        called = Cell(CLASS, clean(event.name))
    cells = [Cell(FOLD, labels.fold), Cell(EXPRESSION, label), called]
    if not functions or event.error:
        inner = event_cells(event, RowLabels("", others=labels.others))
        cells += [cell for cell in inner if cell.kind in (TAKES, GIVES, ERROR)]
    cells.append(Cell(ROUNDS, labels.rounds))
    return _with_place([cell for cell in cells if cell.text], event)


def _with_place(cells: list[Cell], event: Event) -> Cells:
    if event.location is None:
        return tuple(cells)
    return (*cells, Cell(PLACE, at=event.location))


def _class_cell(event: Event, label: str, others: Sequence[Event] = ()) -> Cell:
    """Return the cell of a module's class, with a short form without settings. Empty if the label
    already has it.
    """
    if event.kind == "unseen":
        return Cell(CLASS, "not seen inside")
    if event.kind != "module":
        return Cell(CLASS, "")
    short = clean(event.name)
    settings = settings_of(event.detail, event.module)
    text = class_word(event.name, settings)
    if any(settings_of(each.detail, each.module) != settings for each in others):
        text = short
    if not label.startswith(short + "("):
        return Cell(CLASS, text, short)
    if text == short:
        return Cell(CLASS, "", "")
    return Cell(CLASS, text, "")


# ---------------------------------------------------------------- ops

# An op as text has the grammar of torch-code-tracing:
# ``addmm(f32[96], f32[14, 32], f32[32, 96]) -> f32[14, 96]``.

_KEYWORD_TEXT = re.compile(r"^([A-Za-z_]\w*=)'([^'\\]*)'$")


def op_name(name: str) -> str:
    """Return the name of an op without the namespace ``aten``: ``mul.Tensor``. Other namespaces
    stay.
    """
    return name.removeprefix("aten::")


@lru_cache(maxsize=8192)
def op_words(args: str, result: str) -> tuple[str, str]:
    """Return the arguments and the result of an op. Unlike in torch-code-tracing, tensors in lists
    have no quotes.
    """
    parts = [_KEYWORD_TEXT.sub(r"\1\2", one_line(part)) for part in split_arguments(args)]
    several = result
    if result.startswith("["):
        several = f"({result[1:-1]})"
    return ", ".join(parts), one_line(several)
