"""What is told of a live value: found by its exact type, so that no method of a foreign class is ever called.

torch and numpy are used when the program has imported them, never imported for this.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import NoneType
from typing import Any

from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import Shown

LONGEST_INT = 256
"""In bits; Python refuses to spell the very long ones."""

_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, deque, bytes, bytearray, range)
"""Of these and of classes made from them the real length is asked, by the built-in class's own method."""


def shown(value: Any, last_device: str = "cpu") -> Shown:
    """The value as it is written; ``last_device`` is where it was before: a change is told."""
    cls = type(value)
    exact = _EXACT.get(id(cls))
    if exact is not None:
        return exact(value)
    torch = torch_of(cls)
    if torch is not None:
        return _tensor(torch, value, last_device)
    numpy = numpy_of(cls)
    if numpy is not None:
        return _array(numpy, value)
    for container in _CONTAINERS:
        if issubclass(cls, container):
            return lines.length(container.__len__(value))
    return _numpy_scalar(cls, value) or lines.type_only(type_name(cls))


def unseen() -> Any:
    """Out of sight of function modes; asked only where the program has imported torch."""
    from torchglass.capture.torch.names import no_functions

    return no_functions()


def torch_of(cls: type) -> Any:
    """The torch module if this is a class of tensors, else None."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # missing while torch itself is being imported
    return torch if isinstance(tensor, type) and issubclass(cls, tensor) else None


def numpy_of(cls: type) -> Any:
    """The numpy module if this is a class of arrays, else None."""
    numpy = sys.modules.get("numpy")
    array = getattr(numpy, "ndarray", None)
    return numpy if isinstance(array, type) and issubclass(cls, array) else None


def stamp_of(value: Any) -> tuple[Any, ...] | None:
    """What differs after a tensor was changed in place; its device comes last. None for all that is no tensor.

    Not seen: what torch itself does not count, as writes through ``.numpy()`` or ``.data``.
    """
    torch = torch_of(type(value))
    if torch is None:
        return None
    base = torch.Tensor
    with unseen():
        reads = (base._version.__get__, base.data_ptr, base.dtype.__get__, base.device.__get__)
        return (tuple(_sizes(torch, value) or ()), *(_ask(read, value) for read in reads))


def _ask(read: Callable[[Any], Any], value: Any) -> str | None:
    try:
        return str(read(value))
    except Exception:  # inference tensors have no version, wrappers no address
        return None


def type_name(cls: type) -> str:
    """The name of a class, not asked of its metaclass."""
    return _NAME(cls)


_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__


def _integer(value: int) -> Shown:
    bits = value.bit_length()
    return _plain(value) if bits <= LONGEST_INT else lines.variable(f"value: an int of {bits} bits")


def _plain(value: complex) -> Shown:
    return lines.variable(f"value: {value}")


_NONE = lines.variable("value: None")
_READERS: dict[type, Callable[[Any], Shown]] = {
    int: _integer,
    bool: _plain,
    float: _plain,
    complex: _plain,
    NoneType: lambda _: _NONE,
    str: lines.string,
}
_EXACT = {id(cls): read for cls, read in _READERS.items()}
"""By id, as a class may have a metaclass with a hash of its own; these classes live for ever."""


def _tensor(torch: Any, value: Any, last_device: str) -> Shown:
    """Read by the base class's own descriptors, and unseen by function modes and by what a subclass overrides."""
    base = torch.Tensor
    with unseen():
        try:
            device = str(base.device.__get__(value))
            dtype = str(base.dtype.__get__(value))
        except Exception:  # a class that keeps its data in a way of its own
            return lines.type_only(type_name(type(value)))
        sizes = _sizes(torch, value)
    told = "" if device == "cpu" == last_device else device
    return lines.tensor(lines.torch_shape(sizes), dtype, told)


def _sizes(torch: Any, value: Any) -> list[int] | None:
    """Lazy parameters and strided nested tensors have no shape to tell; a size may be no plain number."""
    if issubclass(type(value), torch.nn.parameter.UninitializedTensorMixin):
        return None
    try:
        return [size if type(size) is int else -1 for size in torch.Tensor.shape.__get__(value)]
    except Exception:
        return None


def _array(numpy: Any, value: Any) -> Shown:
    base = numpy.ndarray
    return lines.tensor(lines.numpy_shape(base.shape.__get__(value)), _dtype_text(base.dtype.__get__(value)))


@lru_cache(maxsize=256)
def _dtype_text(dtype: Any) -> str:
    """Remembered, as numpy takes 3 µs to spell a dtype."""
    return str(dtype)


def _numpy_scalar(cls: type, value: Any) -> Shown | None:
    """Numbers of numpy's own classes are spelt by numpy; those of classes made from them are not."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(cls, (numpy.number, numpy.bool_, numpy.datetime64)):
        return None
    return lines.literal(str(value)) if type.__dict__["__module__"].__get__(cls) == "numpy" else None
