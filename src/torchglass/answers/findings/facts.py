"""Gives detectors the facts about a trace: the calls that the program wrote, their arguments, and
the data flow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from torchglass.answers.findings.arguments import Arguments, TensorAt, arguments_of
from torchglass.events.gradients import ACCUMULATE, BACKWARD, TENSOR_BACKWARD
from torchglass.events.spelling import tensor_text
from torchglass.events.tables import NONE, Tables
from torchglass.events.types import Event, Location, Stats
from torchglass.program.program import Program

KEEPS_NUMBERS = frozenset(
    """
    view reshape transpose permute squeeze unsqueeze flatten unflatten contiguous expand expand_as clone to float
    double half bfloat16 type type_as cat concat concatenate stack hstack vstack __getitem__ index_select narrow select
    chunk split unbind T mT data swapaxes swapdims movedim view_as reshape_as repeat broadcast_to cuda cpu detach
    requires_grad_ t ravel unfold gather take_along_dim masked_select tensor_split diagonal flip roll
    """.split()
)
"""Calls that return some of their input's numbers, in another shape, order or type."""


class AlikeCalls(NamedTuple):
    """Calls of one function from one place with arguments of the same shapes."""

    event: int
    """The first of the calls."""
    times: int
    """How many of the calls were kept."""


@dataclass(slots=True)
class OptimizerStep:
    """One step of an optimizer."""

    event: int
    optimizer: str
    held: dict[int, str]
    """The names of the optimizer's parameters, keyed by parameter."""
    gradients: dict[int, int]
    """The gradient's value of each parameter that has a gradient, keyed by parameter."""


@dataclass(slots=True)
class Accumulation:
    """What one backward pass added to the gradients of parameters."""

    event: int
    run: int
    """The event of the call of backward, or -1."""
    names: dict[int, str]
    """The names of the parameters, keyed by parameter."""
    gradients: dict[int, int]
    """The gradient's value afterwards, keyed by parameter."""


class Facts:
    """The facts about a trace that detectors use, each computed once.

    A *parameter* is identified by its memory, since each optimizer step makes another value of it.
    """

    def __init__(self, tables: Tables, program: Program, is_partial: bool) -> None:
        self.tables = tables
        self.program = program
        self.has_gaps = is_partial
        """Whether events are missing, so that the history of a value may be incomplete."""
        self.is_partial = is_partial
        """Whether "never" cannot be proven: the program failed or was killed, or events were
        dropped.
        """
        self.takes = program.flow.takes
        self.gives = program.flow.gives
        self._kinds = [callee.kind for callee in tables.callees]
        self._names = [_plain(callee.name) for callee in tables.callees]
        self._arguments: dict[int, Arguments] = {}
        self._origins: dict[int, str] = {}
        self.by_name: dict[str, dict[Any, list[int]]] = defaultdict(dict)
        """Calls by plain name, then by stack, form of the arguments and types of the input values."""
        self.outer: list[int] = []
        """The calls of torch functions, in order, without those made by another torch function or
        by an optimizer's step.
        """
        self.steps: list[OptimizerStep] = []
        self.backwards: list[int] = []
        """The calls of ``autograd.backward``, or of ``Tensor.backward`` if torch reports nothing else."""
        self.accumulations: list[Accumulation] = []
        self.memory: dict[str, Any] = {}
        """Intermediate results that several detectors share, by name."""
        self._sort_events()

    def times(self, events: Sequence[int]) -> int:
        """Return how often something happened in the whole run, given the events of it that were
        kept.
        """
        return self.program.totals.times(events[0], len(events))

    def _sort_events(self) -> None:
        tables = self.tables
        whats = tables.callee.tolist()
        parents = tables.parent.tolist()
        stacks = tables.stack.tolist()
        args = tables.args.tolist()
        metas = tables.value_meta
        kinds = self._kinds
        takes = self.takes
        by_name = self.by_name
        outer = self.outer
        accumulate = {row for row, callee in enumerate(tables.callees) if callee.name == ACCUMULATE}
        runs = {row for row, callee in enumerate(tables.callees) if callee.name == BACKWARD}
        if not runs:
            runs = {
                row for row, callee in enumerate(tables.callees) if callee.name == TENSOR_BACKWARD
            }
        for event, what in enumerate(whats):
            kind = kinds[what]
            if kind == "step":
                self._add_step(event)
            if kind != "function":
                continue
            if what in accumulate:
                self._add_accumulation(event, parents[event])
                continue
            if what in runs:
                self.backwards.append(event)
            parent = parents[event]
            if parent >= 0:
                around = kinds[whats[parent]]
                if around == "function" and whats[parent] not in runs:
                    continue
                if around == "step" and self.origin(stacks[event]) != "user":
                    continue
            outer.append(event)
            look = (stacks[event], args[event], tuple([metas[value] for value in takes[event]]))
            known = by_name[self._names[what]].get(look)
            if known is None:
                by_name[self._names[what]][look] = [event]
            else:
                known.append(event)

    def _add_step(self, event: int) -> None:
        record = self.event(event)
        held: dict[int, str] = {}
        gradients: dict[int, int] = {}
        last = NONE
        for value in record.inputs:
            if value.role.endswith(".grad") and last != NONE:
                gradients[last] = value.id
            else:
                last = self.parameter(value.id)
                held[last] = value.role
        self.steps.append(OptimizerStep(event, record.name, held, gradients))

    def _add_accumulation(self, event: int, run: int) -> None:
        record = self.event(event)
        names = {self.parameter(value.id): value.role for value in record.inputs}
        given = {
            self.parameter(leaf.id): grad.id
            for leaf, grad in zip(record.inputs, record.outputs, strict=False)
        }
        self.accumulations.append(Accumulation(event, run, names, given))

    # ------------------------------------------------------------ one event

    def event(self, number: int) -> Event:
        return self.tables.event(number)

    def name(self, event: int) -> str:
        """Return the plain name of a call, such as ``softmax`` for ``F.softmax``."""
        return self._names[self.tables.callee[event]]

    def kind(self, event: int) -> str:
        return self._kinds[self.tables.callee[event]]

    def calls(self, *names: str) -> Iterator[AlikeCalls]:
        """Yield the calls of these functions, one entry for all calls that look the same."""
        for name in names:
            for events in self.by_name.get(name, {}).values():
                yield AlikeCalls(events[0], len(events))

    def argument(
        self, event: int, name: str, position: int | None = None, default: Any = None
    ) -> Any:
        """Return an argument that is not a tensor. Positions count all arguments, tensors as well."""
        return self.arguments(event).get(name, position, default)

    def arguments(self, event: int) -> Arguments:
        form = self.tables.args[event]
        known = self._arguments.get(form)
        if known is None:
            if form != NONE:
                known = arguments_of(self.tables.forms[form])
            else:
                known = Arguments()
            self._arguments[form] = known
        return known

    def tensor_argument(self, event: int, name: str, position: int) -> int | None:
        """Return the value passed for a parameter of the function, or None if it was not a tensor."""
        found = self.arguments(event).get(name, position)
        taken = self.takes[event]
        if isinstance(found, TensorAt) and found.number < len(taken):
            return taken[found.number]
        return None

    def origin(self, stack: int) -> str:
        """Return where the code of a stack's innermost frame comes from: user, torch, stdlib or
        generated. ``""`` if not known.
        """
        known = self._origins.get(stack)
        if known is None:
            locations = ()
            if stack != NONE:
                locations = self.tables.stack_locations(stack)
            if locations:
                known = self._origins[stack] = locations[-1].origin
            else:
                known = self._origins[stack] = ""
        return known

    def is_written(self, event: int) -> bool:
        """Return whether the user's code makes the call, not torch's."""
        return self.origin(self.tables.stack[event]) == "user"

    def location(self, event: int) -> Location | None:
        stack = self.tables.stack[event]
        site = NONE
        if stack != NONE:
            site = self.tables.stack_user[stack]
        if site != NONE:
            return self.tables.sites[site].location
        return None

    def code(self, event: int) -> str:
        """Return the expression as written in the source, or the name of the function."""
        return self.event(event).code or self.name(event)

    def module_around(self, event: int) -> int | None:
        """Return the innermost call of a module around an event."""
        return next((each for each in self.around(event) if self.kind(each) == "module"), None)

    def around(self, event: int) -> Iterator[int]:
        """Yield the events that contain an event, innermost first."""
        parent = self.tables.parent[event]
        while parent >= 0:
            yield parent
            parent = self.tables.parent[parent]

    def outermost(self, event: int) -> int:
        """Return the outermost torch function around an event, or the event itself."""
        found = event
        for each in self.around(event):
            if self.kind(each) != "function":
                break
            found = each
        return found

    # ------------------------------------------------------------ one value

    def shape(self, value: int) -> tuple[int, ...]:
        return self.tables.metas[self.tables.value_meta[value]].shape or ()

    def numel(self, value: int) -> int:
        return prod(self.shape(value))

    def dtype(self, value: int) -> str:
        return self.tables.metas[self.tables.value_meta[value]].dtype

    def is_float(self, value: int) -> bool:
        return "float" in self.dtype(value)

    def requires_grad(self, value: int) -> bool:
        return self.tables.metas[self.tables.value_meta[value]].requires_grad

    def stats(self, value: int) -> Stats | None:
        """Return the statistics of a value, or None if they were not measured."""
        if self.is_measured and self.tables.value_measured[value] > 0:
            return self.tables.stats(value)
        return None

    @cached_property
    def is_measured(self) -> bool:
        """Whether values were measured: ``record(values="stats")``."""
        return len(self.tables.value_measured) > 0

    def word(self, value: int) -> str:
        """Return the shape of a value as text: ``[64, 1]``."""
        return f"[{', '.join(map(str, self.shape(value)))}]"

    def typed_word(self, value: int) -> str:
        """Return the dtype and the shape of a value as text: ``f32[64, 1]``."""
        return tensor_text(self.dtype(value), self.shape(value))

    def storage(self, value: int) -> int:
        return self.tables.value_storage[value]

    def parameter(self, value: int) -> int:
        """Return the key of a parameter: its memory, or a negative number from the value if the
        memory is not known.
        """
        storage = self.tables.value_storage[value]
        if storage >= 0:
            return storage
        return -2 - value

    def is_parameter(self, value: int) -> bool:
        return self.tables.metas[self.tables.value_meta[value]].type.endswith("Parameter")

    # ------------------------------------------------------------ data flow

    def maker(self, value: int) -> int | None:
        """Return the outermost call that made a value, or None."""
        producer = self.tables.value_producer[value]
        if producer == NONE:
            return None
        return self.outermost(producer)

    @cached_property
    def users(self) -> dict[int, list[int]]:
        """The calls that take each value, in order."""
        found: dict[int, list[int]] = defaultdict(list)
        takes = self.takes
        for event in self.outer:
            taken = takes[event]
            for value in taken if len(taken) < 2 else dict.fromkeys(taken):
                found[value].append(event)
        return found

    def sources(
        self, value: int, passes: Collection[str] = KEEPS_NUMBERS
    ) -> Iterator[tuple[int, int | None]]:
        """Yield where the numbers of a value come from, as pairs of a value and the call that made
        it.

        The search goes back through ``passes``: calls that only select, reorder or cast numbers. It
        gives up after 50 values.
        """
        pending = [value]
        seen = {value}
        while pending:
            each = pending.pop()
            maker = self.maker(each)
            if maker is None or self.name(maker) not in passes or len(seen) > 50:
                yield each, maker
                continue
            taken = self.takes[maker]
            several = "cat" in self.name(maker) or "stack" in self.name(maker)
            for source in taken if several else taken[:1]:
                if source not in seen:
                    seen.add(source)
                    pending.append(source)

    def uses(
        self, value: int, passes: Collection[str] = KEEPS_NUMBERS
    ) -> Iterator[tuple[int, int]]:
        """Yield the calls that use the numbers of a value, as pairs of the value that they take and
        the call.

        The search goes on through ``passes``, calls that only select, reorder or cast numbers, for
        up to 200 values.
        """
        pending = [value]
        seen = {value}
        while pending and len(seen) < 200:
            each = pending.pop()
            for user in self.users.get(each, ()):
                if self.name(user) in passes:
                    for given in self.gives[user]:
                        if given not in seen:
                            seen.add(given)
                            pending.append(given)
                else:
                    yield each, user

    @cached_property
    def in_loss(self) -> set[int]:
        """The values that went into something on which backward was called."""
        found: set[int] = set()
        runs = set(self.backwards)
        for event in reversed(self.outer):
            if (
                event in runs
                or self.name(event) in ("backward", "grad")
                or not found.isdisjoint(self.gives[event])
            ):
                found.update(self.takes[event])
        return found

    @cached_property
    def carries_gradient(self) -> set[int]:
        """The values through which a gradient flowed in some backward pass."""
        found: set[int] = set()
        for event in reversed(self.outer):
            if self.name(event) == "backward" or not found.isdisjoint(self.gives[event]):
                found.update(filter(self.requires_grad, self.takes[event]))
        return found

    @cached_property
    def closures(self) -> set[int]:
        """The optimizer steps inside which backward ran, as LBFGS does with its closure."""
        steps = {step.event for step in self.steps}
        return {
            around
            for each in self.accumulations
            for around in self.around(each.event)
            if around in steps
        }

    @cached_property
    def roots(self) -> dict[int, list[int]]:
        """The values on which backward was called, each with the calls."""
        found: dict[int, list[int]] = defaultdict(list)
        for run in self.backwards:
            for value in self.event(run).inputs:
                if value.role.startswith("tensors"):
                    found[value.id].append(run)
        return found

    # ------------------------------------------------------------ modules

    @cached_property
    def module_calls(self) -> list[int]:
        """The calls of modules, in order."""
        whats = {row for row, kind in enumerate(self._kinds) if kind == "module"}
        return [event for event, what in enumerate(self.tables.callee) if what in whats]

    def statement_is_expression(self, event: int) -> bool:
        """Return whether a call is a whole statement, so that its result is not used."""
        statement = self.program.statement(event)
        return statement is not None and type(statement.node).__name__ == "Expr"


def _plain(name: str) -> str:
    if "::" not in name:
        return name.rpartition(".")[2]
    return name


def normal(dim: Any, rank: int) -> int | None:
    """Return an axis counted from the front, or None if it is not a valid axis."""
    if type(dim) is not int or not -rank <= dim < rank:
        return None
    return dim % rank


def broadcast_shape(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape to which two shapes broadcast, or None if they do not fit."""
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(each)) + tuple(each) for each in (first, second)]
    sizes: list[int] = []
    for one, other in zip(*padded, strict=True):
        if one != other and 1 not in (one, other):
            return None
        sizes.append(other if one == 1 else one)
    return tuple(sizes)
