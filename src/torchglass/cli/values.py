"""List the tensors whose content a trace holds, or write one to a file.

examples:
  torchglass values run.trace
  torchglass values run.trace --name q --out q.npy           the last one of that name
  torchglass values run.trace --id 17 --out q.safetensors
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from torchglass.cli.progress import Bar, add_bundle, loaded
from torchglass.errors import MissingExtra, NotRecorded, TorchglassError, UsageError, closest
from torchglass.events.spelling import clean
from torchglass.store.layout import system_error, whole_file


def configure(parser: argparse.ArgumentParser) -> None:
    """Which bundle, which tensor, and where it goes."""
    add_bundle(parser)
    parser.add_argument("--name", help="the name it was marked with; the last one counts")
    parser.add_argument("--id", type=int, metavar="N", help="the number in the list")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"write it there: {', '.join(WRITERS)}")


def run(options: argparse.Namespace) -> int:
    """List, or write one."""
    trace = loaded(options.bundle)
    if options.out is None:
        _list(trace, options)
        return 0
    if options.out.suffix not in WRITERS:
        raise UsageError(f"--out takes a file that ends in {', '.join(WRITERS)}, not {str(options.out)!r}")
    content = trace.tensor(_chosen(trace, options))
    try:
        with Bar(f"writing {options.out}"):
            write(content, options.out)
    except (OSError, RuntimeError) as error:  # torch.save has errors of its own
        if isinstance(error, TorchglassError):
            raise
        said = system_error(error)
        reason = said.strerror if said is not None else clean(str(error).strip().partition("\n")[0])
        raise UsageError(f"{str(options.out)!r} cannot be written: {reason}; choose another path") from None
    return 0


def _list(trace: Any, options: argparse.Namespace) -> None:
    from torchglass.views.text.words import plural

    kept: dict[int, str] = trace.kept()
    if options.name is not None or options.id is not None:
        _chosen(trace, options)  # what was asked for and is not there is an error, as it is with --out
    for value, given in sorted(kept.items()):
        if options.name not in (None, given) or options.id not in (None, value):
            del kept[value]
            continue
        word = clean(trace.tables.metas[trace.tables.value_meta[value]].word)
        print(f"{value:>6}  {word:<24} {clean(given)}")
    print(f"{plural(len(kept), 'tensor')} kept" + ("" if kept else "; torchglass.mark(name, tensor) keeps one"))


def _chosen(trace: Any, options: argparse.Namespace) -> int:
    kept: dict[int, str] = trace.kept()
    if options.id is not None:
        if options.id not in kept:
            raise NotRecorded(
                f"no tensor {options.id} was kept; torchglass values {clean(options.bundle)} lists those that were"
            )
        if options.name not in (None, kept[options.id]):
            raise UsageError(
                f"tensor {options.id} was kept as {kept[options.id]!r}, not as {options.name!r}: "
                f"give --id or --name alone"
            )
        return options.id
    named = [value for value, name in kept.items() if name == options.name]
    if not named:
        what = "give --name or --id to choose one" if options.name is None else f"no tensor {options.name!r} was kept"
        known = closest(clean(options.name or ""), set(map(clean, kept.values())))
        raise NotRecorded(f"{what}; {known}" + ("" if kept else ": torchglass.mark(name, tensor) keeps one"))
    return named[-1]


# ---------------------------------------------------------------- formats

# Writes one tensor or array in a format that others read: the whole file, or none.

OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors spells an error of the system."""


class NoDtype(Exception):
    """The format has no name for the dtype; the text says whose format it is."""


def write(content: Any, path: Path) -> None:
    """Write it in the format that the suffix names; ``OSError`` when the disk does not take it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder is not there")
    with warnings.catch_warnings(), whole_file(Path(os.path.realpath(path))) as draft:
        warnings.simplefilter("ignore")  # torch warns of dtypes that it calls experimental
        try:
            WRITERS[path.suffix](content, draft)
        except NoDtype as problem:
            others = _others(content, path.suffix)
            cure = f"write it as {' or '.join(others)}" if others else "no format here has one"
            raise UsageError(f"{problem} has no dtype for {clean(str(content.dtype))}: {cure}") from None


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
