"""Reads locals of frames, attributes and items of a running program without side effects.

``frame.f_locals`` has side effects: it copies all locals out and, in a trace function on Python 3.11 and 3.12, back in.
That overwrites what another thread has written to a closure, keeps values alive, and makes the program's ``locals()``
grow. So the slots of a frame are read in place, at the offsets of CPython 3.11 to 3.13. The offsets are tried at import
on frames with known locals. If they are wrong, ``f_locals`` is used after all.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Generator
from types import CellType, FrameType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from torchglass.capture.variables.watch import UNBOUND, PathStep
from torchglass.compiled import extension

_TO_INNER_FRAME = 24
_TO_SLOTS = 72
"""Offsets in bytes: of the pointer to the interpreter's frame in a frame object, and of the slots in that frame."""

_pointer = ctypes.c_void_p.from_address
_array_types: dict[int, Any] = {}


def slots_of(frame: FrameType, count: int) -> Any:
    """Return the slots of a frame as an array of ``count`` objects, or None if they cannot be read.

    The array is valid until the call returns. Reading an unbound slot raises ValueError.
    """
    if extension is not None:
        return extension.slots_of(frame, count)
    if SLOTS_ARE_READABLE:
        return _slots(frame, count)
    return None


def _slots(frame: FrameType, count: int) -> Any:
    kind = _array_types.get(count)
    if kind is None:
        kind = _array_types[count] = ctypes.py_object * count
    inner: Any = _pointer(id(frame) + _TO_INNER_FRAME).value
    return kind.from_address(inner + _TO_SLOTS)


def slot(slots: Any, index: int) -> Any:
    """Return the object in a slot (a cell itself, not its content), or ``UNBOUND``."""
    try:
        return slots[index]
    except ValueError:
        return UNBOUND


def content(cell: Any) -> Any:
    """Return the content of a cell, or ``UNBOUND`` if it is empty; return any other object itself."""
    try:
        if type(cell) is CellType:
            return cell.cell_contents
        return cell
    except ValueError:
        return UNBOUND


def _holds() -> bool:
    """Return whether the offsets are right on this interpreter, tried on a function, a closure and a generator."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        # A wrong offset crashes the process, so use only the versions that were checked.
        return False
    if getattr(sys, "_is_gil_enabled", lambda: True)() is not True:
        return False
    marks = [object(), object(), object()]
    return all(trial(marks) for trial in (_try_function, _try_closure, _try_generator))


def _try_function(marks: list[object]) -> bool:
    def function(first: object, second: object) -> bool:
        found = _slots(sys._getframe(), 5)
        was_unbound = slot(found, 4) is UNBOUND
        late = marks
        return found[0] is first and found[1] is second and was_unbound and found[4] is late

    return function(*marks[:2])


def _try_closure(marks: list[object]) -> bool:
    kept = marks[2]

    def function(first: object) -> bool:
        found = _slots(sys._getframe(), 3)
        return found[0] is first and content(found[2]) is kept

    return function(marks[0])


def _try_generator(marks: list[object]) -> bool:
    def function(first: object) -> Generator[bool, None, None]:
        found = _slots(sys._getframe(), 2)
        yield found[0] is first
        yield found[0] is first

    return all(function(marks[0]))


def _tried(trial: Callable[[], bool]) -> bool:
    try:
        return trial()
    except Exception:
        return False


SLOTS_ARE_READABLE = _tried(_holds)


# ---------------------------------------------------------------- attributes and items

# Reads the attributes and items that the user named (``self.cache``, ``batch["x"]``) without running foreign code.

_MODULE_TABLES = ("_buffers", "_parameters", "_modules")
"""The dictionaries in which an ``nn.Module`` keeps the attributes that its ``__getattr__`` finds."""
_bases_of = type.__dict__["__mro__"].__get__
_dict_of_type = type.__dict__["__dict__"].__get__


def step_from(value: Any, step: PathStep) -> Any:
    """Return an attribute or item of a value, or ``UNBOUND`` if it is missing or only foreign code could find it."""
    if step.is_item:
        return _item(value, step.key)
    return _attribute(value, step.key)


def _item(value: Any, key: Any) -> Any:
    kind = type(value)
    if kind is dict or kind is OrderedDict or kind is defaultdict or kind is Counter:
        return dict.get(value, key, UNBOUND)
    if (kind is list or kind is tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return UNBOUND


def _attribute(value: Any, name: str) -> Any:
    own = _own_attributes(value)
    if own is not None:
        if name in own:
            return own[name]
        for table in _MODULE_TABLES:
            found = _item(own.get(table), name)
            if found is not UNBOUND:
                return found
    return _inherited(value, name)


def _own_attributes(value: Any) -> Any:
    kind = type(value)
    if issubclass(kind, type):
        return _dict_of_type(value)
    if kind is ModuleType:
        return value.__dict__
    for base in _bases_of(kind):
        getter = _dict_of_type(base).get("__dict__")
        if getter is not None:
            # Trust only the ``__dict__`` that Python made; a class may have replaced it with a property.
            if type(getter).__name__ == "getset_descriptor":
                return getter.__get__(value)
            return None
    return None


def _inherited(value: Any, name: str) -> Any:
    """Return the content of a slot, or a plain value of the class, without calling properties or methods."""
    for base in _bases_of(type(value)):
        found = MappingProxyType.get(_dict_of_type(base), name, UNBOUND)
        if found is UNBOUND:
            continue
        if type(found) is MemberDescriptorType:
            try:
                return found.__get__(value)
            except AttributeError:
                return UNBOUND
        is_computed = any("__get__" in _dict_of_type(each) for each in _bases_of(type(found)))
        if is_computed:
            return UNBOUND
        return found
    return UNBOUND
