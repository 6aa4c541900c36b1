"""Find which parameters got a gradient, what it was, and by how much optimizer steps changed them.

Two kinds of events have that. ``AccumulateGrad`` follows each backward pass. Its inputs are the leaves that got a
gradient, under their names, and its outputs are the gradients. The inputs of a ``step`` are the parameters of its
optimizer, each followed by its gradient if it has one. Its outputs are the changes of the parameters, if values were
measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.schema import NONE
from torchglass.events.types import Event, ModuleInfo, Value

ACCUMULATE = "AccumulateGrad"
BACKWARD = "autograd.backward"
"""The function that ``Tensor.backward`` calls. Programs with several losses call it directly."""
TENSOR_BACKWARD = "Tensor.backward"
"""With torch 2.8 the only event of a backward pass, since there ``autograd.backward`` cannot be seen."""
OVERFLOW_CHECK = "_amp_foreach_non_finite_check_and_unscale_"
"""The op by which GradScaler decides whether to skip a step."""
MAX_NAMED = 5
"""Number of parameters without a gradient that are listed by name."""
_UNNAMED = re.compile(r"tensor \d+")
_OUTPUT_INDEX = re.compile(r"\[(\d+)\]$")


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of one parameter."""

    weight: Value
    """The parameter before the step."""
    gradient: Value | None
    update: Value | None
    """The change, or every n-th element of it. None if it was not measured."""


@dataclass(slots=True)
class Leaf:
    """A parameter, or another leaf that got a gradient."""

    name: str
    """The name of a parameter in its module, or of another leaf in the program."""
    value: Value
    """The leaf when it was first seen."""
    holder: ModuleInfo | None = None
    """The module that has it as a parameter."""
    accumulated: list[Value] = field(default_factory=list[Value])
    """Its gradient after each backward pass that added to it."""
    steps: list[Step] = field(default_factory=list[Step])
    event: int = -1
    """The first event that has it."""
    stepped_in: int = NONE
    """The number of the backward pass in which a hook last made a step with it.

    NONE if that pass has reported its gradient again.
    """

    @property
    def full_name(self) -> str:
        """``Net.fc.weight``."""
        if self.holder is None:
            return self.name
        return parameter_name(self.holder, self.name)

    @property
    def gradients(self) -> list[Value]:
        """The gradients that steps used or, without steps, those after each backward pass."""
        of_steps = [step.gradient for step in self.steps if step.gradient is not None]
        return of_steps or self.accumulated

    @property
    def is_missed(self) -> bool:
        """Whether it requires a gradient and never got one."""
        return self.value.requires_grad and not self.accumulated and not self.gradients


@dataclass(slots=True)
class Gradients:
    """The gradients in a trace."""

    leaves: list[Leaf] = field(default_factory=list[Leaf])
    """Parameters in the order of their modules, then other leaves."""
    runs: int = 0
    """The number of backward passes."""
    steps: list[str] = field(default_factory=list[str])
    """The name of the optimizer of each step."""
    skipped: int = 0
    """The number of steps that a GradScaler skipped, since gradients had overflowed."""

    @property
    def missed(self) -> list[Leaf]:
        """The leaves without a gradient, if there was a backward pass.

        In a trace of several processes, one may only evaluate a parameter that others train. It does not count.
        """
        if not self.runs:
            return []
        trained = {leaf.full_name for leaf in self.leaves if not leaf.is_missed}
        return [leaf for leaf in self.leaves if leaf.is_missed and leaf.full_name not in trained]


def missed_words(gradients: Gradients, max_names: int = MAX_NAMED) -> str:
    """Return the leaves without a gradient, as ``Net.spare (2 parameters), Net.head.bias and 3 more``.

    A module in which no parameter has a gradient is named instead of its parameters.
    """
    by_module: dict[str, list[Leaf]] = {}
    for leaf in gradients.leaves:
        if leaf.value.requires_grad:
            for module in _enclosing_modules(leaf):
                by_module.setdefault(module, []).append(leaf)
    counts: dict[str, int] = {}
    for leaf in gradients.missed:
        name = leaf.full_name
        count = 1
        for module in _enclosing_modules(leaf):
            leaves = by_module[module]
            if len(leaves) > 1 and all(other.is_missed for other in leaves):
                name = module
                count = len(leaves)
                break
        counts[name] = count
    shown: list[str] = []
    for name, count in in_ranges(counts):
        if count > 1:
            shown.append(f"{name} ({count} parameters)")
        else:
            shown.append(name)
    rest = ""
    if len(shown) > max_names:
        rest = f" and {len(shown) - max_names} more"
    return ", ".join(shown[:max_names]) + rest


def _enclosing_modules(leaf: Leaf) -> list[str]:
    """Return the names of the modules that contain a parameter, outermost first."""
    if leaf.holder is None:
        return []
    parts = parameter_name(leaf.holder, "").split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


@dataclass(slots=True)
class _NameRange:
    """Consecutive names that differ in one number, such as ``blocks.0.dead`` and ``blocks.1.dead``."""

    parts: list[str]
    """The parts of the last name."""
    count: int
    """The number of parameters that each name stands for."""
    part: int | None = None
    """The index of the part that differs. None while there is only one name."""
    first: int = 0
    """The number in the first name."""

    def extend(self, parts: list[str], count: int) -> bool:
        """Add a name if it is the next of the range. Return whether it was added."""
        if len(parts) != len(self.parts) or count != self.count:
            return False
        different = [
            part
            for part, (last, new) in enumerate(zip(self.parts, parts, strict=True))
            if last != new
        ]
        if len(different) != 1 or self.part not in (None, different[0]):
            return False
        part = different[0]
        last = self.parts[part]
        if not last.isdecimal() or parts[part] != str(int(last) + 1):
            return False
        if self.part is None:
            self.part = part
            self.first = int(last)
        self.parts = parts
        return True

    def text_and_count(self) -> tuple[str, int]:
        """Return ``blocks.0–3.dead`` and the number of all its parameters."""
        if self.part is None:
            return ".".join(self.parts), self.count
        last = int(self.parts[self.part])
        parts = [*self.parts]
        parts[self.part] = f"{self.first}–{last}"
        return ".".join(parts), self.count * (last + 1 - self.first)


def in_ranges(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Merge consecutive names that differ in one number, as in ``blocks.0–3.dead``, and add up their counts."""
    ranges: list[_NameRange] = []
    for name, count in counts.items():
        parts = name.split(".")
        if not ranges or not ranges[-1].extend(parts, count):
            ranges.append(_NameRange(parts, count))
    return [name_range.text_and_count() for name_range in ranges]


def parameter_name(holder: ModuleInfo, name: str) -> str:
    """Return root, path and name of a parameter, as the recorder writes it: ``Net.fc.weight``."""
    return ".".join(filter(None, (holder.root, holder.path, name)))


def is_about_gradients(kind: str, name: str) -> bool:
    """Return whether ``gradients_of`` reads events of this kind and name."""
    if kind == "step":
        return True
    return kind == "function" and (
        name in (ACCUMULATE, BACKWARD, TENSOR_BACKWARD) or name.endswith(OVERFLOW_CHECK)
    )


def gradients_of(
    events: Iterable[Event],
    modules: Sequence[ModuleInfo],
    name_of: Callable[[Value], str] = lambda value: "",
) -> Gradients:
    """Read the gradients from the events of a trace. Other events may be among them.

    ``name_of`` returns the name of a leaf that is not a parameter of a module.
    """
    reader = _Reader(modules, name_of)
    for event in events:
        reader.read(event)
    return reader.gradients


class _Reader:
    """Collects the gradients, event by event."""

    def __init__(self, modules: Sequence[ModuleInfo], name_of: Callable[[Value], str]) -> None:
        self.gradients = Gradients(list(_parameters(modules)))
        self._name_of = name_of
        self._by_name = {leaf.full_name: leaf for leaf in reversed(self.gradients.leaves)}
        self._other_leaves: dict[object, Leaf] = {}
        self._tensor_backward = NONE
        """The last call of ``Tensor.backward``."""
        self._by_storage: dict[int, list[Leaf]] = {}
        """Leaves by their storage. In a trace that was joined from several processes, leaves may share a name."""
        for leaf in self.gradients.leaves:
            if leaf.value.storage is not None:
                self._by_storage.setdefault(leaf.value.storage, []).append(leaf)

    def read(self, event: Event) -> None:
        if event.kind == "step":
            self._read_step(event)
        elif event.kind != "function":
            return
        elif event.name in (BACKWARD, TENSOR_BACKWARD):
            self._count_run(event)
        elif event.name == ACCUMULATE:
            for parameter, gradient in zip(event.inputs, event.outputs, strict=False):
                leaf = self._leaf(parameter, event)
                self._accumulate(leaf, gradient, in_step=False)
        elif event.name.endswith(OVERFLOW_CHECK):
            measured = [value.stats for value in event.inputs if value.stats is not None]
            if any(stats.finite < stats.count for stats in measured):
                self.gradients.skipped += 1

    def _read_step(self, event: Event) -> None:
        """Add the steps of all parameters of an optimizer."""
        self.gradients.steps.append(event.name)
        updates = {_output_index(value): value for value in event.outputs}
        for number, (weight, gradient) in enumerate(_pairs(event.inputs)):
            leaf = self._leaf(weight, event)
            leaf.steps.append(Step(weight, gradient, updates.get(number)))
            if event.phase == "backward" and gradient is not None:
                self._accumulate(leaf, gradient, in_step=True)

    def _count_run(self, event: Event) -> None:
        if event.name == TENSOR_BACKWARD:
            self._tensor_backward = event.id
        elif event.parent is not None and event.parent == self._tensor_backward:
            # This is autograd.backward inside Tensor.backward, which is counted already.
            return
        # A call inside backward is made by a checkpoint, and a call that failed has left no gradients.
        if event.phase == "forward" and event.error is None:
            self.gradients.runs += 1

    def _accumulate(self, leaf: Leaf, gradient: Value, in_step: bool) -> None:
        """Add a gradient of a leaf.

        ``in_step`` says that it comes from a step that a hook made during backward. The gradient may be freed there. If
        not, backward reports it again at its end, and that replaces the first report.
        """
        if leaf.stepped_in == self.gradients.runs:
            leaf.accumulated.pop()
        leaf.accumulated.append(gradient)
        if in_step:
            leaf.stepped_in = self.gradients.runs
        else:
            leaf.stepped_in = NONE

    def _leaf(self, value: Value, event: Event) -> Leaf:
        """Return the leaf that a value belongs to, and add it if it is new."""
        same_storage: list[Leaf] = []
        if value.storage is not None:
            same_storage = self._by_storage.get(value.storage, [])
        if len(same_storage) == 1:
            leaf = same_storage[0]
        else:
            leaf = self._by_name.get(value.role)
        if leaf is None:
            leaf = self._other_leaf(value)
        if leaf.event < 0:
            leaf.event = event.id
        return leaf

    def _other_leaf(self, value: Value) -> Leaf:
        """Return the leaf of a value that is not a parameter of a module, and add it if it is new."""
        key: object = value.storage
        if key is None:
            key = value.role
        leaf = self._other_leaves.get(key)
        if leaf is None:
            name = value.role
            if _UNNAMED.fullmatch(name):
                name = self._name_of(value) or name
            leaf = self._other_leaves[key] = Leaf(name, value)
            self.gradients.leaves.append(leaf)
        return leaf


def _parameters(modules: Sequence[ModuleInfo]) -> Iterator[Leaf]:
    """Yield each parameter once, with the first module that has it."""
    seen: set[int] = set()
    for module in modules:
        for value in module.parameters:
            if value.id not in seen:
                seen.add(value.id)
                yield Leaf(value.role, value, module)


def _pairs(inputs: Sequence[Value]) -> Iterator[tuple[Value, Value | None]]:
    """Yield each parameter of a step with its gradient, which comes after it if it has one."""
    index = 0
    while index < len(inputs):
        parameter = inputs[index]
        index += 1
        gradient = None
        if index < len(inputs) and inputs[index].role == f"{parameter.role}.grad":
            gradient = inputs[index]
            index += 1
        yield parameter, gradient


def _output_index(value: Value) -> int | None:
    """Return the 3 of ``out[3]``, or None for another role."""
    match = _OUTPUT_INDEX.search(value.role)
    if match:
        return int(match[1])
    return None
