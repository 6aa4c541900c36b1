"""List the tensors whose content a trace holds, or write one to a file.

examples:
  torchglass values run.trace
  torchglass values run.trace --name q --out q.npy           the last one of that name
  torchglass values run.trace --id 17 --out q.safetensors
"""

from __future__ import annotations

import argparse
import errno
import importlib
from pathlib import Path
from typing import Any

from torchglass.errors import MissingExtra, NotRecorded, UsageError, closest
from torchglass.events.spelling import clean

SUFFIXES = (".npy", ".pt", ".safetensors")


def configure(parser: argparse.ArgumentParser) -> None:
    """Which bundle, which tensor, and where it goes."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()")
    parser.add_argument("--name", help="the name it was marked with; the last one counts")
    parser.add_argument("--id", type=int, metavar="N", help="the number in the list")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"write it there: {', '.join(SUFFIXES)}")


def run(options: argparse.Namespace) -> int:
    """List, or write one."""
    from torchglass.api import load

    trace = load(options.bundle)
    if options.out is None:
        _list(trace, options)
        return 0
    if options.out.suffix not in SUFFIXES:
        raise UsageError(f"--out takes a file that ends in {', '.join(SUFFIXES)}, not {str(options.out)!r}")
    content = trace.tensor(_chosen(trace, options))
    try:
        write(content, options.out)
    except (OSError, RuntimeError) as error:  # torch.save has errors of its own
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{str(options.out)!r} cannot be written: {reason}; choose another path") from None
    return 0


def _list(trace: Any, options: argparse.Namespace) -> None:
    from torchglass.renderers.words import plural

    kept: dict[int, str] = trace.kept()
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
        raise NotRecorded(f"{what}; {closest(clean(options.name or ''), set(map(clean, kept.values())))}")
    return named[-1]


def write(content: Any, path: Path) -> None:
    """Write a tensor or array in the format that the suffix names."""
    is_array = type(content).__module__.partition(".")[0] == "numpy"
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder is not there")
    if path.suffix == ".npy":
        numpy = _needed("numpy")
        try:
            numpy.save(path, content if is_array else content.numpy(), allow_pickle=False)
        except TypeError:  # bfloat16 and the like
            raise UsageError(f"numpy has no dtype for {content.dtype}: write it as .pt or .safetensors") from None
        return
    torch = _needed("torch")
    tensor = _as_tensor(torch, content) if is_array else content
    if path.suffix == ".pt":
        torch.save(tensor.clone(), path)
        return
    try:
        _needed("safetensors.torch").save_file({"tensor": tensor.contiguous()}, path)
    except KeyError:
        raise UsageError(f"safetensors has no dtype for {tensor.dtype}: write it as .pt or .npy") from None


def _as_tensor(torch: Any, array: Any) -> Any:
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # texts, dates, records; numbers in the other byte order
        raise UsageError(f"torch has no dtype for numpy's {clean(str(array.dtype))}: write it as .npy") from None


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MissingExtra(f"this format needs {package}: pip install {package}") from None
