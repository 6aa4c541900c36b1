"""Which rows of the tree may stand for each other: one number for each pattern of calls, equal for equal ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.views.digest import Key, shape_key
from torchglass.views.nesting import Nesting, relative_path, settings_of, split_index


@dataclass(frozen=True, slots=True)
class Patterns:
    """For each event id: its pattern, the lines it takes, and, for modules, the key of its own."""

    pattern: list[int]
    height: list[int]
    keys: dict[int, Key]


def patterns_of(
    modules: Sequence[ModuleInfo],
    events: Sequence[Event],
    texts: Sequence[int],
    nest: Nesting,
    children: Mapping[int, Sequence[int]],
) -> Patterns:
    """The pattern of every event that has a row, innermost first.

    Two events have one pattern when all that is shown of them and of what is in them is the same: names,
    settings, expressions, shapes, parameters. A layer's number is left out, so that ``blocks.0`` may equal
    ``blocks.1``, and of numbered layers the place of the call, which a loop unrolled by hand has several of.
    """
    parameters = {(info.root, info.path): tuple(map(_parameter_key, info.parameters)) for info in modules}
    patterns, heights = [0] * len(events), [1] * len(events)
    known: dict[Key, int] = {}
    keys: dict[int, Key] = {}
    module_keys: dict[tuple[int, int], Key] = {}
    for at in range(len(events) - 1, -1, -1):
        below = children.get(at)
        key: Key = (texts[at],)
        if events[at].kind == "module":
            around = nest.module_above[at]
            pair = (texts[at], texts[around] if around >= 0 else -1)
            if pair not in module_keys:
                path = relative_path(events[at], events[around] if around >= 0 else None)
                module_keys[pair] = _module_key(events[at], path, parameters)
            key = keys[at] = module_keys[pair]
        if below:
            heights[at] += sum([heights[child] for child in below])
            key = (*key, *[patterns[child] for child in below])
        patterns[at] = known.setdefault(key, len(known))
    return Patterns(patterns, heights, keys)


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


def difference(patterns: Patterns, one: int, other: int) -> str:
    """In words, what keeps two module calls apart."""
    pairs = zip(_PARTS, patterns.keys[one], patterns.keys[other], strict=False)
    apart = [part for part, left, right in pairs if left != right] or ["the steps inside it"]
    return apart[0] if len(apart) == 1 else f"{', '.join(apart[:-1])} and {apart[-1]}"
