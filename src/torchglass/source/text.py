"""Reads the source of recorded code, and finds out whether that text is still the one that ran.

A file may have been edited after the program imported it. So a text is either *trusted* or *in doubt*:

- If the file is older than the process, its text is trusted: it is shown for any code of the file.
- Otherwise the text is in doubt: it is shown only for code that it compiles to.

The file has three parts: the class ``SourceText``; files and their status; code without a file (a notebook cell, a
module in a zip file, ``python -c``).
"""

from __future__ import annotations

import hashlib
import linecache
import os
import re
import stat
import string
import sys
import time
import tokenize
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from torchglass.source.codes import HERE, Code
from torchglass.source.compiling import codes_of, compile_again, is_same, parse
from torchglass.source.exec_source import command_text
from torchglass.source.syntax import Syntax
from torchglass.system import seconds_now, stat_of

NOT_AVAILABLE = "source not available"
CHANGED = "source changed since it ran"
NOT_PYTHON = "source is not Python"
OTHER_PYTHON = "source may have changed since it ran; only Python {}.{} can check"

ABSOLUTE_PREFIXES: tuple[str, ...] = (os.sep,)
"""The beginnings of absolute file names. Code with another name may have been given to ``exec`` as text."""
if os.name == "nt":
    ABSOLUTE_PREFIXES = (os.sep, *(f"{letter}:" for letter in string.ascii_uppercase))
_CELL = re.compile(
    r"<(ipython-input|python-input|doctest|console)\b|.*[\\/]ipykernel_\d+[\\/]\d+\.py$"
)
_is_absolute = lru_cache(maxsize=4096)(os.path.isabs)
"""``os.path.isabs``, cached because each recording asks for each file. Creating a Path takes as long as its status."""
_COARSE_CLOCK = 0.05
"""Seconds by which a file's time stamp can lie before the moment of writing."""
_MAX_FILES = 512
"""Number of files for which a cache keeps what was read. When there are more, the cache is emptied."""


class SourceText:
    """The text of one file, with its lines and its syntax tree. Both are computed when they are first needed."""

    def __init__(
        self,
        filename: str,
        text: str | None,
        problem: str | None = None,
        doubt: str | None = None,
        state: tuple[int, ...] = (),
    ) -> None:
        self.filename = filename
        if text is None:
            self.text = None
        else:
            self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.problem = problem
        """Why there is no text; None if there is one."""
        self.doubt = doubt
        """If the text is in doubt, the problem of code that does not compile from it; None if the text is trusted."""
        self.state = state
        """The state of the file when it was read (``file_state``); () if there is no file."""
        self._compiles_to: dict[str | None, bool] = {}
        """Cached results of ``compiles_to``, by the digest of the code."""
        self.sites: dict[tuple[object, ...], Any] = {}
        """The sites that source/sites.py has read in this text."""

    @cached_property
    def lines(self) -> list[str]:
        if self.text is None:
            return []
        return self.text.split("\n")

    @cached_property
    def syntax(self) -> Syntax | None:
        """The syntax tree, or None if there is no text or the text is not Python."""
        tree = None
        if self.text is not None:
            tree = parse(self.text)
        if tree is None:
            return None
        return Syntax(tree, self.lines)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the text, under which a recording stores it."""
        return hashlib.sha256((self.text or "").encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def is_trusted(self) -> bool:
        """Whether there is a text that can be shown for any code of this file."""
        return self.text is not None and self.doubt is None

    def problem_with(self, code: Code) -> str | None:
        """Return why this text must not be shown for some code, or None if it may be shown."""
        if self.text is None:
            return self.problem
        if self.doubt and not self.compiles_to(code):
            if code.opcodes == HERE:
                return self.doubt
            return OTHER_PYTHON.format(*code.opcodes.python)
        if self.syntax:
            return None
        return NOT_PYTHON

    def compiles_to(self, code: Code) -> bool:
        """Return whether compiling the text gives this code, or code that contains it."""
        result = self._compiles_to.get(code.digest)
        if result is None:
            candidates = self._compiled.get((code.name, code.line), ())
            result = any(is_same(candidate, code) for candidate in candidates)
            self._compiles_to[code.digest] = result
        return result

    def line(self, number: int) -> str:
        """Return one line without its indentation, or "" if there is no such line."""
        if 0 < number <= len(self.lines):
            return self.lines[number - 1].strip()
        return ""

    @cached_property
    def _compiled(self) -> dict[tuple[str, int], list[CodeType]]:
        """All code that the text compiles to, by name and first line."""
        root = None
        if self.text is not None:
            root = compile_again(self.text)
        if root is None:
            return {}
        codes: dict[tuple[str, int], list[CodeType]] = {}
        for code in codes_of(root):
            codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        return codes


known_text = lru_cache(maxsize=512)(SourceText)
"""Return a SourceText, the same object in all recordings, so that its syntax tree is built only once."""


# ---------------------------------------------------------------- files and their status


def read_unchanged(filename: str, state: Sequence[int]) -> SourceText:
    """Read a file that another process saw in this state. Return a SourceText without text if it has changed since."""
    if list(file_state(filename)) != list(state) or not state:
        return SourceText(filename, None, NOT_AVAILABLE)
    return _read_file(filename, tuple(state), (), is_trusted=True)


def file_state(filename: str) -> tuple[int, ...]:
    """Return the time and size of a file, which change when it is written, or () if it is not a file."""
    try:
        status = stat_of(filename)
    except (OSError, ValueError):
        return ()
    return state_of(status)


def state_of(status: os.stat_result | None) -> tuple[int, ...]:
    """Return the time and size of a file from its status, or () if it is not a regular file."""
    if status is not None and stat.S_ISREG(status.st_mode):
        return (status.st_mtime_ns, status.st_size)
    return ()


def doubt_and_status(filename: str) -> tuple[bool, os.stat_result | None]:
    """Return whether the text of a file is in doubt, and the status of the file.

    The status is None if there is no such file. Both come from one function, because reading the status is most of
    what a file costs in each recording.
    """
    try:
        status = stat_of(filename)
    except (OSError, ValueError):
        return not (is_cell(filename) or _was_registered(filename)), None
    return _is_in_doubt(filename, status), status


def _is_in_doubt(filename: str, status: os.stat_result) -> bool:
    """Return whether a file may have changed since its code ran. A relative name may now stand for another file."""
    last_change = max(status.st_mtime, status.st_ctime)
    return last_change >= PROCESS_START - _COARSE_CLOCK or not _is_absolute(filename)


_last_read: dict[str, tuple[tuple[int, ...], SourceText]] = {}
"""By file name, the text of a file that was trusted when it was last read, with its ``_version`` then."""


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Return what identifies one version of a file on this machine.

    In contrast to ``file_state`` it has the time of the last change of the file's status, which copying a file sets.
    """
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read_source(filename: str, first_seen: os.stat_result | None = None) -> SourceText:
    """Read the source of a file, a notebook cell, a module in a zip file or ``python -c``.

    ``first_seen`` is the status of the file when its code was first recorded. If the file was last read in that state,
    return that text, even if the file has changed since. This also saves reading the status again.
    """
    if first_seen is not None:
        version, source = _last_read.get(filename, ((), None))
        if source is not None and version == _version(first_seen):
            return source
    try:
        status = stat_of(filename)
    except (OSError, ValueError):
        if filename:
            return _read_without_file(filename)
        return SourceText(filename, None, NOT_AVAILABLE)
    version = _version(status)
    is_trusted = not _is_in_doubt(filename, status)
    source = _read_file(filename, version, state_of(status), is_trusted=is_trusted)
    if is_trusted:
        if len(_last_read) >= _MAX_FILES:
            _last_read.clear()
        _last_read[filename] = (version, source)
    return source


@lru_cache(maxsize=512)
def _read_file(
    filename: str, version: tuple[int, ...], state: tuple[int, ...], *, is_trusted: bool
) -> SourceText:
    """Read a file. The result is cached over recordings, as parsing a large file takes longer than recording a step.

    ``version`` is only part of the key of the cache: another version of the file is read again.
    """
    del version
    try:
        with tokenize.open(filename) as file:
            text = file.read()
    except (UnicodeDecodeError, SyntaxError, LookupError):
        return SourceText(filename, None, "source is not text in its encoding", state=state)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            reason = error.strerror
        else:
            reason = str(error)
        return SourceText(filename, None, f"source cannot be read: {reason}", state=state)
    doubt = CHANGED
    if is_trusted:
        doubt = None
    return SourceText(filename, text, doubt=doubt, state=state)


# ---------------------------------------------------------------- code without a file


def _read_without_file(filename: str) -> SourceText:
    """Read the source of code that has no file: from the command line, linecache, or the loader of its module."""
    command = None
    if filename == "<string>":
        command = command_text()
    if command is not None:
        return SourceText(filename, command, doubt=NOT_AVAILABLE)
    # This is asked first: getlines() makes the text of a module's loader look like a registered one.
    is_trusted = is_cell(filename) or _was_registered(filename)
    # The entry may be broken by the code that registered it, and linecache raises for some file names.
    try:
        lines = linecache.getlines(filename)
    except Exception:
        lines = []
    if lines:
        if is_trusted:
            doubt = None
        elif filename.startswith("<"):
            doubt = NOT_AVAILABLE
        else:
            doubt = CHANGED
        return SourceText(filename, "".join(lines), doubt=doubt)
    text = _loader_text(filename)
    if text is None:
        return SourceText(filename, None, NOT_AVAILABLE)
    return SourceText(filename, text, doubt=CHANGED)


def _was_registered(filename: str) -> bool:
    """Return whether the code that compiled the text has also registered it in linecache.

    linecache stores the file's time for a text that it read from a file, and None for one that was registered.
    """
    entry = linecache.cache.get(filename)
    return filename != "<string>" and entry is not None and len(entry) > 1 and entry[1] is None


def is_cell(filename: str) -> bool:
    """Return whether a file name stands for a notebook cell, or for a line typed at a prompt."""
    return _CELL.match(filename) is not None


_without_loader: dict[str, int] = {}
"""File names for which no module had a loader, with the number of modules then.

They are searched again only if modules were added: every recording needs the answer, for perhaps thousands of names.
"""


def _loader_text(filename: str) -> str | None:
    """Return the text from the loader of a module, such as a module in a zip file, or None if there is none."""
    if _without_loader.get(filename) == len(sys.modules):
        return None
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and getattr(spec, "origin", None) == filename:
            # The loader may be any program's code.
            try:
                return spec.loader.get_source(spec.name)
            except Exception:
                return None
    if len(_without_loader) >= _MAX_FILES:
        _without_loader.clear()
    _without_loader[filename] = len(sys.modules)
    return None


def _process_start() -> float:
    """Return when this process began, in seconds since the epoch, or the current time if the system does not say."""
    try:
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return seconds_now() - max(age, 0.0)


PROCESS_START = _process_start()
