"""What tensors and arrays held: copies of it, bytes that leave for a file without one, and tensors of them again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchglass.capture.engine.host import Host
from torchglass.capture.torch.names import HAS_TORCH, Parameter, Tensor, no_subclasses
from torchglass.capture.transparency.ours import unseen
from torchglass.errors import NotRecorded
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


# ---------------------------------------------------------------- as bytes

PIECE = 1 << 24
"""The most bytes of what does not lie side by side on this machine that are brought here at once."""


class FileContent(NamedTuple):
    """What a file keeps of a tensor."""

    pieces: Iterator[memoryview]
    """Its bytes, in order; each piece is to be used before the next is asked for."""
    length: int
    dtype: str
    shape: tuple[int, ...]


class TensorBytes(Protocol):
    """A tensor as a bundle gives it back; strides count elements."""

    @property
    def data(self) -> memoryview: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def stride(self) -> tuple[int, ...]: ...
    @property
    def storage_offset(self) -> int: ...


class CannotKeep(Exception):
    """There are no plain bytes to keep; the text says why."""


def content_pieces(plain: Any) -> FileContent:
    """The bytes of a tensor without history and subclass, or of an array; read from where they lie."""
    if not issubclass(type(plain), Tensor):
        return _pieces_of_array(plain)
    if plain.layout is not torch.strided or plain.is_nested or plain.is_quantized:
        kind = "nested" if plain.is_nested else "quantised" if plain.is_quantized else str(plain.layout)
        raise CannotKeep(f"a {kind.removeprefix('torch.')} tensor has no plain bytes: mark its components instead")
    if plain.is_meta:
        raise CannotKeep("a meta tensor has no content")
    dtype, shape = str(plain.dtype).removeprefix("torch."), tuple(plain.shape)
    return FileContent(_pieces(plain), plain.numel() * plain.element_size(), dtype, shape)


def _pieces(plain: Any) -> Iterator[memoryview]:
    """What lies side by side on this machine is one piece; all else goes through memory of a bounded size."""
    if not plain.numel():
        return
    if plain.device.type == "cpu" and plain.is_contiguous() and not plain.is_conj() and not plain.is_neg():
        yield _bytes_of(plain)
    elif plain.numel() * plain.element_size() <= PIECE or not plain.dim():
        yield _bytes_of(plain.cpu().resolve_conj().resolve_neg().contiguous())
    else:
        row = max(plain[0].numel() * plain.element_size(), 1)
        step = max(PIECE // row, 1)
        for first in range(0, plain.shape[0], step):
            part = plain[first : first + step]
            yield from _pieces(part if len(part) > 1 else part[0])


def _bytes_of(tensor: Any) -> memoryview:
    flat = tensor.as_strided((tensor.numel(),), (1,))  # one element may have any stride, and then cannot be viewed
    return memoryview(flat.view(torch.uint8).numpy())


def _pieces_of_array(plain: Any) -> FileContent:
    if plain.dtype.hasobject:
        raise CannotKeep("an array of Python objects has no plain bytes")
    numpy = importlib.import_module("numpy")
    if plain.dtype.names is not None:
        raise CannotKeep("an array of records has no plain bytes: mark its fields instead")
    flat = numpy.ascontiguousarray(plain).reshape(-1)
    pieces = [memoryview(flat.view(numpy.uint8))] if flat.size else []
    return FileContent(iter(pieces), flat.nbytes, str(plain.dtype), tuple(plain.shape))


def opened(stored: TensorBytes, kind: str) -> Any:
    """The tensor, or the array, over the bytes of a bundle; as numpy where torch is not installed."""
    if kind == "array" or not HAS_TORCH:
        return _opened_by_numpy(stored)
    dtype = getattr(torch, stored.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise NotRecorded(f"this torch knows no dtype {stored.dtype!r}: the tensor cannot be opened here")
    with unseen():  # a trace may be read while it grows
        if not len(stored.data):
            return torch.empty(stored.shape, dtype=dtype)
        flat = private.frombuffer(stored.data, dtype=torch.uint8).view(dtype)
        return flat.as_strided(stored.shape, stored.stride, stored.storage_offset)


def _opened_by_numpy(stored: TensorBytes) -> Any:
    numpy = importlib.import_module("numpy")
    try:
        dtype = numpy.dtype(stored.dtype)
    except TypeError:
        raise NotRecorded(f"numpy knows no dtype {stored.dtype!r}: install torch to open this tensor") from None
    flat = numpy.frombuffer(stored.data, dtype=dtype)
    strides = tuple(step * dtype.itemsize for step in stored.stride)
    return numpy.lib.stride_tricks.as_strided(flat[stored.storage_offset :], stored.shape, strides)
