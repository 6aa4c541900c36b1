"""Decides whether an exception that is raised while our code runs is our fault or belongs to the program.

The recorder swallows its own faults, but exceptions of the program must reach the program. Python may run a signal
handler between any two instructions of ours, and its exception (a timeout, Ctrl-C) belongs to the program. When we call
code of the program ourselves, such as a property of a tensor subclass, we swallow its exceptions, too: the caller
passes each one to ``foreign``, which raises it again only if a signal handler raised it.

This module also hides the torch functions that we call from the modes of the program (``unseen``).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

from torchglass.errors import BadValue
from torchglass.source.origins import origin_of

USED_PACKAGES = frozenset(["numpy", "sympy"])
"""The packages that our code calls besides torch and the standard library. Torch computes symbolic sizes in sympy."""
OUR_CLASSES = frozenset(["torch", "torchglass"]) | USED_PACKAGES | sys.stdlib_module_names
"""The packages whose exceptions our code may cause. Any other exception class belongs to the program."""


def is_theirs(error: BaseException) -> bool:
    """Return whether an exception that was raised while our code ran belongs to the program and must reach it."""
    # Ctrl-C and `sys.exit` are no `Exception`. The program requested `BadValue` with `stop_on`.
    if not isinstance(error, Exception) or isinstance(error, BadValue):
        return True
    package = (type(error).__module__ or "").partition(".")[0]
    return package not in OUR_CLASSES or any(map(_is_programs, _frames(error)))


def is_signals(error: BaseException) -> bool:
    """Return whether a signal handler of the program raised an exception."""
    if not isinstance(error, Exception):
        return True
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {id(code) for each in handlers if (code := _code_of(each)) is not None}
    return any(id(frame.f_code) in codes for frame in _frames(error))


def foreign(error: BaseException) -> None:
    """Raise an exception again if a signal handler raised it; otherwise do nothing.

    Call this for each exception from code of the program that torchglass called itself.
    """
    if is_signals(error):
        raise error


def unseen() -> ExitStack:
    """Return a context in which no mode sees the torch functions that we call.

    For example, making a page counts the numbers in kept tensors, and the program may make it inside the recorded
    block. If torch is not imported, the context does nothing.
    """
    hidden = ExitStack()
    if "torch" in sys.modules:
        from torchglass.capture.torch.private import no_functions, no_modes

        hidden.enter_context(no_functions())
        hidden.enter_context(no_modes())
    return hidden


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_programs(frame: FrameType) -> bool:
    if str(frame.f_globals.get("__name__")).partition(".")[0] in USED_PACKAGES:
        return False
    return origin_of(frame.f_code.co_filename, source_known=True) == "user"


def _code_of(handler: Any) -> Any:
    """Return the code object of a signal handler, or None if it is not written in Python."""
    function = getattr(handler, "func", handler)  # functools.partial
    function = getattr(function, "__func__", function)
    method = vars(type(function)).get("__call__")
    return getattr(function, "__code__", None) or getattr(method, "__code__", None)
