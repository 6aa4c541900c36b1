"""One spelling for everything that is shown: tensors, times, counts, places, and text made safe to print."""

from __future__ import annotations

import io
import re
import sys
import textwrap
import tokenize
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchglass.events.spelling import DTYPES, clean, size_text
from torchglass.events.types import Location, Value

LONGEST_SHAPE = 16
LONGEST_CODE = 400
_OF_PACKAGES = ("__init__.py", "__main__.py")


# ---------------------------------------------------------------- tensors


@lru_cache(maxsize=256)
def dtype_word(dtype: str) -> str:
    """``float32`` is ``f32``; a dtype without a short name keeps its own."""
    plain = dtype.removeprefix("torch.")
    return DTYPES.get(plain) or clean(plain) or "?"


def tensor_word(value: Value, *, device: bool = False) -> str:
    """``f32[8, 3]``, with `` @ cuda:0`` where asked."""
    word = shape_word(value.dtype, value.shape, value.layout) + (" numpy" if value.kind == "array" else "")
    return f"{word} @ {clean(value.device)}" if device and value.device else word


@lru_cache(maxsize=65536)
def shape_word(dtype: str, shape: tuple[int, ...] | None, layout: str = "strided") -> str:
    """``f32[8, 3]``; ``f32[?]`` when the shape is not known; a layout other than strided is told."""
    sizes = "?" if shape is None else _sizes(shape)
    kind = layout.removeprefix("torch.")
    return f"{dtype_word(dtype)}[{sizes}]" + ("" if kind in ("strided", "") else f" {clean(kind)}")


def _sizes(shape: tuple[int, ...]) -> str:
    if len(shape) <= LONGEST_SHAPE:
        return ", ".join(map(size_text, shape))
    head = ", ".join(map(size_text, shape[:4]))
    return f"{head}, … {count(len(shape))} dimensions"


# ---------------------------------------------------------------- numbers


def duration(nanoseconds: int | None) -> str:
    """``840 µs``, ``12.3 ms``, ``2 min 03 s``; ``—`` for a time that is not known."""
    if nanoseconds is None:
        return "—"
    if nanoseconds >= 60_000_000_000:
        seconds = round(nanoseconds / 1e9)
        return f"{seconds // 60} min {seconds % 60:02d} s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if round(nanoseconds / size) < 1000:
            return f"{_three_digits(nanoseconds / size, exact=size == 1)} {unit}"
    return f"{_three_digits(nanoseconds / 1e9)} s"


def count(number: int) -> str:
    """A whole number in full: ``124,439,808``."""
    return f"{number:,}"


def size(number: int) -> str:
    """Bytes: ``512 B``, ``1.5 kB``, ``497.8 MB``."""
    for unit, factor in (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if round(number / factor, 1) < 1000:
            return f"{number} B" if factor == 1 else f"{number / factor:.1f} {unit}"
    return f"{number / 10**12:.1f} TB"


def share(part: int | None, whole: int | None) -> str:
    """``45 %``; ``—`` where one of the two is not known."""
    if part is None or not whole:
        return "—"
    percent = 100 * part / whole
    if 0 < percent < 0.95:
        return f"{percent:.1f} %" if percent >= 0.05 else "<0.1 %"
    return f"{percent:.0f} %"


def plural(number: int, word: str) -> str:
    """``1 event``, ``1,204 events``."""
    return f"{count(number)} {word}" if number == 1 else f"{count(number)} {word}s"


def _three_digits(number: float, *, exact: bool = False) -> str:
    if exact:
        return f"{number:.0f}"
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


# ---------------------------------------------------------------- text


@lru_cache(maxsize=8192)
def one_line(code: str) -> str:
    """An expression on one line: its line breaks collapsed, comments inside it left out, made safe."""
    if len(code) > LONGEST_CODE:
        code = code[:LONGEST_CODE] + "…"
    if "\n" in code:
        code = re.sub(r"[ \t]*\\?\r?\n[ \t]*", " ", _without_comments(code)).strip()
        code = re.sub(r"([(\[{]) ", r"\1", code)
        code = re.sub(r",? ([)\]}])", r"\1", code)
    return clean(code)


def _without_comments(code: str) -> str:
    lines = code.splitlines()
    try:
        # Brackets let an expression run over lines; those of the expression itself are balanced.
        for token in tokenize.generate_tokens(io.StringIO(f"(\n{code}\n)").readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 2] = lines[row - 2][:column].rstrip()
    except (tokenize.TokenError, SyntaxError, IndexError, UnicodeEncodeError):  # the last from Python 3.12 on
        pass
    return "\n".join(line for line in lines if line.strip())


@lru_cache(maxsize=16384)
def width_of(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def cut(text: str, limit: int) -> str:
    """At most ``limit`` columns of the text, the last one ``…`` when something is left out."""
    if len(text) * 2 <= limit or width_of(text) <= limit:
        return text
    if limit <= 0:
        return ""
    if text.isascii():
        return text[: limit - 1].rstrip() + "…"
    used = 0
    for index, char in enumerate(text):
        used += _columns(char)
        if used > limit - 1:
            return text[:index].rstrip() + "…"
    return text


def wrapped(text: str, room: int) -> list[str]:
    """Text made safe and broken into lines of that width; further lines are indented."""
    room = max(room, 20)
    lines = textwrap.wrap(clean(" ".join(text.split())), room, subsequent_indent="  ")
    return [cut(line, room) for line in lines]


# ---------------------------------------------------------------- places


def path_word(file: str) -> str:
    """Relative to the working directory when below it, else from ``site-packages/`` on, else whole."""
    try:
        return cell_name(file) or _path_word(file, str(Path.cwd()).rstrip("/"))
    except OSError:  # the working directory was removed
        return _path_word(file, "")


_CELL = re.compile(r"<ipython-input-(\d+)-|.*[\\/]ipykernel_\d+[\\/](\d+)\.py$")


@lru_cache(maxsize=4096)
def _path_word(file: str, folder: str) -> str:
    if file.startswith("<"):
        return clean(file)
    if folder and file.startswith(folder + "/"):
        file = file[len(folder) + 1 :]
    _, found, rest = file.rpartition("site-packages/")
    return clean(found + rest)


def known_as(name: str) -> str:
    """Generated code may be named after where it comes from, at length: ``<eval_with_key>.0 from …``."""
    return name.partition(" from ")[0] if name.startswith("<") else name


def file_name(file: str) -> str:
    """The last part of a path (``einops/__init__.py``: of a package's own file the last two, as all have that name);
    cells as ``In[3]``; names in angle brackets (``<stdin>``) stay whole.
    """
    return cell_name(file) or _file_name(file)


@lru_cache(maxsize=4096)
def _file_name(file: str) -> str:
    if file.startswith("<"):
        return clean(file)
    folder, _, name = file.rpartition("/")
    package = folder.rpartition("/")[2] if name in _OF_PACKAGES else ""
    return clean(f"{package}/{name}" if package else name or file)


def cell_name(file: str) -> str:
    """``In[3]`` for a cell of a notebook or prompt; "" for anything else.

    The kernel names cells by their text: which of them a text is, is asked of IPython where it runs.
    """
    found = _CELL.match(file)
    if found is None:
        return ""
    if found[1] is not None:
        return f"In[{found[1]}]"
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    try:
        name = str(shell.compile.format_code_name(file)[1])
    except Exception:  # there is none, or it is of another version, or knows nothing of this one
        name = ""
    return clean(name) or f"cell {found[2]}"


def link(text: str, file: str, line: int) -> str:
    """The text, clickable on terminals that know OSC 8; places without a file stay plain text."""
    address = _address(file)
    return f"\x1b]8;;{address}#{line}\x1b\\{text}\x1b]8;;\x1b\\" if address else text


@lru_cache(maxsize=4096)
def _address(file: str) -> str:
    if file.startswith("<") or not file:
        return ""
    import socket  # only where places are links, and slow to import

    try:
        return f"file://{socket.gethostname()}{quote(str(Path(file).absolute()), errors='replace')}"
    except (OSError, ValueError):
        return ""


# ---------------------------------------------------------------- places

# Where a line was written, as one word at the right edge.


class Places:
    """Where a line was written: ``model.py:31`` where the file changes at a depth, ``:33`` while it stays the same."""

    def __init__(self, width: int) -> None:
        self._longest = max(width // 4, 12)
        self._files: list[str] = []

    def place(self, depth: int, at: Location) -> str:
        """The word to show at this depth."""
        files = self._files
        del files[depth + 1 :]
        around = files[-1] if files else ""
        while len(files) <= depth:
            files.append(around)
        if files[depth] == at.file:
            return f":{at.line}"
        files[depth] = at.file
        return whole_place(at, self._longest)


def place_word(at: Location) -> str:
    """``model.py:31``."""
    return f"{file_name(at.file)}:{at.line}"


def whole_place(at: Location, longest: int) -> str:
    """``model.py:31``, however long the name."""
    line = f":{at.line}"
    return cut(file_name(at.file), longest - width_of(line)) + line
