"""Closes the constructors of modules in the code view: the line that makes a module only counts the steps in it."""

from __future__ import annotations

from itertools import takewhile

from torchglass.program.fold import Item
from torchglass.program.frames import is_constructor, is_own
from torchglass.program.lines import CALL, LINE, STEP, LineTree, StackLines
from torchglass.views.code.steps import Steps
from torchglass.views.options import CodeOptions


def are_hidden(steps: Steps, options: CodeOptions) -> bool:
    """Return whether constructors are closed: not if nothing else ran, or if steps are selected or one failed."""
    if options.constructors or not options.fold or options.only is not None:
        return False
    distinct = steps.distinct
    samples = [distinct.samples[alike] for alike in {distinct.alike[step] for step in steps.chosen}]
    if any(event.error for event in samples):
        return False
    return any(not any(is_constructor(at.function) for at in event.stack) for event in samples)


class Constructors:
    """Finds the lines in the constructors of modules."""

    def __init__(self, shown: LineTree, lines: StackLines, steps: Steps) -> None:
        self._shown = shown
        self._nodes = shown.nodes
        self._lines = lines
        self._events = steps.events

    def without(self, item: Item) -> tuple[list[Item], list[int]]:
        """Return the children of a line without constructors, and how many steps these made each time it ran."""
        if self._nodes[item.nodes[0]].kind != LINE:
            return item.children, []
        others = [child for child in item.children if not self._is_constructor(_first(child))]
        if len(others) == len(item.children):
            return others, []
        sizes: list[int] = []
        for node in item.nodes:
            constructors = filter(self._is_constructor, self._shown.children_of(node))
            sizes.append(sum(self._nodes[child].size for child in constructors))
        return others, sizes

    def _is_constructor(self, node: int) -> bool:
        """Return whether a node is in the constructor of a module, and no module was called in it."""
        first = node
        while self._nodes[first].kind not in (LINE, STEP, CALL):
            first = self._nodes[first].children[0]
        here = self._nodes[first]
        if here.kind == STEP:
            return self._is_in_torch_module(here.number)
        if here.kind != LINE:
            return False
        if not is_constructor(self._lines.lines[here.number].where.function):
            return False
        pending = [node]
        is_module = False
        while pending:
            each = self._nodes[pending.pop()]
            if each.kind == CALL:
                return False
            if each.kind == STEP and self._events[each.number].owner is not None:
                is_module = True
            pending += each.children
        return is_module

    def _is_in_torch_module(self, step: int) -> bool:
        """Return whether a step is in the constructor of one of torch's modules, such as ``nn.Linear(4, 4)``."""
        event = self._events[step]
        inner_frames = takewhile(lambda at: not is_own(at), reversed(event.stack))
        return event.owner is not None and any(is_constructor(at.function) for at in inner_frames)


def _first(item: Item) -> int:
    while item.is_repeat:
        item = item.children[0]
    return item.nodes[0]
