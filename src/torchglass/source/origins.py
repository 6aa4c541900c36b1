"""Whose code a file is: the user's, torch's, the standard library's, generated, or our own."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from torchglass.source.text import is_cell

_GENERATED = re.compile(
    r"<(eval_with_key|__array_function__ internals|attrs generated|decorator-gen|makefun-gen|lambdifygen)|"
    r"namedtuple_|.*[\\/]torchinductor_[^\\/]*[\\/]"
)
_SITE_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")


def origin_of(filename: str, source_known: bool = False) -> str:
    """``user``, ``torch``, ``stdlib``, ``generated`` or, for torchglass itself, ``ours``.

    ``source_known`` matters only for names that are no file, as ``<string>``: what a user gave to exec has
    a known source, what dataclasses make has none.
    """
    return _origin_by_name(filename, source_known) if filename.startswith("<") else _origin_by_path(filename)


@cache
def _origin_by_name(filename: str, source_known: bool) -> str:
    if filename.startswith("<frozen"):
        return "stdlib"
    if _GENERATED.match(filename):
        return "generated"
    return "user" if source_known or filename == "<stdin>" or is_cell(filename) else "generated"


@cache
def _origin_by_path(filename: str) -> str:
    if _GENERATED.match(filename):
        return "generated"
    path = _spelling(Path(filename).absolute())
    for origin, roots in (("ours", _our_roots()), ("torch", _torch_roots())):
        if path.startswith(roots):
            return origin
    below = next((path[len(root) - 1 :] for root in _stdlib_roots() if path.startswith(root)), None)
    return "user" if below is None or _SITE_PACKAGES.match(below) else "stdlib"


@cache
def _our_roots() -> tuple[str, ...]:
    return _roots([Path(__file__).parents[1]])


@cache
def _torch_roots() -> tuple[str, ...]:
    """The folders of torch and of what is shipped with it, found without importing them."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if spec is None and "torch" not in sys.modules:
        spec = importlib.util.find_spec("torch")
    places = [Path(each) for each in spec.submodule_search_locations or ()] if spec else []
    return _roots([*places, *(each.with_name(name) for each in places for name in ("functorch", "torchgen"))])


@cache
def _stdlib_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    archives = [Path(each) for each in sys.path if Path(each).name == zipped]
    return _roots([Path(paths["stdlib"]), Path(paths["platstdlib"]), Path(os.__file__).parent, *archives])


def _roots(folders: Iterable[Path]) -> tuple[str, ...]:
    """Each folder as given and with its links followed, with a separator at the end."""
    spellings = {_spelling(each) for folder in folders for each in (folder.absolute(), folder.resolve())}
    return tuple(sorted(each + os.sep for each in spellings))


def _spelling(path: Path) -> str:
    # Not resolve(): a link from a project into another folder is still the project's file.
    return os.path.normcase(os.path.normpath(path))
