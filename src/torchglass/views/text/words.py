"""Writes everything that is shown in one spelling: tensors, times, counts and places. Makes text
safe to print.
"""

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
from torchglass.events.tables import Tables
from torchglass.events.types import Location, Value

LONGEST_SHAPE = 16
"""How many axes of a shape are written in full."""
LONGEST_CODE = 400
"""How many characters of an expression are kept."""
_OF_PACKAGES = ("__init__.py", "__main__.py")


# ---------------------------------------------------------------- tensors


@lru_cache(maxsize=256)
def dtype_word(dtype: str) -> str:
    """Return ``f32`` for ``float32``. A dtype without a short name is unchanged."""
    plain = dtype.removeprefix("torch.")
    return DTYPES.get(plain) or clean(plain) or "?"


def tensor_word(value: Value, *, device: bool = False) -> str:
    """Return a tensor as ``f32[8, 3]``, followed by `` @ cuda:0`` if ``device`` is set."""
    word = shape_word(value.dtype, value.shape, value.layout) + (
        " numpy" if value.kind == "array" else ""
    )
    if device and value.device:
        return f"{word} @ {clean(value.device)}"
    return word


@lru_cache(maxsize=65536)
def shape_word(dtype: str, shape: tuple[int, ...] | None, layout: str = "strided") -> str:
    """Return a shape as ``f32[8, 3]``, or ``f32[?]`` if it is not known. A layout other than
    strided is added.
    """
    sizes = "?"
    if shape is not None:
        sizes = _sizes(shape)
    kind = layout.removeprefix("torch.")
    return f"{dtype_word(dtype)}[{sizes}]" + ("" if kind in ("strided", "") else f" {clean(kind)}")


def _sizes(shape: tuple[int, ...]) -> str:
    if len(shape) <= LONGEST_SHAPE:
        return ", ".join(map(size_text, shape))
    head = ", ".join(map(size_text, shape[:4]))
    return f"{head}, … {count(len(shape))} dimensions"


# ---------------------------------------------------------------- numbers


def duration(nanoseconds: int | None) -> str:
    """Return a time as ``840 µs``, ``12.3 ms`` or ``2 min 03 s``, or ``—`` if it is not known."""
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
    """Return a whole number in full: ``124,439,808``."""
    return f"{number:,}"


def size(number: int) -> str:
    """Return bytes as ``512 B``, ``1.5 kB``, ``497.8 MB``."""
    for unit, factor in (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if round(number / factor, 1) < 1000:
            if factor == 1:
                return f"{number} B"
            return f"{number / factor:.1f} {unit}"
    return f"{number / 10**12:.1f} TB"


def versions_word(tables: Tables) -> str:
    """Return ``Python 3.11.7, PyTorch 2.13.0``, or what is known of it: earlier formats do not say."""
    known = (("Python", tables.python), ("PyTorch", tables.torch))
    return ", ".join(f"{name} {clean(version)}" for name, version in known if version)


def share(part: int | None, whole: int | None) -> str:
    """Return a share as ``45 %``, or ``—`` if one of the two numbers is not known."""
    if part is None or not whole:
        return "—"
    percent = 100 * part / whole
    if 0 < percent < 0.95:
        if percent >= 0.05:
            return f"{percent:.1f} %"
        return "<0.1 %"
    return f"{percent:.0f} %"


def plural(number: int, word: str) -> str:
    """Return a number with a noun: ``1 event``, ``1,204 events``."""
    if number == 1:
        return f"{count(number)} {word}"
    return f"{count(number)} {word}s"


def _three_digits(number: float, *, exact: bool = False) -> str:
    if exact:
        return f"{number:.0f}"
    if number >= 99.95:
        return f"{number:.0f}"
    if number >= 9.995:
        return f"{number:.1f}"
    return f"{number:.2f}"


# ---------------------------------------------------------------- text


@lru_cache(maxsize=8192)
def one_line(code: str) -> str:
    """Return an expression on one line, without comments, and safe to print."""
    if len(code) > LONGEST_CODE:
        code = code[:LONGEST_CODE] + "…"
    if "\n" in code:
        code = re.sub(r"[ \t]*\\?\r?\n[ \t]*", " ", _without_comments(code)).strip()
        code = re.sub(r"([(\[{]) ", r"\1", code)
        code = re.sub(r",? ([)\]}])", r"\1", code)
    return clean(code)


def _without_comments(code: str) -> str:
    lines = code.split("\n")
    try:
        # In brackets an expression may span lines.
        for token in tokenize.generate_tokens(io.StringIO(f"(\n{code}\n)").readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 2] = lines[row - 2][:column].rstrip()
    except (
        tokenize.TokenError,
        SyntaxError,
        IndexError,
        UnicodeEncodeError,
    ):  # the last from Python 3.12 on
        pass
    return "\n".join(line for line in lines if line.strip())


@lru_cache(maxsize=16384)
def width_of(text: str) -> int:
    """Return how many columns a text takes on a terminal. Wide characters take two, combining marks
    none.
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    if unicodedata.east_asian_width(char) in ("W", "F"):
        return 2
    return 1


def cut(text: str, limit: int) -> str:
    """Cut a text to ``limit`` columns. If something is left out, the last one is ``…``."""
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
    """Make a text safe to print and wrap it. All lines but the first are indented."""
    room = max(room, 12)
    lines = textwrap.wrap(clean(" ".join(text.split())), room, subsequent_indent="  ")
    return [cut(line, room) for line in lines]


# ---------------------------------------------------------------- places


def path_word(file: str) -> str:
    """Return a path relative to the working directory if it is below it, else from
    ``site-packages/`` on, else whole.
    """
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
    """Shorten the name of generated code, such as ``<eval_with_key>.0 from …``."""
    if name.startswith("<"):
        return name.partition(" from ")[0]
    return name


def file_name(file: str) -> str:
    """Return the last part of a path, or the last two if it is ``__init__.py`` or ``__main__.py``.

    Cells are ``In[3]``. Names in angle brackets (``<stdin>``) stay whole.
    """
    return cell_name(file) or _file_name(file)


@lru_cache(maxsize=4096)
def _file_name(file: str) -> str:
    if file.startswith("<"):
        return clean(file)
    folder, _, name = file.rpartition("/")
    package = ""
    if name in _OF_PACKAGES:
        package = folder.rpartition("/")[2]
    return clean(f"{package}/{name}" if package else name or file)


def cell_name(file: str) -> str:
    """Return ``In[3]`` for a cell of a notebook or a prompt, or "" for anything else.

    The kernel names cells by a hash of their text. If IPython is running, it knows which cell has
    that name.
    """
    found = _CELL.match(file)
    if found is None:
        return ""
    if found[1] is not None:
        return f"In[{found[1]}]"
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    try:
        name = str(shell.compile.format_code_name(file)[1])
    # There is no IPython, or it is another version, or it does not know this cell.
    except Exception:
        name = ""
    return clean(name) or f"cell {found[2]}"


def link(text: str, file: str, line: int) -> str:
    """Make a text a link on terminals that support OSC 8. Without a file, it stays plain text."""
    address = _address(file)
    if address:
        return f"\x1b]8;;{address}#{line}\x1b\\{text}\x1b]8;;\x1b\\"
    return text


@lru_cache(maxsize=4096)
def _address(file: str) -> str:
    if file.startswith("<") or not file:
        return ""
    import socket  # slow to import, and needed only for links

    try:
        return f"file://{socket.gethostname()}{quote(str(Path(file).absolute()), errors='replace')}"
    except (OSError, ValueError):
        return ""


# ---------------------------------------------------------------- places

# The place of a source line, as one word at the right edge.


class Places:
    """Writes places: ``model.py:31`` if the file differs from that of the place above, otherwise
    ``:33``.
    """

    def __init__(self, width: int) -> None:
        self._longest = max(width // 4, 12)
        self._file = ""

    def place(self, at: Location) -> str:
        """Return a place as text. A very long name of a file is cut."""
        if self._file == at.file:
            return f":{at.line}"
        return self.whole(at)

    def whole(self, at: Location) -> str:
        """Return a place with its file."""
        self._file = at.file
        return whole_place(at, self._longest)


def place_word(at: Location) -> str:
    """Return a place as ``model.py:31``."""
    return f"{file_name(at.file)}:{at.line}"


def whole_place(at: Location, longest: int) -> str:
    """Return a place as ``model.py:31``, cut if the name of the file is very long."""
    line = f":{at.line}"
    return cut(file_name(at.file), longest - width_of(line)) + line
