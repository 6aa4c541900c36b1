"""Names parameters, for optimizer steps and gradients.

A name is the label of the root module, the path of the module that holds the parameter, and its name in that module:
``Net.encoder.0.weight``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torchglass.journal.layout import NONE

if TYPE_CHECKING:
    from torch import nn

Known = tuple["weakref.ref[nn.Module]", str, str]
"""The module that holds a parameter, the parameter's name in that module, and its whole name."""


class ParameterNames:
    """The names of the parameters in the models that one session has seen called.

    No reference to a parameter is kept, not even a weak one, which ``swap_tensors`` would refuse.
    """

    def __init__(self, modules: dict[int, Any]) -> None:
        self._modules = modules
        """The table of called modules that the session updates, each as a ``ModuleAtPath``."""
        self._known: dict[int, Known] = {}
        self._labels: dict[int, str] = {}
        """The labels of root modules, keyed by row. A label is never used again, even if its module has been freed."""
        self._classes: dict[str, int] = {}
        """How many root modules of a class name have a label."""

    def names(self, tensors: list[Any]) -> list[str]:
        """Return a unique name for each tensor. A tensor that no model holds gets a name such as ``tensor 3``."""
        found = [self._name(each) for each in tensors]
        if not all(found):
            self._read()
            found = [self._name(each) for each in tensors]
        return [name or f"tensor {number}" for number, name in enumerate(found)]

    def _name(self, tensor: Any) -> str:
        known = self._known.get(id(tensor))
        module = None
        if known is not None:
            module = known[0]()
        if known is None or module is None or module._parameters.get(known[1]) is not tensor:
            return ""
        return known[2]

    def _read(self) -> None:
        """Read the names from all models. If several models hold a parameter, it gets its name in the first."""
        self._known.clear()
        for row in list(self._modules.values()):
            owner = None
            if row.root == NONE:
                owner = row.module()
            if owner is not None:
                label = self._labels.get(row.number)
                if label is None:
                    label = self._labels[row.number] = self._new_label(type(owner).__name__)
                self._read_model(owner, label)

    def _new_label(self, name: str) -> str:
        """Return the label of one more root module of a class: ``Net``, then ``Net#2``."""
        same = self._classes[name] = self._classes.get(name, 0) + 1
        if same > 1:
            return f"{name}#{same}"
        return name

    def _read_model(self, owner: nn.Module, label: str) -> None:
        seen = {id(owner)}
        pending = [(owner, label)]
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
