"""Offers torchspy's ``CallTracer``, which uses forward hooks to list a model's modules in the order of their calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from torchglass.compat.torchspy._base import (
    LONGEST,
    BaseDebugger,
    Classes,
    Filter,
    Names,
    allowed,
    file_name,
)
from torchglass.events.spelling import clean
from torchglass.store.layout import whole_file


class CallTracer(BaseDebugger):
    """Adds the path of each hooked module to ``call_trace`` when its forward returns.

    So a module comes after the modules that it called, and a module whose forward raised is not in the list.
    ``with tracer:`` begins a new trace and enables it for the block. A module with two paths is listed under the first.
    Like any forward hook, these hooks make torch's TransformerEncoderLayer leave its fused path.
    """

    def __init__(self, output_dir: str | Path, enabled: bool = True) -> None:
        super().__init__(output_dir, enabled)
        self.call_trace: list[str] = []
        self.hooks: list[RemovableHandle] = []
        self._hook_of: dict[int, RemovableHandle] = {}
        self._enabled_before: list[bool] = []

    def register_hooks(
        self,
        model: nn.Module,
        target_classes: Classes = (nn.Module,),
        target_names: Names = None,
        exclude_names: Names = None,
    ) -> None:
        """Hook the modules of a model that the filters select (see ``TensorSaver.register_modules``).

        Call this again after modules were added. A module that has a hook does not get a second one.
        """
        for path, module in Filter.of(target_classes, target_names, exclude_names).of_model(model):
            if self.get_module_path(module) != "unknown":
                self._unhook(module)
            self._register(module, path)
            handle = module.register_forward_hook(self._hook(path))
            self.hooks.append(handle)
            self._hook_of[id(module)] = handle

    def get_trace(self) -> list[str]:
        """Return a copy of ``call_trace``."""
        return self.call_trace.copy()

    def reset_trace(self) -> None:
        """Forget the calls so far."""
        self.call_trace.clear()

    def save_trace(self, filename: str | Path = "call_trace.txt") -> Path:
        """Write the calls, one path a line, to a file below the output folder, and return its path.

        Missing folders are made. Characters that cannot be printed, such as a newline in a module's name, are escaped:
        as ``\\n`` in the text, and as in URLs (``%0A``) in the file's name. A file name that is too long is cut.
        """
        path = self.output_dir / filename
        if not path.name.isprintable() or len(path.name.encode()) > LONGEST:
            stem, dot, suffix = path.name.rpartition(".")
            path = path.parent / file_name(stem, dot + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{clean(call)}\n" for call in self.get_trace())
        with whole_file(path) as draft:
            draft.write_bytes(text.encode())
        return path

    def remove_hooks(self) -> None:
        """Remove all hooks. ``call_trace`` stays as it is."""
        for handle in self.hooks:
            handle.remove()
        self.hooks.clear()
        self._hook_of.clear()

    def __enter__(self) -> CallTracer:
        self._enabled_before.append(self.enabled)
        self.enabled = allowed()
        self.reset_trace()
        return self

    def __exit__(self, *_: object) -> None:
        self.enabled = self._enabled_before.pop()

    def _hook(self, path: str) -> Callable[..., None]:
        def note(module: nn.Module, args: Any, output: Any) -> None:
            if self.enabled:
                self.call_trace.append(path)

        return note

    def _unhook(self, module: nn.Module) -> None:
        handle = self._hook_of.pop(id(module), None)
        if handle is not None:
            handle.remove()
            self.hooks.remove(handle)
