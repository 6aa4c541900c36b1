"""Records what no mode sees: conversions between numpy and torch, memory that tensors share with arrays, and
``Tensor.set_``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch

from torchglass.capture.engine.edges import recorded_call
from torchglass.capture.engine.jit import TRACES, pause_trace, resume_trace
from torchglass.capture.engine.log import LOGS
from torchglass.capture.engine.memory import owner_of
from torchglass.capture.session import FUNCTION, Session
from torchglass.capture.torch import private
from torchglass.capture.torch.naming import function_bytes, is_torchs_own
from torchglass.capture.transparency.features import Feature, replaced
from torchglass.capture.transparency.patches import SharedFeatures
from torchglass.journal.layout import NUMBER_MASK
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports

SHARING = frozenset(["as_tensor", "asarray"])
"""Functions that modes see, and that may return a tensor over the memory of an array."""


def features() -> list[Feature]:
    """Return the features to install: replacements for the functions that make a tensor over existing memory."""
    names = (
        "torch.from_numpy",
        "torch.frombuffer",
        "torch.from_dlpack",
        "torch.utils.dlpack.from_dlpack",
    )
    return [replaced(name, private.CONVERSIONS, make_conversion) for name in names]


def make_conversion(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``torch.from_numpy`` or a similar function, so that its calls are recorded as function events."""

    def convert(*args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(*args, **kwargs)
        what = function_number(log.session, original)
        result = recorded_call(log, what, sys._getframe(1), original, args, kwargs)
        share(log.session, args, result)
        return result

    convert.__name__ = original.__name__
    convert.__doc__ = original.__doc__
    return convert


def function_number(session: Session, original: Any) -> int:
    """Return the number of a function that no mode sees. Its row has the names of its parameters."""
    key = (FUNCTION, original.__name__, "")
    number = session.named.get(key)
    if number is None:
        number = session.named[key] = session.add_what(
            FUNCTION,
            function_bytes(
                _as_known(original) if is_torchs_own(original) else original, session.records_ops
            ),
        )
    return number


@cache
def _as_known(original: Any) -> Any:
    """Return a copy of a Python function whose module is ``torch``.

    So ``torch.from_dlpack`` is shown under this name, although another module defines it.
    """
    if type(original) is not FunctionType:
        return original
    known = FunctionType(
        original.__code__, original.__globals__, original.__name__, closure=original.__closure__
    )
    known.__module__ = "torch"
    return known


def share(session: Session, args: tuple[Any, ...], result: Any) -> None:
    """If the first argument is an array and the result uses its memory, write that to the result's value."""
    traced = None
    try:
        numpy = sys.modules.get("numpy")
        given: Any = args[0] if args else None
        if (
            numpy is None
            or not issubclass(type(given), numpy.ndarray)
            or type(result) is not torch.Tensor
        ):
            return
        if TRACES:
            traced = pause_trace()
        with private.no_functions():
            first, last = _byte_bounds(numpy)(given)
            if first <= result.data_ptr() < max(last, first + 1):
                values = session.values
                owner = owner_of(session.values, given)
                # `given` may be a view without a name, as in `torch.from_numpy(a[:, 1:])`: link it to its owner.
                if owner is not None and _is_older(values.value_of(owner), values.value_of(given)):
                    values.lies_in(given, owner)
                values.lies_in(result, given)
    except BaseException as fault:
        session.forgive(fault)
    finally:
        resume_trace(traced)


def _byte_bounds(numpy: Any) -> Callable[[Any], tuple[int, int]]:
    """Return numpy's function for the first and the last address of an array. It has moved in numpy 2."""
    utilities = getattr(numpy.lib, "array_utils", numpy)
    return utilities.byte_bounds


def _is_older(one: int, other: int) -> bool:
    return one & NUMBER_MASK < other & NUMBER_MASK


class _SetPatch:
    """Wraps ``Tensor.set_``, which gives a tensor other memory, to report a write. The call itself is not an event."""

    replacement: Any = None
    own: Any = None
    """The ``set_`` that the program has put on ``torch.Tensor``, or None if ``set_`` is inherited as usual."""

    def install(self) -> None:
        self.own = vars(torch.Tensor).get("set_")
        if not callable(torch.Tensor.set_):
            raise TypeError(f"it is no function but {type(torch.Tensor.set_).__name__}")
        self.replacement = torch.Tensor.set_ = _make_set(torch.Tensor.set_)

    def remove(self) -> None:
        if self.replacement is None or vars(torch.Tensor).get("set_") is not self.replacement:
            return
        if self.own is None:
            del torch.Tensor.set_
        else:
            torch.Tensor.set_ = self.own
        self.own = self.replacement = None


def _make_set(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        log = LOGS.get(get_ident())
        if log is not None and log.on and log.session.on_write:
            _tell_of_write(log.session, self)
        return result

    set_.__doc__ = original.__doc__
    return set_


def _tell_of_write(session: Session, tensor: Any) -> None:
    try:
        session.values.mark_all_changed(tensor)
        for tell in session.on_write:
            tell(tensor)
    except BaseException as fault:
        session.forgive(fault)


_SET = Feature(
    "torch.Tensor.set_", "that variables show a tensor's change by Tensor.set_", _SetPatch
)
SET_PATCHES = SharedFeatures(lambda: [_SET])
"""Installed while variables are followed by recording the functions that change them."""
