"""The modules of a program as a tree, each with its calls."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from torchglass.events.types import ModuleInfo
from torchglass.program.dedup import DistinctEvents


class ModuleTree:
    """The modules, numbered in the order in which their models list them.

    The parent of a module is the nearest module above it that is known.
    """

    def __init__(self, infos: Sequence[ModuleInfo], distinct: DistinctEvents) -> None:
        self.infos = infos
        self.parent: list[int] = []
        """By module, the module that contains it; -1 for an outermost one."""
        self.calls: list[list[int]] = [[] for _ in infos]
        """By module, the events of its calls, in order."""
        self.all_calls: list[int] = []
        """The events of the calls of all modules, in order."""
        self._numbers = {(info.root, info.path): number for number, info in enumerate(infos)}
        for info in infos:
            self.parent.append(self._parent_of(info))
        self._find_calls(distinct)

    def __len__(self) -> int:
        return len(self.infos)

    def number_of(self, root: str, path: str) -> int:
        """Return the number of a module; -1 if it is not known."""
        return self._numbers.get((root, path), -1)

    def by_first_call(self) -> tuple[list[int], dict[int, list[int]]]:
        """Return the outermost modules, and for each module those directly in it, in the order of their first calls."""
        roots: list[int] = []
        children: dict[int, list[int]] = {}
        for module in sorted(range(len(self)), key=self._first_call):
            parent = self.parent[module]
            if parent >= 0:
                children.setdefault(parent, []).append(module)
            else:
                roots.append(module)
        return roots, children

    def _first_call(self, module: int) -> float:
        """Return the event of the first call of a module; infinity if it was not called."""
        calls = self.calls[module]
        if calls:
            return calls[0]
        return inf

    def name(self, module: int) -> str:
        """Return the path of a module relative to its parent; for an outermost one its label."""
        info = self.infos[module]
        parent = self.parent[module]
        outer = ""
        if parent >= 0:
            outer = self.infos[parent].path
        name = info.path
        if outer:
            name = name.removeprefix(outer + ".")
        return name or info.root

    def _parent_of(self, info: ModuleInfo) -> int:
        path = info.path
        while path:
            path = path.rpartition(".")[0]
            number = self._numbers.get((info.root, path))
            if number is not None:
                return number
        return -1

    def _find_calls(self, distinct: DistinctEvents) -> None:
        module_of_call: dict[int, int] = {}
        for sample, event in enumerate(distinct.samples):
            if event.kind == "module":
                module_of_call[sample] = self.number_of(event.root or "", event.module or "")
        for event_id, sample in enumerate(distinct.alike):
            module = module_of_call.get(sample)
            if module is None:
                continue
            self.all_calls.append(event_id)
            if module >= 0:
                self.calls[module].append(event_id)
