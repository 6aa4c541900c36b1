"""Tell whose code a file is: the user's, torch's, the standard library's, generated, or torchglass's."""

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
    """Return ``user``, ``torch``, ``stdlib``, ``generated`` or, for torchglass itself, ``ours``.

    ``source_known`` matters only for names that are not files, such as ``<string>``. Text that a user passed to
    ``exec`` has a known source, and code that dataclasses generate has none.
    """
    if filename.startswith("<"):
        return _origin_by_name(filename, source_known)
    return _origin_by_path(filename)


@cache
def _origin_by_name(filename: str, source_known: bool) -> str:
    if filename.startswith("<frozen"):
        return "stdlib"
    if _GENERATED.match(filename):
        return "generated"
    if source_known or filename == "<stdin>" or is_cell(filename):
        return "user"
    return "generated"


@cache
def _origin_by_path(filename: str) -> str:
    if _GENERATED.match(filename):
        return "generated"
    path = _normal_path(Path(filename).absolute())
    for origin, roots in (("ours", _our_roots()), ("torch", _torch_roots())):
        if path.startswith(roots):
            return origin
    for root in _stdlib_roots():
        if path.startswith(root):
            if _SITE_PACKAGES.match(path[len(root) - 1 :]):
                return "user"
            return "stdlib"
    return "user"


@cache
def _our_roots() -> tuple[str, ...]:
    return _roots([Path(__file__).parents[1]])


@cache
def _torch_roots() -> tuple[str, ...]:
    """Return the folders of torch and of the packages that ship with it, without importing them."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if spec is None and "torch" not in sys.modules:
        spec = importlib.util.find_spec("torch")
    folders: list[Path] = []
    if spec:
        folders = [Path(location) for location in spec.submodule_search_locations or ()]
    shipped = [folder.with_name(name) for folder in folders for name in ("functorch", "torchgen")]
    return _roots([*folders, *shipped])


@cache
def _stdlib_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    archives = [Path(entry) for entry in sys.path if Path(entry).name == zipped]
    return _roots(
        [Path(paths["stdlib"]), Path(paths["platstdlib"]), Path(os.__file__).parent, *archives]
    )


def _roots(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return each folder as given and with links resolved, with a separator at the end."""
    paths: set[str] = set()
    for folder in folders:
        paths.add(_normal_path(folder.absolute()))
        paths.add(_normal_path(folder.resolve()))
    return tuple(sorted(path + os.sep for path in paths))


def _normal_path(path: Path) -> str:
    # Links are not resolved here: a link in a project to a file elsewhere counts as the project's file.
    return os.path.normcase(os.path.normpath(path))
