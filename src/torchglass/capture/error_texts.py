"""Makes the text of an exception without running code of the program, such as its ``__str__`` and ``__repr__``."""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

from torchglass.source.origins import origin_of

LONGEST_ERROR = 500
"""The most characters of an exception's text."""
_PLAIN = (str, int, float, complex, bool, bytes, type(None))
_NESTED = (tuple, list)
_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")
_DEEPEST = 3
_name_of = type.__dict__["__name__"].__get__


def error_text(error: BaseException) -> str:
    """Return ``Type: text`` of an exception, with class names in place of objects that would run the program's code."""
    name: str = _name_of(type(error))
    try:
        text = _text_of(error)[:LONGEST_ERROR]
    except Exception:
        text = "(its text could not be read)"
    if text:
        return f"{name}: {text}"
    return name


def _text_of(error: BaseException) -> str:
    arguments: tuple[Any, ...] = vars(BaseException)["args"].__get__(error)
    if _is_plain(arguments, 0) and not _has_own_text(type(error)):
        return str(error)
    if len(arguments) == 1:
        only = arguments[0]
        if issubclass(type(only), str):
            return str.__str__(only)
        return _shown(only)
    if arguments:
        return f"({', '.join(map(_shown, arguments))})"
    return ""


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether Python makes the text of a value without code of the program."""
    kind = type(value)
    if kind not in _NESTED:
        return kind in _PLAIN
    return depth < _DEEPEST and all(_is_plain(each, depth + 1) for each in value)


def _has_own_text(kind: type) -> bool:
    """Return whether the program defines how exceptions of this class are printed; libraries may define it."""
    own = next(vars(each)["__str__"] for each in kind.__mro__ if "__str__" in vars(each))
    if type(own) is FunctionType:
        file = own.__code__.co_filename
        return origin_of(file, source_known=True) == "user" and not _INSTALLED.search(file)
    return type(own) is not type(object.__str__)


def _shown(value: Any) -> str:
    if _is_plain(value, 0):
        return repr(value)
    return f"<{_name_of(type(value))}>"
