"""Decides when the steps of a running program can be printed, for Tracy NN's format.

When a call opens it is not known whether others will be inside. So nothing is printed of it yet:

- if a step inside it opens, its *head* is printed first, and its *tail* when it closes. It is a
  *container* if a module is called inside it;
- if it closes before, the *whole* call is printed at once.

What torch calls inside a module is *held back*. If a module is called in it, it is a container, and
the steps are printed. If none is, they are forgotten: there is no ``F.linear`` under a Linear.
"""

from __future__ import annotations

from typing import NamedTuple

from torchglass.events.types import Event
from torchglass.program.inner import called_by_torch, is_inner
from torchglass.program.paths import relative_path


class LiveStep(NamedTuple):
    """Something to print: the ``head`` of a call with others inside, its ``tail``, or a ``whole`` call."""

    part: str
    event: Event
    depth: int
    name: str


class _RunningCall:
    """A running call, with the running calls around it. They are found once, because they do not
    change.
    """

    __slots__ = (
        "decided_by", "depth", "event", "has_head", "held_back", "is_container", "is_shown", "module_around", "name",
        "parent", "shown_above",
    )  # fmt: skip

    def __init__(self, event: Event, parent: _RunningCall | None) -> None:
        self.event = event
        self.parent = parent
        self.module_around: _RunningCall | None = None
        """The innermost module that this call is in."""
        self.shown_above: _RunningCall | None = None
        """The innermost call around this one that is shown or may still be shown."""
        if parent is not None:
            self.module_around = parent.innermost_module()
            self.shown_above = parent.innermost_shown()
        self.depth = 0
        if self.shown_above is not None:
            self.depth = self.shown_above.depth + 1
        self.name = ""
        """For a module: its path, relative to the module around it."""
        self.is_shown = True
        self.has_head = False
        """Whether its head was printed."""
        self.is_container = False
        self.decided_by: _RunningCall | None = None
        """For a call that torch may have made internally: the module that decides whether it is
        shown.
        """
        self.held_back: list[LiveStep] = []
        """For a module: the steps that are shown if it is a container."""

    def innermost_module(self) -> _RunningCall | None:
        """Return the innermost module that is running here."""
        if self.event.kind == "module":
            return self
        return self.module_around

    def innermost_shown(self) -> _RunningCall | None:
        """Return the innermost running call that is shown or may still be shown."""
        if self.is_shown or self.decided_by is not None:
            return self
        return self.shown_above


Place = tuple[str | bool | int | None, ...]
"""What of a call affects the output of calls inside it: its kind, whether it is a container and shown, how deep they
are and, for modules, in which one they are called."""


class LiveSteps:
    """Turns the two edges of events, their begin and their end, into steps to print."""

    def __init__(self) -> None:
        self._running: dict[int, _RunningCall] = {}

    def feed(self, event: Event, edge: str) -> list[LiveStep]:
        """Return the steps that can be printed now; ``edge`` is ``open`` or ``close``."""
        if edge == "open":
            return self._opened(event)
        return self._closed(event)

    def is_silent(self, parent: int, is_module: bool) -> bool:
        """Return whether nothing is printed when a call begins inside ``parent``."""
        around = self._running.get(parent)
        if around is None:
            return False
        shown = around.innermost_shown()
        if shown is not None and not shown.has_head:
            return False
        if not is_module:
            return True
        module = around.innermost_module()
        return module is None or module.is_container

    def place(self, parent: int, is_module: bool) -> Place:
        """Return the place of a call inside ``parent``."""
        around = self._running.get(parent)
        if around is None:
            return ()
        depth = 0
        shown = around.innermost_shown()
        if shown is not None:
            depth = shown.depth + 1
        place = (around.event.kind, around.is_container, around.is_shown, depth)
        module = None
        if is_module:
            module = around.innermost_module()
        if module is None:
            return place
        return (*place, module.event.root, module.event.module)

    def whole(self, event: Event, parent: int) -> list[LiveStep]:
        """Return the steps of a call inside ``parent`` that opened silently and in which nothing happened."""
        call = self._running_call(event, self._running.get(parent))
        return self._steps_at_end(call, event)

    def _running_call(self, event: Event, parent: _RunningCall | None) -> _RunningCall:
        call = _RunningCall(event, parent)
        if event.kind == "module":
            around = None
            if call.module_around is not None:
                around = call.module_around.event
            call.name = relative_path(event, around)
        if parent is None:
            call.is_shown = not is_inner(event, None, False)
            return call
        call.is_shown = not is_inner(event, parent.event, not parent.is_container)
        is_in_shown_module = parent.event.kind == "module" and parent.is_shown
        if not call.is_shown and is_in_shown_module and called_by_torch(event):
            call.decided_by = parent
        return call

    def _opened(self, event: Event) -> list[LiveStep]:
        parent = None
        if event.parent is not None:
            parent = self._running.get(event.parent)
        call = self._running_call(event, parent)
        self._running[event.id] = call
        if not call.is_shown:
            return []
        steps: list[LiveStep] = []
        if event.kind == "module" and call.module_around is not None:
            steps += self._make_container(call.module_around)
        return steps + _heads_above(call)

    def _make_container(self, module: _RunningCall) -> list[LiveStep]:
        """Return the steps that were held back for a module, because a module is called inside it."""
        if module.is_container:
            return []
        module.is_container = True
        steps = _missing_heads(module) + module.held_back
        module.held_back = []
        for call in list(self._running.values()):
            if call.decided_by is module:
                call.decided_by = None
                call.is_shown = True
        return steps

    def _closed(self, event: Event) -> list[LiveStep]:
        call = self._running.pop(event.id, None)
        if call is None:
            return []
        return self._steps_at_end(call, event)

    def _steps_at_end(self, call: _RunningCall, event: Event) -> list[LiveStep]:
        part = "whole"
        if call.has_head:
            part = "tail"
        step = LiveStep(part, event, call.depth, call.name)
        if call.decided_by is not None:
            call.decided_by.held_back.append(step)
        if call.is_shown:
            return [step]
        return []


def _heads_above(call: _RunningCall) -> list[LiveStep]:
    """Return the heads that have to be printed before a call."""
    if call.shown_above is None:
        return []
    return _missing_heads(call.shown_above)


def _missing_heads(call: _RunningCall) -> list[LiveStep]:
    """Return the heads of a call and those around it that have none yet, outermost first."""
    steps: list[LiveStep] = []
    around: _RunningCall | None = call
    while around is not None and not around.has_head:
        if around.is_shown:
            around.has_head = True
            steps.append(LiveStep("head", around.event, around.depth, around.name))
        around = around.parent
    return steps[::-1]
