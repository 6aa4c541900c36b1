"""Find the source text of each tensor argument of a recorded call: ``("x", "w.T")`` for ``f(x, w.T)``."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import NamedTuple

from torchglass.source.expressions import Argument, CallShape, Key
from torchglass.source.sites import Site

_MIRRORED = {"<": "gt", ">": "lt", "<=": "ge", ">=": "le"}
_REFLECTED = frozenset(
    f"__r{name}__"
    for name in ("add", "sub", "mul", "matmul", "truediv", "div", "floordiv", "mod", "divmod", "pow",
                 "lshift", "rshift", "and", "or", "xor")
)  # fmt: skip
_UNBOUND = ("Tensor", "operator")
"""Names before the dot with which a method takes its receiver as the first argument, as ``Tensor.add(x, y)`` does."""
_HIGHER_ORDER = frozenset(vars(builtins)) | {
    "reduce", "map", "starmap", "accumulate", "partial", "apply", "index", "count", "remove", "submit",
}  # fmt: skip
"""Functions that may call other functions, on arguments that are not written in the call."""


class Slot(NamedTuple):
    """The place of one tensor among the arguments of a call: in ``f(a, [b])``, ``b`` has position 1 and path (0,)."""

    position: int | None
    keyword: str | None = None
    path: tuple[Key, ...] = ()
    """The indices and keys that lead to the tensor in the argument. In a slice, ``start``, ``stop`` or ``step``."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The tensor arguments of a recorded call, in order, and what else helps to find their texts."""

    arguments: tuple[Slot, ...]
    positional: int
    """The number of all positional arguments, tensors or not. The receiver of a method is one of them."""
    name: str = ""
    """The name as in ``Event.name``: ``Tensor.add`` is a method, ``F.relu`` and ``cat`` are not.

    It is ``""`` if not known, and for modules.
    """
    parameters: tuple[str, ...] = ()
    """The names of the positional parameters, if known. torch may pass by name what the program passed by position."""

    @property
    def function(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_method(self) -> bool | None:
        """Whether the call is of a method; None if that is not known."""
        if self.name:
            return self.name.startswith("Tensor.")
        return None


def operands(site: Site, slots: Slots) -> tuple[str, ...]:
    """Return the source text of each tensor argument of a call at this site, or () if one of them is uncertain."""
    shape = site.call
    if shape is None:
        return ()
    texts: list[str] = []
    for slot in slots.arguments:
        if shape.callee is None:
            argument = _operand(shape, slot, slots, site.operator)
        else:
            argument = _argument(shape, slot, slots)
        text = None
        if argument:
            text = _text_at_path(argument, slot.path)
        if not text:
            return ()
        texts.append(text)
    return tuple(texts)


def is_direct(site: Site, slots: Slots) -> bool:
    """Return whether the site itself is this call, so that its target, operator and operands belong to it.

    ``sum(xs)`` is not, if the recorded call is an addition of two tensors. ``x in xs`` is not, if it is a comparison.
    """
    return site.call is not None and _is_written_call(site.call, slots)


def _is_written_call(shape: CallShape, slots: Slots) -> bool:
    """Return whether the recorded call is the one that is written, and was not made by a builtin that is written."""
    if shape.callee is None:
        return not (shape.runs and slots.name) or _same_name(shape.runs, slots.function)
    if not slots.name:
        return shape.callee not in _HIGHER_ORDER
    if _same_name(shape.callee, slots.function):
        return True
    if shape.callee in _HIGHER_ORDER or (slots.is_method and shape.receiver is not None):
        return False
    starred = any(argument.starred for argument in shape.positional)
    return starred or slots.positional == len(shape.positional)


def _operand(shape: CallShape, slot: Slot, slots: Slots, operator: str | None) -> Argument | None:
    """Return the operand of an operator that a recorded call got in a slot."""
    if slot.position is None or slot.position >= len(shape.positional):
        return None
    if not _is_written_call(shape, slots):
        return None
    if _is_reflected(operator, slots.function):
        operands = shape.positional[::-1]
    else:
        operands = shape.positional
    return operands[slot.position]


def _is_reflected(operator: str | None, function: str) -> bool:
    """Return whether the call was reflected: ``2 - x`` runs ``x.__rsub__(2)``, ``2 < x`` runs ``x.gt(2)``."""
    return function in _REFLECTED or function.strip("_") == _MIRRORED.get(operator or "")


def _argument(shape: CallShape, slot: Slot, slots: Slots) -> Argument | None:
    """Return the written argument of a call that the recorded call got in a slot, or None if it is uncertain."""
    takes_receiver = _takes_receiver(shape, slots)
    if takes_receiver is None or not _is_written_call(shape, slots):
        return None
    if slot.position is not None:
        index = slot.position - takes_receiver
        if index < 0:
            return shape.receiver
        argument = _positional_at(shape, index)
        if argument is None and slot.position < len(slots.parameters):
            argument = _by_keyword(shape, slots.parameters[slot.position])
        return argument
    argument = _by_keyword(shape, slot.keyword)
    if argument is None and slot.keyword in slots.parameters:
        index = slots.parameters.index(slot.keyword) - takes_receiver
        argument = _positional_at(shape, index)
    return argument or _by_keyword(shape, None)


def _takes_receiver(shape: CallShape, slots: Slots) -> bool | None:
    """Return whether the text before the dot is the first argument, or None if that is uncertain."""
    extra = slots.positional - len(shape.positional)
    starred = any(argument.starred for argument in shape.positional)
    if shape.receiver is None or slots.is_method is False:
        return False
    if slots.is_method is None:
        certain = not starred and not shape.keywords and extra in (0, 1)
        if certain:
            return extra == 1
        return None
    if shape.receiver.text.rpartition(".")[2] in _UNBOUND:
        return False
    if not _same_name(shape.callee or "", slots.function):
        return None
    # There are as many arguments as written, although the receiver should be one more. Either a wrapper passes some of
    # them by name, or this is an unbound method under another name.
    if extra != 0 or starred or slots.parameters:
        return True
    return None


def _same_name(name: str, other: str) -> bool:
    return name.strip("_") == other.strip("_")


def _positional_at(shape: CallShape, index: int) -> Argument | None:
    """Return the positional argument at an index, or the last one if it is ``*xs`` and covers the index."""
    if index < 0:
        return None
    for position, argument in enumerate(shape.positional[: index + 1]):
        if argument.starred:
            if position == len(shape.positional) - 1:
                return argument
            return None
    if index < len(shape.positional):
        return shape.positional[index]
    return None


def _by_keyword(shape: CallShape, name: str | None) -> Argument | None:
    """Return the keyword argument of this name. None stands for ``**``."""
    return next((argument for keyword, argument in shape.keywords if keyword == name), None)


def _text_at_path(argument: Argument, path: tuple[Key, ...]) -> str | None:
    """Return the text of the element at a path in an argument, or None if a tensor cannot be there."""
    if argument.starred:
        return argument.text
    if not path:
        if argument.literal:
            return None
        return argument.text
    if argument.items is None:
        if argument.literal or not argument.text:
            return None
        if argument.primary:
            text = argument.text
        else:
            text = f"({argument.text})"
        return text + "".join(f"[{key!r}]" for key in path)
    for key, item in argument.items:
        if key == path[0]:
            return _text_at_path(item, path[1:])
        if item.starred:
            if item is argument.items[-1][1]:
                return item.text
            return None
    return None
