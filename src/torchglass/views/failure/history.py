"""How a value came to be: what made it, what that was made from, and where a size, a dtype or an order was born."""

from __future__ import annotations

from collections.abc import Callable

from torchglass.events.types import Event, Value
from torchglass.views.digest import Recorded

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
