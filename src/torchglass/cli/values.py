"""List the tensors that a trace keeps, or write them to a file.

examples:
  torchglass values run.trace
  torchglass values run.trace --only module=encoder.*        inputs and outputs of these events
  torchglass values run.trace --only function=softmax --out weights.npz
  torchglass values run.trace --name q --out q.npy           the last one with that name
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
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import Bar, add_bundle, loaded
from torchglass.errors import MissingExtra, NotRecorded, TorchglassError, UsageError, closest
from torchglass.events.spelling import clean
from torchglass.store.layout import system_error, whole_file

ALL_IN_ONE = ".npz"
"""The format that holds several tensors."""
HEADINGS = ("id", "name", "module", "shape", "step", "at")


@dataclass(frozen=True)
class KeptTensor:
    """A tensor whose content was kept, and where it comes from."""

    id: int
    name: str
    """The name it was marked with, else the program's name."""
    module: str
    shape: str
    step: str
    """The expression that gave it, or first took it."""
    place: str

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the cells of its row."""
        return str(self.id), self.name, self.module, self.shape, self.step, self.place


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle, which tensors, and where to write them."""
    add_bundle(parser)
    parser.add_argument(
        "--name", help="the name that it was marked with; if several have it, the last one"
    )
    parser.add_argument("--id", type=int, metavar="N", help="the number in the list")
    parser.add_argument(
        "--only",
        action="append",
        metavar="KEY=PATTERN",
        help="inputs and outputs of these events, such as module=encoder.* or function=softmax; repeatable",
    )
    formats = ", ".join(WRITERS)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"write one tensor to this file: {formats}; or all listed ones: {ALL_IN_ONE}",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """List the tensors, or write them."""
    out: Path | None = options.out
    if out is not None and out.suffix not in (*WRITERS, ALL_IN_ONE):
        known = ", ".join((*WRITERS, ALL_IN_ONE))
        raise UsageError(f"--out takes a file that ends in {known}, not {str(out)!r}")
    trace = loaded(options.bundle)
    if out is None:
        _list(_rows(trace, options), options)
        return 0
    if out.suffix == ALL_IN_ONE:
        rows = _rows(trace, options)
        written = [row.id for row in rows]
        content = _by_name(trace, rows)
    else:
        written = [_chosen(trace, options)]
        content = trace.tensor(written[0])
    _write(content, out)
    if options.json:
        print_json("values", {"written": str(out), "ids": written})
    return 0


def _write(content: Any, out: Path) -> None:
    try:
        with Bar(f"writing {out}"):
            write(content, out)
    except (OSError, RuntimeError) as error:  # torch.save has errors of its own
        if isinstance(error, TorchglassError):
            raise
        system = system_error(error)
        if system is not None:
            reason = system.strerror
        else:
            reason = clean(str(error).strip().partition("\n")[0])
        raise UsageError(f"{str(out)!r} cannot be written: {reason}; choose another path") from None


def _by_name(trace: Any, rows: Sequence[KeptTensor]) -> dict[str, Any]:
    """Return the tensors by name. If several have one name, the name is followed by the id of each."""
    if not rows:
        raise NotRecorded("no kept tensor matches, so there is nothing to write")
    often = Counter(row.name for row in rows)
    found: dict[str, Any] = {}
    for row in rows:
        if row.name and often[row.name] == 1:
            name = row.name
        else:
            name = f"{row.name}#{row.id}"
        # In a zip archive a slash would make folders.
        found[name.replace("/", "_")] = trace.tensor(row.id)
    return found


def _list(rows: Sequence[KeptTensor], options: argparse.Namespace) -> None:
    from torchglass.cli.sql import table_lines
    from torchglass.views.text.words import plural

    if options.json:
        print_json("values", {"tensors": [asdict(row) for row in rows]})
        return
    if rows:
        for line in table_lines(HEADINGS, [row.texts for row in rows]):
            print(line)
    print(
        f"{plural(len(rows), 'tensor')} kept"
        + ("" if rows else "; torchglass.mark(name, tensor) keeps one")
    )


def _rows(trace: Any, options: argparse.Namespace) -> list[KeptTensor]:
    """Return the requested tensors, ordered by number."""
    from torchglass.cli.views import selection

    kept: dict[int, str] = trace.kept()
    if options.name is not None or options.id is not None:
        # Raise an error if a requested value does not exist, as with --out.
        _chosen(trace, options)
    events: dict[int, Any] = {}
    chosen = None
    if options.only:
        chosen = selection(options.only)
    for event in trace.events(chosen):
        for value in (*event.inputs, *event.outputs):
            if value.id in kept and (value.id not in events or value.producer == event.id):
                events[value.id] = event
    rows: list[KeptTensor] = []
    for number, name in sorted(kept.items()):
        if options.name not in (None, name) or options.id not in (None, number):
            continue
        shape = clean(trace._tables.metas[trace._tables.value_meta[number]].word)
        if number in events:
            rows.append(_row(number, name, shape, events[number]))
        elif chosen is None:  # the tensor was kept, but no event of the trace has it
            rows.append(KeptTensor(number, clean(name), "", shape, "", ""))
    return rows


def _row(number: int, name: str, shape: str, event: Any) -> KeptTensor:
    """Return the row of a tensor: with the event that gave it, or else the one that first took it."""
    from torchglass.program.variables.targets import assigned_to
    from torchglass.views.text.cells import expression
    from torchglass.views.text.words import one_line, place_word

    value = next(each for each in (*event.outputs, *event.inputs) if each.id == number)
    if event.code:
        step = expression(assigned_to(event), event.code, event.operator)
    else:
        step = clean(event.name)
    place = ""
    if event.location is not None:
        place = place_word(event.location)
    called = one_line(name or _called(event, number) or value.role)
    return KeptTensor(number, called, clean(event.module or ""), shape, step, place)


def _called(event: Any, number: int) -> str:
    """Return the program's name of a tensor: the variable it was assigned to, or the expression of the argument."""
    if len(event.outputs) == 1 and event.outputs[0].id == number:
        return ", ".join(event.target)
    if len(event.operands) == len(event.inputs):
        for value, operand in zip(event.inputs, event.operands, strict=True):
            if value.id == number:
                return str(operand)
    return ""


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
        what = "give --name or --id to choose one"
        if options.name is not None:
            what = f"no tensor {options.name!r} was kept"
        known = closest(clean(options.name or ""), {clean(name) for name in kept.values() if name})
        raise NotRecorded(
            f"{what}; {known}" + ("" if kept else ": torchglass.mark(name, tensor) keeps one")
        )
    return named[-1]


# ---------------------------------------------------------------- formats

# Writes one tensor or array in a format that others read: the whole file, or none.

OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors spells an error of the system."""


class NoDtype(Exception):
    """The format has no name for the dtype. The text says whose format it is."""


def write(content: Any, path: Path) -> None:
    """Write the tensors in the format that the suffix of the path names. Raise ``OSError`` if the disk is full."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist")
    with warnings.catch_warnings(), whole_file(Path(os.path.realpath(path))) as draft:
        warnings.simplefilter("ignore")  # torch warns of dtypes that it calls experimental
        try:
            if path.suffix == ALL_IN_ONE:
                _write_npz(content, draft)
            else:
                WRITERS[path.suffix](content, draft)
        except NoDtype as problem:
            if path.suffix == ALL_IN_ONE:
                raise UsageError(f"{problem}; write that one as .pt or .safetensors") from None
            others = _others(content, path.suffix)
            cure = "no format here has one"
            if others:
                cure = f"write it as {' or '.join(others)}"
            raise UsageError(
                f"{problem} has no dtype for {clean(str(content.dtype))}: {cure}"
            ) from None


def _others(content: Any, suffix: str) -> list[str]:
    """Return the formats that support its dtype, found by trying."""
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
        if _is_array(content):
            array = content
        else:
            array = content.numpy()
    except TypeError:  # bfloat16 and the like
        raise NoDtype("numpy") from None
    with path.open("wb") as file:
        numpy.save(_Plain(file), array, allow_pickle=False)


def _write_npz(contents: Mapping[str, Any], path: Path) -> None:
    numpy = needed("numpy")
    arrays: dict[str, Any] = {}
    for name, content in contents.items():
        try:
            if _is_array(content):
                arrays[name] = content
            else:
                arrays[name] = content.numpy()
        except TypeError:  # bfloat16 and the like
            raise NoDtype(
                f"numpy has no dtype for {clean(str(content.dtype))}, which {clean(name)} has"
            ) from None
    # Not numpy.savez(**arrays): a tensor may be called `file`.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                numpy.lib.format.write_array(file, numpy.asanyarray(array), allow_pickle=False)


def _write_pt(content: Any, path: Path) -> None:
    torch = needed("torch")
    # torch.save writes all of the memory that a view looks into.
    tensor = _as_tensor(torch, content).clone()
    with path.open("wb") as file:
        torch.save(tensor, _Plain(file))


def _write_safetensors(content: Any, path: Path) -> None:
    library = needed("safetensors")
    try:
        if _is_array(content) and not _is_there("torch"):
            needed("safetensors.numpy").save_file(
                {"tensor": needed("numpy").ascontiguousarray(content)}, path
            )
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
    """A file that can only be written to. Numpy bypasses a full file object, and loses the system's error message."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write
        self.flush = file.flush


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
    """Import a library that a format needs."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MissingExtra(f"this format needs {package}: pip install {package}") from None
