"""What no mode sees: conversions between numpy and torch, which tensor and array share memory, and ``Tensor.set_``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch

from torchglass.capture.calls import recorded_call
from torchglass.capture.log import LOGS
from torchglass.capture.patches import PatchSet
from torchglass.capture.session import FUNCTION, Session, What

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
        number = session.named[key] = session.add_what(What(FUNCTION, original))
    return number


def share(session: Session, args: tuple[Any, ...], result: Any) -> None:
    """Where the result lies in the memory of an array among the arguments, say so in its value."""
    try:
        numpy = sys.modules.get("numpy")
        given = args[0] if args else None
        if numpy is None or not issubclass(type(given), numpy.ndarray) or type(result) is not torch.Tensor:
            return
        with torch._C.DisableTorchFunction():
            first, last = numpy.lib.array_utils.byte_bounds(given)
            if first <= result.data_ptr() < max(last, first + 1):
                session.values.lies_in(result, given)
    except Exception as fault:
        session.fault(fault)


def tensor_around(tensors: Iterable[Any], address: int) -> Any:
    """The first of these tensors in whose memory an address lies; None for none."""
    with torch._C.DisableTorchFunction():
        return next((each for each in tensors if _holds(each, address)), None)


def _holds(tensor: Any, address: int) -> bool:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return False
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()
    except (RuntimeError, NotImplementedError):  # some have no memory, or do not say
        return False


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
    except Exception as fault:
        session.fault(fault)


SET_PATCHES = PatchSet(lambda: [_SetPatch()])
"""Up while variables are followed by the functions that change them."""
