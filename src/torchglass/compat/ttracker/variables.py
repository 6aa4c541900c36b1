"""Follows the named variables of a decorated function, and writes a line for each change."""

from __future__ import annotations

import difflib
import os
import sys
import threading
from types import CodeType, FrameType

from torchglass.capture.variables import Engine, PreviousValue, VariableChange, Watch
from torchglass.compat.ttracker.calls import Tracked, depth_here, is_ours
from torchglass.compat.ttracker.output import guarded, send, words
from torchglass.compat.ttracker.texts import shown, stamp_of
from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import Shown

STYLE = "note"
"""How a change is highlighted on a terminal."""


class _Active(threading.local):
    """The state of variable watching in one thread."""

    def __init__(self) -> None:
        self.watchers: list[VariableWatcher] = []
        """The running watchers, innermost last."""
        self.last: dict[str, tuple[int, str]] = {}
        """The value last seen under each name: its id and text."""


_active = _Active()


class VariableWatcher:
    """Watches variables while the function's code runs in a thread. It uses one engine a thread, also in recursion.

    Threads that the function starts are watched too, as long as the function runs.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.about: Tracked | None = None
        self._watch = Watch(self.names, stamp=stamp_of)
        self._here = threading.local()
        self.seen: set[str] = set()
        """The names that have changed."""
        self._said: set[str] = set()

    def start(self) -> None:
        """Start watching, because the function's code starts or continues to run."""
        here = self._here
        # Also start from 0 in a child that was forked inside a call, because the child is not watched.
        if getattr(here, "pid", None) != os.getpid():
            here.pid = os.getpid()
            here.running = 0
        here.running += 1
        if here.running == 1:
            is_covered = any(each.covers(self) for each in _active.watchers)
            if not _active.watchers:
                _active.last.clear()
            _active.watchers.append(self)
            self._here.engine = None
            if not is_covered:
                self._start_engine()

    def stop(self) -> None:
        """Stop watching, because the function has ended or waits."""
        here = self._here
        here.running = max(0, here.running - 1)
        if not here.running:
            self._stop_engine()
            if self in _active.watchers:
                _active.watchers.remove(self)

    def changed(self, change: VariableChange, frame: FrameType) -> None:
        """Write a line for a change, one level deeper than the innermost decorated call. The engine calls this.

        If several watchers follow the same name, such as those of a function and of its caller, the innermost one
        writes the line.
        """
        nearest = next(
            (each for each in reversed(_active.watchers) if each.wants(change.name)), self
        )
        nearest.seen.add(change.name)
        self.seen.add(change.name)
        if nearest.has_engine() and nearest is not self:
            return
        value = _shown(change)
        before = _active.last.get(change.name)
        _active.last[change.name] = (id(change.new), value.text)
        if change.how == "argument" and (
            is_ours(frame.f_back) or before == _active.last[change.name]
        ):
            return  # the line of the inputs shows it already, or it was passed on under the same name
        send([lines.change(depth_here(), change.name, change.line, value)], STYLE)

    def wants(self, name: str) -> bool:
        """Return whether this watcher follows a name."""
        return name in self.names or self._watch.wants(name)

    def covers(self, other: VariableWatcher) -> bool:
        """Return whether this watcher already follows all names of another one in this thread."""
        return self.has_engine() and all(map(self.wants, other.names))

    def has_engine(self) -> bool:
        """Return whether this watcher has a running engine in this thread. A forked child does not use the parent's."""
        engine: Engine | None = getattr(self._here, "engine", None)
        return engine is not None and not engine.closed

    @guarded
    def _start_engine(self) -> None:
        engine = Engine(self._watch, self)
        engine.start(sys._getframe())
        self._here.engine = engine

    @guarded
    def _stop_engine(self) -> None:
        engine: Engine | None = self._here.engine
        if engine is not None:
            self._here.engine = None
            engine.stop()
            faults = [
                f"torchglass lost changes by a fault of its own: {fault}" for fault in engine.faults
            ]
            self._say(engine.notes + faults)
        self._say_missing()

    def _say(self, texts: list[str]) -> None:
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                send([lines.note(depth_here(), text)])

    def _say_missing(self) -> None:
        """Report once, at the first call, each name that does not occur in the code, since it is probably misspelt."""
        if self.about is None or self._said.issuperset(self.names):
            return
        self._said.update(self.names)
        if self.about.code is not None:
            known = _variables_of(self.about.code)
        else:
            known = set[str]()
        for name in self.names:
            if name.isidentifier() and name not in known and name not in self.seen:
                near = difflib.get_close_matches(name, sorted(known), n=1)
                send([lines.missing(words(), depth_here(), name, near)])


def _variables_of(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}.union(
        *map(_variables_of, inner)
    )


def _shown(change: VariableChange) -> Shown:
    if change.how == "deleted":
        return lines.deleted(words())
    value = shown(change.new, _device(change.old))
    if change.how == "changed":
        return lines.changed_in_place(words(), value)
    return value


def _device(old: object) -> str:
    """Return the device of the previous value, which is the last entry of its stamp."""
    if isinstance(old, PreviousValue):
        stamp = old.stamp
    else:
        stamp = stamp_of(old)
    if isinstance(stamp, tuple) and stamp:
        return str(stamp[-1])
    return "cpu"
