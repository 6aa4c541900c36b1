"""Tells the events that torch makes by itself inside a call from those that the program's code makes.

Views hide the former unless ``inner=True`` asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchglass.events.types import Event
from torchglass.program.frames import is_own


@dataclass(frozen=True, slots=True)
class Nesting:
    """How module calls are nested."""

    module_above: list[int]
    """By event, the module call around it; -1 if there is none."""
    containers: set[int]
    """The module calls in which other modules were called."""


def nesting(events: Sequence[Event], parents: Sequence[int]) -> Nesting:
    """Find the module around each event; ``parents`` are the ids of the events around them (-1: none)."""
    is_module = bytearray(event.kind == "module" for event in events)
    above = nearest_around(parents, is_module)
    containers = {around for around, inner in zip(above, is_module, strict=True) if inner}
    return Nesting(above, containers - {-1})


def nearest_around(parents: Sequence[int], is_chosen: Sequence[int]) -> list[int]:
    """Return for each event the nearest chosen event around it; -1 if there is none.

    ``parents`` has by event the one around it (-1: none), ``is_chosen`` by event 1 or 0.
    """
    around: list[int] = []
    for parent in parents:
        if parent < 0 or is_chosen[parent]:
            around.append(parent)
        else:
            around.append(around[parent])
    return around


def called_by_torch(event: Event) -> bool:
    """Return whether torch's own code made this call, not an expression of the program."""
    return not event.direct and bool(event.stack) and event.stack[-1].origin == "torch"


def is_summed_up(event: Event) -> bool:
    """Return whether an event has so many tensors that views leave them out: a step, or AccumulateGrad."""
    return event.kind == "step" or event.name == "AccumulateGrad"


def is_recomputed(event: Event) -> bool:
    """Return whether ``torch.utils.checkpoint`` computed an event a second time, for the backward pass."""
    return event.phase == "backward" and any(
        frame.origin == "torch"
        and frame.file.replace("\\", "/").endswith("torch/utils/checkpoint.py")
        for frame in event.stack
    )


def is_called_back(event: Event, around: Event) -> bool:
    """Return whether a function of the program made an event inside another one, as a closure does in a step."""
    return any(map(is_own, event.stack[len(around.stack) :]))


def is_inner(event: Event, parent: Event | None, parent_is_leaf: bool) -> bool:
    """Return whether an event is an inner one: torch made it by itself, inside another event.

    Inner events are:

    - functions that torch functions call, and aten ops in functions;
    - what the leaf modules of ``torch.nn`` do, such as ``F.linear`` in a Linear;
    - what an optimizer's step does, and ops without a tensor (the profiler's marks);
    - what a checkpoint computes a second time, for backward: it is shown where it was computed first;
    - changes of variables, which have a view of their own.

    The program's code that torch calls (a checkpointed block, a custom autograd function, the closure of an
    optimizer's step) is not inner.
    """
    if is_recomputed(event):
        return True
    if event.kind == "variable" or (event.kind == "op" and not event.inputs and not event.outputs):
        return True
    if parent is None or event.kind not in ("function", "op"):
        return False
    if parent.kind == "step":
        return not is_called_back(event, parent)
    if parent.kind in ("function", "op"):
        return event.kind == "op" or not event.direct
    return (
        parent.kind == "module"
        and parent_is_leaf
        and (event.kind == "op" or called_by_torch(event))
    )


def is_inner_at(events: Sequence[Event], nest: Nesting, at: int, parent: int) -> bool:
    """Return whether an event is an inner one, by its id and that of the event around it (-1: none)."""
    around = None
    if parent >= 0:
        around = events[parent]
    return is_inner(events[at], around, around is not None and parent not in nest.containers)


def visible_events(events: Sequence[Event]) -> list[Event]:
    """Return the events that are shown by default."""
    parents = [-1 if event.parent is None else event.parent for event in events]
    nest = nesting(events, parents)
    return [
        events[at] for at, parent in enumerate(parents) if not is_inner_at(events, nest, at, parent)
    ]


def is_torch_helper(event: Event, parent: Event | None) -> bool:
    """Return whether torch made a call inside an expression that was not recorded as an event.

    ``opt.zero_grad()`` and ``clip_grad_norm_(…)`` are plain Python, so only the torch functions in them are recorded.
    The functions in a layer's ``forward`` do not count, since the layer's event has the same place.
    """
    return (
        event.kind == "function"
        and not event.direct
        and event.location is not None
        and (parent is None or parent.location != event.location)
        and called_by_torch(event)
    )
