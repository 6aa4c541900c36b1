"""Turns any name into a file name that stays in its folder, and makes files that are whole or not there."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

LONGEST = 255
"""Bytes in a file name: the limit of the usual file systems."""

KEPT_ENDING = 20
"""An ending of at most so many characters outlasts the cutting of a long name: ``.call12.pt``."""

_ESCAPED = frozenset("/\\%~")
_numbers = itertools.count()
_TOKEN = os.urandom(4).hex()  # two machines may share the folder, and their processes a number


def file_name(name: str, ending: str = "") -> str:
    r"""The file name for a name of the program, ``ending`` (as ``.call0.pt``) included.

    An ordinary name stays as it is. ``/``, ``\``, ``%``, ``~``, a leading dot and everything that
    cannot be printed (NUL, newlines, lone surrogates …) are spelt as in URLs, ``%2F`` for a slash, so
    the name is one part of a path: it cannot leave the folder, is never hidden, and
    ``urllib.parse.unquote`` gives it back. What would be longer than 255 bytes is cut and marked by
    ``~`` and a digest of the whole. So two names never share a file.
    """
    if len(ending) > KEPT_ENDING:
        name, ending = name + ending, ""
    whole = "".join(map(_spelt, name + ending))
    if whole.startswith("."):
        whole = "%2E" + whole[1:]
    if whole and len(whole.encode()) <= LONGEST:
        return whole
    digest = "~" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    ending = "".join(map(_spelt, ending))
    return _cut(whole, LONGEST - len((digest + ending).encode())) + digest + ending


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Make a file under a passing name and rename it when it is complete.

    Whoever looks, or comes after a kill, finds the whole file, the one before it, or none.
    """
    passing = path.parent / f".{os.getpid()}-{_TOKEN}-{next(_numbers)}.part"
    try:
        with passing.open("wb") as stream:
            write(stream)
        passing.replace(path)
    except BaseException:
        passing.unlink(missing_ok=True)
        raise


def _spelt(char: str) -> str:
    if char.isprintable() and char not in _ESCAPED:
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _cut(text: str, size: int) -> str:
    """The beginning of a text, at most that many bytes, without half a character."""
    return text.encode()[:size].decode("utf-8", "ignore")
