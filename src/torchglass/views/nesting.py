"""Who called whom: the modules around each event, and what torch did by itself inside a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchglass.events.types import Event


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each event id the module event around it (-1: none), and which module events called modules."""

    module_above: list[int]
    containers: set[int]


def nesting(events: Sequence[Event], parents: Sequence[int]) -> Nesting:
    """One pass over all events and the ids of their parents (-1: none), parents before children."""
    above: list[int] = []
    containers: set[int] = set()
    for event, parent in zip(events, parents, strict=True):
        around = -1 if parent < 0 else parent if events[parent].kind == "module" else above[parent]
        above.append(around)
        if around >= 0 and event.kind == "module":
            containers.add(around)
    return Nesting(above, containers)


def called_by_torch(event: Event) -> bool:
    """True when torch's own code made this call, not an expression of the program."""
    return not event.direct and bool(event.stack) and event.stack[-1].origin == "torch"


def is_recomputed(event: Event) -> bool:
    """Whether a checkpoint (``torch.utils.checkpoint``) computed it once more, for backward."""
    return event.phase == "backward" and any(
        frame.origin == "torch" and frame.file.replace("\\", "/").endswith("torch/utils/checkpoint.py")
        for frame in event.stack
    )


def is_inner(event: Event, parent: Event | None, parent_is_leaf: bool) -> bool:
    """Whether an event is torch's own business: shown only when asked for.

    That is what torch functions call in turn, what the leaf modules of ``torch.nn`` do (no ``F.linear`` under
    every Linear), what an optimizer's step does, and the aten ops below all of these, as well as ops without a
    tensor (the profiler's marks). Changes of variables have a view of their own. Code of the program that torch
    calls back (a checkpointed block, a custom autograd function) is not inner; what a checkpoint computes once more in
    backward is, since it stands where it was computed first.
    """
    if is_recomputed(event):
        return True
    if event.kind == "variable" or (event.kind == "op" and not event.inputs and not event.outputs):
        return True
    if parent is None or event.kind not in ("function", "op"):
        return False
    if parent.kind == "step":
        return True
    if parent.kind in ("function", "op"):
        return event.kind == "op" or not event.direct
    return parent.kind == "module" and parent_is_leaf and (event.kind == "op" or called_by_torch(event))


def is_inner_at(events: Sequence[Event], nest: Nesting, at: int, parent: int) -> bool:
    """The same for an event by its number and that of the event around it (-1: none)."""
    around = events[parent] if parent >= 0 else None
    return is_inner(events[at], around, around is not None and parent not in nest.containers)


def visible_events(events: Sequence[Event]) -> list[Event]:
    """The events that are shown by default."""
    parents = [-1 if event.parent is None else event.parent for event in events]
    nest = nesting(events, parents)
    return [events[at] for at, parent in enumerate(parents) if not is_inner_at(events, nest, at, parent)]


def is_torch_helper(event: Event, parent: Event | None) -> bool:
    """Whether torch made this call inside an expression that is no event itself.

    ``opt.zero_grad()`` and ``clip_grad_norm_(…)`` are plain Python: only the functions they call are seen.
    What a layer of ``torch.nn`` does in its own ``forward`` is not meant: its event has the same place.
    """
    return (
        event.kind == "function"
        and not event.direct
        and event.location is not None
        and (parent is None or parent.location != event.location)
        and called_by_torch(event)
    )


def relative_path(event: Event, around: Event | None) -> str:
    """A module's path as seen from the module that encloses the call; a root goes by its label."""
    path = event.module or ""
    if around is None or around.root != event.root:
        label = event.root or event.name
        return f"{label}.{path}" if path else label
    outer = around.module or ""
    if outer and path.startswith(outer + "."):
        return path[len(outer) + 1 :]
    return path or event.root or event.name


_INDEX = re.compile(r"(?:^|, )\w*(?:idx|index|layer|number|_id)\w*=(\d+)(?=,|$)")


def settings_of(detail: str, path: str | None) -> str:
    """A module's settings, less the number that its path has already: ``layer_idx=5`` in ``h.5.attn``."""
    found = _INDEX.search(detail) if detail and path else None
    if found is None or path is None or found[1] not in path.split("."):
        return detail
    return (detail[: found.start()] + detail[found.end() :]).removeprefix(", ")


def split_index(path: str) -> tuple[str, int | None]:
    """``blocks.11`` is ``("blocks.", 11)``: the number of a layer among its like, None when it has none."""
    head, dot, last = path.rpartition(".")
    return (head + dot, int(last)) if last.isdecimal() and last.isascii() else (path, None)
