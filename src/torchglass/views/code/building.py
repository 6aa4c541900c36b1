"""What constructors of modules do is no step of a computation: the line that builds one says how many there were."""

from __future__ import annotations

from itertools import takewhile

from torchglass.views.code import Options
from torchglass.views.code.forest import CALL, LINE, STEP, CodeForest
from torchglass.views.code.steps import Steps
from torchglass.views.fold import TOGETHER, Item
from torchglass.views.stacks import is_constructor, is_own


def hides_constructors(steps: Steps, options: Options) -> bool:
    """Whether constructors stay closed: not where nothing else ran, nor where something failed or was asked for."""
    if options.constructors or not options.fold or options.only is not None:
        return False
    samples = [steps.digest.samples[alike] for alike in {steps.digest.alike[step] for step in steps.chosen}]
    ends_well = not any(event.error for event in samples)
    return ends_well and any(not any(is_constructor(at.function) for at in event.stack) for event in samples)


def without_built(forest: CodeForest, item: Item) -> tuple[list[Item], list[int]]:
    """What is in a line but constructors of modules, and how many steps those made, each time that it ran."""
    if forest.nodes[item.nodes[0]].kind != LINE:
        return item.children, []
    others = [child for child in item.children if not _is_in_constructor(forest, _first(child))]
    if len(others) == len(item.children):
        return others, []
    below = [[child for child in forest.below(node) if _is_in_constructor(forest, child)] for node in item.nodes]
    return others, [sum(forest.nodes[child].size for child in each) for each in below]


def _first(item: Item) -> int:
    while item.nodes == [TOGETHER]:
        item = item.children[0]
    return item.nodes[0]


def _is_in_constructor(forest: CodeForest, node: int) -> bool:
    """Whether a node is in the constructor of a module, and no module was called there."""
    first = node
    while forest.nodes[first].kind not in (LINE, STEP, CALL):
        first = forest.nodes[first].children[0]
    here = forest.nodes[first]
    if here.kind == STEP:
        return _is_in_torchs(forest, here.number)
    if here.kind != LINE or not is_constructor(forest.lines.lines[here.number].where.function):
        return False
    pending, is_module = [node], False
    while pending:
        each = forest.nodes[pending.pop()]
        if each.kind == CALL:
            return False
        is_module = is_module or (each.kind == STEP and forest.steps.events[each.number].owner is not None)
        pending += each.children
    return is_module


def _is_in_torchs(forest: CodeForest, step: int) -> bool:
    """Whether a step of the line itself is in the constructor of one of torch's modules, as in ``nn.Linear(4, 4)``."""
    digest = forest.steps.digest
    event = digest.samples[digest.alike[step]]
    below = takewhile(lambda at: not is_own(at), reversed(event.stack))
    return event.owner is not None and any(is_constructor(at.function) for at in below)
