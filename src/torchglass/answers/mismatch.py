"""Finds what does not fit in a failing call: a dimension, dtype, device or memory order, and where it came from.

Each detector knows one sort of error. The first one that finds something answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from torchglass.events.types import Event, Value, is_contiguous
from torchglass.program.recorded import Recorded
from torchglass.views.text.words import clean, dtype_word, tensor_word

_MATMUL = frozenset(
    ("Tensor.matmul", "matmul", "Tensor.mm", "mm", "Tensor.bmm", "bmm", "Tensor.__rmatmul__")
)
_EMBEDDING = frozenset(("embedding", "F.embedding", "embedding_bag", "F.embedding_bag"))
_SIZES = re.compile(r"(?<![\w.])\d+")
_MULTIPLIED = re.compile(r"(\d+)x(\d+) and (\d+)x(\d+)")
_WRITTEN_TO = re.compile(
    r"modified by an inplace operation: \[[\w.]+ (?P<shape>\[[^]]*\])\](?:, which is output \d+ of (?P<node>\w+))?,?"
    r" is at version (?P<now>\d+); expected version (?P<needed>\d+)"
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
MAX_NUMBERS_READ = 20
"""Numbers of an error message that are taken for sizes. Messages that print tensors have thousands."""
MAX_DIGITS = 11
"""Digits of a size; longer numbers are addresses and the like."""


@dataclass(frozen=True, slots=True)
class Named:
    """An input, by the name it has in the program."""

    name: str
    value: Value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape or ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that does not fit."""

    text: str
    origin: Event | None = None
    """The call that it came from."""
    preposition: str = "from"
    """The word between the two: ``8 in x, from x = …``."""


def mismatches(event: Event, inputs: Sequence[Named], history: History) -> list[Mismatch]:
    """Return what the error is about, as far as the inputs show it; [] if that is not clear."""
    shaped = [each for each in inputs if each.value.shape is not None]
    error = event.error or ""
    detectors = (_written_to, _devices, _dtypes, _embedding, _order, _multiplied, _mentioned)
    for detect in detectors:
        found = list(detect(event, error, shaped, history))
        if found:
            return found
    return []


def _written_to(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find a tensor that backward needs unchanged, and the call that wrote to it in place."""
    message = _WRITTEN_TO.search(error)
    if message is None:
        return
    shape = sorted(int(size) for size in _SIZES.findall(message["shape"]))
    candidates = history.overwritten(int(message["needed"]), int(message["now"]), shape)
    made_by_node: list[Overwritten] = []
    for candidate in candidates:
        if candidate.maker is not None and _is_node_of(candidate.maker.name, message["node"]):
            made_by_node.append(candidate)
    candidates = made_by_node or candidates
    if not candidates:
        return
    value, maker, writer = candidates[0]
    tensor = tensor_word(value)
    parameter = history.parameter(value)
    if parameter:
        tensor = f"{parameter} ({tensor})"
        maker = None
    if len(candidates) > 1:
        tensor = f"one of {len(candidates)} like {tensor}"
    yield Mismatch(f"backward needs {tensor} as it was", maker)
    yield Mismatch("it has been written to since then", writer, "by")


def _is_node_of(function: str, node: str | None) -> bool:
    """Return whether an autograd node (``Exp``, ``ExpBackward0``) is that of a function (``Tensor.exp``)."""
    short = (node or "").partition("Backward")[0].lower()
    return bool(short) and function.rpartition(".")[2].strip("_") == short


def _devices(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find inputs on different devices."""
    if "device" in error and len({each.value.device for each in inputs}) > 1:
        yield from _one_of_each(inputs, history, lambda value: value.device, "is on")


def _dtypes(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find inputs of different dtypes."""
    words = ("dtype", "type", "Double", "Float", "Long", "Half", "BFloat16", "Int", "Byte", "Bool")
    with_dtype = [each for each in inputs if each.value.dtype]
    names_dtypes = any(re.search(rf"\b{word}\b", error) for word in words)
    if names_dtypes and len({each.value.dtype for each in with_dtype}) > 1:
        yield from _one_of_each(with_dtype, history, lambda value: value.dtype, "is")


def _one_of_each(
    inputs: Sequence[Named], history: History, property_of: Callable[[Value], str], verb: str
) -> Iterator[Mismatch]:
    """Yield each device or dtype once, with the first input that has it and the call that it came from."""
    first_with: dict[str, Named] = {}
    for each in inputs:
        first_with.setdefault(property_of(each.value), each)
    for device_or_dtype, named in first_with.items():
        origin = history.origin_of(
            named.value,
            lambda value, wanted=device_or_dtype: property_of(value) == wanted,
        )
        if verb == "is":
            word = dtype_word(device_or_dtype)
        else:
            word = clean(device_or_dtype)
        yield Mismatch(f"{named.name} {verb} {word}", origin)


def _embedding(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find indices outside an embedding's table."""
    if event.name not in _EMBEDDING or "index" not in error.lower():
        return
    tables = [each for each in inputs if each.value.dtype.startswith(("float", "bfloat"))]
    if not tables or not tables[0].shape:
        return
    table = tables[0]
    others = [each for each in inputs if each is not table]
    if not others:
        return
    indices = others[0]
    size = table.shape[0]
    text = (
        f"{table.name} has {size} rows, so that indices go from 0 to {size - 1}; "
        f"{indices.name} has another"
    )
    dtype = indices.value.dtype
    yield Mismatch(text, history.origin_of(indices.value, lambda value: value.dtype == dtype))


def _order(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find an input that is not contiguous."""
    if "view size is not compatible" not in error and "contiguous" not in error:
        return
    for each in inputs:
        if is_contiguous(each.shape, each.value.stride):
            continue
        origin = history.origin_of(
            each.value, lambda value: not is_contiguous(value.shape or (), value.stride)
        )
        fix = ""
        if "view" in event.name:
            fix = " (reshape copies it, and contiguous() before a view)"
        yield Mismatch(f"{each.name} is not contiguous{fix}", origin)
        return


def _multiplied(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find matrices whose inner sizes differ, in a layer or in ``@``."""
    if len(inputs) < 2 or (event.name not in _MATMUL and not _MULTIPLIED.search(error)):
        return
    one = inputs[0]
    other = inputs[1]
    # F.linear multiplies with the transposed weight.
    is_transposed = event.name in ("F.linear", "linear")
    inner = -2
    if is_transposed or len(other.shape) == 1:
        inner = -1
    if not one.shape or not other.shape or one.shape[-1] == other.shape[inner]:
        return
    one_size = one.shape[-1]
    other_size = other.shape[inner]
    one_dimension = _dimension(one, len(one.shape) - 1)
    other_dimension = _dimension(other, len(other.shape) + inner)
    yield Mismatch(
        f"{one_dimension} is {one_size}, {other_dimension} is {other_size}:"
        " to multiply them they must be equal"
    )
    for each, size in ((one, one_size), (other, other_size)):
        origin = _origin_of_size(each, size, history)
        if origin is not None:
            yield Mismatch(f"{size} in {each.name}", origin)


_JOINED = re.compile(r"must match except in dimension (\d+)")
_JOINING = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack"])


def _mentioned(
    event: Event, error: str, inputs: Sequence[Named], history: History
) -> Iterator[Mismatch]:
    """Find two sizes that the error names, if two inputs have them in the same dimension.

    Tensors that are concatenated may differ in one dimension, which torch counts from 0: so do we.
    """
    joined = _JOINED.search(error)
    is_joined = joined is not None or event.name in _JOINING
    numbers = _SIZES.findall(error)[:MAX_NUMBERS_READ]
    sizes = {int(text) for text in numbers if len(text) <= MAX_DIGITS}
    data = inputs
    if len(inputs) > 2:
        data = [each for each in inputs if each.value.type != "Parameter"]
    free_axis = -1
    if joined is not None:
        free_axis = int(joined[1])
    reported: set[tuple[str, int]] = set()
    for each, axis in _different_axes(data, sizes, free_axis):
        size = each.shape[axis]
        if (each.name, size) in reported:
            continue
        reported.add((each.name, size))
        if is_joined:
            dimension = f"dim {axis} of {each.name}"
        else:
            dimension = _dimension(each, axis)
        yield Mismatch(f"{dimension} is {size}", _origin_of_size(each, size, history))


def _different_axes(
    inputs: Sequence[Named], sizes: set[int], free_axis: int
) -> Iterator[tuple[Named, int]]:
    """Yield inputs and axes where two inputs differ, and both of their sizes are among ``sizes``."""
    for one, other in combinations(inputs, 2):
        for axis, (left, right) in enumerate(zip(one.shape, other.shape, strict=False)):
            if left != right and {left, right} <= sizes and axis != free_axis:
                yield one, axis
                yield other, axis


def _origin_of_size(each: Named, size: int, history: History) -> Event | None:
    return history.origin_of(each.value, lambda value: size in (value.shape or ()))


def _dimension(each: Named, axis: int) -> str:
    """Return ``the second dimension of x``."""
    last = len(each.shape) - 1
    if not last:
        word = "only"
    elif axis == last:
        word = "last"
    elif axis < len(_ORDINALS):
        word = _ORDINALS[axis]
    else:
        word = f"{axis + 1}th"
    return f"the {word} dimension of {each.name}"


# ---------------------------------------------------------------- history

MAX_STEPS = 10_000
"""Makers that are followed backwards. A loss summed over a whole run has a long chain of them."""


class Overwritten(NamedTuple):
    """A value that was overwritten in place."""

    value: Value
    maker: Event | None
    writer: Event
    """The first event that wrote to its memory."""


class History:
    """How values came to be, seen from a failing call.

    ``under_way`` are the events that had not ended: they have not made anything yet.
    """

    def __init__(self, trace: Recorded, under_way: set[int]) -> None:
        self._trace = trace
        self._under_way = under_way
        self._parameters: dict[int, str] = {}
        """The path of each parameter of a module."""
        for module in trace.modules():
            for value in module.parameters:
                path = value.role
                if module.path:
                    path = f"{module.path}.{value.role}"
                self._parameters[value.id] = path

    def parameter(self, value: Value) -> str:
        """Return the path of a parameter, ``fc1.weight``; "" if a value is not a parameter of a module."""
        path = self._parameters.get(value.id)
        if path is not None:
            return path
        if value.type == "Parameter":
            return value.role
        return ""

    def maker(self, value: Value) -> Event | None:
        """Return the outermost call that gave a value: a layer rather than the function in it."""
        if value.producer is None or value.producer in self._under_way:
            return None
        event = self._trace.event(value.producer)
        while event.parent is not None and event.parent not in self._under_way:
            around = self._trace.event(event.parent)
            if around.kind == "step" or all(given.id != value.id for given in around.outputs):
                break
            event = around
        return event

    def steps(self, value: Value, most: int) -> list[Event]:
        """Return the last calls that led to a value, the latest first, at most so many."""
        calls: list[Event] = []
        current: Value | None = value
        while current is not None and len(calls) < most:
            event = self.maker(current)
            if event is None:
                break
            calls.append(event)
            current = _closest(event.inputs, current)
        return calls

    def overwritten(self, needed: int, now: int, shape: Sequence[int]) -> list[Overwritten]:
        """Return the values of a shape that backward needs at version ``needed``, whose memory is at version ``now``.

        ``shape`` is sorted, since autograd may have saved the tensor transposed.
        """
        needed_in: dict[int, Value] = {}
        writer_of: dict[int, Event] = {}
        newest_version: dict[int, int] = {}
        for event in self._trace.events():
            if event.kind == "op":
                # Ops run below autograd, which counts the version afterwards.
                continue
            for value in (*event.inputs, *event.outputs):
                has_shape = sorted(value.shape or ()) == shape
                if value.storage is not None and value.version == needed and has_shape:
                    needed_in.setdefault(value.storage, value)
            taken = {value.storage for value in event.inputs if value.version == needed}
            for value in event.outputs:
                storage = value.storage
                if storage is None or value.version is None:
                    continue
                newest_version[storage] = max(newest_version.get(storage, 0), value.version)
                if value.version > needed and storage in taken:
                    writer_of.setdefault(storage, self._step_around(event))
        overwritten: list[Overwritten] = []
        for storage, value in needed_in.items():
            if storage in writer_of and newest_version[storage] == now:
                overwritten.append(Overwritten(value, self.maker(value), writer_of[storage]))
        return overwritten

    def _step_around(self, event: Event) -> Event:
        """Return the optimizer step around an event; the event itself if there is none."""
        outer: Event = event
        while outer.parent is not None:
            outer = self._trace.event(outer.parent)
            if outer.kind == "step":
                return outer
        return event

    def origin_of(self, value: Value, has: Callable[[Value], bool]) -> Event | None:
        """Return the call where a value got a property: the last one on the way back whose inputs do not have it."""
        current = value
        origin = None
        for _ in range(MAX_STEPS):
            event = self.maker(current)
            if event is None:
                break
            origin = event
            previous = _closest([each for each in event.inputs if has(each)], current)
            if previous is None or previous.id == current.id:
                break
            current = previous
        return origin


def _closest(values: list[Value] | tuple[Value, ...], like: Value) -> Value | None:
    """Return the value whose shape is most like another's; a parameter only if there is nothing else."""
    shape = like.shape or ()

    def closeness(value: Value) -> tuple[bool, bool, int]:
        sizes = value.shape or ()
        same = sum(one == other for one, other in zip(sizes, shape, strict=False))
        return (value.type != "Parameter", len(sizes) == len(shape), same)

    return max(values, key=closeness, default=None)
