"""Finds the tensor or array whose memory a numpy array uses, so that the two can be linked in the trace.

numpy's ``base`` alone is not enough: it refers to the array that owns the memory, not to the view that was sliced.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any

from torchglass.capture.engine.value_table import DEEPEST_BASE, ValueTable
from torchglass.capture.torch.names import Parameter, Tensor, no_functions


def owner_of(values: ValueTable, array: Any) -> Any:
    """Return a known tensor or array over the same memory, or None if there is none yet.

    Attributes are read through ``numpy.ndarray``, because a subclass may override them. The base of an array from
    ``numpy.from_dlpack`` is a capsule that does not name the tensor, so the living tensors are searched by address.
    """
    plain = sys.modules["numpy"].ndarray
    base = array
    last = array
    for _ in range(DEEPEST_BASE):
        if type(base) is memoryview:
            base = base.obj
        else:
            base = vars(plain)["base"].__get__(base)
        if issubclass(type(base), Tensor) or (base is not None and values.is_known(base)):
            return base
        if type(base).__name__ == "PyCapsule":
            address = vars(plain)["__array_interface__"].__get__(array)["data"][0]
            return _tensor_around(values.living_objects(), address)
        if issubclass(type(base), plain):
            last = base
        elif type(base) is not memoryview:
            break
    if last is array:
        return None
    return _other_view(values, last, array)


def _other_view(values: ValueTable, root: Any, array: Any) -> Any:
    """Return an earlier view of an array that no event took or gave, or None if ``array`` is the first view.

    For example, ``np.arange(6).reshape(2, 3)`` is a view of an array that has no name. A weak reference to that array
    would prevent numpy from resizing it, so the reference is to a view. A living view keeps its root alive, so the
    ``id`` of the root cannot be reused.
    """
    reference = values.roots.get(id(root))
    view = None
    if reference is not None:
        view = reference()
    if view is None:
        values.roots[id(root)] = weakref.ref(array)
    return view


def _tensor_around(tensors: Iterable[Any], address: int) -> Any:
    """Return the first of the tensors whose memory contains an address, or None."""
    with no_functions():
        return next((each for each in tensors if _holds(each, address)), None)


def _holds(tensor: Any, address: int) -> bool:
    cls = type(tensor)
    if (cls is not Tensor and cls is not Parameter) or tensor.device.type != "cpu":
        return False
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()
    except (RuntimeError, NotImplementedError):  # some tensors have no memory, or hide it
        return False
