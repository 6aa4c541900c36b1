"""Replaces process-wide names while any recording runs. The last recording to end restores the originals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

Make = Callable[[Any], Any]
"""A function that takes the original and returns the replacement.

In threads that are not recorded, the replacement must only call the original.
"""

_NOTHING = object()
"""Is no attribute of anything."""


class Patch:
    """A replacement for one attribute of one module or class.

    If the attribute belongs to its owner's package, the original and its replacement are kept for all recordings. If
    the program has put another object there, that object is wrapped for one recording only, so that it can be freed. If
    the program replaces our replacement while it is installed, ``remove`` leaves the program's object there.
    """

    def __init__(self, owner: Any, name: str, make: Make, only: Any = None) -> None:
        """Make the replacement of ``owner.name``; with ``only``, replace the attribute only if it is this object."""
        self._owner = owner
        self._held = vars(owner)
        self._name = name
        self._make = make
        self._only = only
        self._put = _setter(owner)
        """Sets a name of the owner."""
        self.original: Any = _NOTHING
        """The object to replace; ``_NOTHING`` if the program has put another object in its place."""
        self.replacement: Any = _NOTHING
        self._wrapped: tuple[Any, Any] | None = None
        """If the program has put another object there: that object and its replacement."""
        current = self._found()
        if only is not None:
            self.original = only
        elif _is_its_own(owner, current):
            self.original = current
        if self.original is not _NOTHING:
            self.replacement = make(self.original)

    def install(self) -> None:
        current = self._found()
        if current is self.original:
            self._put(self._name, self.replacement)
        elif current is not self.replacement and self._only is None:
            replacement = self._make(current)
            self._wrapped = (current, replacement)
            self._put(self._name, replacement)

    def remove(self) -> None:
        current = self._held.get(self._name)
        if current is self.replacement:
            self._put(self._name, self.original)
        elif self._wrapped is not None and current is self._wrapped[1]:
            self._put(self._name, self._wrapped[0])
        self._wrapped = None

    def _found(self) -> Any:
        """Return the attribute to replace, which must be callable."""
        if self._name not in self._held:
            raise AttributeError(f"there is no {self._name} in {self._owner.__name__}")
        current = self._held[self._name]
        if not callable(current) and not hasattr(type(current), "__get__"):
            raise TypeError(f"it is no function but {type(current).__name__}")
        return current


def _setter(owner: Any) -> Callable[[str, Any], None]:
    """Return what sets a name of a module or a class.

    A module's dictionary is written directly. A class is not, because Python caches the attributes of classes.
    """
    held = vars(owner)
    if isinstance(held, dict):
        return held.__setitem__
    return partial(setattr, owner)


def _is_its_own(owner: Any, found: Any) -> bool:
    """Return whether an object comes from the same top-level package as its owner."""
    home = str(getattr(owner, "__module__", None) or owner.__name__)
    package = home.partition(".")[0]
    return str(getattr(found, "__module__", None) or home).partition(".")[0] == package


class PatchGroup:
    """Patches that are installed and removed together, because one is useless without the others."""

    def __init__(self, *patches: Patch) -> None:
        self._patches = patches

    def install(self) -> None:
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        for patch in self._patches:
            patch.remove()


class SharedFeatures:
    """Features that all recordings of the process share. They are installed while at least one recording uses them."""

    def __init__(self, build: Callable[[], list[Any]]) -> None:
        self._build = build
        self._lock = threading.RLock()
        self._users = 0
        self._suspended = 0
        self._installed: list[Any] = []

    def acquire(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            for feature in self._build():
                self._installed.append(feature)
                if not self._suspended:
                    feature.install()

    def problems(self) -> list[str]:
        """Return the notes of the features that could not be installed."""
        found = [feature.problem for feature in self._installed]
        return [problem for problem in found if problem is not None]

    def suspend(self) -> None:
        """Put the originals back until ``resume`` is called, for compiled regions. Calls may be nested."""
        with self._lock:
            self._suspended += 1
            if self._suspended == 1:
                for feature in reversed(self._installed):
                    feature.remove()

    def resume(self) -> None:
        with self._lock:
            self._suspended -= 1
            if self._suspended == 0:
                for feature in self._installed:
                    feature.install()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            while self._installed:
                if not self._suspended:
                    self._installed[-1].remove()
                # Forget the feature only now. If `remove` raises, the next `release` tries it again.
                self._installed.pop()
