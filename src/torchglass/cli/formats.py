"""Writes one tensor or array in a format that others read: the whole file, or none."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

from torchglass.errors import MissingExtra, UsageError
from torchglass.events.spelling import clean

OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors spells an error of the system."""


class NoDtype(Exception):
    """The format has no name for the dtype; the text says whose format it is."""


def write(content: Any, path: Path) -> None:
    """Write it in the format that the suffix names; ``OSError`` when the disk does not take it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder is not there")
    with warnings.catch_warnings(), _draft(Path(os.path.realpath(path))) as draft:
        warnings.simplefilter("ignore")  # torch warns of dtypes that it calls experimental
        try:
            WRITERS[path.suffix](content, draft)
        except NoDtype as problem:
            others = _others(content, path.suffix)
            cure = f"write it as {' or '.join(others)}" if others else "no format here has one"
            raise UsageError(f"{problem} has no dtype for {clean(str(content.dtype))}: {cure}") from None


@contextlib.contextmanager
def _draft(path: Path) -> Generator[Path]:
    """A passing name beside the file, which is renamed when all is written: no half of a file is ever there."""
    draft = path.with_name(f".torchglass-{os.getpid()}{path.suffix}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _others(content: Any, suffix: str) -> list[str]:
    """The formats that have a name for its dtype, found by trying."""
    able: list[str] = []
    with tempfile.TemporaryDirectory(prefix="torchglass-") as folder:
        for other, writer in WRITERS.items():
            with contextlib.suppress(NoDtype, MissingExtra):
                if other != suffix:
                    writer(content[:0] if content.ndim else content, Path(folder, f"x{other}"))
                    able.append(other)
    return able


def _write_npy(content: Any, path: Path) -> None:
    numpy = needed("numpy")
    try:
        array = content if _is_array(content) else content.numpy()
    except TypeError:  # bfloat16 and the like
        raise NoDtype("numpy") from None
    with path.open("wb") as file:
        numpy.save(_Plain(file), array, allow_pickle=False)


def _write_pt(content: Any, path: Path) -> None:
    torch = needed("torch")
    tensor = _as_tensor(torch, content).clone()  # torch.save writes all of the memory that a view looks into
    with path.open("wb") as file:
        torch.save(tensor, _Plain(file))


def _write_safetensors(content: Any, path: Path) -> None:
    library = needed("safetensors")
    try:
        if _is_array(content) and not _is_there("torch"):
            needed("safetensors.numpy").save_file({"tensor": needed("numpy").ascontiguousarray(content)}, path)
        else:
            tensor = _as_tensor(needed("torch"), content)
            needed("safetensors.torch").save_file({"tensor": tensor.contiguous()}, path)
    except KeyError:
        raise NoDtype("safetensors") from None
    except library.SafetensorError as error:
        code = OS_ERROR.search(str(error))
        if code is None:
            raise NoDtype("safetensors") from None
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    ".npy": _write_npy,
    ".pt": _write_pt,
    ".safetensors": _write_safetensors,
}
"""By suffix."""


class _Plain:
    """A file that can only be written to: numpy goes past one that can do more, and loses the disk's own words."""

    def __init__(self, file: BinaryIO) -> None:
        self.write, self.flush = file.write, file.flush


def _is_array(content: Any) -> bool:
    return type(content).__module__.partition(".")[0] == "numpy"


def _as_tensor(torch: Any, content: Any) -> Any:
    if not _is_array(content):
        return content
    try:
        return torch.from_numpy(content)
    except (TypeError, ValueError):  # texts, dates, records; numbers in the other byte order
        raise NoDtype("torch") from None


def _is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def needed(name: str) -> Any:
    """A library that a format needs."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MissingExtra(f"this format needs {package}: pip install {package}") from None


def reason_of(error: BaseException) -> str:
    """The disk's own words, which torch hides behind its own, in one line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return clean(str(error).strip().partition("\n")[0])
