"""Copies of tensors and arrays as they were: kept in memory, or handed on to be written to a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchglass.capture.rooms import SMALLEST, Rooms
from torchglass.capture.torch_names import HAS_TORCH, Parameter, Tensor, no_subclasses

if TYPE_CHECKING:
    from torchglass.capture.session import Session
if TYPE_CHECKING or HAS_TORCH:
    import torch

    _functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]

Hand = Callable[[str, int, Any], bool]
"""(name, value, copy) → whether the copy was taken over; if not, it stays in memory."""


class Copies:
    """What was kept of the values of one session."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        """The copies that are in memory, by the number of their value."""
        self.names: dict[int, str] = {}
        """The name under which each value was kept, here or elsewhere."""
        self.hands: list[Hand] = []
        """Recordings that write copies to a file."""
        self._rooms = Rooms()
        """Where copies are made that nobody holds in memory."""
        self.refusals: set[str] = set()
        """Why contents were not kept; a loop may mark ten thousand, and one note is enough."""

    def keep(self, name: str, value: int, original: Any, recordings: int) -> None:
        """Copy a tensor or array now; later writes do not reach the copy.

        It stays in memory as long as one of the recordings has no file, or cannot write it to its own.
        """
        self.names[value] = name
        copy = copy_of(original, self._rooms if len(self.hands) >= recordings else None)
        taken = [hand(name, value, copy) for hand in self.hands]
        if len(taken) < recordings or not all(taken):
            self.held[value] = copy


def refuse(session: Session, name: str, where: str, reason: str) -> None:
    """Note that the content of a mark was not kept."""
    if reason not in session.copies.refusals:
        session.copies.refusals.add(reason)
        session.notes[f"the content of the mark {name!r} is not {where}: {reason}"] = None


def copy_of(original: Any, rooms: Rooms | None = None) -> Any:
    """A copy that shares no memory and no history with the original, made out of sight of the program's own modes.

    With ``rooms`` only its bytes matter: those of a large tensor go into a room, side by side.
    Inside of ``vmap`` it is the whole batch: one sample has no content of its own.
    """
    cls = type(original)
    if not issubclass(cls, Tensor):
        return sys.modules["numpy"].array(original, copy=True, subok=False)
    with torch.inference_mode(False), no_subclasses():
        if cls is not Tensor and cls is not Parameter:
            return original.detach().clone()
        if _functorch.is_functorch_wrapped_tensor(original):
            return _copy_of_wrapped(original)
        with torch._C._DisableTorchDispatch():  # pyright: ignore[reportAttributeAccessIssue]
            plain = original.detach()
            return plain.clone() if rooms is None or not _is_large(plain) else _copy_in(rooms, plain)


def _is_large(plain: Any) -> bool:
    if not plain.is_cpu or plain.layout is not torch.strided or plain.is_nested or plain.is_quantized:
        return False
    return plain.nbytes >= SMALLEST


def _copy_in(rooms: Rooms, plain: Any) -> Any:
    room = torch.frombuffer(rooms.take(plain.nbytes), dtype=torch.uint8, count=plain.nbytes)
    return room.view(plain.dtype).view(plain.shape).copy_(plain)


def _copy_of_wrapped(original: Any) -> Any:
    """``vmap`` and ``grad`` hide tensors in others, which are of no use outside of them."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    while _functorch.is_functorch_wrapped_tensor(original):
        original = _functorch.get_unwrapped(original)
    with temporarily_clear_interpreter_stack():
        return original.detach().clone()
