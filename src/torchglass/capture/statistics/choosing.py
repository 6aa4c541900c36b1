"""Decides while the program runs which events a ``record(values=select(…))`` means, and says at the end if none was.

What was called and in which module is told by two numbers of a record. Where the selection also asks for files, the
first record at each place is settled at once, and its answer is that of all which are alike; ``where=`` is asked of
each that fits otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.transparency.ours import foreign
from torchglass.events.selection import Selection, select
from torchglass.events.types import Event
from torchglass.journal.layout import NONE, PARENT, STACK, WHAT
from torchglass.settle.live import LiveSettler

if TYPE_CHECKING:
    from torchglass.capture.session import Session
    from torchglass.settle.settler import Source

CRITERIA = ("module", "function", "op")
"""Those of which it is said that nothing of that name ran."""


class Wanting(Protocol):
    """Of a recording (capture.recorder.Recorder), what is asked here."""

    session: Session | None
    options: Any
    number: int

    def source(self) -> Source: ...


class Chooser:
    """Which events the values of one recording are kept of."""

    def __init__(self, recorder: Wanting) -> None:
        assert recorder.session is not None
        assert recorder.options.chosen is not None
        self.recorder, self._session = recorder, recorder.session
        self.selection: Selection = recorder.options.chosen
        self._settler = LiveSettler(self._session.journal.streams, recorder.number, recorder.source())
        self._by_call = replace(self.selection, module=(), path=(), hide=(), where=None)
        """What of it can be told by what was called …"""
        self._is_by_name = self.selection == replace(self._by_call, module=self.selection.module)
        """… and whether with the module's path that is all."""
        self._calls: dict[int, bool] = {}
        self._modules: dict[int, bool] = {}
        """By what was called and by the row of a module: whether that fits."""
        self._known: dict[tuple[int, int, int], bool] = {}
        """By both and the stack: whether all of it does."""
        self._ran: dict[str, set[str]] = {each: set() for each in CRITERIA}
        self._is_met = False
        self._lock = RLock()  # a `__del__` that calls torch may run while it is held

    @property
    def way(self) -> int:
        """For which others an answer holds: 1 none, 2 the same call in the same module at the same place, 3 at any."""
        return 1 if self.selection.where is not None else 3 if self._is_by_name else 2

    def chooses(self, log: ThreadLog, at: int) -> bool:
        """Whether the values of this record are meant; asked when it opens and when it closes."""
        words = log.read(at)
        if not words:
            return False
        what = words[WHAT]
        fits = self._calls.get(max(what, NONE))
        if fits is None:
            fits = self._fits_call(max(what, NONE))
        if not fits and what >= 0:
            return False
        module = _module_of(log, words)
        inside = self._modules.get(module)
        if inside is None:
            inside = self._fits_module(module)
        if not fits or not inside:
            return False
        self._is_met |= self._is_by_name
        if self._is_by_name:
            return True
        known = None if self.selection.where is not None else self._known.get((what, module, words[STACK]))
        if known is None:
            with self._lock:
                known = self._known[what, module, words[STACK]] = self._asked(self._event(log, at, words))
        return known

    def _fits_call(self, what: int) -> bool:
        """By kind and name alone: to work out a whole event takes a hundred times as long, and most are not meant."""
        kind, name = "module", ""
        if what >= 0:
            with self._lock:
                self._settler.interned.update()
                kind, name, *_ = self._settler.interned.whats[what]
        if kind in self._ran and kind != "module":
            self._ran[kind].add(name)
        fits = self._calls[what] = self._by_call.matches(_NOTHING._replace(kind=kind, name=name))
        return fits

    def _fits_module(self, module: int) -> bool:
        fits = not self.selection.module
        if module != NONE:
            with self._lock:
                self._settler.interned.update()
                path = self._settler.interned.modules[module].path
            self._ran["module"].add(path)
            fits = self.selection.fits_module(path)
        self._modules[module] = fits
        return fits

    def _event(self, log: ThreadLog, at: int, words: list[int]) -> Event:
        settler = self._settler
        opened = settler.opened(log.number, at, words, self._session.in_backward is not None)
        settler.open.pop((log.number, at), None)  # of its insides each asks for itself
        return opened

    def _asked(self, event: Event) -> bool:
        try:
            found = self.selection.matches(event)
        except Exception as refusal:  # of the program's own select(where=…), which must not stop the program
            foreign(refusal)
            self._session.note(f"record(values=select(where=…)) failed: {type(refusal).__name__}: {refusal}")
            return False
        self._is_met |= found
        return found

    def finish(self) -> None:
        """Say so where nothing that ran was meant."""
        if not self._is_met:
            self._session.note(f"record(values={spelled(self.selection)}) kept nothing: {self._why()}")

    def _why(self) -> str:
        for criterion in CRITERIA:
            patterns: tuple[str, ...] = getattr(self.selection, criterion)
            criteria: dict[str, Any] = {criterion: patterns or None}
            alone = select(**criteria)
            if patterns and not any(alone.matches(_named(criterion, name)) for name in self._ran[criterion]):
                near = _near(patterns, self._ran[criterion])
                return f"no {criterion} {' or '.join(map(repr, patterns))} ran; {near}"
        return "what ran fits some of it, but nothing all of it"


def spelled(selection: Selection) -> str:
    """A selection as it is written."""
    given: list[str] = []
    for name in selection.__slots__:
        patterns: Any = getattr(selection, name)
        if patterns:
            given.append(f"{name}={'…' if name == 'where' else repr(patterns[0] if len(patterns) == 1 else patterns)}")
    return f"select({', '.join(given)})"


def _module_of(log: ThreadLog, words: list[int]) -> int:
    """The row of the innermost module that a record belongs to."""
    while words and words[WHAT] >= 0:
        words = log.read(words[PARENT]) if words[PARENT] != NONE else []
    return -2 - words[WHAT] if words else NONE


_NOTHING = Event(*[None] * len(Event._fields))  # type: ignore[arg-type]


def _named(criterion: str, name: str) -> Event:
    """An event of which only this is known."""
    if criterion == "module":
        return _NOTHING._replace(module=name)
    return _NOTHING._replace(kind=criterion, name=name)


def _near(patterns: tuple[str, ...], names: set[str]) -> str:
    known = sorted({_bare(name) for name in names} - {""})
    near = [each for pattern in patterns for each in get_close_matches(pattern, known, n=3, cutoff=0.5)]
    if near:
        return f"did you mean {' or '.join(repr(each) for each in dict.fromkeys(near))}?"
    shown = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
    return f"what ran: {shown}" if known else "there were none"


def _bare(name: str) -> str:
    return name.removeprefix("torch.").removeprefix("Tensor.").removeprefix("F.").removeprefix("aten::")
