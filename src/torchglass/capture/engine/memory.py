"""Whose memory an array lies in: numpy says it by ``base``, which skips the views that have names."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any

from torchglass.capture.engine.values import DEEPEST_BASE, ValueTable
from torchglass.capture.torch.names import Parameter, Tensor, no_functions


def owner_of(values: ValueTable, array: Any) -> Any:
    """A known tensor or array over the same memory; None where there is none yet: then the next view finds this one.

    A subclass may have attributes of its own, so numpy's are asked. What ``numpy.from_dlpack`` gives holds on to a
    capsule that does not say: the tensors that live are asked.
    """
    plain, base, last = sys.modules["numpy"].ndarray, array, array
    for _ in range(DEEPEST_BASE):
        base = base.obj if type(base) is memoryview else vars(plain)["base"].__get__(base)
        if issubclass(type(base), Tensor) or (base is not None and values.is_known(base)):
            return base
        if type(base).__name__ == "PyCapsule":
            address = vars(plain)["__array_interface__"].__get__(array)["data"][0]
            return _tensor_around(values.living_objects(), address)
        if issubclass(type(base), plain):
            last = base
        elif type(base) is not memoryview:
            break
    return None if last is array else _other_view(values, last, array)


def _other_view(values: ValueTable, root: Any, array: Any) -> Any:
    """Another view of an array that nobody has a name for, as in ``np.arange(6).reshape(2, 3)``.

    The root itself is not referred to, for numpy would no longer resize it. While a view lives so does its root, and
    has its ``id``.
    """
    reference = values.roots.get(id(root))
    view = None if reference is None else reference()
    if view is None:
        values.roots[id(root)] = weakref.ref(array)
    return view


def _tensor_around(tensors: Iterable[Any], address: int) -> Any:
    """The first of these tensors in whose memory an address lies; None for none."""
    with no_functions():
        return next((each for each in tensors if _holds(each, address)), None)


def _holds(tensor: Any, address: int) -> bool:
    cls = type(tensor)
    if (cls is not Tensor and cls is not Parameter) or tensor.device.type != "cpu":
        return False
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()
    except (RuntimeError, NotImplementedError):  # some have no memory, or do not say
        return False
