"""The modules of a program as a tree, each with its calls."""

from __future__ import annotations

from collections.abc import Sequence

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
        after_all_calls = 1 << 62
        first = [calls[0] if calls else after_all_calls for calls in self.calls]
        roots: list[int] = []
        children: dict[int, list[int]] = {}
        for module in sorted(range(len(self)), key=first.__getitem__):
            parent = self.parent[module]
            if parent >= 0:
                children.setdefault(parent, []).append(module)
            else:
                roots.append(module)
        return roots, children

    def name(self, module: int) -> str:
        """Return the path of a module relative to its parent; for an outermost one its label."""
        info = self.infos[module]
        parent = self.parent[module]
        outer = ""
        if parent >= 0:
            outer = self.infos[parent].path
        if outer:
            name = info.path[len(outer) + 1 :]
        else:
            name = info.path
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
        is_call = [event.kind == "module" for event in distinct.samples]
        called = [
            self.number_of(event.root or "", event.module or "") for event in distinct.samples
        ]
        for number, alike in enumerate(distinct.alike):
            if not is_call[alike]:
                continue
            module = called[alike]
            self.all_calls.append(number)
            if module >= 0:
                self.calls[module].append(number)
