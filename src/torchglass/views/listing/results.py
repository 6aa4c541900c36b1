"""What a place in the code gave, over all its calls: results counted, taken apart, and laid over each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event, Stats, Value
from torchglass.views.digest import Recorded
from torchglass.views.text.cells import is_summed_up
from torchglass.views.text.tensors import Spread

UNKNOWN = "?"
"""The dtype of a part of a result that no step tells of."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredOutput:
    """One output of events that are alike, each of which was measured; read when somebody asks."""

    trace: Recorded
    numbers: Sequence[int]
    """Of the events."""
    place: int
    """Which of their outputs."""

    def stats(self) -> Iterator[Stats]:
        """What was in each of them."""
        for number in self.numbers:
            found = self.trace.event(number).outputs[self.place].stats
            if found is not None:
                yield found


class ResultTensor(NamedTuple):
    """One tensor of a result."""

    role: str
    """Where it stands in the result: ``""`` for the result itself, ``[0]``, ``.logits``."""
    dtype: str
    shape: tuple[int, ...] | None
    layout: str
    measured: MeasuredOutput | None = None
    """Where it is known what was in it."""


class Result(NamedTuple):
    """What one call gave: its tensors, or, when there are none, its text."""

    items: tuple[ResultTensor, ...]
    text: str = ""


Counted = dict[tuple[Result, str | None], int]
"""How often each result came, by the module path it came under."""


@dataclass(slots=True)
class Outcome:
    """All that is known of what an expression gave.

    ``parts`` are those of a written-out tuple whose elements are known one by one; None: not known.
    """

    counted: Counted = field(default_factory=Counted)
    parts: tuple[Outcome | None, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.counted) or self.parts is not None

    @property
    def times(self) -> int:
        """How often it came."""
        own = sum(self.counted.values())
        return own + max((part.times for part in self.parts or () if part is not None), default=0)


def result_of(event: Event, measured: Sequence[MeasuredOutput]) -> Result:
    """What an event gave; ``measured``: where it is known what was in its outputs, ``()`` where it is not."""
    if not event.outputs or is_summed_up(event):
        return Result((), "" if event.outputs else event.result)
    known: Sequence[MeasuredOutput | None] = measured or [None] * len(event.outputs)
    return Result(tuple(_item(*each) for each in zip(event.outputs, known, strict=True)))


def _item(value: Value, measured: MeasuredOutput | None) -> ResultTensor:
    return ResultTensor(value.role.removeprefix("out"), value.dtype, value.shape, value.layout, measured)


def changed_by(event: Event, measured: Sequence[MeasuredOutput]) -> Result:
    """The tensor that an assignment to a part of it changed: the first it was given."""
    given = event.outputs[:1] or event.inputs[:1]
    known = measured[0] if measured else None
    return Result(tuple(ResultTensor("", value.dtype, value.shape, value.layout, known) for value in given))


def merged(outcomes: Iterable[Outcome | None]) -> Outcome:
    """One outcome for several: the results of all; parts only where all have as many."""
    found = [each for each in outcomes if each]
    whole = Outcome()
    for each in found:
        for key, times in each.counted.items():
            whole.counted[key] = whole.counted.get(key, 0) + times
    in_parts = [each.parts for each in found if each.parts is not None]
    if in_parts and len({len(parts) for parts in in_parts}) == 1:
        whole.parts = tuple(merged(column) or None for column in zip(*in_parts, strict=True))
    return whole


# ---------------------------------------------------------------- parts of results


def part(outcome: Outcome, index: int, length: int, starred: bool = False) -> Outcome:
    """What the target at ``index`` of ``length`` got; counted from the end where ``index`` is negative."""
    taken = Outcome()
    for (result, path), times in outcome.counted.items():
        piece = _piece(result, index, length, starred)
        if piece is not None:
            taken.counted[piece, path] = taken.counted.get((piece, path), 0) + times
    if outcome.parts is not None:
        last = len(outcome.parts) + index - length if starred else index
        pieces = outcome.parts[index : last + 1] if starred else outcome.parts[index : index + 1 or None]
        taken = merged([taken, *pieces])
    return taken


def _piece(result: Result, index: int, length: int, starred: bool) -> Result | None:
    if len(result.items) == 1 and result.items[0].role == "":
        return _row(result.items[0])
    heads = list(dict.fromkeys(_head(item.role) for item in result.items))
    if all(head[:1] == "[" and head[1:-1].isdecimal() for head in heads):
        # Elements that are no tensors have no item, so the number is the index and the length may be unknown.
        places = {head: int(head[1:-1]) for head in heads}
    else:
        places = {head: place for place, head in enumerate(heads)}
    if starred or index < 0:
        wanted = _from_the_end(places, index, length, starred)
    else:
        wanted = {head for head, place in places.items() if place == index}
    items = [item for item in result.items if _head(item.role) in wanted]
    if not items:
        return None
    if starred:
        return Result(tuple(items))
    return Result(tuple(item._replace(role=item.role[len(_head(item.role)) :]) for item in items))


def _from_the_end(places: dict[str, int], index: int, length: int, starred: bool) -> set[str]:
    size = max(places.values(), default=-1) + 1
    if starred:
        return {head for head, place in places.items() if index <= place <= size - (length - index)}
    return {head for head, place in places.items() if place == size + index}


def _row(item: ResultTensor) -> Result | None:
    """One of the rows that a tensor is unpacked into."""
    return Result((item._replace(shape=item.shape[1:], measured=None),)) if item.shape else None


def _head(role: str) -> str:
    """The first step of a role: ``[1]`` of ``[1]['k']``."""
    end = next((at for at, char in enumerate(role) if at and char in "[."), len(role))
    return role[:end]


# ---------------------------------------------------------------- laid over each other


def forms_of(outcome: Outcome) -> list[list[Spread]]:
    """The tensors of all calls laid over each other, for each form that results had."""
    forms: dict[tuple[object, ...], list[Result]] = {}
    for result, _ in outcome.counted:
        if result.items:
            forms.setdefault(tuple(map(_form, result.items)), []).append(result)
    return [list(map(_spread, zip(*(one.items for one in same), strict=True))) for same in forms.values()]


def _form(item: ResultTensor) -> tuple[object, ...]:
    return (item.role, None if item.shape is None else len(item.shape), item.layout)


def _spread(items: Sequence[ResultTensor]) -> Spread:
    shapes = [item.shape for item in items if item.shape is not None]
    sizes = tuple(tuple(sorted(set(column))) for column in zip(*shapes, strict=True)) if shapes else None
    dtypes = tuple(dict.fromkeys(item.dtype for item in items))
    stats = tuple(each for item in items if item.measured is not None for each in item.measured.stats())
    return Spread(items[0].role, dtypes, sizes, items[0].layout, stats=stats)


def by_path(outcome: Outcome) -> list[tuple[tuple[str | None, ...], Outcome]]:
    """The outcome taken apart by module path; paths under which the same came stand together."""
    single: dict[str | None, Outcome] = {}
    for (result, path), times in outcome.counted.items():
        own = single.setdefault(path, Outcome()).counted
        own[result, path] = own.get((result, path), 0) + times
    together: dict[object, list[str | None]] = {}
    for path, each in single.items():
        counted: dict[Result, int] = {}
        for (result, _), times in each.counted.items():
            plain = _unmeasured(result)
            counted[plain] = counted.get(plain, 0) + times
        together.setdefault(frozenset(counted.items()), []).append(path)
    return [(tuple(paths), merged(single[path] for path in paths)) for paths in together.values()]


def _unmeasured(result: Result) -> Result:
    return Result(tuple(item._replace(measured=None) for item in result.items), result.text)
