"""Every error torchglass raises by itself; each message says what happened, where, and what to do.

::

    TorchglassError
    ├── UsageError        a call makes no sense (also a ValueError or TypeError)
    │   ├── UnknownView       no view of that name
    │   ├── UnknownOption     a view or function has no such option
    │   └── WrongType         an argument has the wrong type
    ├── BadValue          record(stop_on=…) stopped at a bad value
    ├── NotRecorded       the trace has no such event, module call or value
    ├── BundleError       a bundle cannot be written or read
    └── MissingExtra      an optional library is missing
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TorchglassError(Exception):
    """The base of all errors that torchglass raises by itself."""


class UsageError(TorchglassError, ValueError):
    """A call makes no sense, such as one with options that contradict each other."""


class UnknownView(UsageError):
    """There is no view of that name."""


class UnknownOption(UsageError, TypeError):
    """A view or function has no such option."""


class WrongType(UsageError, TypeError):
    """An argument has the wrong type."""


class BadValue(TorchglassError, ArithmeticError):
    """``record(stop_on=…)`` stopped the program at a bad value; the message says where it came from."""


class NotRecorded(TorchglassError, LookupError):
    """The trace has no such event, module call or value."""


class BundleError(TorchglassError, OSError):
    """A bundle cannot be written or read; the message names the file and says what to do."""


class MissingExtra(TorchglassError, ImportError):
    """An optional library is not installed; the message names the command that installs it."""


def expect(value: object, kind: type, message: str) -> None:
    """Raise WrongType if an argument has another type; ``message`` says what is expected."""
    if not isinstance(value, kind):
        raise WrongType(f"{message}, not {type(value).__name__}")


def closest(word: str, words: Iterable[str]) -> str:
    """Return a hint for a misspelt word: the closest one, and the whole list."""
    known = sorted(words)
    if not known:
        return "there are none"
    near = difflib.get_close_matches(word, known, n=1)
    hint = ""
    if near:
        hint = f"did you mean {near[0]!r}? "
    return f"{hint}choose from: {', '.join(known)}"
