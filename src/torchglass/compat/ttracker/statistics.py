"""``_log_change``: a value with its sum, mean, min and max, for hooks that watch a model's accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchglass.compat.ttracker.calls import guarded
from torchglass.compat.ttracker.output import is_off, send, words
from torchglass.compat.ttracker.values import numpy_of, shown, torch_of
from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import MOST_ITEMS, Shown

DEEPEST = 4
"""Containers in containers: further in, only their length is told."""
Figures = list[tuple[str, object]]
UNKNOWN: Figures = [("sum", None), ("mean", None), ("min", None), ("max", None)]


def _log_change(prefix: str, name: str, value: Any, indent: str = "", lineno: int = 0) -> None:
    """Log a value under a name: shape, dtype, sum, mean, min and max; tuples, lists and dicts item by item.

    Autograd, random numbers and versions are left as they are. The figures of a tensor on a GPU wait for it.
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
    """(name, value) of everything that gets a line; of long containers the first MOST_ITEMS, then how many more."""
    cls = type(value)
    if cls in (tuple, list) and depth and value:
        found = [(f"{name}[{number}]", item) for number, item in enumerate(value[:MOST_ITEMS])]
    elif issubclass(cls, dict) and depth and dict.__len__(value):
        pairs = zip(range(MOST_ITEMS), list(dict.items(value)), strict=False)
        found = [(f"{name}[{_key(key, number)}]", item) for number, (key, item) in pairs]
    else:
        yield name, value
        return
    for inner, item in found:
        yield from _items(inner, item, depth - 1)
    total = (dict if issubclass(cls, dict) else cls).__len__(value)
    if total > len(found):
        yield str(total - len(found)), _MORE


def _key(key: Any, number: int) -> str:
    return repr(key) if type(key) in (str, int) else f"#{number}"


def _with_figures(value: Any) -> Shown:
    cls = type(value)
    text = shown(value)
    if text.kind != "Tensor":
        return text
    torch = torch_of(cls)
    try:
        figures = _of_tensor(torch, value) if torch is not None else _of_array(numpy_of(cls), value)
    except Exception:  # a layout or type without sums, or no memory for them
        figures = UNKNOWN
    return lines.with_statistics(text, figures)


def _figures(total: Any, mean: Any = None, low: Any = None, high: Any = None) -> Figures:
    return [("sum", total), ("mean", mean), ("min", low), ("max", high)]


# ---------------------------------------------------------------- torch


def _of_tensor(torch: Any, tensor: Any) -> Figures:
    from torchglass.capture.torch.names import no_dispatch, no_functions

    # No mode, no subclass and no recording may see what we compute.
    with no_functions(), no_dispatch(), torch.no_grad():
        if _is_unreadable(torch, tensor):
            return UNKNOWN
        return _figures_of_tensor(torch, torch.Tensor.detach(tensor))


def _is_unreadable(torch: Any, tensor: Any) -> bool:
    """No numbers (on meta), numbers that a subclass keeps elsewhere, or a CUDA graph that reading would break."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or torch.Tensor.is_meta.__get__(tensor):
        return True
    return torch.Tensor.is_cuda.__get__(tensor) and torch.cuda.is_current_stream_capturing()


def _figures_of_tensor(torch: Any, tensor: Any) -> Figures:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    number, kind = tensor.numel(), tensor.dtype
    if kind.is_complex:
        total = torch.sum(tensor, dtype=torch.complex128).item()
        return _figures(total, total / number if number else None)
    return _figures(*_sums(torch, tensor, number))


_WITHOUT_ARITHMETIC = ("float8", "float4", "uint16", "uint32", "uint64")


def _sums(torch: Any, tensor: Any, number: int) -> tuple[Any, Any, Any, Any]:
    """Sums of floats in double precision, of ints and bools exact."""
    floating = tensor.dtype.is_floating_point
    if str(tensor.dtype).removeprefix("torch.").startswith(_WITHOUT_ARITHMETIC):
        tensor = tensor.to(torch.float32 if floating else torch.int64)
    if not number:
        return (0.0 if floating else 0), None, None, None
    low, high = torch.aminmax(tensor)
    double = torch.float64 if tensor.device.type != "mps" else torch.float32
    total = torch.sum(tensor, dtype=double if floating else torch.int64).item()
    mean = total / number if floating else torch.mean(tensor, dtype=double).item()
    return total, mean, low.item(), high.item()


# ---------------------------------------------------------------- numpy


def _of_array(numpy: Any, array: Any) -> Figures:
    """Arrays of objects, strings and records have no figures; those of complex numbers no min and max."""
    array = numpy.ndarray.view(array, numpy.ndarray)
    kind, number = array.dtype.kind, array.size
    if kind not in "biufc":
        return UNKNOWN
    with numpy.errstate(all="ignore"):
        wide = {"f": numpy.float64, "c": numpy.complex128, "u": numpy.uint64}.get(kind, numpy.int64)
        total = numpy.add.reduce(array, axis=None, dtype=numpy.promote_types(wide, array.dtype)).item()
        if not number:
            return _figures(total)
        mean = total / number if kind in "fc" else numpy.mean(array, dtype=numpy.float64).item()
        if kind == "c":
            return _figures(total, mean)
        return _figures(total, mean, numpy.min(array).item(), numpy.max(array).item())
