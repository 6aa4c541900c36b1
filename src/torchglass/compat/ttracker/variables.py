"""Follows the named variables of a decorated function, and writes a line for each change."""

from __future__ import annotations

import difflib
import os
import sys
import threading
from types import CodeType, FrameType

from torchglass.capture.variables import Engine, Past, VariableChange, Watch
from torchglass.compat.ttracker.calls import Tracked, depth_here, is_ours
from torchglass.compat.ttracker.output import guarded, send, words
from torchglass.compat.ttracker.values import shown, stamp_of
from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import Shown

STYLE = "note"
"""How a change is highlighted on a terminal."""


class _Active(threading.local):
    """What goes on in this thread."""

    def __init__(self) -> None:
        self.watchers: list[VariableWatcher] = []
        """Those under way, innermost last."""
        self.last: dict[str, tuple[int, str]] = {}
        """The value last seen under each name: its id and text."""


_active = _Active()


class VariableWatcher:
    """Watches while the function's own code runs in a thread; one engine a thread, however deep it recurses.

    Threads that the function starts are watched too, as long as it runs.
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
        """The function's own code runs from here on."""
        here = self._here
        if getattr(here, "pid", None) != os.getpid():  # also in a child forked inside a call, which is not watched
            here.pid, here.running = os.getpid(), 0
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
        """It does not any more, or waits."""
        here = self._here
        here.running = max(0, here.running - 1)
        if not here.running:
            self._stop_engine()
            if self in _active.watchers:
                _active.watchers.remove(self)

    def changed(self, change: VariableChange, frame: FrameType) -> None:
        """A line for each change, one level further in than the innermost decorated call; the engine calls this.

        Where several watch the same name, as a function and one that it calls, the innermost tells.
        """
        nearest = next((each for each in reversed(_active.watchers) if each.wants(change.name)), self)
        nearest.seen.add(change.name)
        self.seen.add(change.name)
        if nearest.has_engine() and nearest is not self:
            return
        value = _shown(change)
        before, _active.last[change.name] = _active.last.get(change.name), (id(change.new), value.text)
        if change.how == "argument" and (is_ours(frame.f_back) or before == _active.last[change.name]):
            return  # told as an input, or passed on under the same name
        send([lines.change(depth_here(), change.name, change.line, value)], STYLE)

    def wants(self, name: str) -> bool:
        """Whether this name was asked for."""
        return name in self.names or self._watch.wants(name)

    def covers(self, other: VariableWatcher) -> bool:
        """Whether nothing is left to watch for the other while this one watches the same thread."""
        return self.has_engine() and all(map(self.wants, other.names))

    def has_engine(self) -> bool:
        """Whether an engine of its own is at work in this thread; in a forked child the parent's is not."""
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
            faults = [f"torchglass lost changes by a fault of its own: {fault}" for fault in engine.faults]
            self._say(engine.notes + faults)
        self._say_missing()

    def _say(self, texts: list[str]) -> None:
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                send([lines.note(depth_here(), text)])

    def _say_missing(self) -> None:
        """A name that no code has: it is misspelt. Said once, with the first call."""
        if self.about is None or self._said.issuperset(self.names):
            return
        self._said.update(self.names)
        known = _variables_of(self.about.code) if self.about.code is not None else set[str]()
        for name in self.names:
            if name.isidentifier() and name not in known and name not in self.seen:
                near = difflib.get_close_matches(name, sorted(known), n=1)
                send([lines.missing(words(), depth_here(), name, near)])


def _variables_of(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}.union(*map(_variables_of, inner))


def _shown(change: VariableChange) -> Shown:
    if change.how == "deleted":
        return lines.deleted(words())
    value = shown(change.new, _device(change.old))
    return lines.changed_in_place(words(), value) if change.how == "changed" else value


def _device(old: object) -> str:
    """Where the value was before: the stamp's last word."""
    stamp = old.stamp if isinstance(old, Past) else stamp_of(old)
    return str(stamp[-1]) if isinstance(stamp, tuple) and stamp else "cpu"
