"""What TensorSaver and CallTracer share: an output folder, names of files in it, and which modules are meant."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from torchglass.errors import expect

Names: TypeAlias = Iterable[str] | str | None
Classes: TypeAlias = Iterable[type[nn.Module]] | type[nn.Module]


class BaseDebugger:
    """An output folder, which is made, and the paths of the modules that were registered.

    ``module_paths`` maps ``id(module)`` to the module's path in its model; the model itself is ``root``.
    With ``TORCHGLASS=0`` in the environment it is never enabled.
    """

    def __init__(self, output_dir: str | Path, enabled: bool = True) -> None:
        self.output_dir = Path(output_dir)
        try:
            self.output_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            error.add_note(f"{type(self).__name__}(output_dir) takes a folder, or where one can be made")
            raise
        self.enabled = enabled and allowed()
        self.module_paths: dict[int, str] = {}
        self._registered: dict[int, weakref.ref[nn.Module]] = {}

    def get_module_path(self, module: nn.Module) -> str:
        """The path under which a module was registered, or ``"unknown"``."""
        path = self.module_paths.get(id(module), "unknown")
        registered = self._registered.get(id(module))
        # Ids are used again: a module that died must not lend its path to a later one.
        return path if registered is None or registered() is module else "unknown"

    def __getstate__(self) -> dict[str, Any]:
        # A copy, or another process, has other modules; and weak references cannot be pickled.
        return self.__dict__ | {"module_paths": {}, "_registered": {}}

    def _register(self, module: nn.Module, path: str) -> None:
        self.module_paths[id(module)] = path
        self._registered[id(module)] = weakref.ref(module)


@dataclass(frozen=True)
class Filter:
    """Which modules are meant: of these classes, and with one of these names in the path, and none of those.

    Names match anywhere in the path (``attn`` means ``blocks.0.attn`` too); exclusion wins.
    """

    classes: tuple[type[nn.Module], ...]
    names: tuple[str, ...] | None
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, target_classes: Classes, target_names: Names, exclude_names: Names) -> Filter:
        """From the arguments of register_modules and register_hooks; one class or name need be no tuple."""
        classes = (target_classes,) if isinstance(target_classes, type) else tuple(target_classes)
        return cls(classes, _names(target_names), _names(exclude_names) or ())

    def of_model(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """(path, module) of each that is meant, in the model's own order; a module under two paths once."""
        expect(model, nn.Module, "modules are registered of a model (torch.nn.Module)")
        for name, module in model.named_modules():
            path = name or "root"
            if isinstance(module, self.classes) and self._has(path):
                yield path, module

    def _has(self, path: str) -> bool:
        named = self.names is None or any(name in path for name in self.names)
        return named and not any(name in path for name in self.excluded)


def allowed() -> bool:
    """Whether the environment lets the front doors do anything."""
    return os.environ.get("TORCHGLASS") != "0"


def _names(names: Names) -> tuple[str, ...] | None:
    if names is None:
        return None
    # A string is one name: letter by letter it would match nearly every path.
    return (names,) if isinstance(names, str) else tuple(names)


# ---------------------------------------------------------------- names of files

LONGEST = 255
"""Bytes in a file name: the limit of the usual file systems."""

KEPT_ENDING = 20
"""An ending of at most so many characters outlasts the cutting of a long name: ``.call12.pt``."""

_ESCAPED = frozenset("/\\%~")


def file_name(name: str, ending: str = "") -> str:
    r"""The file name for a name of the program, ``ending`` (as ``.call0.pt``) included.

    An ordinary name stays as it is. ``/``, ``\``, ``%``, ``~``, a leading dot and everything that
    cannot be printed (NUL, newlines, lone surrogates …) are spelt as in URLs, ``%2F`` for a slash, so
    the name is one part of a path: it cannot leave the folder, is never hidden, and
    ``urllib.parse.unquote`` gives it back. What would be longer than 255 bytes is cut and marked by
    ``~`` and a digest of the whole. So two names never share a file.
    """
    if len(ending) > KEPT_ENDING:
        name, ending = name + ending, ""
    whole = "".join(map(_spelt, name + ending))
    if whole.startswith("."):
        whole = "%2E" + whole[1:]
    if whole and len(whole.encode()) <= LONGEST:
        return whole
    digest = "~" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    ending = "".join(map(_spelt, ending))
    room = LONGEST - len((digest + ending).encode())
    return whole.encode()[:room].decode("utf-8", "ignore") + digest + ending  # without half a character


def _spelt(char: str) -> str:
    if char.isprintable() and char not in _ESCAPED:
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
