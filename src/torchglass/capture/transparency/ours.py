"""What is ours and what is the program's: exceptions that are raised while our code is at work, functions that we call.

Python runs signal handlers between any two steps, also of ours. What one raises (a timeout, Ctrl-C) is meant for the
program and must reach it. Code of the program that we call ourselves (a property of a tensor subclass, say) is
guarded where it is called, with ``foreign``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

from torchglass.errors import BadValue
from torchglass.source.sites import origin_of

OUR_CLASSES = ("builtins", "torch", "torchglass")
"""The packages whose exceptions may come from our own doing."""


def is_theirs(error: BaseException) -> bool:
    """Whether an exception that was raised below our code is the program's own, and has to go on."""
    if not isinstance(error, Exception) or isinstance(error, BadValue):
        return True  # Ctrl-C, an exit; what the program asked us to raise
    package = (type(error).__module__ or "").partition(".")[0]
    return package not in OUR_CLASSES or any(map(_is_programs, _frames(error)))


def is_signals(error: BaseException) -> bool:
    """Whether it was raised by a handler of the program's for a signal."""
    if not isinstance(error, Exception):
        return True
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {id(code) for each in handlers if (code := _code_of(each)) is not None}
    return any(id(frame.f_code) in codes for frame in _frames(error))


def foreign(error: BaseException) -> None:
    """Called where code of the program failed that we had called: what a signal raised there goes on all the same."""
    if is_signals(error):
        raise error


def unseen() -> ExitStack:
    """A context in which no mode, of a recording or of the program's, sees the torch functions that we call ourselves.

    A page counts the numbers of kept tensors, for example, and may be made inside of the block. Where torch was never
    imported there is nothing to hide.
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
    return origin_of(frame.f_code.co_filename, source_known=True) == "user"


def _code_of(handler: Any) -> Any:
    """The code of a handler that is written in Python."""
    function = getattr(handler, "func", handler)  # functools.partial
    function = getattr(function, "__func__", function)
    method = vars(type(function)).get("__call__")
    return getattr(function, "__code__", None) or getattr(method, "__code__", None)
