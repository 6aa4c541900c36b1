"""Variables for nothing: every event knows the names that it was assigned to, which is the life of most tensors."""

from __future__ import annotations

from torchglass.events.types import Event
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.levels import Levels
from torchglass.views.stacks import is_own
from torchglass.views.text.cells import assigned_to
from torchglass.views.variables.changes import NOWHERE, PAST, Calls, Change, ChangesRead, side_of, values_in


def read_targets(trace: Recorded) -> ChangesRead:
    """The changes that the events of a trace tell of, in the files of the program itself."""
    reading, calls, own_values = ChangesRead(digest_of(trace)), Calls(), values_in(trace)
    digest = reading.digest
    reading.is_guessed, reading.levels = True, Levels(digest)
    named: dict[tuple[int, int], list[tuple[int, Event]]] = {}
    assigned = [bool(event.target) for event in digest.samples]
    for number, alike in enumerate(digest.alike):
        if not assigned[alike]:
            continue
        parent = digest.parents[number]
        key = (alike, digest.alike[parent] if parent >= 0 else -1)
        if key not in named:
            named[key] = _by_target(digest.samples[alike], digest.sample(parent) if parent >= 0 else None)
        if named[key] and not is_own(named[key][0][1].location or NOWHERE):
            reading.elsewhere += 1
            continue
        for at, event in named[key]:
            new = side_of("", (own_values(number)[1][at],)) if at >= 0 else side_of(event.result, ())
            call = calls.call_of(event, reading.levels.call_of(number, parent), "assigned", is_fresh=False)
            reading.changes.append(Change(number, event, "assigned", PAST, new, call, parent))
    return reading


def _by_target(event: Event, around: Event | None) -> list[tuple[int, Event]]:
    """For each name that was assigned to which of the results it got (-1: all of them), and a change like it."""
    targets, outputs = event.target, event.outputs
    if len(targets) == 1:
        places = [0 if len(outputs) == 1 else -1] if outputs or event.result not in ("", "None") else []
    elif any(name.startswith("*") for name in targets):
        places = []
    elif len(assigned_to(event)) == 1 and "," not in assigned_to(event)[0]:  # a = b = f(x): one result for both
        places = [0 if len(outputs) == 1 else -1] * len(targets)
    else:
        roles = {value.role: at for at, value in enumerate(outputs)}
        places = [roles.get(f"out[{at}]", -2) for at in range(len(targets))]
        if -2 in places:
            places = list(range(len(targets))) if len(outputs) == len(targets) else []
    code = f"{', '.join(assigned_to(event))} = {event.code}"
    if event.operator is not None and event.operator in event.code and event.operator.endswith("="):
        code = event.code
    module, root = (around.module, around.root) if around is not None else (None, None)
    event = event._replace(kind="variable", code=code, detail="assigned", module=module, root=root)
    inner = next((at for at in range(len(event.stack), 0, -1) if event.stack[at - 1].origin == "user"), 0)
    event = event._replace(stack=event.stack[:inner])  # where it is assigned, not where torch made it
    return [(place, event._replace(name=name)) for name, place in zip(targets, places, strict=False)]
