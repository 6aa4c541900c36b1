"""Reading the locals of a running frame without touching it.

``frame.f_locals`` copies all locals out and, in a trace function on Python 3.11 and 3.12, back in: it overwrites
what another thread has written to a closure, keeps values alive, and lets the program's own ``locals()`` grow.
So the slots are read where they are. The offsets are those of CPython 3.11 to 3.13; they are tried at import on
frames whose locals are known, and where they do not hold ``f_locals`` is read after all.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator
from types import CellType, FrameType
from typing import Any

from torchglass.capture.variables.watch import UNBOUND

_TO_INNER_FRAME, _TO_SLOTS = 24, 72

_pointer = ctypes.c_void_p.from_address
_array_types: dict[int, Any] = {}


def slots_of(frame: FrameType, count: int) -> Any:
    """The slots of a frame as an array of ``count`` objects, valid until the call returns; None if unreadable.

    Reading an unbound slot raises ValueError.
    """
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
