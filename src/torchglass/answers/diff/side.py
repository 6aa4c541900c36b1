"""One of the two runs that a diff compares, as a graph of things.

A thing is a set of numbers that the run held. The value that a view, a copy or a cast to a wider
dtype gives holds the same numbers as its source, so all of these values share one thing:

    x = torch.rand(8)      # thing 0
    y = x.reshape(2, 4)    # thing 0
    z = y.double()         # thing 0: every float32 is a float64
    w = y + 1              # thing 1, made from thing 0

Two programs that compute the same result may differ in views and copies, so the diff pairs things,
not values. Each thing lists the things it was made from and those made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod

from torchglass.answers.diff.names import (
    FILLED_WITH,
    IGNORES_NUMBERS,
    LAYOUT,
    OVERWRITES,
    PARTS,
    TELLS,
    WRITES_A_PART,
    draws_numbers,
    is_listed,
)
from torchglass.answers.diff.sketches import Sketches
from torchglass.events.gradients import ACCUMULATE, BACKWARD
from torchglass.events.tables import NONE, Tables, form_sizes
from torchglass.events.types import Location
from torchglass.events.uninitialised import plain_name, returns_uninitialised

WIDTHS = {
    "float64": 52,
    "complex128": 52,
    "float32": 23,
    "complex64": 23,
    "float16": 10,
    "bfloat16": 7,
}
"""Bits of the fraction, by dtype. They limit how precisely two runs can agree."""
EXACT = 99
"""Stands for the bits of integers and booleans, which are not rounded. It is more than any float
has."""
CONSTANT, INDEX, PARAMETER, ACTIVATION = 0, 1, 2, 3
"""What the numbers of a thing depend on. The largest origin among its inputs decides.

CONSTANT: only on the text of the program. INDEX: on integers that came from outside. PARAMETER: on
parameters. ACTIVATION: on floats that came from outside, or on indices and parameters together (an
embedding).
"""
LOSS_ROLES = {"backward": ("self", "tensors"), "grad": ("outputs",)}
"""Arguments that are losses, by function. ``grad`` is also the attribute of a tensor, whose ``self`` is no loss."""
MOST_LAYOUTS = 6
"""How many layouts of one thing are kept, so that looking up candidates stays cheap."""


@dataclass(slots=True)
class Thing:
    """A set of numbers that one run held.

    All values that hold these numbers (views, copies and casts to a wider dtype) belong to the same
    thing.
    """

    number: int
    value: int
    """The first value that held the numbers."""
    count: int
    """How many elements ``value`` has."""
    maker: int
    """The event that made the numbers. NONE if they existed before the recording began."""
    op: str
    """The plain name of the operation that made the numbers, or ``""`` for a leaf."""
    inputs: tuple[int, ...] = ()
    """The numbers of the things that this one was made from."""
    taken: tuple[int, ...] = ()
    """For each of ``inputs`` the value that was used. It shows the layout in which the operation
    took the input."""
    users: list[int] = field(default_factory=list[int])
    """The numbers of the things that were made from this one."""
    layouts: list[int] = field(default_factory=list[int])
    """Values that hold the numbers, one for each distinct layout."""
    bits: int = EXACT
    """The bits of the coarsest dtype of these numbers and of the things they were made from."""
    step: int = 0
    """How many optimizer steps came before the numbers were made."""
    output: int = 0
    """The index among the outputs of the maker."""
    is_random: bool = False
    """Whether the operation that made the numbers draws random numbers."""
    is_unknown: bool = False
    """Whether the numbers cannot be compared: they were not measured, or the memory was
    uninitialised."""
    leaves_torch: bool = False
    """Whether Python read the numbers, as ``item()`` and ``tolist()`` do."""
    origin: int = 0
    """What the numbers depend on: CONSTANT, INDEX, PARAMETER or ACTIVATION."""
    is_weight: bool = False
    """Whether it may be a weight: no event made it, or a module's parameter uses the same memory."""
    is_neutral: bool = False
    """Whether an operation took it and it had no effect there, such as a factor of one or a bias of
    zeros."""
    is_overwritten: bool = False
    """Whether other numbers later replaced it in memory, as a checkpoint replaces a random
    initialisation."""
    is_loss: bool = False
    """Whether the program computed gradients of it."""
    is_last: bool = False
    """Whether it is a result: the output of an outermost module, a loss, or a parameter after its
    update."""

    @property
    def is_leaf(self) -> bool:
        return self.maker == NONE


class RunSide:
    """The things of one trace, in the order in which their first values appeared."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.sketches = Sketches(tables)
        self.things: list[Thing] = []
        self.of_value: dict[int, int] = {}
        """Keyed by value: the number of its thing."""
        self.last_value: dict[int, int] = {}
        """Keyed by thing: the last value that held its numbers."""
        self.parameters = _parameter_names(tables)
        """Keyed by storage: the full name of the parameter that uses this memory."""
        self._callers: dict[tuple[str, str], set[int]] = {}
        """Keyed by file and function: the lines from which the program calls that function."""
        self.operands: dict[int, str] = {}
        self._sizes = form_sizes(tables)
        self._of_storage: dict[int, list[int]] = {}
        self._steps = _steps_before(tables)
        self._tells = [callee.kind in TELLS for callee in tables.callees]
        self._names = [plain_name(callee.name) for callee in tables.callees]
        self._counts = [prod(each.shape or ()) for each in tables.metas]
        self._bits_of_meta = [_bits_of(each.dtype) for each in tables.metas]
        self._gradients: set[int] = set()
        """The things that the backward pass handed over to the program."""
        self._unmeasured: set[int] = set()
        """Events that computed gradients of which only the ops inside were measured, as in
        ``torch.func.grad``."""
        self._read_values()
        self._mark_overwritten()
        self._mark_results()

    def __len__(self) -> int:
        return len(self.things)

    # ------------------------------------------------------------ reading events

    def takes(self, event: int) -> Sequence[int]:
        """Return the values that an event took as arguments."""
        tables = self.tables
        first = self.tables.first_io[event]
        return tables.io[first : first + self._sizes[tables.args[event]]]

    def gives(self, event: int) -> Sequence[int]:
        """Return the values that an event returned."""
        tables = self.tables
        first = tables.first_io[event] + self._sizes[tables.args[event]]
        return tables.io[first : first + self._sizes[tables.result[event]]]

    def roles(self, event: int) -> tuple[str, ...]:
        """Return for each value that an event took the argument it belongs to, such as ``self`` or
        ``tensors[3]``.
        """
        form = self.tables.args[event]
        if form == NONE:
            return ()
        return self.tables.forms[form].roles

    def arguments(self, event: int) -> dict[str, str]:
        """Return the arguments of an event that are not tensors, by name or by position (``"0"``,
        ``"1"``, …).
        """
        form = self.tables.args[event]
        if form == NONE:
            return {}
        text = "\0".join(self.tables.forms[form].pieces)
        found: dict[str, str] = {}
        for place, part in enumerate(_split(text)):
            name, equals, value = part.partition("=")
            if equals and name.strip().isidentifier():
                if "\0" not in value:
                    found[name.strip()] = value
            elif "\0" not in part and not part.startswith(("[", "(")):
                found[str(place)] = part
        return found

    def name_of(self, event: int) -> str:
        """Return the plain name of an event, which is the same for all spellings of an operation."""
        return self._names[self.tables.callee[event]]

    def kind_of(self, event: int) -> str:
        return self.tables.callees[self.tables.callee[event]].kind

    def meta(self, value: int) -> tuple[tuple[int, ...], str]:
        """Return the shape and the dtype of a value."""
        found = self.tables.metas[self.tables.value_meta[value]]
        return found.shape or (), found.dtype

    # ------------------------------------------------------------ places

    def caller_of(self, stack: int) -> Location | None:
        """Return the line that called the innermost user function of a stack.

        Return None if the program calls that function from one line only: then the caller tells the
        reader nothing new.
        """
        if stack == NONE:
            return None
        if not self._callers:
            for each in range(len(self.tables.stack_user)):
                self._note_caller(self._user_frames(each))
        frames = self._user_frames(stack)
        if len(frames) < 2 or len(self._callers[frames[-1].file, frames[-1].function]) < 2:
            return None
        return frames[-2]

    def _note_caller(self, frames: list[Location]) -> None:
        if len(frames) > 1:
            called = self._callers.setdefault((frames[-1].file, frames[-1].function), set())
            called.add(frames[-2].line)

    def _user_frames(self, stack: int) -> list[Location]:
        return [each for each in self.tables.stack_locations(stack) if each.origin == "user"]

    # ------------------------------------------------------------ things

    def _read_values(self) -> None:
        """Assign each value that an event took or returned to a thing."""
        tables = self.tables
        outputs = _output_numbers(self)
        seen = _values_of_events(self)
        for value in range(len(tables.value_meta)):
            if value not in seen:
                continue
            maker = tables.value_producer[value]
            if maker == NONE:
                self._add_unmade(value)
            else:
                self._add_made(value, maker, outputs.get((maker, value), 0))
            storage = tables.value_storage[value]
            if storage != NONE:
                self._of_storage.setdefault(storage, []).append(value)
        for event in range(len(tables)):
            if self.kind_of(event) in ("op", "function") and not self.gives(event):
                name = self.name_of(event)
                for value in self.takes(event) if is_listed(name) else ():
                    thing = self.of_value.get(value)
                    if thing is not None:
                        self.things[thing].leaves_torch = True

    def _add_unmade(self, value: int) -> None:
        """Add a value that no event returned.

        There are three cases. The memory already holds these numbers under another value: the value
        joins that thing. The memory was written through another view, as by ``x[0] = 1`` before
        ``x`` is used: the value becomes a thing with the op ``write``, made from the last value of
        the whole memory and from what was written since then. Otherwise the value is a leaf.
        """
        tables = self.tables
        storage = self.tables.value_storage[value]
        if storage != NONE:
            before = self._of_storage.get(storage, [])
        else:
            before = []
        same = self._same_bits(value, before)
        if same is not None:
            self._join(value, same)
            return
        written = [each for each in before if tables.value_version[each] > 0]
        if not written:
            self._new(value, NONE, "", (), ())
            return
        last = written[-1]
        whole = [
            each for each in before if each != last and self._count(each) >= self._count(value)
        ][-1:]
        since = [each for each in written if not whole or each > whole[0]]
        inputs = list(dict.fromkeys([last, *since, *whole]))
        maker = tables.value_producer[last]
        self._new(value, maker, "write", tuple(inputs), tuple(inputs))

    def _add_made(self, value: int, maker: int, output: int) -> None:
        """Add a value that an event returned, to the thing of an input with the same numbers or to a new one."""
        name = self.name_of(maker)
        taken = list(self._inputs_of(value, maker, name, output))
        if returns_uninitialised(name):
            self._new(value, maker, name, (), (), output)
            self.things[-1].is_unknown = True
            return
        for each in taken:
            if self._holds_the_same(value, each, name):
                thing = self.of_value[each]
                self._join(value, thing)
                for other in {self.of_value[one] for one in taken} - {thing}:
                    self.things[other].is_neutral = True
                return
        self._new(value, maker, name, tuple(taken), tuple(taken), output)

    def _inputs_of(self, value: int, maker: int, name: str, output: int) -> Iterator[int]:
        """Yield the inputs of an event whose numbers decide what one of its outputs holds.

        For example, this leaves out memory that ``copy_`` overwrites, ``out=``, and the other
        elements of a ``_foreach_`` list.
        """
        if name in IGNORES_NUMBERS:
            return
        kind = self.kind_of(maker)
        taken = self.takes(maker)
        roles = self.roles(maker)
        if name == ACCUMULATE:
            yield from self._inputs_of_gradient(maker, output)
            return
        if kind == "step":
            yield from _pair_of_step(taken, roles, output)
            return
        is_list = name.startswith(("_foreach_", "_fused_"))
        overwritten = NONE
        if name in OVERWRITES:
            overwritten = value
        for place, (each, role) in enumerate(zip(taken, roles, strict=False)):
            if each not in self.of_value or role == "out":
                continue
            if overwritten != NONE and place == 0 and self._lies_like(each, value):
                continue
            index = _index_of(role)
            if is_list and index not in (NONE, output):
                continue
            yield each

    def _inputs_of_gradient(self, event: int, output: int) -> Iterator[int]:
        """Yield the parameter and the loss as the inputs of an accumulated gradient.

        Of such a gradient only the end is known, not the steps of the backward pass that led to it.
        """
        taken = self.takes(event)
        if output < len(taken) and taken[output] in self.of_value:
            yield taken[output]
        around = self.tables.parent[event]
        while around != NONE and self.name_of(around) not in ("backward", plain_name(BACKWARD)):
            around = self.tables.parent[around]
        if around != NONE:
            yield from (each for each in self.takes(around) if each in self.of_value)

    def _new(
        self,
        value: int,
        maker: int,
        op: str,
        inputs: tuple[int, ...],
        taken: tuple[int, ...],
        output: int = 0,
    ) -> None:
        number = len(self.things)
        things = tuple(dict.fromkeys(self.of_value[each] for each in inputs))
        by_thing = {self.of_value[each]: each for each in reversed(taken)}
        made = Thing(
            number,
            value,
            self._count(value),
            maker,
            op,
            things,
            tuple(by_thing[each] for each in things),
        )
        made.layouts.append(value)
        made.output = output
        if maker != NONE:
            made.step = self._steps[maker]
        else:
            made.step = 0
        made.bits = min(
            [self._bits(value), *(self.things[each].bits for each in things)], default=EXACT
        )
        made.is_random = maker != NONE and draws_numbers(op)
        made.is_unknown = value not in self.sketches.row and made.count > 0
        made.is_weight = made.is_leaf or self.tables.value_storage[value] in self.parameters
        made.origin = self._origin(made)
        for each in things:
            self.things[each].users.append(number)
        self.things.append(made)
        self.of_value[value] = number
        self.last_value[number] = value

    def _origin(self, thing: Thing) -> int:
        """Return the origin of a thing: what its numbers depend on.

        Indices combined with parameters are activations: an embedding is the first thing that depends on the data.
        Random numbers drawn from nothing are parameters in a module's memory, and activations elsewhere.
        """
        if thing.is_leaf:
            if self.is_parameter(thing):
                return PARAMETER
            if self._bits(thing.value) == EXACT:
                return INDEX
            return ACTIVATION
        origins = {self.things[each].origin for each in thing.inputs}
        if INDEX in origins and PARAMETER in origins:
            return ACTIVATION
        if thing.is_random and not origins:
            if thing.is_weight:
                return PARAMETER
            return ACTIVATION
        return max(origins, default=CONSTANT)

    def _join(self, value: int, thing: int) -> None:
        """Add a value to a thing whose numbers it holds, and keep its layout if it is a new one."""
        self.of_value[value] = thing
        self.last_value[thing] = value
        known = self.things[thing]
        known.bits = min(known.bits, self._bits(value))
        sizes = self.sketches.sizes(value)
        if len(known.layouts) < MOST_LAYOUTS and not any(
            self.sketches.sizes(each) == sizes and self.sketches.equal_bits(value, each)
            for each in known.layouts
        ):
            known.layouts.append(value)

    def _same_bits(self, value: int, before: Sequence[int]) -> int | None:
        """Return a thing of the same memory with equal bits, or None.

        Only the last four values are compared: that is enough to recognise a gradient that appears
        under another name.
        """
        for each in reversed(before[-4:]):
            if self._count(each) == self._count(value) and self.sketches.equal_bits(value, each):
                return self.of_value.get(each)
        return None

    def _holds_the_same(self, value: int, taken: int, name: str) -> bool:
        """Return whether an output holds the same numbers as an input, not rounded to a coarser dtype by a view."""
        if self._count(value) != self._count(taken):
            return False
        is_rounded = self._bits(value) < self._bits(taken)
        if name in LAYOUT and not is_rounded:
            return True
        if name in OVERWRITES and name not in LAYOUT:
            return False
        return self.sketches.same_numbers(value, taken)

    def _lies_like(self, one: int, other: int) -> bool:
        """Return whether two values have as many elements, so that writing one overwrites all of
        the other.
        """
        return self._count(one) == self._count(other)

    def _count(self, value: int) -> int:
        return self._counts[self.tables.value_meta[value]]

    def _bits(self, value: int) -> int:
        return self._bits_of_meta[self.tables.value_meta[value]]

    # ------------------------------------------------------------ results

    def _mark_overwritten(self) -> None:
        """Mark the things whose memory was later filled with numbers that do not depend on them."""
        filled: dict[int, int] = {}
        for thing in reversed(self.things):
            storage = self.tables.value_storage[thing.value]
            if storage == NONE:
                continue
            thing.is_overwritten = filled.get(storage, 0) >= thing.count > 0
            if thing.op in OVERWRITES and not thing.inputs:
                filled[storage] = max(filled.get(storage, 0), thing.count)
        for event in range(len(self.tables)):
            if self.name_of(event) not in OVERWRITES:
                continue
            target = self.takes(event)[:1]
            if target and target[0] in self.of_value:
                self.things[self.of_value[target[0]]].is_overwritten = True

    def _mark_results(self) -> None:
        """Mark the results: losses, outputs of outermost modules, and parameters after their
        update.
        """
        tables = self.tables
        for event in range(len(tables)):
            kind = self.kind_of(event)
            if kind == "module" and tables.parent[event] == NONE:
                for thing in self._results_of_module(event):
                    thing.is_last = True
            elif kind == "function" and self.name_of(event) in ("backward", "grad", ACCUMULATE):
                self._note_gradients(event)
                for thing in self._losses_of(event):
                    thing.is_loss = True
                    thing.is_last = True
        for thing in self.things:
            storage = tables.value_storage[thing.value]
            if thing.is_leaf or thing.is_overwritten or thing.op in PARTS:
                continue
            if storage in self.parameters:
                thing.is_last = True

    def _note_gradients(self, event: int) -> None:
        """Remember what a backward pass handed over to the program."""
        given = [self.of_value[each] for each in self.gives(event) if each in self.of_value]
        self._gradients.update(given)
        if given and all(self.things[each].is_unknown for each in given):
            self._unmeasured.add(event)

    def _results_of_module(self, event: int) -> list[Thing]:
        """Return the things that an outermost module returned.

        If the program goes on with some of them, the others are by-products, such as the last state of a recurrent
        network. What the module only hands on is no result of it.
        """
        given = [
            self.things[self.of_value[each]] for each in self.gives(event) if each in self.of_value
        ]
        made = [thing for thing in given if thing.maker > event]
        last = self._last_inside(event)
        used = [
            thing for thing in made if any(self.things[each].maker > last for each in thing.users)
        ]
        return used or made

    def _last_inside(self, event: int) -> int:
        """Return the last event that happened inside an event."""
        tables = self.tables
        found = event
        while found + 1 < len(tables) and self._is_inside(found + 1, event):
            found += 1
        return found

    def _is_inside(self, event: int, outer: int) -> bool:
        while event > outer:
            event = self.tables.parent[event]
        return event == outer

    def _losses_of(self, event: int) -> Iterator[Thing]:
        """Yield the things that ``backward`` or ``autograd.grad`` computes gradients of."""
        wanted = LOSS_ROLES.get(self.name_of(event), ())
        for value, role in zip(self.takes(event), self.roles(event), strict=False):
            if value in self.of_value and role.partition("[")[0] in wanted:
                yield self.things[self.of_value[value]]

    def ends(self) -> list[Thing]:
        """Return the final results of the run: nothing else was made from them, and they are not
        by-products.

        Booleans are left out if there are other final results, because most programs only branch on
        them.
        """
        return self._ends

    @cached_property
    def _ends(self) -> list[Thing]:
        found = [thing for thing in self.things if self._is_end(thing)]
        numbers = [thing for thing in found if self.meta(thing.value)[1] != "bool"]
        return numbers or found

    def _is_end(self, thing: Thing) -> bool:
        # Inputs and constants are not computed from the data, and what was not measured cannot be compared.
        if thing.is_leaf or thing.is_unknown or not thing.count or thing.origin == CONSTANT:
            return False
        # The program printed it or decided something by it, or it is a loss, whatever else was made from it.
        if thing.leaves_torch or thing.is_loss:
            return True
        # The backward pass made it for itself, such as the gradient of a state that needs none.
        if (
            self._gradients
            and self.tables.backward[thing.maker]
            and thing.number not in self._gradients
            and not self._is_inside_unmeasured(thing.maker)
        ):
            return False
        # It was used, had no effect, or no longer exists.
        if thing.users or thing.is_neutral or thing.is_overwritten:
            return False
        # Filling memory computes nothing. The ops inside an optimizer's step have its results.
        if thing.op in FILLED_WITH or (
            self.kind_of(thing.maker) == "step" and self._has_inside(thing.maker)
        ):
            return False
        # If the whole memory was used after the write, the write was an intermediate step.
        if thing.op in WRITES_A_PART:
            return not self._is_read_as_whole(thing)
        # Each output of a list op, and each gradient, is a result by itself.
        if thing.op.startswith(("_foreach_", "_fused_")) or thing.op == ACCUMULATE:
            return True
        # Of other ops with several outputs only the first counts, and none if one of the others was used.
        given = self.gives(thing.maker)
        if len(given) < 2:
            return True
        others = [self.of_value.get(each) for each in given]
        is_used = any(
            each is not None and each != thing.number and self.things[each].users for each in others
        )
        return not is_used and thing.output == 0

    def _is_inside_unmeasured(self, event: int) -> bool:
        while self._unmeasured and event != NONE:
            if event in self._unmeasured:
                return True
            event = self.tables.parent[event]
        return False

    def _is_read_as_whole(self, thing: Thing) -> bool:
        """Return whether a later value shows more of the same memory, so that a partial write was
        an intermediate step.
        """
        values = self._of_storage.get(self.tables.value_storage[thing.value], ())
        return any(
            value > thing.value and self._count(value) > thing.count and value in self.of_value
            for value in reversed(values)
        )

    def _has_inside(self, event: int) -> bool:
        tables = self.tables
        return event + 1 < len(tables) and tables.parent[event + 1] == event

    def is_parameter(self, thing: Thing) -> bool:
        """Return whether a thing is a leaf in the memory of a module's parameter."""
        return thing.is_leaf and self.tables.value_storage[thing.value] in self.parameters


# ---------------------------------------------------------------- parts


def _bits_of(dtype: str) -> int:
    """Return the bits of the fraction of a dtype."""
    if dtype.startswith("float8"):
        return 2
    return WIDTHS.get(dtype, EXACT)


def _parameter_names(tables: Tables) -> dict[int, str]:
    """Return for each storage of a parameter its full name, such as ``encoder.0.weight``."""
    found: dict[int, str] = {}
    for row in tables.modules:
        for name, value in row.parameters:
            storage = tables.value_storage[value]
            if storage != NONE:
                found.setdefault(storage, ".".join(filter(None, (row.path, name))))
    return found


def _steps_before(tables: Tables) -> list[int]:
    """Return for each event how many optimizer steps came before it."""
    is_step = [callee.kind == "step" for callee in tables.callees]
    found: list[int] = []
    steps = 0
    for what in tables.callee:
        found.append(steps)
        steps += is_step[what]
    return found


def _output_numbers(side: RunSide) -> dict[tuple[int, int], int]:
    """Return for each pair of event and returned value the index of that value among the outputs."""
    tables = side.tables
    found: dict[tuple[int, int], int] = {}
    for event in range(len(tables)):
        for number, value in enumerate(side.gives(event)):
            found.setdefault((event, value), number)
    return found


def _values_of_events(side: RunSide) -> set[int]:
    """Return the values that events took or returned, except events that only report values."""
    tables = side.tables
    found: set[int] = set()
    for event in range(len(tables)):
        if side.kind_of(event) in TELLS:
            continue
        found.update(side.takes(event))
        found.update(side.gives(event))
    return found


@cache
def _index_of(role: str) -> int:
    """Return the index at the end of a role, 3 for ``self[3]``, or NONE if there is none."""
    found = re.search(r"\[(\d+)\]$", role)
    if found:
        return int(found[1])
    return NONE


def _split(text: str) -> list[str]:
    """Split a text at the commas that are not inside brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for place, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _pair_of_step(taken: Sequence[int], roles: Sequence[str], output: int) -> list[int]:
    """Return the parameter and the gradient (if there is one) of one update in an optimizer's step.

    ``output`` is the number of the update. Each gradient follows its parameter and has a role that
    ends in ``.grad``.
    """
    pairs: list[list[int]] = []
    for value, role in zip(taken, roles, strict=False):
        if pairs and role.endswith(".grad"):
            pairs[-1].append(value)
        else:
            pairs.append([value])
    if output < len(pairs):
        return pairs[output]
    return []
