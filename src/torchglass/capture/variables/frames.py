"""Reading what a running program holds without touching it: locals of frames, attributes, items.

``frame.f_locals`` copies all locals out and, in a trace function on Python 3.11 and 3.12, back in: it overwrites
what another thread has written to a closure, keeps values alive, and lets the program's own ``locals()`` grow.
So the slots are read where they are. The offsets are those of CPython 3.11 to 3.13; they are tried at import on
frames whose locals are known, and where they do not hold ``f_locals`` is read after all.
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

_TO_INNER_FRAME, _TO_SLOTS = 24, 72

_pointer = ctypes.c_void_p.from_address
_array_types: dict[int, Any] = {}


def slots_of(frame: FrameType, count: int) -> Any:
    """The slots of a frame as an array of ``count`` objects, valid until the call returns; None if unreadable.

    Reading an unbound slot raises ValueError.
    """
    if extension is not None:
        return extension.slots_of(frame, count)
    return _slots(frame, count) if SLOTS_ARE_READABLE else None


def _slots(frame: FrameType, count: int) -> Any:
    kind = _array_types.get(count)
    if kind is None:
        kind = _array_types[count] = ctypes.py_object * count
    inner: Any = _pointer(id(frame) + _TO_INNER_FRAME).value
    return kind.from_address(inner + _TO_SLOTS)


def slot(slots: Any, index: int) -> Any:
    """What is in a slot; a cell's content instead of the cell is the caller's to take."""
    try:
        return slots[index]
    except ValueError:
        return UNBOUND


def content(cell: Any) -> Any:
    """What a cell holds."""
    try:
        return cell.cell_contents if type(cell) is CellType else cell
    except ValueError:
        return UNBOUND


def _holds() -> bool:
    """Whether the offsets hold on this interpreter, tried on a function, a closure and a generator."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return False  # an offset that is wrong does not raise, it crashes: only where somebody has looked
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

# Those that were named (``self.cache``, ``batch["x"]``), read without running foreign code.

_MODULE_TABLES = ("_buffers", "_parameters", "_modules")
"""Where an ``nn.Module`` keeps what its ``__getattr__`` would find."""
_bases_of = type.__dict__["__mro__"].__get__
_dict_of_type = type.__dict__["__dict__"].__get__


def step_from(value: Any, step: PathStep) -> Any:
    """One step from a value; ``UNBOUND`` where there is nothing, or only code could tell."""
    return _item(value, step.key) if step.is_item else _attribute(value, step.key)


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
            # An attribute that Python itself made; a class may have put a property in its place.
            return getter.__get__(value) if type(getter).__name__ == "getset_descriptor" else None
    return None


def _inherited(value: Any, name: str) -> Any:
    """A slot's content, or a plain value of the class; properties and methods are not asked."""
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
        return UNBOUND if is_computed else found
    return UNBOUND
