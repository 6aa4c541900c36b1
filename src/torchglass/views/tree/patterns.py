"""What may stand for what: one number for each structure that occurs, equal for equal ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.views.digest import Key, Looks, shape_key
from torchglass.views.nesting import Nesting, relative_path, settings_of, split_index


@dataclass(frozen=True, slots=True)
class Marks:
    """For each event id: its mark, the lines it takes, and, for modules, the key of its own."""

    mark: list[int]
    height: list[int]
    keys: dict[int, Key]


def marks_of(
    modules: Sequence[ModuleInfo], looks: Looks, nest: Nesting, children: Mapping[int, Sequence[int]]
) -> Marks:
    """Mark every event that has a row, innermost first.

    Two events get one mark when all that is shown of them and of what is in them is the same: names,
    settings, expressions, shapes, parameters. A layer's number is left out, so that ``blocks.0`` may equal
    ``blocks.1``, and of numbered layers the place of the call, which a loop unrolled by hand has several of.
    """
    events, look = looks.events, looks.look
    parameters = _parameter_marks(modules)
    marks, heights = [0] * len(events), [1] * len(events)
    known: dict[Key, int] = {}
    keys: dict[int, Key] = {}
    module_keys: dict[tuple[int, int], Key] = {}
    for at in range(len(events) - 1, -1, -1):
        below = children.get(at)
        key: Key = (look[at],)
        if events[at].kind == "module":
            around = nest.module_above[at]
            pair = (look[at], look[around] if around >= 0 else -1)
            if pair not in module_keys:
                path = relative_path(events[at], events[around] if around >= 0 else None)
                module_keys[pair] = _module_key(events[at], path, parameters)
            key = keys[at] = module_keys[pair]
        if below:
            heights[at] += sum([heights[child] for child in below])
            key = (*key, *[marks[child] for child in below])
        marks[at] = known.setdefault(key, len(known))
    return Marks(marks, heights, keys)


def _parameter_marks(modules: Sequence[ModuleInfo]) -> dict[tuple[str, str], Key]:
    return {(info.root, info.path): tuple(map(_parameter_key, info.parameters)) for info in modules}


def _parameter_key(value: Value) -> Key:
    return (value.role, value.dtype, value.shape, value.requires_grad)


def _module_key(event: Event, path: str, parameters: Mapping[tuple[str, str], Key]) -> Key:
    head, number = split_index(path)
    return (
        event.name,
        settings_of(event.detail, event.module),
        tuple(map(shape_key, event.inputs)),
        tuple(map(shape_key, event.outputs)),
        parameters.get((event.root or "", event.module or ""), ()),
        event.error,
        event.note,
        head,
        None if number is not None else (event.code, event.target, event.line),
    )


_PARTS = ("class", "settings", "input shapes", "output shapes", "parameters", "error", "note")


def difference(marks: Marks, one: int, other: int) -> str:
    """In words, what keeps two module calls apart."""
    pairs = zip(_PARTS, marks.keys[one], marks.keys[other], strict=False)
    apart = [part for part, left, right in pairs if left != right] or ["the steps inside it"]
    return apart[0] if len(apart) == 1 else f"{', '.join(apart[:-1])} and {apart[-1]}"
