"""Every error torchglass raises by itself; each message says what happened, where, and what to do.

::

    TorchglassError
    ├── UsageError        a call that cannot mean anything (also a ValueError or TypeError)
    │   ├── UnknownView       no view of that name
    │   ├── UnknownOption     a view or function has no such option
    │   └── WrongType         an argument of the wrong type
    ├── BadValue          record(stop_on=…) met a bad value
    ├── NotRecorded       the trace has no such event, module call or value
    ├── BundleError       a bundle cannot be made, or what is there cannot be read
    └── MissingExtra      an optional library is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TorchglassError(Exception):
    """The base of all errors that torchglass raises by itself."""


class UsageError(TorchglassError, ValueError):
    """A call that cannot mean anything."""


class UnknownView(UsageError):
    """No view of that name."""


class UnknownOption(UsageError, TypeError):
    """A view or function has no such option."""


class WrongType(UsageError, TypeError):
    """An argument of the wrong type."""


class BadValue(TorchglassError, ArithmeticError):
    """A value is bad for which ``record(stop_on=…)`` was told to stop; the message tells where it came from."""


class NotRecorded(TorchglassError, LookupError):
    """The trace has no such event, module call or value."""


class BundleError(TorchglassError, OSError):
    """A bundle cannot be made, or what is there cannot be read; the message names the file and the cure."""


class MissingExtra(TorchglassError, ImportError):
    """An optional library is not installed; the message names the command that installs it."""


def expect(value: object, kind: type, message: str) -> None:
    """Refuse an argument of the wrong type; ``message`` says what is taken, the type that came is added."""
    if not isinstance(value, kind):
        raise WrongType(f"{message}, not {type(value).__name__}")


def closest(word: str, words: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest one and the whole list."""
    known = sorted(words)
    if not known:
        return "there are none"
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}there are: {', '.join(known)}"
