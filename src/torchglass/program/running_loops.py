"""Counts the iterations of one loop while the program tree is built.

An iteration *begins* when an event shows it (see ``build.py``). That may miss some, so the loop also counts how often
each of its *sure places* was passed: the places that every iteration passes exactly once. They prove the number of
iterations, and give the number of those that were dropped::

    for x in data:          # 10 iterations
        y = x.exp()         # a sure place: 10 events here are 10 iterations
        if y.sum() > 0:     # a sure place
            y.relu()        # not one: only some iterations come here

See ``sure_places.py``, also for those at which a function of the program is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchglass.events.missing import Missing
from torchglass.events.types import Location
from torchglass.program.frames import RunningFrame
from torchglass.program.sure_places import CallCounter, SurePlace
from torchglass.program.tree import Count, LoopRun
from torchglass.source.places import Loop, Place

CallPath = tuple[object, ...]
"""The place of a call in a loop, then the places in the functions called there, down to the call of a module."""
Module = tuple[str | None, str | None]
"""The root and the path of a module."""


@dataclass(slots=True, eq=False)
class RunningLoop:
    """What is known of the iterations of a loop up to the current event."""

    loop: Loop
    outer: int
    """The loop just around it; see ``LoopRun.outer``."""
    frame: RunningFrame
    """The frame that it runs in."""
    enclosing: int
    """The loop around it in the same frame; -1 if there is none."""
    begun: int = 0
    """How many iterations have begun."""
    kept: int = 0
    """How many of these have a node. The events of the others were dropped."""
    with_body: int = 0
    """How many iterations had an event after the head."""
    in_body: bool = False
    """Whether the last iteration had one."""
    is_told_apart: bool = False
    """Whether there was an event that every iteration makes, outside of the loops in it."""
    failed: bool = False
    """Whether an error left the last iteration."""
    sure_places: dict[Place, SurePlace] = field(default_factory=dict["Place", "SurePlace"])
    """The sure places at which events happened, or may have been dropped."""
    is_cut: bool = False
    """Whether events in it were dropped, and nothing shows how many iterations those were."""
    modules: dict[CallPath, Module] = field(default_factory=dict["CallPath", "Module"])
    """The modules called in it, by where they were called."""
    is_over_layers: bool = False
    """Whether different modules were called from one place. Then each iteration is a layer."""

    def begin_iteration(self) -> int:
        """Count an iteration that begins, and return its index."""
        index = self.begun
        self.begun += 1
        self.kept += 1
        self.in_body = False
        self.failed = False
        return index

    def note_body(self) -> None:
        """Note that the current iteration has an event after the head."""
        if not self.in_body:
            self.in_body = True
            self.with_body += 1

    def note_sure_place(self, place: Place, at: Location, counter: CallCounter | None) -> None:
        """Note that an event happened at a sure place in the current iteration, or in a call that is made there."""
        sure = self.sure_places.setdefault(place, SurePlace(at, counter))
        sure.events += 1
        current = self.begun - 1
        if sure.last_iteration < current:
            sure.iterations += 1
            sure.last_iteration = current

    def note_module(self, path: CallPath, module: Module) -> None:
        """Note which module was called at a place. Another one than before means a loop over layers."""
        if self.modules.setdefault(path, module) != module:
            self.is_over_layers = True

    def index_after_gap(
        self, missing: Missing, place_now: Place | None, inside: Sequence[Place | None] = ()
    ) -> int | None:
        """Return the index of the current iteration after dropped events; None if nothing shows it.

        Before the gap, the line ``y = x.exp()`` ran in 4 iterations; the gap dropped 10 more of its events. So 14
        iterations have passed it, and::

            for x in data:
                z = x.log()     # if place_now is here, the current iteration has not passed it: index 14
                y = x.exp()     # the sure place
                y.relu()        # if place_now is here, the current iteration was the 14th: index 13

        ``inside`` are the places in the functions that are called at ``place_now``. With ``place_now`` None the loop
        has ended, and the number of its iterations is returned.
        """
        completed = self.begun - 1
        estimates: list[int] = []
        for place, sure in self.sure_places.items():
            dropped = sure.count_dropped(missing)
            if dropped is None or sure.iterations < completed:
                # Some iterations have no event here, so the place does not count them.
                continue
            has_passed: bool | None = place_now is not None and place.order < place_now.order
            if sure.counter is not None and place is place_now:
                has_passed = sure.counter.is_before(inside)
            if has_passed is None:
                continue
            passed = sure.iterations + dropped
            if has_passed:
                passed -= 1
            estimates.append(passed)
        return max(estimates, default=None)

    def add_dropped(self, missing: Missing, begun: int) -> None:
        """Count dropped events; ``begun`` is how many iterations had begun by their end."""
        for sure in self.sure_places.values():
            sure.add_dropped(missing)
        self.with_body += begun - self.begun
        self.begun = begun
        if not missing.is_complete:
            self.is_cut = True

    @property
    def is_uncounted(self) -> bool:
        """Whether its iterations cannot be told apart; see ``LoopRun.is_uncounted``."""
        return self.begun == 1 and not self.sure_places

    def run(self, is_one_execution: bool) -> LoopRun:
        """Return what is known of the loop after its last event.

        ``is_one_execution`` is whether all its iterations are certain to be of one execution of the loop.
        """
        return LoopRun(
            count=self._count(is_one_execution),
            begun=self.begun,
            is_over_layers=self.is_over_layers,
            is_uncounted=self.is_uncounted,
            outer=self.outer,
            not_kept=self.begun - self.kept,
        )

    def _count(self, is_one_execution: bool) -> Count:
        """Return the number of iterations. Only events at a sure place prove that there were no more.

        If the last events are those of a ``while`` test, or of a step of the iterator, and none in the body follows,
        the loop may have ended there. So they are no iteration.
        """
        number = self.with_body
        are_all_seen = not self.is_cut and any(
            self._proves(place, sure, number) for place, sure in self.sure_places.items()
        )
        return Count(number, at_least=is_one_execution, at_most=are_all_seen)

    def _proves(self, place: Place, sure: SurePlace, number: int) -> bool:
        """Return whether the events at a sure place prove that there were ``number`` iterations."""
        if place.is_head:
            return self._head_proves(sure, number)
        if sure.iterations == number:
            return True
        # An error left the last iteration before it came to the place.
        are_all_but_last = sure.iterations == number - 1 == sure.last_iteration + 1
        return self.failed and are_all_but_last

    def _head_proves(self, sure: SurePlace, number: int) -> bool:
        """Return whether the events at a place in the head of the loop prove that there were ``number`` iterations.

        The head of a ``while`` that its test ended ran once more than the body.
        """
        if sure.iterations != self.begun or not number:
            return False
        is_ended_by_test = (
            not self.in_body and not self.loop.breaks and self.loop.text.startswith("while")
        )
        if is_ended_by_test:
            return self.begun == number + 1
        return self.begun == number
