"""Holds what TensorSaver and CallTracer share: the output folder, the names of files in it, and the module filter."""

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
    """Makes the output folder, and holds the paths of the registered modules.

    ``module_paths`` maps ``id(module)`` to the module's path in its model. The path of the model itself is ``root``.
    With ``TORCHGLASS=0`` in the environment, ``enabled`` is always False.
    """

    def __init__(self, output_dir: str | Path, enabled: bool = True) -> None:
        self.output_dir = Path(output_dir)
        try:
            self.output_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            error.add_note(
                f"{type(self).__name__}(output_dir) takes a folder, or where one can be made"
            )
            raise
        self.enabled = enabled and allowed()
        self.module_paths: dict[int, str] = {}
        self._registered: dict[int, weakref.ref[nn.Module]] = {}

    def get_module_path(self, module: nn.Module) -> str:
        """Return the path under which a module was registered, or ``"unknown"``."""
        path = self.module_paths.get(id(module), "unknown")
        registered = self._registered.get(id(module))
        # Ids are reused, so a new module must not get the path of a module that has been freed.
        if registered is None or registered() is module:
            return path
        return "unknown"

    def __getstate__(self) -> dict[str, Any]:
        # A copy or another process has other modules, and weak references cannot be pickled.
        return self.__dict__ | {"module_paths": {}, "_registered": {}}

    def _register(self, module: nn.Module, path: str) -> None:
        self.module_paths[id(module)] = path
        self._registered[id(module)] = weakref.ref(module)


@dataclass(frozen=True)
class Filter:
    """Selects modules of ``classes`` whose path contains one of ``names`` and none of ``excluded``.

    A name may be anywhere in the path: ``attn`` selects ``blocks.0.attn``, too.
    """

    classes: tuple[type[nn.Module], ...]
    names: tuple[str, ...] | None
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, target_classes: Classes, target_names: Names, exclude_names: Names) -> Filter:
        """Make a filter from the arguments of register_modules and register_hooks.

        A single class or name may be passed without a tuple.
        """
        if isinstance(target_classes, type):
            classes = (target_classes,)
        else:
            classes = tuple(target_classes)
        return cls(classes, _names(target_names), _names(exclude_names) or ())

    def of_model(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """Yield (path, module) of each selected module, in the order of the model, and each module only once."""
        expect(model, nn.Module, "modules are registered of a model (torch.nn.Module)")
        for name, module in model.named_modules():
            path = name or "root"
            if isinstance(module, self.classes) and self._has(path):
                yield path, module

    def _has(self, path: str) -> bool:
        named = self.names is None or any(name in path for name in self.names)
        return named and not any(name in path for name in self.excluded)


def allowed() -> bool:
    """Return whether torchspy's functions are on: not if ``TORCHGLASS=0`` is in the environment."""
    return os.environ.get("TORCHGLASS") != "0"


def _names(names: Names) -> tuple[str, ...] | None:
    if names is None:
        return None
    # Treat a string as one name. As a sequence of letters, it would match nearly every path.
    if isinstance(names, str):
        return (names,)
    return tuple(names)


# ---------------------------------------------------------------- names of files

LONGEST = 255
"""The most bytes of a file name, which is the limit of the usual file systems."""

KEPT_ENDING = 20
"""The most characters of an ending (``.call12.pt``) that is kept when a long name is cut."""

_ESCAPED = frozenset("/\\%~")


def file_name(name: str, ending: str = "") -> str:
    r"""Return the file name for a name of the program, with ``ending`` (such as ``.call0.pt``).

    An ordinary name stays as it is. ``/``, ``\``, ``%``, ``~``, a leading dot and all characters that cannot be printed
    (NUL, newlines, lone surrogates …) are escaped as in URLs: ``%2F`` for a slash. So the name is one part of a path,
    cannot leave the folder and is never hidden, and ``urllib.parse.unquote`` restores it. A name of more than 255 bytes
    is cut, and ``~`` and a digest of the whole name are added. So two names never share a file.
    """
    if len(ending) > KEPT_ENDING:
        name = name + ending
        ending = ""
    whole = "".join(map(_spelt, name + ending))
    if whole.startswith("."):
        whole = "%2E" + whole[1:]
    if whole and len(whole.encode()) <= LONGEST:
        return whole
    digest = "~" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    ending = "".join(map(_spelt, ending))
    room = LONGEST - len((digest + ending).encode())
    # The cut may be inside a character, so ignore its remaining bytes.
    return whole.encode()[:room].decode("utf-8", "ignore") + digest + ending


def _spelt(char: str) -> str:
    if char.isprintable() and char not in _ESCAPED:
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
