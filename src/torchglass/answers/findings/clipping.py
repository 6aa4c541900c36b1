"""Gradients are clipped where it has no effect: after the step, or while they are scaled.

`clip_grad_norm_` changes the gradients that are there. After `step()` these are cleared before the next backward; with
a `GradScaler` they are 65,536 times too large until `scaler.unscale_(optimizer)`, so that clipping makes them tiny.

    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)    # wrong: belongs between the two lines above
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchglass.answers.findings.parameters import Times, additions
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at
from torchglass.events.gradients import OVERFLOW_CHECK

CLIPPERS = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
Line = tuple[str, int]
"""A file and a line in it."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A torch call inside a clipping function that reads or changes gradients."""

    event: int
    name: str
    parameters: tuple[int, ...]
    """The parameters of these gradients, without those that no optimizer updates."""


def find(facts: Facts) -> Iterator[Suspicion]:
    calls = _calls_by_line(facts)
    yield from _clips_of_nothing(facts, calls)
    if not calls or not facts.steps or not facts.accumulations:
        return
    steps: Times = defaultdict(list)
    for step in facts.steps:
        for parameter in step.held:
            steps[parameter].append(step.event)
    added = additions(facts)
    owners = _owners_of_gradients(facts)
    unscaled = sorted(
        event
        for events in facts.by_name.get(_plain(OVERFLOW_CHECK), {}).values()
        for event in events
    )
    for events in calls.values():
        clips = list(_clips(facts, events, owners, steps))
        if not clips:
            continue
        first = clips[0]
        if all(_is_late(clip, steps, added) for clip in clips) and not _accumulates(
            first, steps, added
        ):
            step = _last(steps[first.parameters[0]], first.event)
            yield Suspicion(
                severity=BUG,
                event=first.event,
                text="gradients are clipped after the step that used them: clipping has no effect",
                evidence=(seen_at(facts, "the step", step),),
                fix="clip between backward() and step()",
                times=_times(clips),
            )
        elif unscaled and all(_is_scaled(clip, unscaled, added) for clip in clips):
            yield Suspicion(
                severity=BUG,
                event=first.event,
                text="gradients are clipped while they are scaled by a GradScaler",
                fix="call scaler.unscale_(optimizer) before clipping",
                times=_times(clips),
            )


def _is_late(clip: Clip, steps: Times, added: Times) -> bool:
    """Return whether a step used the gradients after the last backward, before they were clipped."""
    return all(
        _last(steps[each], clip.event) > _last(added[each], clip.event) for each in clip.parameters
    )


def _is_scaled(clip: Clip, unscaled: Sequence[int], added: Times) -> bool:
    """Return whether backward added to the gradients after the last ``unscale_``."""
    last_unscaled = _last(unscaled, clip.event)
    return all(last_unscaled < _last(added[each], clip.event) for each in clip.parameters)


def _accumulates(clip: Clip, steps: Times, added: Times) -> bool:
    """Return whether gradients outlive steps, so that clipping after one may be meant for the next."""
    return any(len(steps[each]) == 1 and len(added[each]) == 1 for each in clip.parameters)


def _times(clips: Sequence[Clip]) -> int:
    """Return how often gradients were clipped: each time torch makes several calls."""
    return max(Counter((clip.name, clip.parameters[0]) for clip in clips).values())


def _clips_of_nothing(facts: Facts, calls: dict[Line, list[int]]) -> Iterator[Suspicion]:
    """Find clipping of an empty list: ``model.parameters()`` can be iterated over only once."""
    if not facts.accumulations:
        return
    found: dict[Line, list[int]] = {}
    for look, events in facts.by_name.get("tensor", {}).items():
        locations = ()
        if look[0] >= 0:
            locations = facts.tables.stack_locations(look[0])
        if any(at.function in CLIPPERS and at.origin == "torch" for at in locations[-3:]):
            found.setdefault(_line(facts, events[0]), []).extend(events)
    for line, events in found.items():
        if line in calls:
            continue  # at other times there are gradients
        yield Suspicion(
            severity=BUG,
            event=min(events),
            text="no gradient is clipped: it is given no parameter that has one",
            fix="pass model.parameters() anew; what it returned before can be gone through only once",
            times=len(events),
        )


def _plain(name: str) -> str:
    return name.rpartition(".")[2]


def _last(events: Sequence[int], before: int) -> int:
    """Return the last of some events before another one; -1: there is none."""
    at = bisect_right(events, before)
    if at:
        return events[at - 1]
    return -1


def _line(facts: Facts, event: int) -> Line:
    location = facts.location(event)
    if location is None:
        return "", 0
    return location.file, location.line


def _owners_of_gradients(facts: Facts) -> dict[int, int]:
    """Return the parameter of each gradient, keyed by the gradient's memory."""
    found: dict[int, int] = {}
    for each in (*facts.accumulations, *facts.steps):
        for parameter, gradient in each.gradients.items():
            storage = facts.storage(gradient)
            if storage >= 0:
                found[storage] = parameter
    return found


def _clips(
    facts: Facts, events: Sequence[int], owners: dict[int, int], steps: Times
) -> Iterator[Clip]:
    """Yield those of some calls that take gradients of parameters that an optimizer updates."""
    for event in events:
        taken = (owners.get(facts.storage(value)) for value in facts.takes[event])
        parameters = tuple(each for each in taken if each is not None and each in steps)
        if parameters:
            yield Clip(event, facts.name(event), parameters)


def _calls_by_line(facts: Facts) -> dict[Line, list[int]]:
    """Return the torch calls inside torch's own clipping functions, by the line that clips."""
    found: dict[Line, list[int]] = {}
    tables = facts.tables
    for name in ("_foreach_norm", "vector_norm", "norm", "_foreach_clamp_min_", "clamp_", "_foreach_mul_", "mul_",
                 "_foreach_clamp_max_", "linalg_vector_norm"):  # fmt: skip
        for look, events in facts.by_name.get(name, {}).items():
            locations = ()
            if look[0] >= 0:
                locations = tables.stack_locations(look[0])
            if any(at.function in CLIPPERS and at.origin == "torch" for at in locations[-4:]):
                found.setdefault(_line(facts, events[0]), []).extend(events)
    return {line: sorted(events) for line, events in found.items()}
