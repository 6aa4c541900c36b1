"""What a parameter is called: the label of its root, the path of the module that holds it, and its own name there."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torchglass.journal.layout import NONE

if TYPE_CHECKING:
    from torch import nn

Known = tuple["weakref.ref[nn.Module]", str, str]
"""The module that holds a parameter, its name there, and its whole name."""


class ParameterNames:
    """The names of the parameters in the models that one session has seen called.

    No reference to a parameter is kept, not even a weak one, which ``swap_tensors`` would refuse.
    """

    def __init__(self, modules: dict[int, Any]) -> None:
        self._modules = modules
        """The session's own: modules that were called, each as a ``ModuleRow``."""
        self._known: dict[int, Known] = {}

    def names(self, tensors: list[Any]) -> list[str]:
        """A name for each, unlike the others; those that no model holds are numbered."""
        found = [self._name(each) for each in tensors]
        if not all(found):
            self._read()
            found = [self._name(each) for each in tensors]
        return [name or f"tensor {number}" for number, name in enumerate(found)]

    def _name(self, tensor: Any) -> str:
        known = self._known.get(id(tensor))
        module = None if known is None else known[0]()
        if known is None or module is None or module._parameters.get(known[1]) is not tensor:
            return ""
        return known[2]

    def _read(self) -> None:
        """Go through the models; a parameter that several hold has the name of the first."""
        self._known.clear()
        classes: dict[str, int] = {}
        for row in list(self._modules.values()):
            owner = row.module() if row.root == NONE else None
            if owner is not None:
                name = type(owner).__name__
                classes[name] = same = classes.get(name, 0) + 1
                self._read_model(owner, f"{name}#{same}" if same > 1 else name)

    def _read_model(self, owner: nn.Module, label: str) -> None:
        seen, pending = {id(owner)}, [(owner, label)]
        while pending:
            module, path = pending.pop()
            reference = weakref.ref(module)
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    self._known.setdefault(id(parameter), (reference, name, f"{path}.{name}"))
            fresh = [(name, child) for name, child in module._modules.items() if child is not None]
            for name, child in reversed(fresh):
                if id(child) not in seen:
                    seen.add(id(child))
                    pending.append((child, f"{path}.{name}"))
