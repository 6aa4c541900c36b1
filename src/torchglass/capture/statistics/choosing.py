"""Decides while the program runs which events ``record(values=select(…))`` selects, and notes at the end if none was.

Two numbers of a record identify the callee and the module, and they are usually enough. If the selection also names
files, the first record with each callee, module and stack is turned into an event at once, and the result is reused for
all similar records. ``where=`` is called for each event that meets the other criteria.
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
"""The criteria for which a note can report that nothing with that name ran."""


class RecorderView(Protocol):
    """The part of a recorder (capture.recorder.Recorder) that a chooser uses."""

    session: Session | None
    options: Any
    number: int

    def source(self) -> Source: ...


class Chooser:
    """Chooses the events of one recording whose values are kept."""

    def __init__(self, recorder: RecorderView) -> None:
        assert recorder.session is not None
        assert recorder.options.chosen is not None
        self.recorder = recorder
        self._session = recorder.session
        self.selection: Selection = recorder.options.chosen
        self._settler = LiveSettler(
            self._session.journal.streams, recorder.number, recorder.source()
        )
        self._by_call = replace(self.selection, module=(), path=(), hide=(), where=None)
        """The part of the selection that can be decided from the callee alone."""
        self._is_by_name = self.selection == replace(self._by_call, module=self.selection.module)
        """Whether the selection names only callees and modules, so that no event is needed to decide."""
        self._calls: dict[int, bool] = {}
        """Whether the selection fits each callee, keyed by its number."""
        self._modules: dict[tuple[int, bool], bool] = {}
        """Whether the selection fits each module, keyed by its row and whether the event is its own call."""
        self._known: dict[tuple[int, int, int], bool] = {}
        """Whether the whole selection fits, keyed by callee, module and stack."""
        self._ran: dict[str, set[str]] = {each: set() for each in CRITERIA}
        """The names that ran, for each criterion."""
        self._is_met = False
        """Whether any event was selected."""
        # Reentrant: a `__del__` that calls torch may run while this thread holds the lock.
        self._lock = RLock()

    def chooses(self, log: ThreadLog, at: int) -> bool:
        """Return whether the values of a record are selected. It is called when an event opens and when it closes."""
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
        inside = self._modules.get((module, what < 0))
        if inside is None:
            inside = self._fits_module(module, is_call=what < 0)
        if not fits or not inside:
            return False
        self._is_met |= self._is_by_name
        if self._is_by_name:
            return True
        known = None
        if self.selection.where is None:
            known = self._known.get((what, module, words[STACK]))
        if known is None:
            with self._lock:
                known = self._known[what, module, words[STACK]] = self._asked(
                    self._event(log, at, words)
                )
        return known

    def _fits_call(self, what: int) -> bool:
        """Return whether a callee fits, by kind and name alone; building an event takes a hundred times as long."""
        kind = "module"
        name = ""
        if what >= 0:
            with self._lock:
                self._settler.journal_rows.update()
                kind, name, *_ = self._settler.journal_rows.callees[what]
        if kind in self._ran and kind != "module":
            self._ran[kind].add(name)
        fits = self._calls[what] = self._by_call.matches(_NOTHING._replace(kind=kind, name=name))
        return fits

    def _fits_module(self, module: int, is_call: bool) -> bool:
        fits = not self.selection.module
        if module != NONE:
            with self._lock:
                self._settler.journal_rows.update()
                path = self._settler.journal_rows.modules[module].path
            self._ran["module"].add(path)
            fits = self.selection.fits_module(path, is_call)
        self._modules[module, is_call] = fits
        return fits

    def _event(self, log: ThreadLog, at: int, words: list[int]) -> Event:
        settler = self._settler
        opened = settler.opened(log.number, at, words, self._session.in_backward is not None)
        # Events inside this one are not decided by it, so the settler need not keep it open.
        settler.open.pop((log.number, at), None)
        return opened

    def _asked(self, event: Event) -> bool:
        try:
            found = self.selection.matches(event)
        # The program's select(where=…) failed; that must not stop the program.
        except Exception as refusal:
            foreign(refusal)
            self._session.note(
                f"record(values=select(where=…)) failed: {type(refusal).__name__}: {refusal}"
            )
            return False
        self._is_met |= found
        return found

    def finish(self) -> None:
        """Add a note if the selection matched nothing that ran."""
        if not self._is_met:
            self._session.note(
                f"record(values={spelled(self.selection)}) kept nothing: {self._why()}"
            )

    def _why(self) -> str:
        for criterion in CRITERIA:
            patterns: tuple[str, ...] = getattr(self.selection, criterion)
            criteria: dict[str, Any] = {criterion: patterns or None}
            alone = select(**criteria)
            if patterns and not any(
                alone.matches(_named(criterion, name)) for name in self._ran[criterion]
            ):
                near = _near(patterns, self._ran[criterion])
                return f"no {criterion} {' or '.join(map(repr, patterns))} ran; {near}"
        return "what ran fits some of it, but nothing all of it"


def spelled(selection: Selection) -> str:
    """Return a selection as the user would write it, such as ``select(module='encoder.*')``."""
    given: list[str] = []
    for name in selection.__slots__:
        patterns: Any = getattr(selection, name)
        if patterns:
            given.append(
                f"{name}={'…' if name == 'where' else repr(patterns[0] if len(patterns) == 1 else patterns)}"
            )
    return f"select({', '.join(given)})"


def _module_of(log: ThreadLog, words: list[int]) -> int:
    """Return the row of the innermost module that a record belongs to, or NONE if it is in no module."""
    while words and words[WHAT] >= 0:
        if words[PARENT] != NONE:
            words = log.read(words[PARENT])
        else:
            words = []
    if words:
        return -2 - words[WHAT]
    return NONE


_NOTHING = Event(*[None] * len(Event._fields))  # type: ignore[arg-type]


def _named(criterion: str, name: str) -> Event:
    """Return an event that has only the name for this criterion."""
    if criterion == "module":
        return _NOTHING._replace(module=name)
    return _NOTHING._replace(kind=criterion, name=name)


def _near(patterns: tuple[str, ...], names: set[str]) -> str:
    known = sorted({_bare(name) for name in names} - {""})
    near = [
        each for pattern in patterns for each in get_close_matches(pattern, known, n=3, cutoff=0.5)
    ]
    if near:
        return f"did you mean {' or '.join(repr(each) for each in dict.fromkeys(near))}?"
    shown = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
    if known:
        return f"what ran: {shown}"
    return "there were none"


def _bare(name: str) -> str:
    return (
        name.removeprefix("torch.")
        .removeprefix("Tensor.")
        .removeprefix("F.")
        .removeprefix("aten::")
    )
