"""Which parameters got a gradient, what it was, and by how much steps changed them: read from a few events.

``AccumulateGrad`` stands behind each run of backward: it takes the leaves that got something, under their names, and
gives their gradients. A ``step`` takes the parameters of its optimizer, each followed by its gradient if it has
one, and gives, where values were measured, by how much it changed them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.schema import NONE
from torchglass.events.types import Event, ModuleInfo, Value

ACCUMULATE = "AccumulateGrad"
BACKWARD = "autograd.backward"
"""What ``Tensor.backward`` calls, and programs with several losses."""
CHECKS = "_amp_foreach_non_finite_check_and_unscale_"
"""By which GradScaler finds out whether a step is to be skipped."""
MOST_NAMED = 5
"""Parameters without a gradient that are told by name."""
_UNNAMED = re.compile(r"tensor \d+")
_PLACE = re.compile(r"\[(\d+)\]$")


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did to one parameter."""

    weight: Value
    """As it was before."""
    gradient: Value | None
    update: Value | None
    """The change, or every n-th number of it; None where it was not measured."""


@dataclass(slots=True)
class Leaf:
    """A parameter, or another leaf that got a gradient."""

    name: str
    """Its own name in its module; of other leaves how they are called in the program."""
    value: Value
    """As it was when it was first seen."""
    holder: ModuleInfo | None = None
    """The module that holds it."""
    accumulated: list[Value] = field(default_factory=list[Value])
    """Its gradient after each run of backward that added to it."""
    steps: list[Step] = field(default_factory=list[Step])
    event: int = -1
    """The first event that tells of it."""
    stepped_in: int = NONE
    """The run of backward in which a step was made last with it, by a hook; NONE: what followed told of it too."""

    @property
    def full_name(self) -> str:
        """``Net.fc.weight``."""
        return self.name if self.holder is None else parameter_name(self.holder, self.name)

    @property
    def gradients(self) -> list[Value]:
        """What steps were given; where there was no step, what backward left."""
        return [step.gradient for step in self.steps if step.gradient is not None] or self.accumulated

    @property
    def is_missed(self) -> bool:
        """Whether it asked for a gradient and never had one."""
        return self.value.requires_grad and not self.accumulated and not self.gradients


@dataclass(slots=True)
class Gradients:
    """What a trace tells of gradients."""

    leaves: list[Leaf] = field(default_factory=list[Leaf])
    """Parameters in the order of their modules, then other leaves."""
    runs: int = 0
    """How often backward ran."""
    steps: list[str] = field(default_factory=list[str])
    """The optimizers, a name for each step."""
    skipped: int = 0
    """How often a GradScaler found gradients that overflowed, and made no step."""

    @property
    def missed(self) -> list[Leaf]:
        """Those that got none, although backward ran; one process may only evaluate what others train."""
        if not self.runs:
            return []
        trained = {leaf.full_name for leaf in self.leaves if not leaf.is_missed}
        return [leaf for leaf in self.leaves if leaf.is_missed and leaf.full_name not in trained]


def missed_words(found: Gradients, most: int = MOST_NAMED) -> str:
    """``Net.spare (2 parameters), Net.head.bias and 3 more``: of modules that got none at all only the outermost."""
    held: dict[str, list[Leaf]] = {}
    for leaf in found.leaves:
        if leaf.holder is not None and leaf.value.requires_grad:
            parts = parameter_name(leaf.holder, "").split(".")
            for end in range(1, len(parts) + 1):
                held.setdefault(".".join(parts[:end]), []).append(leaf)
    words: dict[str, int] = {}
    for leaf in found.missed:
        above = [] if leaf.holder is None else parameter_name(leaf.holder, "").split(".")
        outer = (".".join(above[:end]) for end in range(1, len(above) + 1))
        whole = next((name for name in outer if len(held[name]) > 1 and all(each.is_missed for each in held[name])), "")
        words[whole or leaf.full_name] = len(held[whole]) if whole else 1
    shown = [f"{name} ({number} parameters)" if number > 1 else name for name, number in _in_ranges(words)]
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest


def _in_ranges(words: dict[str, int]) -> list[tuple[str, int]]:
    """Names that differ in one number, and follow each other, as one: ``blocks.0–3.dead``."""
    found: list[tuple[list[str], int, int, int]] = []
    for name, number in words.items():
        parts = name.split(".")
        before, at, first, of_each = found[-1] if found else ([], NONE, 0, 0)
        apart = [place for place, (one, other) in enumerate(zip(before, parts, strict=False)) if one != other]
        is_next = len(before) == len(parts) and len(apart) == 1 and of_each == number and at in (NONE, apart[0])
        if is_next and before[apart[0]].isdecimal() and parts[apart[0]] == str(int(before[apart[0]]) + 1):
            found[-1] = (parts, apart[0], first if at != NONE else int(before[apart[0]]), number)
        else:
            found.append((parts, NONE, 0, number))
    return [_range_of(*each) for each in found]


def _range_of(parts: list[str], at: int, first: int, of_each: int) -> tuple[str, int]:
    if at == NONE:
        return ".".join(parts), of_each
    last = int(parts[at])
    return ".".join([*parts[:at], f"{first}–{last}", *parts[at + 1 :]]), of_each * (last + 1 - first)


def parameter_name(holder: ModuleInfo, name: str) -> str:
    """The label of the root, the path and the name, as the recorder spells it."""
    return ".".join(filter(None, (holder.root, holder.path, name)))


def tells_of_gradients(kind: str, name: str) -> bool:
    """Whether an event is one of those that ``gradients_of`` reads."""
    return kind == "step" or (kind == "function" and (name in (ACCUMULATE, BACKWARD) or name.endswith(CHECKS)))


def gradients_of(
    events: Iterable[Event], modules: Sequence[ModuleInfo], called: Callable[[Value], str] = lambda value: ""
) -> Gradients:
    """Read the events of a trace that tell of gradients; others are passed by.

    ``called`` says what a leaf is called that no module holds.
    """
    reader = _Reader(modules, called)
    for event in events:
        reader.read(event)
    return reader.found


class _Reader:
    def __init__(self, modules: Sequence[ModuleInfo], called: Callable[[Value], str]) -> None:
        self.found = Gradients(list(_parameters(modules)))
        self._called = called
        self._named = {leaf.full_name: leaf for leaf in reversed(self.found.leaves)}
        self._others: dict[object, Leaf] = {}
        self._lying: dict[int, list[Leaf]] = {}
        """By storage: a name alone may be another's, in a trace that was put together from several."""
        for leaf in self.found.leaves:
            if leaf.value.storage is not None:
                self._lying.setdefault(leaf.value.storage, []).append(leaf)

    def read(self, event: Event) -> None:
        if event.name == BACKWARD and event.kind == "function":
            # One inside of another is a checkpoint's; one that failed gave nothing.
            self.found.runs += event.phase == "forward" and event.error is None
        elif event.name == ACCUMULATE and event.kind == "function":
            for parameter, gradient in zip(event.inputs, event.outputs, strict=False):
                self._accumulate(self._leaf(parameter, event), gradient, False)
        elif event.kind == "function" and event.name.endswith(CHECKS):
            measured = [value.stats for value in event.inputs if value.stats is not None]
            self.found.skipped += any(stats.finite < stats.count for stats in measured)
        elif event.kind == "step":
            self.found.steps.append(event.name)
            updates = {place: value for value in event.outputs if (place := _place(value)) >= 0}
            for number, (weight, gradient) in enumerate(_pairs(event.inputs)):
                leaf = self._leaf(weight, event)
                leaf.steps.append(Step(weight, gradient, updates.get(number)))
                if event.phase == "backward" and gradient is not None:
                    self._accumulate(leaf, gradient, True)

    def _accumulate(self, leaf: Leaf, gradient: Value, in_step: bool) -> None:
        """What a step inside of backward was given may be gone at its end, or be told there once more."""
        if leaf.stepped_in == self.found.runs:
            leaf.accumulated.pop()
        leaf.accumulated.append(gradient)
        leaf.stepped_in = self.found.runs if in_step else NONE

    def _leaf(self, value: Value, event: Event) -> Leaf:
        lying = self._lying.get(-1 if value.storage is None else value.storage, [])
        leaf = lying[0] if len(lying) == 1 else self._named.get(value.role)
        if leaf is None:
            key = value.role if value.storage is None else value.storage
            leaf = self._others.get(key)
            if leaf is None:
                name = (self._called(value) if _UNNAMED.fullmatch(value.role) else value.role) or value.role
                leaf = self._others[key] = Leaf(name, value)
                self.found.leaves.append(leaf)
        leaf.event = event.id if leaf.event < 0 else leaf.event
        return leaf


def _parameters(modules: Sequence[ModuleInfo]) -> Iterator[Leaf]:
    """Each parameter once, at the first module that holds it."""
    seen: set[int] = set()
    for module in modules:
        for value in module.parameters:
            if value.id not in seen:
                seen.add(value.id)
                yield Leaf(value.role, value, module)


def _pairs(inputs: Sequence[Value]) -> Iterator[tuple[Value, Value | None]]:
    """Each parameter with the gradient behind it."""
    at = 0
    while at < len(inputs):
        behind = inputs[at + 1] if at + 1 < len(inputs) else None
        has = behind is not None and behind.role == f"{inputs[at].role}.grad"
        yield inputs[at], behind if has else None
        at += 2 if has else 1


def _place(value: Value) -> int:
    """The 3 of ``out[3]``."""
    found = _PLACE.search(value.role)
    return int(found[1]) if found else -1
