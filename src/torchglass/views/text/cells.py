"""What is said of one event, as cells: its expression, its class and settings, what it took and what it gave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torchglass.events.types import Event, Value
from torchglass.views.digest import is_recomputed, settings_of
from torchglass.views.row import CLASS, COUNT, ERROR, EXPRESSION, FOLD, GIVES, NAME, PLACE, ROUNDS, TAKES, Cell, Cells
from torchglass.views.text.tensors import texts_word, values_words
from torchglass.views.text.words import clean, cut, one_line, shape_word

MOST_GROUPS = 4
LONGEST_RESULT = 24
_SIGNS = frozenset("+ - * / // % ** @ & | ^ << >> == != < <= > >=".split())
BINARY = _SIGNS | frozenset(sign + "=" for sign in _SIGNS if sign[-1] not in "=<>") | {"<<=", ">>="}
_SELF = re.compile(r"(?<![\w.])self\.")

RECOMPUTED = "recomputed"


# ---------------------------------------------------------------- the expression


def expression_of(event: Event, name: str) -> str:
    """The expression and the names it is assigned to; where torch made the call, what it called."""
    if event.kind == "mark":
        return f"▸ {clean(event.name)}"
    if tells_its_call(event):
        return expression(assigned_to(event), event.code, event.operator)
    if event.kind == "module" and not event.module:
        roles = [clean(value.role) for value in event.inputs[:MOST_GROUPS]]
        return f"{clean(name)}({', '.join(roles)})"
    if event.kind == "step":
        return expression((), event.code, None) if ".step(" in event.code else f"{clean(event.name)}.step"
    return clean(name or event.name) or "?"


def tells_its_call(event: Event) -> bool:
    """Whether the expression says what was called; ``super().__call__(*args)`` in a wrapper does not."""
    return event.direct and bool(event.code) and not event.code.startswith("super()")


@lru_cache(maxsize=8192)
def expression(target: tuple[str, ...], code: str, operator: str | None) -> str:
    """``queries = query_weights(x)``: on one line, and without ``self.``, which every line would have."""
    text = _SELF.sub("", one_line(code))
    written_with_target = operator is not None and operator not in _SIGNS and operator[-1:] == "="
    if not target or written_with_target:
        return text
    names = ", ".join(_SELF.sub("", one_line(name)) for name in target)
    return f"{names} = {text}"


def assigned_to(event: Event) -> tuple[str, ...]:
    """The names that a result is assigned to; where they are no tuple, as they are written: ``a = c``."""
    if len(event.target) < 2 or event.location is None:
        return event.target
    return _as_written(event.target, event.location.source, event.code.partition("\n")[0])


@lru_cache(maxsize=4096)
def _as_written(target: tuple[str, ...], source: str, code: str) -> tuple[str, ...]:
    head = source[: source.rfind(code)].rstrip() if code in source else ""
    names = head.removesuffix("=").rstrip()
    chained = head.endswith("=") and " = " in names and all(name in names for name in target)
    return (names,) if chained else target


def path_prefix(event: Event, name: str) -> str:
    """A module's path where its expression does not tell it, as in ``for block in blocks: x = block(x)``."""
    if event.kind != "module" or not event.module or not tells_its_call(event):
        return ""
    last = name.rpartition(".")[2]
    return "" if last in event.code and not last.isdecimal() else clean(name)


# ---------------------------------------------------------------- class and settings

_POSITIONAL = frozenset(("in_features", "out_features", "in_channels", "out_channels", "num_features"))
_USUAL = frozenset(
    "bias=True inplace=False elementwise_affine=True affine=True track_running_stats=True momentum=0.1"
    " eps=1e-05 eps=1e-5 stride=1 padding=0 dilation=1 ceil_mode=False approximate='none' dim=None".split()
)
"""What most layers have, and nobody needs to read."""


@lru_cache(maxsize=4096)
def class_word(name: str, detail: str) -> str:
    """``Linear(6, 6)``, ``Conv2d(3, 64, kernel_size=7, stride=2)``: settings without names and defaults."""
    settings = [_setting(part) for part in split_arguments(one_line(detail))]
    unusual = [setting for setting in settings if setting and setting not in _USUAL]
    return f"{clean(name)}({', '.join(unusual)})" if unusual else clean(name)


def _setting(part: str) -> str:
    key, equals, value = part.partition("=")
    if not equals:
        alone = re.fullmatch(r"\((\d+),\)", part)
        return alone[1] if alone else part
    same = re.fullmatch(r"\((\d+)(?:, \1)*,?\)", value)
    value = same[1] if same else value
    return value if key in _POSITIONAL else f"{key}={value}"


@lru_cache(maxsize=4096)
def split_arguments(text: str) -> tuple[str, ...]:
    """Cut ``a, (b, c), d='x, y'`` at its outer commas."""
    parts: list[str] = []
    start, depth, quote = 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
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
    """A word for each tensor; several equal ones in a row as ``f32[3] ×4``; no more than four."""
    if len(values) == 1 and not device:
        value = values[0]
        return (shape_word(value.dtype, value.shape, value.layout),)
    return _grouped(tuple([_word(value, device) for value in values]))


def _word(value: Value, device: bool) -> str:
    word = shape_word(value.dtype, value.shape, value.layout)
    return f"{word} @ {clean(value.device)}" if device and value.device else word


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
    rest = sum(map(len, groups[MOST_GROUPS:]))
    return (*shown[:MOST_GROUPS], f"+{rest} more") if rest else tuple(shown)


def devices_differ(event: Event) -> bool:
    """True when tensors moved between devices, so that the devices are worth a word."""
    first = None
    for values in (event.inputs, event.outputs):
        for value in values:
            if first is None:
                first = value.device
            elif value.device != first:
                return True
    return False


def gives_cell(event: Event, device: bool = False, brief: bool = False, others: Sequence[Event] = ()) -> Cell:
    """The shapes that came out, or the plain result, or the error that left the call (``brief``: only its type)."""
    if event.error is not None:
        text = "✗ " + clean(event.error)
        return Cell(ERROR, text.partition(":")[0] if brief else text)
    if is_summed_up(event):
        return Cell(GIVES, "")
    if others:
        return Cell(GIVES, _gives_of([event, *others], device))
    if event.outputs:
        return Cell(GIVES, ", ".join(shape_words(event.outputs, device)))
    return Cell(GIVES, cut(clean(event.result), LONGEST_RESULT) if event.result not in ("", "None") else "")


def _gives_of(events: Sequence[Event], device: bool) -> str:
    """What several calls gave: shapes over each other, other results from the first to the last."""
    given = [event.outputs for event in events if event.outputs]
    texts = list(
        dict.fromkeys(event.result for event in events if not event.outputs and event.result not in ("", "None"))
    )
    words = [", ".join(_grouped(values_words(given, device)))] if given else []
    return " | ".join([*words, *([texts_word(texts)] if texts else [])])


def is_summed_up(event: Event) -> bool:
    """Whether it took or gave so many tensors that their shapes tell nothing: the view ``gradients`` shows them."""
    return event.kind == "step" or event.name == "AccumulateGrad"


def takes_cell(words: tuple[str, ...], sign: str = ", ") -> Cell:
    """What went in, with the operator or a comma between; on a narrow page the first alone."""
    text = sign.join(words)
    return Cell(TAKES, text, text if len(words) < 2 else f"{words[0]}{sign.rstrip()} …")


# ---------------------------------------------------------------- one event


@dataclass(frozen=True, slots=True)
class Said:
    """What is to be said of an event beside what it says itself."""

    name: str
    """A module's path as it is to be shown."""
    fold: str = ""
    """Which calls it stands for, and how often."""
    same_code: bool = True
    """False: their expressions differ and are left out."""
    inside: str = ""
    """How many events it hides."""
    rounds: str = ""
    """In which rounds of the loop around it happened, where not in all."""
    brief: bool = False
    """The text of an error stands elsewhere."""
    others: tuple[Event, ...] = ()
    """Events that it stands for, of which something else is to be said."""


def event_cells(event: Event, said: Said) -> Cells:
    """All cells of a row for one event, or several that share it."""
    name, fold, same_code, others = said.name, said.fold, said.same_code, said.others
    prefix, label = fold or path_prefix(event, name), expression_of(event, name)
    if fold and event.kind == "module" and not (same_code and tells_its_call(event)):
        label = ""
    events = (event, *others)
    device = any(map(devices_differ, events))
    if is_summed_up(event):
        words = ()
    elif others:
        words = values_words([each.inputs for each in events], device)
    elif event.operator in BINARY and len(event.inputs) == 2:
        words = tuple([_word(value, device) for value in event.inputs])
    else:
        words = shape_words(event.inputs, device)
    is_binary = event.operator in BINARY and len(words) == 2
    takes = takes_cell(words, f" {event.operator} ") if is_binary else takes_cell(_grouped(words))
    cells = [
        Cell(FOLD if fold else NAME, prefix),
        Cell(EXPRESSION, label),
        _class_cell(event, label or fold, others),
        Cell(COUNT, ", ".join(filter(None, (RECOMPUTED if is_recomputed(event) else "", said.inside))), short=""),
        Cell(ROUNDS, said.rounds),
        takes,
        gives_cell(event, device, said.brief, others),
    ]
    return _with_place([cell for cell in cells if cell.text], event)


def helper_cells(event: Event, said: Said, functions: str) -> Cells:
    """An expression that is no event itself: what torch called there, by name or how many functions."""
    label = expression(assigned_to(event), event.code, None) if event.code else clean(event.name)
    what = Cell(COUNT, functions) if functions else Cell(CLASS, clean(event.name))
    cells = [Cell(FOLD, said.fold), Cell(EXPRESSION, label), what]
    if not functions or event.error:
        inner = event_cells(event, Said("", others=said.others))
        cells += [cell for cell in inner if cell.kind in (TAKES, GIVES, ERROR)]
    cells.append(Cell(ROUNDS, said.rounds))
    return _with_place([cell for cell in cells if cell.text], event)


def _with_place(cells: list[Cell], event: Event) -> Cells:
    return tuple(cells) if event.location is None else (*cells, Cell(PLACE, at=event.location))


def _class_cell(event: Event, label: str, others: Sequence[Event] = ()) -> Cell:
    """A module's class with and without settings; nothing where the label says it already."""
    if event.kind == "module":
        what, plain = class_word(event.name, settings_of(event.detail, event.module)), clean(event.name)
        if any(settings_of(each.detail, each.module) != settings_of(event.detail, event.module) for each in others):
            what = plain
        if label.startswith(plain + "("):
            return Cell(CLASS, "" if what == plain else what, "")
        return Cell(CLASS, what, plain)
    return Cell(CLASS, "not seen inside" if event.kind == "unseen" else "")


# ---------------------------------------------------------------- ops

# An op as text, in the grammar of torch-code-tracing: ``addmm(f32[96], f32[14, 32], f32[32, 96]) -> f32[14, 96]``.

_KEYWORD_TEXT = re.compile(r"^([A-Za-z_]\w*=)'([^'\\]*)'$")


def op_name(name: str) -> str:
    """``mul.Tensor``; other namespaces than aten stay."""
    return name.removeprefix("aten::")


@lru_cache(maxsize=8192)
def op_words(args: str, result: str) -> tuple[str, str]:
    """Arguments and result of an op, less an oddity of the original: tensors in lists have no quotes."""
    parts = [_KEYWORD_TEXT.sub(r"\1\2", one_line(part)) for part in split_arguments(args)]
    several = f"({result[1:-1]})" if result.startswith("[") else result
    return ", ".join(parts), one_line(several)
