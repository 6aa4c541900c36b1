"""One recording from start to stop: the recorder, where its trace comes from, and the bundle it is written to.

With a bundle, child processes are recorded too, each into a part of its own (children.py).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torchglass import children, store
from torchglass.errors import NotRecorded
from torchglass.events.selection import Selection
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.events.trace import Trace

Stored = tuple[store.SavedTensor, Any]
"""The row of a tensor, and its bytes."""


class Recording:
    """One run of a ``record`` block, and where its trace gets its tables from."""

    def __init__(self, options: dict[str, Any], only: Selection | None, to: Path | None) -> None:
        self._options = options
        self._only = only
        self._to = to
        self._recorder: Any = None
        self._settled: Tables | None = None
        self._copies: dict[int, tuple[str, Any]] = {}
        self._run: str | None = None
        """Which run's bundle a child process joins."""
        self._keeper: Keeper | None = None
        self._part: Path | None = None
        """The part of the bundle that this process wrote."""
        self._written: BundleTensors | None = None
        self.trace = Trace(self, self)

    def start(self, frame: FrameType | None, outermost: bool = False) -> None:
        if os.environ.get("TORCHGLASS") == "0":
            return
        from torchglass.capture.recorder import Options, Recorder

        # Needed by the first mark: a child that is forked while a thread imports waits for that import for ever.
        importlib.import_module("torchglass.capture.marks")

        # What cannot be watched or written is refused before anything is made or recorded.
        if self._options.get("variables"):
            from torchglass.capture.variables import Watch

            Watch(names=self._options["variables"])
        keeper = None if self._to is None else Keeper(store.open_writer(self._to, run=self._run))
        self._recorder = Recorder(Options(**self._options))
        self._recorder.start(frame, outermost)
        if keeper is not None:
            self._recorder.stream_to(keeper, self._only)
            self._to, self._part = keeper.path, keeper.part  # whole paths: the program may change its folder
            self._keeper, self._run = keeper, keeper.run
            told = {"path": str(keeper.path), "options": self._options, "environment": keeper.environment}
            children.invite(self, told)

    def go_on_in_child(self) -> None:
        """In a forked child, where nothing of the parent's recording works: record into a part of its own."""
        self._recorder, self._settled = None, None
        self.start(None)
        children.stop_at_exit(self)

    def join(self, environment: dict[str, str]) -> None:
        """In a process that was started anew: the same."""
        os.environ.update(environment)
        self.start(None)
        children.stop_at_exit(self)

    def stop(self, error: BaseException | None) -> None:
        """End it, if it has not ended."""
        children.uninvite(self)
        if self._recorder is not None:
            self._recorder.stop(error)

    def tensor(self, value: int) -> Any:
        """The copy of a value: in memory, or where it was written to."""
        self.tables()
        if value in self._copies:
            return self._copies[value][1]
        if value in self._on_their_way():
            raise NotRecorded(
                f"the content of value {value} is on its way into {clean(str(self._to))}: "
                "it can be had once the recording has ended"
            )
        written = self._in_bundle()
        return None if written is None else written.tensor(value)

    def kept(self) -> dict[int, str]:
        """The values whose content there is, with the names under which it was kept."""
        self.tables()
        written = self._in_bundle()
        elsewhere = self._on_their_way() if written is None else written.kept()
        return {value: name for value, (name, _) in self._copies.items()} | elsewhere

    def stored(self) -> Iterator[Stored]:
        """What is to be written of each content, to keep it once more."""
        self.tables()
        for number, (value, (name, copy)) in enumerate(self._copies.items()):
            yield from _stored(number, name, value, copy)
        written = self._in_bundle()
        if written is not None:
            yield from written.stored()

    def _on_their_way(self) -> dict[int, str]:
        """The values whose content is being written to the bundle: nobody can open it yet."""
        if self._keeper is None or not self.running:
            return {}
        names: dict[int, str] = self._recorder.session.copies.names
        return {value: name for value, name in list(names.items()) if value not in self._copies}

    def _in_bundle(self) -> BundleTensors | None:
        """The tensors that this process has written, once it has."""
        if self._to is not None and self._part is not None and not self.running:
            self._written = self._written or BundleTensors(store.load_part(self._to, self._part))
        return self._written

    @property
    def running(self) -> bool:
        return self._recorder is not None and self._recorder.running

    def progress(self) -> int:
        return 0 if self._recorder is None or self._settled is not None else self._recorder.progress()

    def tables(self) -> Tables:
        if self._settled is not None:
            return self._settled
        if self._recorder is None:
            return Tables(notes=["recording is switched off (TORCHGLASS=0 in the environment)"])
        self._copies = self._recorder.copies() or self._copies
        tables = self._recorder.tables()
        if self._only is not None:
            tables = tables.keep([n for n in range(len(tables)) if self._only.matches(tables.event(n))])
        if tables.complete:
            self._settled, self._recorder = tables, None
            problem = self._keeper.problem if self._keeper is not None else None
            if problem is not None:
                tables.notes.append(f"{clean(problem)}; the one in memory is whole")
        return tables


class BundleTensors:
    """Opens the tensors of a bundle."""

    def __init__(self, loaded: store.Loaded) -> None:
        self._loaded = loaded

    def kept(self) -> dict[int, str]:
        """The values whose content is in the bundle, with the names under which it was kept."""
        return {saved.value: saved.name for saved in self._loaded.saved_tensors() if saved.value >= 0}

    def tensor(self, value: int) -> Any:
        """The content of a value, mapped from its file; None when it was not kept."""
        saved = next((each for each in reversed(self._loaded.saved_tensors()) if each.value == value), None)
        if saved is None:
            return None
        from torchglass.capture.contents import opened

        tables = self._loaded.tables()
        return opened(self._loaded.open_tensor(saved), tables.metas[tables.value_meta[value]].kind)

    def stored(self) -> Iterator[Stored]:
        """What is to be written of each content, to keep it once more: the bytes as they are."""
        for saved in self._loaded.saved_tensors():
            yield saved, self._loaded.open_tensor(saved).data


class Keeper:
    """A bundle's writer as the recorder wants it."""

    def __init__(self, writer: store.Writer) -> None:
        self._writer = writer
        self.path, self.part, self.run = writer.bundle.path, writer.part, writer.bundle.run
        self.environment = writer.bundle.environment()
        self.write, self.finish, self.values_changed = writer.write, writer.finish, writer.values_changed
        self.rest = writer.shards.rest

    @property
    def problem(self) -> str | None:
        """Why not everything could be written."""
        return self._writer.problem

    def keep_tensor(self, name: str, value: int, content: Any) -> None:
        self._writer.shards.submit(name, content.data, content.dtype, content.shape, store.Belongs(value))


def _stored(number: int, name: str, value: int, copy: Any) -> Iterator[Stored]:
    from torchglass.capture.contents import CannotKeep, bytes_of

    try:
        content = bytes_of(copy)
    except CannotKeep:
        return  # the note of the mark says so where a bundle was written; else the trace in memory has it
    yield store.SavedTensor(number, name, value, -1, 0, 0, 0, content.dtype, content.shape, None, 0), content.data


def join(told: dict[str, Any]) -> None:
    """In a process that multiprocessing started anew for a recorded one: record into a part of its own."""
    if children.is_invited():
        return
    try:
        options = dict(told["options"], variables=tuple(told["options"].get("variables", ())))
        recording = Recording(options, None, Path(told["path"]))
        recording.join(told["environment"])
    except Exception as fault:
        children.say_not_recorded(fault)
