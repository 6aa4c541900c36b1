"""Installs each part of a recording as a separate feature, so that a failure switches off only that part.

Torch and Python change, and programs may replace any name. So each patch, hook, mode and probe is a feature with a
name. If a feature cannot be made or installed, for whatever reason, it is removed again. The program and all other
features keep working, and a note in the trace names the feature and the reason.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from torchglass.capture.transparency.ours import is_signals
from torchglass.capture.transparency.patches import Make, Patch

T = TypeVar("T")
PROBLEM = "torchglass could not install {name}, which it needs for {needed_for}: {reason}"
_LONGEST_REASON = 300

OFF: dict[str, str] = {}
"""The features that failed when they were last installed, by name, each with its note (`torchglass doctor`)."""


class Installable(Protocol):
    """The object that a feature makes, which changes torch or Python while it is installed."""

    def install(self) -> None:
        """Install this object's patches, hooks or modes."""
        ...

    def remove(self) -> None:
        """Remove whatever is installed. Do nothing if nothing is installed."""
        ...


class Feature:
    """A part of torchglass that is installed while a recording runs. ``install`` and ``remove`` do not raise faults."""

    def __init__(self, name: str, needed_for: str, make: Callable[[], Installable]) -> None:
        self.name = name
        self.needed_for = needed_for
        self.make = make
        self.made: Installable | None = None
        """The object that ``make`` returned. It is kept for later recordings."""
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """The note about this feature if it is off, or the problem that the made object reports, or None."""
        return self._problem or getattr(self.made, "problem", None)

    def install(self) -> None:
        """Make the object at the first call, and install it. If that fails, remove it and remember the problem."""
        try:
            if self.made is None:
                self.made = self.make()
            self.made.install()
        except BaseException as fault:
            self.remove()
            self._problem = switch_off(self.name, self.needed_for, fault)
        else:
            self._problem = None
            if OFF:
                OFF.pop(self.name, None)

    def remove(self) -> None:
        """Remove the object, whatever state it is in. If that fails, remember the problem."""
        if self.made is None:
            return
        try:
            self.made.remove()
        except BaseException as fault:
            self._problem = switch_off(self.name, self.needed_for, fault)


def replaced(name: str, needed_for: str, make: Make, only: Any = None) -> Feature:
    """Return a feature that replaces a name of torch or of Python while a recording runs."""
    owner, _, attribute = name.rpartition(".")
    return Feature(
        name, needed_for, lambda: Patch(pkgutil.resolve_name(owner), attribute, make, only)
    )


def attempt(
    note: Callable[[str], None], name: str, needed_for: str, make: Callable[[], T]
) -> T | None:
    """Make and return a part of one recording. If that fails, call ``note`` with the problem and return None."""
    try:
        made = make()
    except BaseException as fault:
        note(switch_off(name, needed_for, fault))
        return None
    OFF.pop(name, None)
    return made


def switch_off(name: str, needed_for: str, fault: BaseException) -> str:
    """Remember that a feature failed, and return the note about it.

    If a signal handler of the program raised the exception, raise it again.
    """
    if is_signals(fault):
        raise fault
    problem = OFF[name] = PROBLEM.format(name=name, needed_for=needed_for, reason=reason_of(fault))
    return problem


def reason_of(fault: BaseException) -> str:
    """Return an exception as ``Type: text`` on one line. A long text is cut."""
    try:
        text = " ".join(str(fault).split())[:_LONGEST_REASON]
    except Exception:
        text = ""
    if text:
        return f"{type(fault).__name__}: {text}"
    return type(fault).__name__
