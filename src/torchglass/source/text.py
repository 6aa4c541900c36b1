"""Reading source text, and knowing whether it is still the text of the code that ran."""

from __future__ import annotations
import __future__ as future

import ast
import hashlib
import linecache
import os
import re
import stat
import string
import sys
import time
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any

from torchglass.source.codes import HERE, Code, digest_of
from torchglass.source.syntax import Syntax

NOT_AVAILABLE = "source not available"
CHANGED = "source changed since it ran"
NOT_PYTHON = "source is not Python"
OTHER_PYTHON = "source may have changed since it ran, which only Python {}.{} could tell"

FOLDERS = (os.sep, *(f"{letter}:" for letter in string.ascii_uppercase)) if os.name == "nt" else (os.sep,)
"""How the names of files begin; code with another name may have been given to ``exec`` as text."""
_CELL = re.compile(r"<(ipython-input|python-input|doctest|console)\b|.*[\\/]ipykernel_\d+[\\/]\d+\.py$")
_stat, _is_absolute = os.stat, lru_cache(maxsize=4096)(os.path.isabs)
"""Asked of each file in each block: a Path takes as long as the question."""
_COARSE_CLOCK = 0.05
"""Seconds by which a file's time stamp can lie before the moment of writing."""
_LONGEST_TEXT = 200_000
_MOST_STRINGS = 2_000
_MOST_COMPILED = 16
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class SourceText:
    """One source text: its lines and its syntax tree, made when first asked for."""

    def __init__(
        self, filename: str, text: str | None, problem: str | None = None, unproven: str | None = None
    ) -> None:
        self.filename = filename
        self.text = None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")
        self.problem = problem
        self.state: tuple[int, ...] = ()
        """Of the file, when it was read: see ``file_state``."""
        self.unproven = unproven
        """What to say of code that does not compile from this text; None trusts the text."""
        self._proven: dict[str | None, bool] = {}
        self.sites: dict[tuple[object, ...], Any] = {}
        """What was read at places of this text (source/sites.py)."""

    @cached_property
    def lines(self) -> list[str]:
        return [] if self.text is None else self.text.split("\n")

    @cached_property
    def syntax(self) -> Syntax | None:
        """None when there is no text or it is no Python."""
        tree = None if self.text is None else parse(self.text)
        return None if tree is None else Syntax(tree, self.lines)

    @cached_property
    def digest(self) -> str:
        """The name under which the text is kept."""
        return hashlib.sha256((self.text or "").encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def trusted(self) -> bool:
        """Whether the text can be shown for any code of this name without proof."""
        return self.text is not None and self.unproven is None

    def problem_with(self, code: Code) -> str | None:
        """Why this text must not be shown for this code; None when it may."""
        if self.text is None:
            return self.problem
        if self.unproven and not self.holds(code):
            return self.unproven if code.opcodes == HERE else OTHER_PYTHON.format(*code.opcodes.python)
        return None if self.syntax else NOT_PYTHON

    def holds(self, code: Code) -> bool:
        """Whether the text compiles to something that contains this code."""
        known = self._proven.get(code.digest)
        if known is None:
            alike = self._compiled.get((code.name, code.line), ())
            known = self._proven[code.digest] = any(is_same(each, code) for each in alike)
        return known

    def line(self, number: int) -> str:
        """One line without its indentation; ``""`` when there is none."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    @cached_property
    def _compiled(self) -> dict[tuple[str, int], list[CodeType]]:
        root = None if self.text is None else compile_again(self.text)
        found: dict[tuple[str, int], list[CodeType]] = {}
        for each in codes_of(root) if root else ():
            found.setdefault((each.co_name, each.co_firstlineno), []).append(each)
        return found


known_text = lru_cache(maxsize=512)(SourceText)
"""A text that was read before; kept over recordings, as its syntax tree is."""


def read_unchanged(filename: str, state: Sequence[int]) -> SourceText:
    """The source of a file that was seen in this state by another process; nothing where it has changed since."""
    if list(file_state(filename)) != list(state) or not state:
        return SourceText(filename, None, NOT_AVAILABLE)
    return _read_file(filename, tuple(state), True)


def file_state(filename: str) -> tuple[int, ...]:
    """What changes whenever a file is written: its time and size; () where there is none, or something else."""
    try:
        found = _stat(filename)
    except (OSError, ValueError):
        return ()
    return state_of(found)


def state_of(found: os.stat_result | None) -> tuple[int, ...]:
    """The same of what the system said of a file."""
    return (found.st_mtime_ns, found.st_size) if found is not None and stat.S_ISREG(found.st_mode) else ()


def look_at(filename: str) -> tuple[bool, os.stat_result | None]:
    """Whether code of this name must be compared with its text, which may not be the one that ran; and the file.

    In one: to ask the system is what a file costs in each block.
    """
    try:
        found = _stat(filename)
    except (OSError, ValueError):
        return not (is_cell(filename) or _was_registered(filename)), None
    return _is_in_doubt(filename, found), found


def _is_in_doubt(filename: str, found: os.stat_result) -> bool:
    """Whether a file may have changed since its code ran; a relative name may mean another file by now."""
    return max(found.st_mtime, found.st_ctime) >= PROCESS_START - _COARSE_CLOCK or not _is_absolute(filename)


_read_before: dict[str, tuple[tuple[int, ...], SourceText]] = {}
"""By name: what a file was when it was last read, and its text."""


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def read_source(filename: str, met: os.stat_result | None = None) -> SourceText:
    """The source of a file, a notebook cell, a module in a zip file or ``python -c``.

    ``met``: the file when its code was met. Where that is how it was last read, that text is the one, also of a file
    that has changed since; and the system is not asked again.
    """
    if met is not None:
        stamp, source = _read_before.get(filename, ((), None))
        if source is not None and stamp == _stamp(met):
            return source
    try:
        found = _stat(filename)
    except (OSError, ValueError):
        return _read_elsewhere(filename) if filename else SourceText(filename, None, NOT_AVAILABLE)
    trusted = not _is_in_doubt(filename, found)
    source = _read_file(filename, _stamp(found), trusted)
    source.state = state_of(found)
    if trusted:
        if len(_read_before) >= _MOST_NAMES:
            _read_before.clear()
        _read_before[filename] = (_stamp(found), source)
    return source


@lru_cache(maxsize=512)
def _read_file(filename: str, state: tuple[int, ...], trusted: bool) -> SourceText:
    """Kept over recordings: to parse a large file takes longer than to record a step."""
    try:
        with tokenize.open(filename) as file:
            text = file.read()
    except (UnicodeDecodeError, SyntaxError, LookupError):
        return SourceText(filename, None, "source is not text in its encoding")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return SourceText(filename, None, f"source cannot be read: {reason}")
    return SourceText(filename, text, None, None if trusted else CHANGED)


def _read_elsewhere(filename: str) -> SourceText:
    command = _command_text() if filename == "<string>" else None
    if command is not None:
        return SourceText(filename, command, None, NOT_AVAILABLE)
    trusted = is_cell(filename) or _was_registered(filename)
    try:
        lines = linecache.getlines(filename)
    except Exception:  # whoever registered it may have broken it; some file names are errors
        lines = []
    if lines:
        unproven = NOT_AVAILABLE if filename.startswith("<") else CHANGED
        return SourceText(filename, "".join(lines), None, None if trusted else unproven)
    text = _loader_text(filename)
    return SourceText(filename, None, NOT_AVAILABLE) if text is None else SourceText(filename, text, None, CHANGED)


def _was_registered(filename: str) -> bool:
    """Whether linecache has the text from the maker of the code: a text read from a file has a time."""
    entry = linecache.cache.get(filename)
    return filename != "<string>" and entry is not None and len(entry) > 1 and entry[1] is None


def is_cell(filename: str) -> bool:
    """Whether this is the name of a notebook cell or of what was typed at a prompt."""
    return _CELL.match(filename) is not None


_MOST_NAMES = 512
_of_no_loader: dict[str, int] = {}
"""Names that no loader knew, and how many modules there were: each recording asks again, and there may be thousands."""


def _loader_text(filename: str) -> str | None:
    """The text that the loader of a module knows, as those of zip files do."""
    if _of_no_loader.get(filename) == len(sys.modules):
        return None
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and getattr(spec, "origin", None) == filename:
            try:
                return spec.loader.get_source(spec.name)
            except Exception:  # any loader, of anybody's making
                return None
    if len(_of_no_loader) >= _MOST_NAMES:
        _of_no_loader.clear()
    _of_no_loader[filename] = len(sys.modules)
    return None


def _command_text() -> str | None:
    """The text given to ``python -c``."""
    arguments = iter(sys.orig_argv[1:])
    for argument in arguments:
        if argument in _OPTIONS_WITH_VALUE:
            next(arguments, None)
        elif not argument.startswith("-") or argument == "-":
            return None
        elif not argument.startswith(("--", "-W", "-X")):
            before, found, rest = argument.partition("c")
            if found and "m" not in before:
                return rest or next(arguments, None)
            if "m" in before:
                return None
    return None


def find_exec_source(code: CodeType, caller: CodeType | None, caller_globals: Mapping[str, Any]) -> str | None:
    """The text that was given to ``exec``, ``eval`` or ``compile``, found among the strings of the caller.

    Only a text that compiles to this very code is returned. To be asked while the caller is there, once for
    each new code object; cheap when the code has a file or is known to linecache.
    """
    filename = code.co_filename
    if filename != "<string>" and (filename in linecache.cache or Path(filename).exists()):
        return None
    return text_holding(Code.of(code), _strings(caller, caller_globals))


def text_holding(code: Code, texts: Iterable[str]) -> str | None:
    """The first of the texts, or of what ``eval`` and ``dedent`` make of it, that compiles to this code."""
    compiled = 0
    for text in texts:
        if len(text) > _LONGEST_TEXT or not _may_hold(text, code):
            continue
        compiled += 1
        if compiled > _MOST_COMPILED:
            return None
        for variant, mode in ((text, "exec"), (text.lstrip(" \t"), "eval"), (dedent(text), "exec")):
            root = compile_again(variant, mode, code)
            if root is not None and contains(root, code):
                return variant
    return None


def _strings(caller: CodeType | None, caller_globals: Mapping[str, Any]) -> Iterator[str]:
    command = _command_text()
    if command is not None:
        yield command
    for values in (() if caller is None else caller.co_consts, list(caller_globals.values())):
        yield from [value for value in values[:_MOST_STRINGS] if type(value) is str]


def _may_hold(text: str, code: Code) -> bool:
    """Cheap reasons why a text cannot be the source: hardly any is then compiled in vain."""
    if not text.isascii():
        return True  # identifiers are normalised, so they need not be found as they are
    return all(name in text for name in code.names if "__" not in name and name.isidentifier())


def _process_start() -> float:
    """When this process began, in seconds since the epoch; at the latest now."""
    try:
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return time.time() - max(age, 0.0)


PROCESS_START = _process_start()


# ---------------------------------------------------------------- compiling

# Compiling source text again, in silence, to prove that a code object comes from it.

_NAME = "<torchglass compiles again>"
_SILENCE = ("ignore", None, Warning, re.compile(re.escape(_NAME)), 0)
_FEATURES = [getattr(future, name) for name in future.all_feature_names]
_FUTURE_FLAGS = sum({feature.compiler_flag for feature in _FEATURES} - {0x10})
"""All but nested_scopes, whose bit means something else in ``co_flags``."""
_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def parse(text: str) -> ast.Module | None:
    """The syntax tree; None when the text is no Python."""
    tree = _compile(text, "exec", ast.PyCF_ONLY_AST)
    return tree if isinstance(tree, ast.Module) else None


def compile_again(text: str, mode: str = "exec", like: Code | None = None) -> CodeType | None:
    """The code of a text, with the ``__future__`` settings of another code; None when it does not compile."""
    code = _compile(text, mode, like.flags & _FUTURE_FLAGS if like else 0)
    return code if isinstance(code, CodeType) else None


def contains(root: CodeType, code: Code) -> bool:
    """Whether the code, or one that is the same, is part of the root."""
    return any(is_same(each, code) for each in codes_of(root))


def codes_of(root: CodeType) -> Iterator[CodeType]:
    """The code and all code inside it."""
    yield root
    for constant in root.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def is_same(one: CodeType, other: Code) -> bool:
    """Whether code that was just compiled is what ran: equal in instructions, positions, names and constants."""
    if (one.co_name, one.co_firstlineno) != (other.name, other.line):
        return False
    return other.opcodes == HERE and digest_of(one) == other.digest


def _compile(text: str, mode: str, flags: int) -> object:
    """Compile without a warning reaching the program, which has had its own already.

    ``warnings.catch_warnings`` would show warnings anew that were to be shown once, and it races with other
    threads. A filter that only matches our file name, put in and taken out of the list itself, does neither.
    """
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, _SILENCE)
    try:
        return compile(text, _NAME, mode, flags=flags, dont_inherit=True)
    except _FAILURES:
        return None
    finally:
        filters.remove(_SILENCE)
