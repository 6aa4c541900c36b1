"""What does not fit: which dimension of which input, which dtype, device or order, and where that was born."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torchglass.events.types import Event, Value, is_contiguous
from torchglass.views.digest import Recorded
from torchglass.views.text.words import clean, dtype_word, tensor_word

_MATMUL = frozenset(("Tensor.matmul", "matmul", "Tensor.mm", "mm", "Tensor.bmm", "bmm", "Tensor.__rmatmul__"))
_EMBEDDING = frozenset(("embedding", "F.embedding", "embedding_bag", "F.embedding_bag"))
_SIZES = re.compile(r"(?<![\w.])\d+")
_MULTIPLIED = re.compile(r"(\d+)x(\d+) and (\d+)x(\d+)")
_WRITTEN_TO = re.compile(
    r"modified by an inplace operation: \[[\w.]+ (?P<shape>\[[^]]*\])\](?:, which is output \d+ of (?P<node>\w+))?,?"
    r" is at version (?P<now>\d+); expected version (?P<needed>\d+)"
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True, slots=True)
class Named:
    """An input, by the name it has in the program."""

    name: str
    value: Value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape or ()


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing that does not fit, and where it came from."""

    text: str
    born: Event | None = None
    how: str = "from"
    """What joins the two."""


def misfits(event: Event, inputs: Sequence[Named], history: History) -> list[Misfit]:
    """What the error is about, as far as the inputs tell it; none where that is not clear."""
    told = [each for each in inputs if each.value.shape is not None]
    error = event.error or ""
    for tells in (_written_to, _devices, _dtypes, _embedding, _order, _multiplied, _mentioned):
        found = list(tells(event, error, told, history))
        if found:
            return found
    return []


def _written_to(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    """A tensor that backward needs as it was, and who has written to it since."""
    said = _WRITTEN_TO.search(error)
    if said is None:
        return
    shape = sorted(int(size) for size in _SIZES.findall(said["shape"]))
    found = history.writes(int(said["needed"]), int(said["now"]), shape)
    by_name = [each for each in found if each[1] is not None and _is_of(each[1].name, said["node"])]
    for needed, maker, writer in (by_name or found)[:1]:
        name = history.parameter(needed)
        what = f"{name} ({tensor_word(needed)})" if name else tensor_word(needed)
        alike = len(by_name or found)
        what = f"one of {alike} like {what}" if alike > 1 else what
        yield Misfit(f"backward needs {what} as it was", None if name else maker)
        yield Misfit("it has been written to since then", writer, "by")


def _is_of(function: str, node: str | None) -> bool:
    """Whether an autograd node (``Exp``, ``ExpBackward0``) is that of a function (``Tensor.exp``)."""
    short = (node or "").partition("Backward")[0].lower()
    return bool(short) and function.rpartition(".")[2].strip("_") == short


def _devices(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    if "device" in error and len({each.value.device for each in inputs}) > 1:
        yield from _by(inputs, history, lambda value: value.device, "is on")


def _dtypes(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    words = ("dtype", "type", "Double", "Float", "Long", "Half", "BFloat16", "Int", "Byte", "Bool")
    floating = [each for each in inputs if each.value.dtype]
    if any(re.search(rf"\b{word}\b", error) for word in words) and len({each.value.dtype for each in floating}) > 1:
        yield from _by(floating, history, lambda value: value.dtype, "is")


def _by(inputs: Sequence[Named], history: History, of: Callable[[Value], str], verb: str) -> Iterator[Misfit]:
    """Each kind once, with the first input that has it, and where that became so."""
    seen: set[str] = set()
    for each in inputs:
        what = of(each.value)
        if what not in seen:
            seen.add(what)
            born = history.birth(each.value, lambda value, what=what: of(value) == what)
            word = dtype_word(what) if verb == "is" else clean(what)
            yield Misfit(f"{each.name} {verb} {word}", born)


def _embedding(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    if event.name not in _EMBEDDING or "index" not in error.lower():
        return
    table = next((each for each in inputs if each.value.dtype.startswith(("float", "bfloat"))), None)
    indices = next((each for each in inputs if each is not table), None)
    if table is None or indices is None or not table.shape:
        return
    size = table.shape[0]
    yield Misfit(
        f"{table.name} has {size} rows, so that indices go from 0 to {size - 1}; {indices.name} has another",
        history.birth(indices.value, lambda value: value.dtype == indices.value.dtype),
    )


def _order(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    """A view of memory that is not in the order of its dimensions."""
    if "view size is not compatible" not in error and "contiguous" not in error:
        return
    for each in inputs:
        if not is_contiguous(each.shape, each.value.stride):
            born = history.birth(each.value, lambda value: not is_contiguous(value.shape or (), value.stride))
            cure = " (reshape copies it, and contiguous() before a view)" if "view" in event.name else ""
            yield Misfit(f"{each.name} is not contiguous{cure}", born)
            return


def _multiplied(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    """Matrices whose inner sizes differ, be it of a layer or of ``@``."""
    if len(inputs) < 2 or (event.name not in _MATMUL and not _MULTIPLIED.search(error)):
        return
    one, other = inputs[0], inputs[1]
    transposed = event.name in ("F.linear", "linear")
    inner = -1 if transposed or len(other.shape) == 1 else -2
    if not one.shape or not other.shape or one.shape[-1] == other.shape[inner]:
        return
    at = len(other.shape) + inner
    yield Misfit(
        f"{_dimension(one, len(one.shape) - 1)} is {one.shape[-1]}, {_dimension(other, at)} is {other.shape[inner]}:"
        " to multiply them they must be equal"
    )
    for each, size in ((one, one.shape[-1]), (other, other.shape[inner])):
        born = _born(each, size, history)
        if born.born is not None:
            yield born


def _mentioned(event: Event, error: str, inputs: Sequence[Named], history: History) -> Iterator[Misfit]:
    """Sizes that the error names, where they are sizes of inputs that differ there."""
    sizes = {int(text) for text in _SIZES.findall(error)[:20] if len(text) < 12}
    apart: list[tuple[Named, int]] = []
    data = [each for each in inputs if each.value.type != "Parameter"] if len(inputs) > 2 else inputs
    for index, each in enumerate(data):
        for other in data[index + 1 :]:
            for at, (left, right) in enumerate(zip(each.shape, other.shape, strict=False)):
                if left != right and {left, right} <= sizes:
                    apart += [(each, at), (other, at)]
    told: set[tuple[str, int]] = set()
    for each, at in apart:
        size = each.shape[at]
        if (each.name, size) not in told:
            told.add((each.name, size))
            yield Misfit(f"{_dimension(each, at)} is {size}", _born(each, size, history).born)


def _born(each: Named, size: int, history: History) -> Misfit:
    born = history.birth(each.value, lambda value: size in (value.shape or ()))
    return Misfit(f"{size} in {each.name}", born)


def _dimension(each: Named, at: int) -> str:
    """``the second dimension of x``."""
    last = len(each.shape) - 1
    word = "only" if not last else "last" if at == last else _ORDINALS[at] if at < len(_ORDINALS) else f"{at + 1}th"
    return f"the {word} dimension of {each.name}"


# ---------------------------------------------------------------- history

# How a value came to be: what made it, what that was made from, and where a size, a dtype or an order was born.

MOST_STEPS = 10_000
"""Of a chain of makers: a loss that is summed up over a whole run is a long one."""


class History:
    """Looks back from the failing call; what is still under way made nothing yet."""

    def __init__(self, trace: Recorded, under_way: set[int]) -> None:
        self._trace, self._under_way = trace, under_way
        self._parameters = {
            value.id: (f"{info.path}.{value.role}" if info.path else value.role, info)
            for info in trace.modules()
            for value in info.parameters
        }

    def parameter(self, value: Value) -> str:
        """``fc1.weight``; nothing for what is no parameter of a module."""
        found = self._parameters.get(value.id)
        return found[0] if found is not None else value.role if value.type == "Parameter" else ""

    def maker(self, value: Value) -> Event | None:
        """The outermost call that gave a value: a layer rather than the function in it."""
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
        """The last calls that led to a value, the latest first."""
        found: list[Event] = []
        current: Value | None = value
        while current is not None and len(found) < most:
            event = self.maker(current)
            if event is None:
                break
            found.append(event)
            current = _closest(event.inputs, current)
        return found

    def writes(self, needed: int, now: int, shape: Sequence[int]) -> list[tuple[Value, Event | None, Event]]:
        """Memory that was needed at one version and is at another: the value then, its maker, the first who wrote."""
        values: dict[int, Value] = {}
        writers: dict[int, Event] = {}
        newest: dict[int, int] = {}
        for event in self._trace.events():
            if event.kind == "op":  # below autograd, where versions are not counted yet
                continue
            for value in (*event.inputs, *event.outputs):
                if value.storage is not None and value.version == needed and sorted(value.shape or ()) == shape:
                    values.setdefault(value.storage, value)
            taken = {value.storage for value in event.inputs if value.version == needed}
            for value in event.outputs:
                if value.storage is not None and value.version is not None:
                    newest[value.storage] = max(newest.get(value.storage, 0), value.version)
                    if value.version > needed and value.storage in taken:
                        writers.setdefault(value.storage, self._step_around(event))
        return [
            (value, self.maker(value), writers[storage])
            for storage, value in values.items()
            if storage in writers and newest[storage] == now
        ]

    def _step_around(self, event: Event) -> Event:
        """The step of an optimizer rather than what it does."""
        at: Event = event
        while at.parent is not None:
            at = self._trace.event(at.parent)
            if at.kind == "step":
                return at
        return event

    def birth(self, value: Value, had: Callable[[Value], bool]) -> Event | None:
        """The call that first gave a value something that none of those had that it was made from."""
        current, found = value, None
        for _ in range(MOST_STEPS):
            event = self.maker(current)
            if event is None:
                break
            found = event
            before = _closest([each for each in event.inputs if had(each)], current)
            if before is None or before.id == current.id:
                break
            current = before
        return found


def _closest(values: list[Value] | tuple[Value, ...], like: Value) -> Value | None:
    """The one whose shape has most in common with that of another; parameters only where there is nothing else."""
    shape = like.shape or ()

    def closeness(value: Value) -> tuple[bool, bool, int]:
        own = value.shape or ()
        same = sum(one == other for one, other in zip(own, shape, strict=False))
        return (value.type != "Parameter", len(own) == len(shape), same)

    return max(values, key=closeness, default=None)
