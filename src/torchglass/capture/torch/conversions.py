"""What no mode sees: conversions between numpy and torch, which tensor and array share memory, and ``Tensor.set_``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from threading import get_ident
from types import FunctionType
from typing import Any

import torch

from torchglass.capture.engine.edges import recorded_call
from torchglass.capture.engine.log import LOGS
from torchglass.capture.engine.memory import owner_of
from torchglass.capture.session import FUNCTION, Session
from torchglass.capture.torch import private
from torchglass.capture.torch.naming import function_bytes, is_torchs_own
from torchglass.capture.transparency.patches import PatchSet
from torchglass.journal.layout import NUMBER_MASK

__tracebackhide__ = True  # pytest leaves our frames out of its reports

SHARING = frozenset(["as_tensor", "asarray"])
"""Functions that modes see and that may give a tensor over the memory of an array."""


def make_conversion(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.from_numpy`` and its like, which are no torch functions to any mode, as function events."""

    def convert(*args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(*args, **kwargs)
        what = _number(log.session, original)
        result = recorded_call(log, what, sys._getframe(1), original, args, kwargs)
        share(log.session, args, result)
        return result

    convert.__name__, convert.__doc__ = original.__name__, original.__doc__
    return convert


def _number(session: Session, original: Any) -> int:
    key = (FUNCTION, original.__name__, "")
    number = session.named.get(key)
    if number is None:
        number = session.named[key] = session.add_what(
            FUNCTION, function_bytes(_as_known(original) if is_torchs_own(original) else original, session.records_ops)
        )
    return number


@cache
def _as_known(original: Any) -> Any:
    """``torch.from_dlpack`` is written in another module than the one that people know it by."""
    if type(original) is not FunctionType:
        return original
    known = FunctionType(original.__code__, original.__globals__, original.__name__)
    known.__module__ = "torch"
    return known


def share(session: Session, args: tuple[Any, ...], result: Any) -> None:
    """Where the result lies in the memory of an array among the arguments, say so in its value."""
    try:
        numpy = sys.modules.get("numpy")
        given: Any = args[0] if args else None
        if numpy is None or not issubclass(type(given), numpy.ndarray) or type(result) is not torch.Tensor:
            return
        with private.no_functions():
            first, last = numpy.lib.array_utils.byte_bounds(given)
            if first <= result.data_ptr() < max(last, first + 1):
                values, owner = session.values, owner_of(session.values, given)
                # Found for a view that has no name: torch.from_numpy(a[:, 1:])
                if owner is not None and _is_older(values.value_of(owner), values.value_of(given)):
                    values.lies_in(given, owner)
                values.lies_in(result, given)
    except BaseException as fault:
        session.forgive(fault)


def _is_older(one: int, other: int) -> bool:
    return one & NUMBER_MASK < other & NUMBER_MASK


class _SetPatch:
    """``Tensor.set_``, which gives a tensor other memory: told to those who listen to writes, and no event."""

    replacement: Any = None

    def install(self) -> None:
        self.replacement = torch.Tensor.set_ = _make_set(torch.Tensor.set_)

    def remove(self) -> None:
        if vars(torch.Tensor).get("set_") is self.replacement:
            del torch.Tensor.set_  # it is inherited


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
        session.values.forget_all(tensor)
        for tell in session.on_write:
            tell(tensor)
    except BaseException as fault:
        session.forgive(fault)


SET_PATCHES = PatchSet(lambda: [_SetPatch()])
"""Up while variables are followed by the functions that change them."""
