"""One recording from start to stop: the recorder, where its trace comes from, and the bundle it is written to.

With a bundle, child processes are recorded too, each into a part of its own (children.py).
"""

from __future__ import annotations

import importlib
import inspect
import os
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torchglass import children, store
from torchglass.compiled import described
from torchglass.errors import BadValue, BundleError
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.events.trace import Trace
from torchglass.events.types import Value
from torchglass.options import Options

Stored = tuple[store.SavedTensor, Any]
"""The row of a tensor, and its bytes."""


class Recording:
    """One run of a ``record`` block, and where its trace gets its tables from."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._to = None if options.to is None else Path(options.to)
        self._recorder: Any = None
        self._settled: Tables | None = None
        self._copies: dict[int, tuple[str, Any]] = {}
        """What is kept in memory, by the number of the value in the tables …"""
        self._regions: dict[int, tuple[store.SavedTensor, Any]] = {}
        """… and what lies there side by side with others, with the memory that it lies in."""
        self._run: str | None = None
        """Which run's bundle a child process joins."""
        self._part: store.Part | None = None
        """The part of the bundle that this process writes."""
        self._written: dict[int, store.SavedTensor] | None = None  # what it holds, when nothing more comes
        self._refused = ""
        """Why this rank records into memory, although a bundle was asked for."""
        self._program: CodeType | None = None
        """Of the function of ours that runs the whole program, if one does."""
        self._trace: weakref.ref[Trace] | None = None
        """Not held: a trace holds its recording, and both are to go when nobody has the trace any more."""

    @property
    def trace(self) -> Trace:
        """What was recorded; the same as long as somebody has it."""
        found = None if self._trace is None else self._trace()
        if found is None:
            found = Trace(self, self)
            self._trace = weakref.ref(found)
        return found

    def start(self, frame: FrameType | None, outermost: bool = False) -> None:
        if os.environ.get("TORCHGLASS") == "0":
            return
        # What cannot be watched or written is refused before anything is made or recorded.
        if self._options.names:
            from torchglass.capture.variables import Watch

            Watch(names=self._options.names)
        self._program = frame.f_code if outermost and frame is not None else None
        try:
            self._begin(frame, outermost)
        except (BundleError, OSError) as error:
            if self._to is None or self._run is not None or not store.in_job():
                raise
            # Of a launched job no process may fail for our sake.
            self._refused, self._to = str(error), None
            children.say_in_memory(error)
            self._begin(frame, outermost)

    def _begin(self, frame: FrameType | None, outermost: bool) -> None:
        part = None if self._to is None else store.open_part(self._to, self._run)
        self._recorder = _recorder_class()(self._options, part)
        self._recorder.start(frame, outermost)
        if self._options.stop_on:
            self._recorder.stop_on_bad(self._stop_on_bad)
        if part is not None:
            self._to, self._part, self._run = part.bundle.path, part, part.bundle.run
            told = {"path": str(self._to), "options": _plain(self._options), "run": self._run}
            children.invite(self, told)

    def _stop_on_bad(self) -> None:
        """Something is not finite: stop the program with the story, unless it was meant."""
        from torchglass.views.bad_story import story_of
        from torchglass.views.first_bad import first_bad, test_of

        found = first_bad(self.trace, test_of(self._options.stop_on or ""))
        if found is not None:
            raise BadValue(story_of(self.trace, found).story)

    def go_on_in_child(self) -> None:
        """In a forked child, where nothing of the parent's recording works: record into a part of its own."""
        if self._part is not None:
            self._part.forget()
        self._recorder, self._settled, self._part, self._written = None, None, None, None
        frame = _frame_of(self._program)
        self.start(frame, outermost=frame is not None)
        children.stop_at_exit(self)

    def join(self, run: str) -> None:
        """In a process that was started anew: the same."""
        self._run = run
        self.start(None)
        children.stop_at_exit(self)

    def stop(self, error: BaseException | None) -> None:
        """End it, if it has not ended; what belongs into a bundle is there when this returns."""
        if self._part is not None:
            children.uninvite(self)
        if self._recorder is None or not self._recorder.running:
            return
        self._recorder.stop(error)
        if self._part is not None:
            self._seal(self._part)

    def _seal(self, part: store.Part) -> None:
        """Turn the journal into the tables of a finished part; a fault of ours leaves it a journal."""
        recorder = self._recorder
        try:
            tables = self.tables()
            part.finish(tables, recorder.settler.values.number, self._in_folder(part))
        except Exception as fault:  # also of the program's own select(where=…)
            part.give_up(f"{type(fault).__name__}: {fault}")
            recorder.session.fault(fault)
        if part.problem is not None and self._settled is not None:
            self._settled.notes.append(f"{clean(part.problem)}; the one in memory is whole")
        recorder.leave_file(is_settled=self._settled is not None)

    @property
    def running(self) -> bool:
        return self._recorder is not None and self._recorder.running

    @property
    def engine(self) -> str:
        """What writes the journal, and why not the compiled one."""
        return described()

    def progress(self) -> int:
        return 0 if self._recorder is None or self._settled is not None else self._recorder.progress()

    def tables(self) -> Tables:
        if self._settled is not None:
            return self._settled
        if self._recorder is None:
            return Tables(notes=["recording is switched off (TORCHGLASS=0 in the environment)"])
        tables: Tables = self._recorder.tables()
        number, copies = self._recorder.settler.values.number, self._recorder.copies()
        present = set(tables.io)
        self._copies = {number(value): kept for value, kept in copies.items() if number(value) in present}
        if self._recorder.kept_in_memory:
            rows, regions = store.saved_rows(tables, self._recorder.kept_in_memory, 0, present), self._recorder.regions
            self._regions = {each.value: (each, regions[each.shard]) for each in rows if each.shard in regions}
        only = self._options.only
        if only is not None:
            tables = tables.keep([n for n in range(len(tables)) if only.matches(tables.event(n))])
        if tables.complete:
            self._settled = tables
            if self._refused:
                tables.notes.append(f"recorded into memory only: {clean(self._refused)}")
        return tables

    # Contents of values

    def tensor(self, value: int) -> Any:
        """The content of a value: in memory, or where it was written to."""
        tables = self.tables()
        if value in self._copies:
            return self._copies[value][1]
        if value in self._regions:
            return opened(_content(*self._regions[value]), tables, value)
        saved = self._saved().get(value)
        return None if saved is None or self._part is None else opened(self._part.open_tensor(saved), tables, value)

    def kept(self) -> dict[int, str]:
        """The values whose content there is, with the names under which it was kept."""
        self.tables()
        held = dict.fromkeys(self._regions, "") | {value: name for value, (name, _) in self._copies.items()}
        held |= {value: saved.name for value, saved in self._saved().items()}
        return dict(sorted(held.items()))

    def stored(self) -> Iterator[Stored]:
        """What is to be written of each content, to keep it once more."""
        self.tables()
        for value, (name, copy) in self._copies.items():
            yield from _stored(name, value, copy)
        for saved, memory in self._regions.values():
            if saved.value not in self._copies:
                yield saved, _content(saved, memory).data
        for saved in self._saved().values():
            if self._part is not None:
                yield saved, self._part.open_tensor(saved).data

    def _saved(self) -> dict[int, store.SavedTensor]:
        """What this process has written to its part, by the number of the value in the tables."""
        if self._written is not None:
            return self._written
        if self._part is None or self._recorder is None or self._recorder.settler is None:
            return {}
        given = self._part.saved(self._recorder.settler.values.number)
        saved = {each.value: each for each in [*self._in_folder(self._part), *given]}
        self._written = saved if self._settled is not None else None
        return saved

    def _in_folder(self, part: store.Part) -> list[store.SavedTensor]:
        """What lies in regions of the part, numbered behind what it was given."""
        return store.saved_rows(self._recorder.settler.tables, self._recorder.kept_in_folder, part.count)


@cache
def _recorder_class() -> Any:
    """The recorder, which imports torch: by the first block.

    And what the first mark needs: a child that is forked while a thread imports waits for that import for ever.
    """
    importlib.import_module("torchglass.capture.marks")
    return importlib.import_module("torchglass.capture.recorder").Recorder


class BundleTensors:
    """Opens the tensors of a bundle."""

    def __init__(self, loaded: store.Loaded) -> None:
        self._loaded = loaded
        self._indexed: tuple[tuple[store.SavedTensor, ...], dict[int, store.SavedTensor]] = (), {}

    def kept(self) -> dict[int, str]:
        """The values whose content is in the bundle, with the names under which it was kept."""
        return {saved.value: saved.name for saved in self._loaded.saved_tensors() if saved.value >= 0}

    def tensor(self, value: int) -> Any:
        """The content of a value, mapped from its file; None when it was not kept."""
        tensors = self._loaded.saved_tensors()
        if tensors is not self._indexed[0]:  # as they were when last asked: a bundle may be growing
            self._indexed = tensors, {each.value: each for each in tensors}
        saved = self._indexed[1].get(value)
        return None if saved is None else opened(self._loaded.open_tensor(saved), self._loaded.tables(), value)

    def stored(self) -> Iterator[Stored]:
        """What is to be written of each content, to keep it once more: the bytes as they are."""
        for saved in self._loaded.saved_tensors():
            yield saved, self._loaded.open_tensor(saved).data


def load_trace(path: Path, *tell: Callable[[float], None]) -> Trace:
    """The trace that a bundle holds; who waits may be told how far reading it has come."""
    loaded = store.load(path, *tell)
    return Trace(loaded, BundleTensors(loaded))


def _content(saved: store.SavedTensor, memory: Any) -> store.Content:
    """A tensor that lies in a piece of memory with others."""
    return store.content_in(memoryview(memory), saved)


def opened(content: store.Content, tables: Tables, value: int) -> Any:
    """A tensor or array over the bytes of a bundle."""
    from torchglass.capture.contents import opened as opened_as

    return opened_as(content, tables.metas[tables.value_meta[value]].kind)


def _described(tensor: Any) -> Value:
    from torchglass.capture.statistics.sketch import described  # not needed to record

    return described(tensor)


Trace.describes = staticmethod(_described)


def _plain(options: Options) -> dict[str, Any]:
    """Options as another process is told them: a ``where`` of the program's own stays here, all is measured instead."""
    own = options.chosen is not None and options.chosen.where is not None
    return options.as_dict() | ({"values": "stats", "chosen": None} if own else {})


def _frame_of(code: CodeType | None) -> FrameType | None:
    """The frame that runs this code below which the caller stands; it is looked for, since frames are never kept."""
    frame = inspect.currentframe() if code is not None else None
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _stored(name: str, value: int, copy: Any) -> Iterator[Stored]:
    from torchglass.capture.contents import CannotKeep, content_pieces

    try:
        content = content_pieces(copy)
    except CannotKeep:
        return  # the note of the mark says so where a bundle was written; else the trace in memory has it
    yield store.new_tensor(name, content.dtype, content.shape, 0, value), b"".join(content.pieces)


def join(told: dict[str, Any]) -> None:
    """In a process that multiprocessing started anew for a recorded one: record into a part of its own."""
    if children.told() is not None:
        return  # it records for its parent already
    try:
        recording = Recording(Options.of(told["options"], to=told["path"]))
        recording.join(told["run"])
    except Exception as fault:
        children.say_not_recorded(fault)
