"""Makes the text that describes a value. Its exact type decides how, so that no method of a program's class is called.

torch and numpy are used only if the program has imported them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import NoneType
from typing import Any

from torchglass.compat.ttracker.output import guarded, is_off, send, words
from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import MOST_ITEMS, Shown

MAX_INT_BITS = 256
"""The most bits of an int that is shown as digits, because Python refuses to convert very long ints to text."""

_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, deque, bytes, bytearray, range)
"""The classes whose length is shown. It is read by the built-in class's method, also for subclasses."""


def shown(value: Any, last_device: str = "cpu") -> Shown:
    """Return the text of a value. ``last_device`` is the previous device of a tensor, so that a change is shown."""
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
    """Return a context in which function modes see nothing. Call this only if the program has imported torch."""
    from torchglass.capture.torch.names import no_functions

    return no_functions()


def torch_of(cls: type) -> Any:
    """Return the torch module if ``cls`` is a class of tensors, else None."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # missing while torch itself is being imported
    if isinstance(tensor, type) and issubclass(cls, tensor):
        return torch
    return None


def numpy_of(cls: type) -> Any:
    """Return the numpy module if ``cls`` is a class of arrays, else None."""
    numpy = sys.modules.get("numpy")
    array = getattr(numpy, "ndarray", None)
    if isinstance(array, type) and issubclass(cls, array):
        return numpy
    return None


def stamp_of(value: Any) -> tuple[Any, ...] | None:
    """Return a tuple that differs after a tensor was changed in place, with its device last. None for other values.

    Writes that torch does not count, such as writes through ``.numpy()`` or ``.data``, do not change the tuple.
    """
    torch = torch_of(type(value))
    if torch is None:
        return None
    base = torch.Tensor
    with unseen():
        sizes = tuple(_sizes(torch, value) or ())
        version = _text_or_none(base._version.__get__, value)
        address = _text_or_none(base.data_ptr, value)
        dtype = _text_or_none(base.dtype.__get__, value)
        device = _text_or_none(base.device.__get__, value)
    return (sizes, version, address, dtype, device)


def _text_or_none(read: Callable[[Any], Any], value: Any) -> str | None:
    """Return what ``read`` returns as text; None if the tensor does not have it."""
    try:
        return str(read(value))
    except Exception:  # inference tensors have no version, and wrappers have no address
        return None


def type_name(cls: type) -> str:
    """Return the name of a class, without calling code of its metaclass."""
    return _NAME(cls)


_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__


def _integer(value: int) -> Shown:
    bits = value.bit_length()
    if bits <= MAX_INT_BITS:
        return _plain(value)
    return lines.variable(f"value: an int of {bits} bits")


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
"""Keyed by ``id``, since a metaclass may define its own hash. These classes are never freed."""


def _tensor(torch: Any, value: Any, last_device: str) -> Shown:
    """Return the text of a tensor, read by the base class's descriptors so that modes and subclasses do not see it."""
    base = torch.Tensor
    with unseen():
        try:
            device = str(base.device.__get__(value))
            dtype = str(base.dtype.__get__(value))
        except Exception:  # a class that stores its data in another way
            return lines.type_only(type_name(type(value)))
        sizes = _sizes(torch, value)
    if device == "cpu" and last_device == "cpu":
        device = ""
    return lines.tensor(lines.torch_shape(sizes), dtype, device)


def _sizes(torch: Any, value: Any) -> list[int] | None:
    """Return the sizes of a tensor, or None if it has no shape (lazy parameters, strided nested tensors).

    A size that is not an int is -1.
    """
    if issubclass(type(value), torch.nn.parameter.UninitializedTensorMixin):
        return None
    try:
        return [size if type(size) is int else -1 for size in torch.Tensor.shape.__get__(value)]
    except Exception:
        return None


def _array(numpy: Any, value: Any) -> Shown:
    base = numpy.ndarray
    shape = lines.numpy_shape(base.shape.__get__(value))
    dtype = _dtype_text(base.dtype.__get__(value))
    return lines.tensor(shape, dtype)


_dtype_text = lru_cache(maxsize=256)(str)  # numpy takes 3 µs to convert a dtype to text


def _numpy_scalar(cls: type, value: Any) -> Shown | None:
    """Return the text of a number of numpy's classes. Return None for other values, including those of subclasses."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(cls, (numpy.number, numpy.bool_, numpy.datetime64)):
        return None
    if type.__dict__["__module__"].__get__(cls) == "numpy":
        return lines.literal(str(value))
    return None


# ---------------------------------------------------------------- figures

# ``_log_change`` logs a value with its sum, mean, min and max, for hooks that watch a model's accuracy.

DEEPEST = 4
"""How many nested containers are listed item by item. Deeper containers show only their length."""
Figures = list[tuple[str, object]]
UNKNOWN: Figures = [("sum", None), ("mean", None), ("min", None), ("max", None)]


def _log_change(prefix: str, name: str, value: Any, indent: str = "", lineno: int = 0) -> None:
    """Log a value under a name, with shape, dtype, sum, mean, min and max. Log tuples, lists and dicts item by item.

    This does not change autograd, random numbers or versions. For a tensor on a GPU, it waits for the GPU.
    """
    if not is_off():
        _log(prefix, name, value, indent, lineno)


@guarded
def _log(prefix: str, name: str, value: Any, indent: str, lineno: int) -> None:
    send([_line(item, prefix, indent, lineno) for item in _items(str(name), value, DEEPEST)])


def _line(item: tuple[str, Any], prefix: str, indent: str, lineno: int) -> str:
    name, value = item
    if value is _MORE:
        return lines.left_out(words(), indent, int(name))
    return lines.named(indent, str(prefix), name, lineno, _with_figures(value))


_MORE = object()


def _items(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each line. A long container yields its first MOST_ITEMS, then how many are left."""
    cls = type(value)
    keys: list[object] = []
    items: list[Any] = []
    total = 0
    if cls in (tuple, list) and depth:
        total = len(value)
        items = list(value[:MOST_ITEMS])
        keys = list(range(len(items)))
    elif issubclass(cls, dict) and depth:
        total = dict.__len__(value)
        for number, (key, item) in enumerate(list(dict.items(value))[:MOST_ITEMS]):
            keys.append(_key(key, number))
            items.append(item)
    if not total:
        yield name, value
        return
    for key, item in zip(keys, items, strict=True):
        yield from _items(f"{name}[{key}]", item, depth - 1)
    if total > len(items):
        yield str(total - len(items)), _MORE


def _key(key: Any, number: int) -> str:
    if type(key) in (str, int):
        return repr(key)
    return f"#{number}"


def _with_figures(value: Any) -> Shown:
    cls = type(value)
    text = shown(value)
    if text.kind != "Tensor":
        return text
    torch = torch_of(cls)
    try:
        if torch is not None:
            figures = _of_tensor(torch, value)
        else:
            figures = _of_array(numpy_of(cls), value)
    except Exception:  # the layout or dtype has no sums, or there is too little memory for them
        figures = UNKNOWN
    return lines.with_statistics(text, figures)


def _figures(total: Any, mean: Any = None, low: Any = None, high: Any = None) -> Figures:
    return [("sum", total), ("mean", mean), ("min", low), ("max", high)]


def _of_tensor(torch: Any, tensor: Any) -> Figures:
    from torchglass.capture.torch.names import no_dispatch, no_functions

    # No mode, no subclass and no recording may see what we compute.
    with no_functions(), no_dispatch(), torch.no_grad():
        if _is_unreadable(torch, tensor):
            return UNKNOWN
        return _figures_of_tensor(torch, torch.Tensor.detach(tensor))


def _is_unreadable(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor must not be read.

    It may have no numbers (on meta), a subclass may keep them elsewhere, or reading may break the capture of a CUDA
    graph.
    """
    base = torch.Tensor
    if type(tensor).__torch_dispatch__ is not base.__torch_dispatch__:
        return True
    if base.is_meta.__get__(tensor):
        return True
    return base.is_cuda.__get__(tensor) and torch.cuda.is_current_stream_capturing()


def _figures_of_tensor(torch: Any, tensor: Any) -> Figures:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.dtype.is_complex:
        return _figures_of_complex(torch, tensor)
    return _figures_of_real(torch, tensor)


def _figures_of_complex(torch: Any, tensor: Any) -> Figures:
    count = tensor.numel()
    total = torch.sum(tensor, dtype=torch.complex128).item()
    if count:
        return _figures(total, total / count)
    return _figures(total)


_WITHOUT_ARITHMETIC = ("float8", "float4", "uint16", "uint32", "uint64")


def _figures_of_real(torch: Any, tensor: Any) -> Figures:
    """Return sum, mean, min and max. Sums of floats are in double precision, sums of ints and bools are exact."""
    is_float = tensor.dtype.is_floating_point
    count = tensor.numel()
    if not count:
        if is_float:
            return _figures(0.0)
        return _figures(0)
    if str(tensor.dtype).removeprefix("torch.").startswith(_WITHOUT_ARITHMETIC):
        if is_float:
            tensor = tensor.to(torch.float32)
        else:
            tensor = tensor.to(torch.int64)
    double = torch.float64
    if tensor.device.type == "mps":
        double = torch.float32
    if is_float:
        total = torch.sum(tensor, dtype=double).item()
        mean = total / count
    else:
        total = torch.sum(tensor, dtype=torch.int64).item()
        mean = torch.mean(tensor, dtype=double).item()
    low, high = torch.aminmax(tensor)
    return _figures(total, mean, low.item(), high.item())


def _of_array(numpy: Any, array: Any) -> Figures:
    """Return the figures of an array. Objects, strings and records have none, and complex numbers no min and max."""
    array = numpy.ndarray.view(array, numpy.ndarray)
    kind = array.dtype.kind
    number = array.size
    if kind not in "biufc":
        return UNKNOWN
    with numpy.errstate(all="ignore"):
        wide = {"f": numpy.float64, "c": numpy.complex128, "u": numpy.uint64}.get(kind, numpy.int64)
        total = numpy.add.reduce(
            array, axis=None, dtype=numpy.promote_types(wide, array.dtype)
        ).item()
        if not number:
            return _figures(total)
        if kind in "fc":
            mean = total / number
        else:
            mean = numpy.mean(array, dtype=numpy.float64).item()
        if kind == "c":
            return _figures(total, mean)
        return _figures(total, mean, numpy.min(array).item(), numpy.max(array).item())
