"""Find the source of code that was given as text: to ``exec``, ``eval`` or ``compile``, or to ``python -c``."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from textwrap import dedent
from types import CodeType
from typing import Any

from torchglass.source.codes import Code
from torchglass.source.compiling import compile_again, contains

_MAX_TEXT_LENGTH = 200_000
_MAX_STRINGS = 2_000
"""Number of constants of the caller, and of its globals, that are searched for the text."""
_MAX_COMPILED = 16
"""Number of texts that are compiled in one search. It limits the time that a recording spends on one code object."""
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python whose value is the next argument."""


def command_text() -> str | None:
    """Return the text given to ``python -c``, or None if the process was started in another way."""
    arguments = iter(sys.orig_argv[1:])
    for argument in arguments:
        if argument in _OPTIONS_WITH_VALUE:
            next(arguments, None)
        elif not argument.startswith("-") or argument == "-":
            return None
        elif not argument.startswith(("--", "-W", "-X")):
            before, option, rest = argument.partition("c")
            if option and "m" not in before:
                return rest or next(arguments, None)
            if "m" in before:
                return None
    return None


def find_exec_source(
    code: CodeType, caller: CodeType | None, caller_globals: Mapping[str, Any]
) -> str | None:
    """Return the text given to ``exec``, ``eval`` or ``compile``, searched among the strings of the caller.

    Return only a text that compiles to this very code, or None if there is none. The search needs the caller's frame
    and is done once for each new code object. It ends at once if the code has a file or an entry in linecache.
    """
    filename = code.co_filename
    if filename != "<string>":
        # Path.exists raises an error if the name is too long.
        has_file = os.path.exists(filename)  # noqa: PTH110
        if has_file or filename in linecache.cache:
            return None
    return text_compiling_to(Code.of(code), _strings_of(caller, caller_globals))


def text_compiling_to(code: Code, texts: Iterable[str]) -> str | None:
    """Return the first text that compiles to this code, or None. Texts are also tried dedented, and as for ``eval``."""
    compiled = 0
    for text in texts:
        if len(text) > _MAX_TEXT_LENGTH or not _may_compile_to(text, code):
            continue
        compiled += 1
        if compiled > _MAX_COMPILED:
            return None
        for variant, mode in ((text, "exec"), (text.lstrip(" \t"), "eval"), (dedent(text), "exec")):
            root = compile_again(variant, mode, code)
            if root is not None and contains(root, code):
                return variant
    return None


def _strings_of(caller: CodeType | None, caller_globals: Mapping[str, Any]) -> Iterator[str]:
    command = command_text()
    if command is not None:
        yield command
    if caller is not None:
        yield from [value for value in caller.co_consts[:_MAX_STRINGS] if type(value) is str]
    global_values = list(caller_globals.values())
    yield from [value for value in global_values[:_MAX_STRINGS] if type(value) is str]


def _may_compile_to(text: str, code: Code) -> bool:
    """Return whether a text has all the names of the code, which avoids most useless compilations."""
    # Python normalises identifiers that are not ASCII, so they may be spelt differently in the text.
    if not text.isascii():
        return True
    return all(name in text for name in code.names if "__" not in name and name.isidentifier())
