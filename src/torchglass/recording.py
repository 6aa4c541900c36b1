"""One recording from start to stop: the recorder, where its trace comes from, and the bundle it is written to.

With a bundle, child processes are recorded too, each into a part of its own: a forked one goes on in its own part
at once, one that multiprocessing starts anew (spawn, forkserver) joins when it imports torchglass.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torchglass import store
from torchglass.events.selection import Selection
from torchglass.events.tables import Tables
from torchglass.events.trace import Trace

Stored = tuple[store.SavedTensor, Any]
"""The row of a tensor, and its bytes."""
TO, OPTIONS = "TORCHGLASS_TO", "TORCHGLASS_OPTIONS"
"""The environment variables by which a child process knows where to write and what to record."""


class Recording:
    """One run of a ``record`` block, and where its trace gets its tables from."""

    def __init__(self, options: dict[str, Any], only: Selection | None, to: Path | None) -> None:
        self._options = options
        self._only = only
        self._to = to
        self._recorder: Any = None
        self._settled: Tables | None = None
        self._copies: dict[int, tuple[str, Any]] = {}
        self._part: Path | None = None
        """The part of the bundle that this process wrote."""
        self._written: BundleTensors | None = None
        self._environment: dict[str, str | None] = {}
        """What stood in the environment where we wrote."""
        self.trace = Trace(self, self)

    def start(self, frame: FrameType | None, outermost: bool = False) -> None:
        if os.environ.get("TORCHGLASS") == "0":
            return
        from torchglass.capture.recorder import Options, Recorder

        # A path that cannot be written is refused before anything is recorded.
        keeper = None if self._to is None else Keeper(store.open_writer(self._to))
        self._recorder = Recorder(Options(**self._options))
        self._recorder.start(frame, outermost)
        if keeper is not None:
            self._recorder.stream_to(keeper, self._only)
            self._to, self._part = keeper.path, keeper.part  # whole paths: the program may change its folder
            self._invite_children(keeper)

    def _invite_children(self, keeper: Keeper) -> None:
        """Let processes that are started from now on write to the same bundle."""
        _streaming.append(self)
        _follow_forks()
        told = {TO: str(keeper.path), OPTIONS: json.dumps(self._options), **keeper.environment}
        self._environment = {name: os.environ.get(name) for name in told}
        os.environ.update(told)

    def _uninvite_children(self) -> None:
        if self in _streaming:
            _streaming.remove(self)
        for name, before in self._environment.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        self._environment = {}

    def go_on_in_child(self) -> None:
        """In a forked child, where nothing of the parent's recording works: record into a part of its own."""
        self._recorder, self._settled, self._environment = None, None, {}
        self.start(None)
        stop_at_exit(self)

    def stop(self, error: BaseException | None) -> None:
        """End it, if it has not ended."""
        self._uninvite_children()
        if self._recorder is not None:
            self._recorder.stop(error)

    def tensor(self, value: int) -> Any:
        """The copy of a value: in memory, or where it was written to."""
        self.tables()
        if value in self._copies:
            return self._copies[value][1]
        written = self._in_bundle()
        return None if written is None else written.tensor(value)

    def kept(self) -> dict[int, str]:
        """The values whose content there is, with the names under which it was kept."""
        self.tables()
        written = self._in_bundle()
        elsewhere = {} if written is None else written.kept()
        return {value: name for value, (name, _) in self._copies.items()} | elsewhere

    def stored(self) -> Iterator[Stored]:
        """What is to be written of each content, to keep it once more."""
        self.tables()
        for number, (value, (name, copy)) in enumerate(self._copies.items()):
            yield from _stored(number, name, value, copy)
        written = self._in_bundle()
        if written is not None:
            yield from written.stored()

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
        self.path, self.part, self.environment = writer.bundle.path, writer.part, writer.bundle.environment()
        self.write, self.finish, self.values_changed = writer.write, writer.finish, writer.values_changed

    def keep_tensor(self, name: str, value: int, content: Any) -> None:
        self._writer.shards.submit(name, content.data, content.dtype, content.shape, store.Belongs(value))


def _stored(number: int, name: str, value: int, copy: Any) -> Iterator[Stored]:
    from torchglass.capture.contents import CannotKeep, bytes_of

    try:
        content = bytes_of(copy)
    except CannotKeep:
        return  # the note of the mark says so where a bundle was written; else the trace in memory has it
    yield store.SavedTensor(number, name, value, -1, 0, 0, 0, content.dtype, content.shape, None, 0), content.data


# ---------------------------------------------------------------- child processes

_streaming: list[Recording] = []
"""The recordings of this process that write to a bundle."""
_following: list[bool] = []


def _follow_forks() -> None:
    """Once in a process, and after the recorder's own hook: that one forgets what the parent recorded."""
    if not _following:
        _following.append(True)
        os.register_at_fork(after_in_child=_go_on_in_child)


def _go_on_in_child() -> None:
    inherited, _streaming[:] = list(_streaming), []
    for recording in inherited:
        try:
            recording.go_on_in_child()
        except Exception as fault:  # the child's program must run, recorded or not
            sys.stderr.write(f"torchglass: the child process {os.getpid()} is not recorded: {fault}\n")


def stop_at_exit(recording: Recording) -> None:
    """End a recording when its process does; processes of multiprocessing leave without the usual handlers."""
    atexit.register(recording.stop, None)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        _finalize(recording)
        util.register_after_fork(recording, _finalize)  # a process that has just begun forgets its finalizers


def _finalize(recording: Recording) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, recording.stop, args=(None,), exitpriority=-100)


def join_parents_run() -> None:
    """In a process that multiprocessing started anew for a recorded one: record into a part of its own."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or TO not in os.environ:
        return
    is_child = processes.parent_process() is not None or getattr(processes.current_process(), "_inheriting", False)
    if not is_child or _streaming:
        return
    try:
        options = json.loads(os.environ.get(OPTIONS, "{}"))
        options["variables"] = tuple(options.get("variables", ()))
        recording = Recording(options, None, Path(os.environ[TO]))
        recording.start(None)
        stop_at_exit(recording)
    except Exception as fault:
        sys.stderr.write(f"torchglass: the child process {os.getpid()} is not recorded: {fault}\n")
