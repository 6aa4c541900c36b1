"""What marked tensors and arrays held: written to a file at once, or copied and kept in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from torchglass.capture.engine.host import Host
from torchglass.capture.torch.names import HAS_TORCH, Parameter, Tensor, no_subclasses
from torchglass.journal.layout import NUMBER_MASK

if TYPE_CHECKING or HAS_TORCH:
    import torch

    from torchglass.capture.torch import private

Write = Callable[[str, int, Any], bool]
"""(name, value, plain tensor or array) → whether its content is in a file now."""


class Copies:
    """What was kept of the values of one session."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        """The copies that are in memory, by the number of their value."""
        self.names: dict[int, str] = {}
        """The name under which each value was kept, here or elsewhere."""
        self.regions: dict[int, Any] = {}
        """Pieces of memory in which values lie side by side, by number (capture/statistics/saver.py)."""
        self._regions_made = 0
        self.on_forget: list[Callable[[int], None]] = []
        """Told before which value all are gone."""
        self.writers: list[Write] = []
        """Recordings that write contents to a file."""
        self.refusals: set[str] = set()
        """Why contents were not kept; a loop may mark ten thousand, and one note is enough."""

    def keep(self, name: str, value: int, original: Any, recordings: int) -> None:
        """Keep the content of a tensor or array as it is now; later writes do not reach what is kept.

        It stays in memory as long as one of the recordings has no file, or cannot write it to its own.
        """
        self.names[value & NUMBER_MASK] = name
        written = [read(original, lambda plain, write=write: write(name, value, plain)) for write in self.writers]
        if len(written) < recordings or not all(written):
            self.held[value & NUMBER_MASK] = read(original, _copied)

    def add_region(self, region: Any) -> int:
        """Remember a piece of memory; returns its number."""
        self.regions[self._regions_made] = region
        self._regions_made += 1
        return self._regions_made - 1

    def forget(self, first: int, last: int) -> None:
        """The events that told of these values are gone, and with them what was kept in memory."""
        for value in [each for each in self.held if first <= each < last]:
            del self.held[value]
        for each in self.on_forget:
            each(last)


def refuse(session: Host, name: str, where: str, reason: str) -> None:
    """Note that the content of a mark was not kept."""
    if reason not in session.copies.refusals:
        session.copies.refusals.add(reason)
        session.note(f"the content of the mark {name!r} is not {where}: {reason}")


def read(original: Any, use: Callable[[Any], Any]) -> Any:
    """Hand a plain tensor or array of the same content on, out of sight of the program's own modes.

    Inside of ``vmap`` it is the whole batch: one sample has no content of its own.
    """
    cls = type(original)
    if not issubclass(cls, Tensor):
        return use(original)
    # Entering it takes longer than to copy a small tensor.
    leave = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    with leave, no_subclasses():
        if cls is not Tensor and cls is not Parameter:
            return use(original.detach().clone())
        if private.functorch is not None and private.functorch.is_functorch_wrapped_tensor(original):
            return use(_copy_of_wrapped(original))
        with private.no_dispatch():
            return use(original.detach())


def _copied(plain: Any) -> Any:
    """A copy that shares no memory and no history with the original."""
    return plain.clone() if isinstance(plain, Tensor) else sys.modules["numpy"].array(plain, copy=True, subok=False)


def _copy_of_wrapped(original: Any) -> Any:
    """``vmap`` and ``grad`` hide tensors in others, which are of no use outside of them."""
    while private.functorch.is_functorch_wrapped_tensor(original):
        original = private.functorch.get_unwrapped(original)
    with private.without_transforms():
        return original.detach().clone()
