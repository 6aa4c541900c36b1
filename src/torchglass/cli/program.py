"""Runs somebody's script or module in this process as ``python`` itself would: same names, paths, errors and status."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

Found = tuple[CodeType, dict[str, Any]]
"""The code of a program, and what its ``__main__`` module knows of itself."""
runpy_parts: Any = runpy
"""``python -m`` is written in Python: what finds a module and says why it cannot is taken from there, as pdb does."""


class CannotStart(Exception):
    """There is nothing to run; python's own message and exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status

    def told(self) -> int:
        """Say it as python does; returns the exit status."""
        print(f"{sys.executable}: {self}", file=sys.stderr)
        return self.status


@dataclass(frozen=True)
class Program:
    """What is to be run, and what ``sys`` is to say of it."""

    argv: list[str]
    folder: str
    """The first entry of ``sys.path``."""
    title: str
    """What a bundle is called after, where nobody gives it a name."""
    find: Callable[[], Found]
    """Finds the code; of a module only once it runs, because that imports the packages which it is in."""
    by_runpy: bool = False
    """Whether python would have run it by ``runpy``, which then stands in its tracebacks."""

    def run(self) -> None:
        """Become this program; its ``__main__`` stays, for what runs at exit and for pickling."""
        main = ModuleType("__main__")
        vars(main).update(__builtins__=sys.modules["builtins"], __annotations__={})
        sys.modules["__main__"] = main
        if "__mp_main__" in sys.modules:  # torch imported multiprocessing, which took our main module for the program's
            sys.modules["__mp_main__"] = main
        sys.argv[:] = self.argv
        put_first(self.folder)
        code, names = self.find()
        vars(main).update(names)
        exec(code, vars(main))


def put_first(folder: str) -> None:
    """Begin ``sys.path`` with a folder, in the place of the one that python put there for us."""
    sys.path[: 0 if sys.flags.safe_path else 1] = [folder] if folder else []


def find_script(path: str, arguments: list[str]) -> Program:
    """The program of ``python PATH arguments…``: a file, or a folder or zip archive with a ``__main__.py`` in it."""
    absolute = os.path.abspath(path)  # noqa: PTH100 (as python: nothing is resolved)
    title = Path(absolute).stem
    importer: Any = pkgutil.get_importer(absolute)
    if importer is not None:
        if importer.find_spec("__main__") is None:
            raise CannotStart(f"can't find '__main__' module in {absolute!r}")
        return Program([path, *arguments], absolute, title, _find_main, by_runpy=True)
    found = _read(absolute)
    folder = "" if sys.flags.safe_path else os.path.dirname(os.path.realpath(absolute))  # noqa: PTH120
    return Program([path, *arguments], folder, title, lambda: found)


def _read(path: str) -> Found:
    """The code of a file."""
    try:
        if path.endswith(".pyc"):
            loader = importlib.machinery.SourcelessFileLoader("__main__", path)
            code = loader.get_code("__main__")
            assert code is not None
        else:
            loader = importlib.machinery.SourceFileLoader("__main__", path)
            code = loader.source_to_code(loader.get_data(path), path)
    except OSError as error:
        raise CannotStart(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}", 2) from None
    names = {"__name__": "__main__", "__file__": path, "__loader__": loader}
    return code, {**names, "__spec__": None, "__package__": None, "__cached__": None}


def _find_main() -> Found:
    """The ``__main__`` of the folder or archive that ``sys.path`` begins with."""
    return _as_main(runpy_parts._get_main_module_details(CannotStart))


def find_module(name: str, arguments: list[str]) -> Program:
    """The program of ``python -m NAME arguments…``: a module, or the ``__main__`` of a package."""
    folder = "" if sys.flags.safe_path else str(Path.cwd())

    def find() -> Found:
        found = _as_main(runpy_parts._get_module_details(name, CannotStart))
        sys.argv[0] = found[1]["__file__"]
        return found

    program = Program(["-m", *arguments], folder, name, find, by_runpy=True)
    if not _seems_to_be_there(name, folder):
        put_first(folder)
        find()
    return program


def _seems_to_be_there(name: str, folder: str) -> bool:
    """Whether there is such a module, as far as can be said without importing the packages which it is in."""
    paths: list[str] | None = [folder, *sys.path[0 if sys.flags.safe_path else 1 :]]
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = _spec_at(".".join(parts[:count]), paths if count > 1 or folder else None)
        if spec is None:
            return False
        if spec.submodule_search_locations is None:
            return count == len(parts)
        paths = list(spec.submodule_search_locations)
    return _spec_at(f"{name}.__main__", paths) is not None


def _spec_at(name: str, paths: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    try:
        if "." not in name and (name in sys.builtin_module_names or name in sys.modules):
            return importlib.util.find_spec(name)
        return importlib.machinery.PathFinder.find_spec(name, paths)
    except (ImportError, ValueError):
        return None


def _as_main(details: tuple[str, importlib.machinery.ModuleSpec, CodeType]) -> Found:
    _, spec, code = details
    names = {"__name__": "__main__", "__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader}
    return code, {**names, "__package__": spec.parent, "__spec__": spec}
