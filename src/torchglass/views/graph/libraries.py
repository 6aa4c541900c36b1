"""Puts the steps that a library runs around a model, such as the masks and checks of ``generate``,
into one box::

    input_ids                    input_ids
    ones        transformers     in transformers    (one box with five inside)
    cumsum      transformers     model
    masked_fill transformers
    eq          transformers
    any         transformers
    model
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchglass.events.selection import is_installed
from torchglass.events.types import Event
from torchglass.views.graph.outline import NOTHING, Box, Outline

MIN_STEPS = 4
"""How many consecutive steps of a library are put into a box. Fewer stay as they are."""
_PACKAGE = re.compile(r"(?:site|dist)-packages[/\\]([^/\\.]+)")


def group_libraries(outline: Outline) -> None:
    """Put consecutive steps that an installed package runs outside of any layer into one box, and
    renumber all boxes. This changes the outline.

    Inside a layer every step matters, whoever wrote it. Steps that contain a layer stay as they
    are.
    """
    outline.top = _Grouping(outline).grouped(outline.top)
    outline.number_boxes()


class _Grouping:
    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._packages: dict[int, str] = {}
        """By the id of a box, the package that runs everything in it. The outline keeps all boxes
        alive, so no two of them share an id.
        """

    def grouped(self, boxes: Sequence[Box]) -> list[Box]:
        """Return sibling boxes, with consecutive steps of one library put together, also inside
        loops and calls.
        """
        result: list[Box] = []
        run: list[Box] = []  # consecutive boxes of one package, not yet in the result
        for box in boxes:
            package = self._package(box)
            if run and package != self._package(run[0]):
                result += self._as_one(run)
                run = []
            if package:
                run.append(box)
                continue
            if self._is_between_layers(box):
                box.children = self.grouped(box.children)
            result.append(box)
        return result + self._as_one(run)

    def _is_between_layers(self, box: Box) -> bool:
        """Return whether a box is a loop or a call, not a layer."""
        events = self._outline.events_of(box)
        return not events or self._outline.events[events[0]].kind == "call"

    def _as_one(self, run: list[Box]) -> list[Box]:
        """Return one box for consecutive boxes. If there are few, return them as they are.

        The new box stands for one node in each execution of the box around it in which one of its
        children ran. What was the number of an execution of the box around becomes, in the
        children, the number of an execution of the new box::

            executions of the box around         0   1   2   3
            the run's boxes ran in                   1       3
            executions of the new box                0       1
        """
        if len(run) < MIN_STEPS:
            return run
        extents: dict[int, tuple[int, int]] = {}
        """By execution of the box around: the places of the first and the last node of the run."""
        for box in run:
            for slot, (first, last) in zip(box.slots, box.extents, strict=True):
                low, high = extents.get(slot, (first, last))
                extents[slot] = min(low, first), max(high, last)
        slots = sorted(extents)
        new_slots = {slot: number for number, slot in enumerate(slots)}
        for box in run:
            box.slots = [new_slots[slot] for slot in box.slots]
        group = Box(
            nodes=[NOTHING] * len(slots),
            slots=slots,
            runs=list(slots),
            extents=[extents[slot] for slot in slots],
            library=self._package(run[0]),
            children=run,
        )
        return [group]

    # ------------------------------------------------------------ whose a step is

    def _package(self, box: Box) -> str:
        """Return the installed package that runs everything in a box.

        It is empty if there are several packages, or if the user's code or a layer is among it.
        """
        package = self._packages.get(id(box))
        if package is None:
            package = self._packages[id(box)] = self._find_package(box)
        return package

    def _find_package(self, box: Box) -> str:
        packages = {self._package(child) for child in box.children}
        packages |= {
            _package_of(self._outline.events[event]) for event in self._outline.events_of(box)
        }
        if len(packages) == 1:
            return packages.pop()
        return ""


def _package_of(event: Event) -> str:
    """Return the installed package whose code made a call; "" for other events and failed calls."""
    at = event.location
    if event.kind not in ("function", "op", "call") or event.error:
        return ""
    if at is None or not is_installed(at.file):
        return ""
    package = _PACKAGE.search(at.file)
    if package is None:
        return ""
    return package[1]
