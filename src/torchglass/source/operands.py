"""From the arguments of a call that happened to the texts that they were written as."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import NamedTuple

Key = int | str

_MIRRORED = {"<": "gt", ">": "lt", "<=": "ge", ">=": "le"}
_REFLECTED = frozenset(
    f"__r{name}__"
    for name in ("add", "sub", "mul", "matmul", "truediv", "div", "floordiv", "mod", "divmod", "pow",
                 "lshift", "rshift", "and", "or", "xor")
)  # fmt: skip
_UNBOUND = ("Tensor", "operator")
"""What stands before the dot when a method is called with its receiver as first argument."""
_HIGHER_ORDER = frozenset(vars(builtins)) | {
    "reduce", "map", "starmap", "accumulate", "partial", "apply", "index", "count", "remove", "submit",
}  # fmt: skip
"""What runs other functions out of sight, on arguments that are not its own."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One operand or argument, as written."""

    text: str
    """``""`` when it has no text of its own."""
    starred: bool = False
    literal: bool = False
    """A constant or a display: never a tensor itself."""
    primary: bool = True
    """Whether an index can be put behind the text without parentheses."""
    items: tuple[tuple[Key | None, Argument], ...] | None = None
    """The elements of a list, tuple, dict or slice that is written out."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """What is written at a site, as far as it names operands."""

    positional: tuple[Argument, ...]
    """A call's positional arguments, an operator's operands in the order in which its method takes them."""
    receiver: Argument | None = None
    """``x`` of ``x.f(…)``; also ``torch`` of ``torch.f(…)``: only the call that happened tells them apart."""
    keywords: tuple[tuple[str | None, Argument], ...] = ()
    """Name and text; None is ``**``."""
    callee: str | None = None
    """The last name of what is called; ``""`` when it has none; None when this is no call."""
    runs: str = ""
    """The special method that this syntax runs; ``""`` when that is open."""


class Slot(NamedTuple):
    """Where one tensor stood among the arguments of a call: ``b`` of ``f(a, [b])`` at 1, path (0,)."""

    position: int | None
    keyword: str | None = None
    path: tuple[Key, ...] = ()
    """Indices and keys inside the argument; of a slice ``start``, ``stop``, ``step``."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The tensor arguments of a call that happened, in order, and what else helps to find their texts."""

    arguments: tuple[Slot, ...]
    positional: int
    """The number of all positional arguments, tensors or not; of a method with the receiver."""
    name: str = ""
    """As in ``Event.name``: ``Tensor.add`` is a method, ``F.relu`` and ``cat`` are not; ``""`` is not known
    (right for modules)."""
    parameters: tuple[str, ...] = ()
    """The names of the positional parameters, where known: torch may pass on by name what came by place."""

    @property
    def function(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_method(self) -> bool | None:
        return self.name.startswith("Tensor.") if self.name else None


def texts_of(shape: CallShape | None, operator: str | None, slots: Slots) -> tuple[str, ...]:
    """One text for each tensor argument; ``()`` when a single one is not certain."""
    if shape is None:
        return ()
    find = _operand if shape.callee is None else _argument
    texts: list[str] = []
    for slot in slots.arguments:
        argument = find(shape, slot, slots, operator)
        text = _inner(argument, slot.path) if argument else None
        if not text:
            return ()
        texts.append(text)
    return tuple(texts)


def is_written_call(shape: CallShape, slots: Slots) -> bool:
    """Whether the call that happened is the one written, not one that a builtin written there has made."""
    if shape.callee is None:
        return not (shape.runs and slots.name) or _alike(shape.runs, slots.function)
    if not slots.name:
        return shape.callee not in _HIGHER_ORDER
    if _alike(shape.callee, slots.function):
        return True
    if shape.callee in _HIGHER_ORDER or (slots.is_method and shape.receiver is not None):
        return False
    starred = any(argument.starred for argument in shape.positional)
    return starred or slots.positional == len(shape.positional)


def _operand(shape: CallShape, slot: Slot, slots: Slots, operator: str | None) -> Argument | None:
    if slot.position is None or slot.position >= len(shape.positional):
        return None
    if not is_written_call(shape, slots):
        return None
    operands = shape.positional[::-1] if _is_reflected(operator, slots.function) else shape.positional
    return operands[slot.position]


def _is_reflected(operator: str | None, function: str) -> bool:
    """``2 - x`` runs ``x.__rsub__(2)``, ``2 < x`` runs ``x.gt(2)``."""
    return function in _REFLECTED or function.strip("_") == _MIRRORED.get(operator or "")


def _argument(shape: CallShape, slot: Slot, slots: Slots, operator: str | None) -> Argument | None:
    bound = _takes_receiver(shape, slots)
    if bound is None or not is_written_call(shape, slots):
        return None
    if slot.position is not None:
        index = slot.position - bound
        if index < 0:
            return shape.receiver
        known = slots.parameters[slot.position : slot.position + 1]
        return _at(shape, index) or (_by_keyword(shape, known[0]) if known else None)
    found = _by_keyword(shape, slot.keyword)
    if found is None and slot.keyword in slots.parameters:
        found = _at(shape, slots.parameters.index(slot.keyword) - bound)
    return found or _by_keyword(shape, None)


def _takes_receiver(shape: CallShape, slots: Slots) -> bool | None:
    """Whether what stands before the dot is the first argument; None when that is not certain."""
    extra = slots.positional - len(shape.positional)
    starred = any(argument.starred for argument in shape.positional)
    if shape.receiver is None or slots.is_method is False:
        return False
    if slots.is_method is None:
        certain = not starred and not shape.keywords and extra in (0, 1)
        return extra == 1 if certain else None
    if shape.receiver.text.rpartition(".")[2] in _UNBOUND:
        return False
    if not _alike(shape.callee or "", slots.function):
        return None
    # As many as written: a wrapper that passes some on by name, or an unbound method behind another name.
    return True if extra != 0 or starred or slots.parameters else None


def _alike(name: str, other: str) -> bool:
    return name.strip("_") == other.strip("_")


def _at(shape: CallShape, index: int) -> Argument | None:
    """The positional argument at an index; from a last ``*xs`` on, that."""
    if index < 0:
        return None
    for place, argument in enumerate(shape.positional[: index + 1]):
        if argument.starred:
            return argument if place == len(shape.positional) - 1 else None
    return shape.positional[index] if index < len(shape.positional) else None


def _by_keyword(shape: CallShape, name: str | None) -> Argument | None:
    return next((argument for keyword, argument in shape.keywords if keyword == name), None)


def _inner(argument: Argument, path: tuple[Key, ...]) -> str | None:
    """The text of what lies at a path inside an argument; None when the tensor cannot be that."""
    if argument.starred:
        return argument.text
    if not path:
        return None if argument.literal else argument.text
    if argument.items is None:
        if argument.literal or not argument.text:
            return None
        text = argument.text if argument.primary else f"({argument.text})"
        return text + "".join(f"[{key!r}]" for key in path)
    for key, item in argument.items:
        if key == path[0]:
            return _inner(item, path[1:])
        if item.starred:
            return item.text if item is argument.items[-1][1] else None
    return None
