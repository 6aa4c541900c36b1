"""Offers torchspy's ``DebugContext``, which decides where ``spy_save`` saves. Contexts may be nested."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor, nn

from torchglass.capture.marks import recording_log, write_mark
from torchglass.events.spelling import clean

logger = logging.getLogger(__name__)

# The contexts themselves, not tokens: a token fits only where it was made, and a context may be entered
# by several threads, twice by one, or left in another order by generators.
_contexts: ContextVar[tuple[DebugContext, ...]] = ContextVar("torchspy_contexts", default=())
contexts_here = _contexts.get


class Saver(Protocol):
    """The methods of a TensorSaver that a context uses."""

    def get_module_path(self, module: nn.Module, /) -> str:
        """Return the module's path, or ``"unknown"``."""
        ...

    def save(self, name: str, tensor: Tensor, /) -> None:
        """Save the tensor under a name."""
        ...


class DebugContext:
    """``with DebugContext(saver, prefix="step0"):`` makes ``spy_save`` save.

    Each thread and each asyncio task has its own contexts, and ``spy_save`` uses the innermost open one.
    ``module_path_override`` replaces the module's path in all names.
    """

    def __init__(
        self, saver: Saver, prefix: str = "", module_path_override: str | None = None
    ) -> None:
        self.saver = saver
        self.prefix = prefix
        self.module_path_override = module_path_override
        self._warned: set[str] = set()

    @property
    def debugger(self) -> Saver:
        """The saver, under its older name."""
        return self.saver

    def __enter__(self) -> DebugContext:
        _contexts.set((*_contexts.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        under_way = _contexts.get()
        for at in reversed(range(len(under_way))):
            if under_way[at] is self:
                _contexts.set(under_way[:at] + under_way[at + 1 :])
                return

    def _save(self, name: str, tensor: Tensor, module: nn.Module | None = None) -> None:
        path = self._path(module)
        if path == "unknown":
            self._warn(name, module)
            return
        if self.prefix:
            full_name = f"{self.prefix}.{path}.{name}"
        else:
            full_name = f"{path}.{name}"
        self.saver.save(full_name, tensor)
        log = recording_log()
        if log is not None:
            write_mark(log, full_name, tensor, 2)

    def _path(self, module: nn.Module | None) -> str:
        if self.module_path_override is not None:
            return self.module_path_override
        if module is None:
            return "manual"
        return self.saver.get_module_path(module)

    def _warn(self, name: str, module: object) -> None:
        """Warn once for each name and class in this context, so that a loop does not fill the log."""
        text = (
            f"Module path unknown: spy_save({clean(str(name))!r}) saved nothing, the saver does not know this "
            f"{clean(type(module).__name__)}; register it: saver.register_modules(model)"
        )
        if text not in self._warned:
            self._warned.add(text)
            logger.warning(text)


def get_debug_context() -> DebugContext | None:
    """Return the innermost open context in this thread or task, or None."""
    under_way = contexts_here()
    if under_way:
        return under_way[-1]
    return None
