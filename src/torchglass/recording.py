"""Runs one recording from start to stop: its recorder, its trace, and the bundle that it is written to.

With a bundle, child processes are recorded too, each into a part of its own (children.py).

The content of a value is *kept* if the trace can return its numbers. Then it is either *in memory* (a copy of its own,
or a tensor that lies in a region with others) or *saved* in the bundle.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torchglass import children, store
from torchglass._trace import Trace
from torchglass.capture.transparency.features import reason_of
from torchglass.capture.transparency.ours import is_signals
from torchglass.compiled import described
from torchglass.errors import BadValue, BundleError, TorchglassError
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.options import Options

NOT_STARTED = (
    "nothing was recorded, because the recorder could not start: {reason} (at {place}); "
    "the program ran without it"
)
_warned = False
"""Whether this process has already warned that nothing was recorded."""
KeptContent = tuple[store.SavedTensor, Any]
"""The row that describes a kept tensor in a bundle, and its bytes."""


class Recording:
    """One run of a ``record`` block. The trace reads its tables and tensors from it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        if options.to is None:
            self._to = None
        else:
            self._to = Path(options.to)
        self._recorder: Any = None
        self._settled: Tables | None = None
        """The tables, once the recording has ended."""
        self._only: list[int] | None = None
        """The events that are kept, if ``only=`` selects some."""
        self._trace: weakref.ref[Trace] | None = None
        """A weak reference, because the trace refers to its recording: both are freed when nobody has the trace."""
        self._program: CodeType | None = None
        """The code of our own function that runs the whole program, if there is one (``torchglass run``)."""

        # Kept contents, by the number of the value in the tables.
        self._copies: dict[int, tuple[str, Any]] = {}
        """Copies in memory, with their names."""
        self._regions: dict[int, KeptContent] = {}
        """Tensors that share a piece of memory, each with that piece."""
        self._saved_at_end: dict[int, store.SavedTensor] | None = None
        """Those in our part of the bundle, once no more are added."""

        # The bundle.
        self._run: str | None = None
        """The id of the run whose bundle this process may write to."""
        self._part: store.Part | None = None
        """The part of the bundle that this process writes."""
        self._refused = ""
        """Why this rank records into memory, although a bundle was asked for."""
        self._problem = ""
        """Why nothing was recorded."""

    @property
    def trace(self) -> Trace:
        """What was recorded; the same object as long as somebody has it."""
        trace = None
        if self._trace is not None:
            trace = self._trace()
        if trace is None:
            trace = Trace(self, self)
            self._trace = weakref.ref(trace)
        return trace

    def start(self, frame: FrameType | None, outermost: bool = False) -> None:
        """Begin to record. ``frame`` is that of the block; ``outermost`` says that it runs the whole program."""
        if os.environ.get("TORCHGLASS") == "0":
            return
        if self._options.names:
            _check_names(self._options.names)
        self._program = None
        if outermost and frame is not None:
            self._program = frame.f_code
        try:
            self._begin(frame, outermost)
        except (BundleError, OSError) as error:
            if self._to is None or self._run is not None or not store.in_job():
                raise
            # In a launched job (torchrun) no process may fail because of the recording.
            self._refused = str(error)
            self._to = None
            children.warn_in_memory(error)
            self._begin(frame, outermost)

    def _begin(self, frame: FrameType | None, outermost: bool) -> None:
        """Open the part of the bundle, start the recorder, and let child processes join."""
        part = None
        try:
            if self._to is not None:
                part = store.open_part(self._to, self._run)
        except Exception as fault:
            if isinstance(fault, TorchglassError | OSError) or is_signals(fault):
                raise
            self._go_on_unrecorded(fault, None, frame)
            return
        try:
            self._recorder = _recorder_class()(self._options, part)
            self._recorder.start(frame, outermost)
            if self._options.stop_on:
                self._recorder.stop_on_bad(self._stop_on_bad)
        except Exception as fault:
            if isinstance(fault, TorchglassError) or is_signals(fault):
                raise
            self._go_on_unrecorded(fault, part, frame)
            return
        if part is not None:
            self._to = part.bundle.path
            self._part = part
            self._run = part.bundle.run
            config = {
                "path": str(self._to),
                "options": _picklable(self._options),
                "run": self._run,
            }
            children.invite(self, config)
            problem = children.spawn_problem()
            if problem is not None:
                self._recorder.session.note(problem)

    def _go_on_unrecorded(
        self, fault: Exception, part: store.Part | None, frame: FrameType | None
    ) -> None:
        """Let the program run without being recorded. A note in the trace says why it is empty."""
        global _warned
        self._problem = NOT_STARTED.format(reason=reason_of(fault), place=_place_of(fault))
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None
        if part is not None:
            part.finish_tables(self.tables())
        if not _warned:
            _warned = True
            _warn(self._problem, frame)

    def _stop_on_bad(self) -> None:
        """Stop the program with an error about its first bad value, unless that value is intended."""
        found = self.trace.first_bad(self._options.stop_on or "nonfinite")
        if found is not None:
            raise BadValue(found.story)

    def go_on_in_child(self) -> None:
        """Record into a new part in a forked child, where the parent's recorder does not work."""
        if self._part is not None:
            self._part.forget()
        self._recorder = None
        self._settled = None
        self._part = None
        self._saved_at_end = None
        frame = _frame_of(self._program)
        self.start(frame, outermost=frame is not None)
        children.stop_at_exit(self)

    def join(self, run: str) -> None:
        """Record into a new part in a spawned process."""
        self._run = run
        self.start(None)
        children.stop_at_exit(self)

    def stop(self, error: BaseException | None) -> None:
        """End the recording, if it has not ended. When this returns, the bundle is complete."""
        if self._part is not None:
            children.uninvite(self)
        if self._recorder is None or not self._recorder.running:
            return
        self._recorder.stop(error)
        if self._part is not None:
            self._seal(self._part)

    def _seal(self, part: store.Part) -> None:
        """Complete the journal and finish the part. After an error of ours it stays as it is."""
        recorder = self._recorder
        packed = None
        try:
            if self._options.only is not None or not self._options.sources:
                # Find the selected events and the names now: later neither the filter nor the sources are there.
                self.tables()
            packed = recorder.packed_journal(self._only)
            part.finish(packed, recorder.number)
        except Exception as fault:
            # This may also come from the user's select(where=…).
            part.give_up(f"{type(fault).__name__}: {fault}")
            recorder.session.fault(fault)
        if part.problem is not None and self._settled is not None:
            self._settled.notes.append(_note_of_part(part.problem))
        recorder.leave_file(packed)

    @property
    def running(self) -> bool:
        return self._recorder is not None and self._recorder.running

    @property
    def engine(self) -> str:
        """Which engine writes the journal and, if it is the one in Python, why."""
        return described()

    def progress(self) -> int:
        if self._recorder is None or self._settled is not None:
            return 0
        return self._recorder.progress()

    def tables(self) -> Tables:
        """Return what was recorded until now, as tables. After the end they are always the same object."""
        if self._settled is not None:
            return self._settled
        if self._recorder is None:
            return self._tables_without_recorder()
        tables: Tables = self._recorder.tables()
        self._find_contents_in_memory(tables)
        only = self._options.only
        if only is not None:
            self._only = [n for n in range(len(tables)) if only.matches(tables.event(n))]
            tables = tables.keep(self._only)
        if tables.complete:
            self._settled = tables
            if self._part is not None and self._part.problem is not None:
                tables.notes.append(_note_of_part(self._part.problem))
            if self._refused:
                tables.notes.append(f"recorded into memory only: {clean(self._refused)}")
        return tables

    def _tables_without_recorder(self) -> Tables:
        if self._problem:
            return Tables(complete=False, notes=[self._problem])
        return Tables(notes=["recording is switched off (TORCHGLASS=0 in the environment)"])

    def _find_contents_in_memory(self, tables: Tables) -> None:
        """Find the contents in memory that belong to values of these tables."""
        recorder = self._recorder
        present = set(tables.io)
        self._copies = {}
        for value, copy in recorder.copies().items():
            number = recorder.settler.values.number(value)
            if number in present:
                self._copies[number] = copy
        if recorder.kept_in_memory:
            regions = recorder.regions
            self._regions = {
                saved.value: (saved, regions[saved.shard])
                for saved in store.saved_rows(tables, recorder.kept_in_memory, 0, present)
                if saved.shard in regions
            }

    # ------------------------------------------------------------ contents of values

    def tensor(self, value: int) -> Any:
        """Return the content of a value, from memory or from the bundle; None if it was not kept."""
        tables = self.tables()
        if value in self._copies:
            return self._copies[value][1]
        if value in self._regions:
            return opened(_content(*self._regions[value]), tables, value)
        saved = self._saved().get(value)
        if saved is None or self._part is None:
            return None
        return opened(self._part.open_tensor(saved), tables, value)

    def kept(self) -> dict[int, str]:
        """Return the values whose content was kept, with their names."""
        self.tables()
        names = dict.fromkeys(self._regions, "")
        names |= {value: name for value, (name, _) in self._copies.items()}
        names |= {value: saved.name for value, saved in self._saved().items()}
        return dict(sorted(names.items()))

    def kept_contents(self) -> Iterator[KeptContent]:
        """Yield the row and the bytes of each kept content, for writing it to another bundle."""
        self.tables()
        for value, (name, copy) in self._copies.items():
            yield from _content_of_copy(name, value, copy)
        for saved, memory in self._regions.values():
            if saved.value not in self._copies:
                yield saved, _content(saved, memory).data
        for saved in self._saved().values():
            if self._part is not None:
                yield saved, self._part.open_tensor(saved).data

    def _saved(self) -> dict[int, store.SavedTensor]:
        """Return the tensors that this process has saved in its part, by the number of the value."""
        if self._saved_at_end is not None:
            return self._saved_at_end
        if self._part is None or self._recorder is None or self._recorder.settler is None:
            return {}
        in_shards = self._part.saved(self._recorder.settler.values.number)
        in_regions = store.saved_rows(
            self._recorder.settler.tables, self._recorder.kept_in_folder, self._part.count
        )
        saved = {each.value: each for each in [*in_regions, *in_shards]}
        if self._settled is not None:
            self._saved_at_end = saved
        return saved


def _check_names(names: tuple[str, ...]) -> None:
    """Raise an error for names of variables that cannot be followed, before anything is made."""
    try:
        from torchglass.capture.variables import Watch
    except Exception as fault:
        # The recorder cannot start either, and says why.
        if is_signals(fault):
            raise
        return
    Watch(names=names)


def _note_of_part(problem: str) -> str:
    return f"{clean(problem)}; the one in memory is whole"


def _place_of(fault: BaseException) -> str:
    """Return the innermost line that an exception was raised at: ``file.py:12``."""
    trace = fault.__traceback__
    place = "no line"
    while trace is not None:
        place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _warn(problem: str, frame: FrameType | None) -> None:
    """Warn at the line of the block. If warnings are errors, print instead, so that the program goes on."""
    text = f"torchglass: {problem}"
    try:
        if frame is None:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            warnings.warn_explicit(text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno)
    except Warning:
        sys.stderr.write(f"{text}\n")


@cache
def _recorder_class() -> Any:
    """Return the recorder class. Importing it imports torch, so this is done when the first block begins.

    Also import what the first mark needs. Otherwise a thread may import it while another one forks, and the child would
    wait for that import for ever.
    """
    importlib.import_module("torchglass.capture.marks")
    return importlib.import_module("torchglass.capture.recorder").Recorder


class BundleTensors:
    """Opens the tensors of a bundle."""

    def __init__(self, loaded: store.Loaded) -> None:
        self._loaded = loaded
        self._tensors: tuple[store.SavedTensor, ...] = ()
        """The tensors in the bundle when it was last read. They change while the bundle grows."""
        self._by_value: dict[int, store.SavedTensor] = {}

    def kept(self) -> dict[int, str]:
        """Return the values whose content is in the bundle, with their names."""
        return {
            saved.value: saved.name for saved in self._loaded.saved_tensors() if saved.value >= 0
        }

    def tensor(self, value: int) -> Any:
        """Return the content of a value, mapped from its file; None if it was not kept."""
        tensors = self._loaded.saved_tensors()
        if tensors is not self._tensors:
            self._tensors = tensors
            self._by_value = {each.value: each for each in tensors}
        saved = self._by_value.get(value)
        if saved is None:
            return None
        return opened(self._loaded.open_tensor(saved), self._loaded.tables(), value)

    def kept_contents(self) -> Iterator[KeptContent]:
        """Yield the row and the bytes of each kept content, for writing it to another bundle."""
        for saved in self._loaded.saved_tensors():
            yield saved, self._loaded.open_tensor(saved).data


def load_trace(path: Path, *progress: Callable[[float], None]) -> Trace:
    """Return the trace in a bundle; ``progress`` is called with the part that has been read, from 0 to 1."""
    loaded = store.load(path, *progress)
    return Trace(loaded, BundleTensors(loaded))


def _content(saved: store.SavedTensor, memory: Any) -> store.Content:
    """Return a tensor that shares a piece of memory with others."""
    return store.content_in(memoryview(memory), saved)


def opened(content: store.Content, tables: Tables, value: int) -> Any:
    """Return a tensor or array over bytes, without a copy."""
    from torchglass.capture.contents import opened as opened_as

    return opened_as(content, tables.metas[tables.value_meta[value]].kind)


def _picklable(options: Options) -> dict[str, Any]:
    """Return options for another process. A ``where`` function cannot be sent, so the child measures everything."""
    sent = options.as_dict()
    if options.chosen is not None and options.chosen.where is not None:
        sent |= {"values": "stats", "chosen": None}
    return sent


def _frame_of(code: CodeType | None) -> FrameType | None:
    """Return the frame among our callers that runs this code. It is searched for, because frames are never kept."""
    frame = None
    if code is not None:
        frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _content_of_copy(name: str, value: int, copy: Any) -> Iterator[KeptContent]:
    """Yield the content of a copy in memory, or nothing if it cannot be written to a bundle."""
    from torchglass.capture.contents import CannotKeep, content_pieces

    try:
        content = content_pieces(copy)
    except CannotKeep:
        # The trace in memory has it; for a bundle the mark has a note.
        return
    yield store.new_tensor(name, content.dtype, content.shape, 0, value), b"".join(content.pieces)


def join(config: children.ChildConfig) -> None:
    """Record into a new part, in a process that multiprocessing started for a recorded one."""
    if children.child_config() is not None:
        # It is being recorded already.
        return
    try:
        recording = Recording(Options.of(config["options"], to=config["path"]))
        recording.join(config["run"])
    except Exception as fault:
        children.warn_not_recorded(fault)
