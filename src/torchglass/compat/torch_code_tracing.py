"""torch-code-tracing's front door: ``TracingMode`` prints each op under the source lines that led to it."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dis import Positions
from functools import lru_cache
from threading import get_ident
from types import FrameType, TracebackType

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.live import Feed, LiveFeed
from torchglass.capture.recorder import Recorder
from torchglass.capture.session import OP
from torchglass.capture.torch import private
from torchglass.events.tables import Tables
from torchglass.events.trace import Trace as Recorded
from torchglass.events.types import Event, Location
from torchglass.journal.layout import NONE, WHAT
from torchglass.options import Options
from torchglass.views.live.code_lines import (
    CodeLines,
    LineOf,
    LineOptions,
    Schema,
    Stack,
    function_name,
    is_traced,
    op_text,
    shown_frames,
)
from torchglass.views.text.style import Page, writable

__all__ = ["TracingMode"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a trace's stack, with the names that ``inspect.FrameInfo`` has; no frame is kept."""

    filename: str
    lineno: int
    function: str
    code_context: list[str] | None
    """The source line with its indentation, None when it is not known."""
    positions: Positions
    index: int | None = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """One op as text and the frames that led to it, outermost first, without torch's own."""

    op_str: str
    stack: list[Frame]


class TracingMode:
    """Prints every tensor op with the source lines that led to it, as it happens.

    ``quiet`` only records; ``succinct`` does not repeat a source line while consecutive ops share it (False: while
    they share the expression); ``color`` highlights the expression. Entered again, it goes on. ``traces`` holds
    each op as text with its stack, ``recorded`` the whole trace of the last block, for every other view.
    """

    def __init__(self, *, quiet: bool = False, succinct: bool = True, color: bool = True) -> None:
        self.recorded: Recorded | None = None
        self._quiet, self._color = quiet, color
        self._recordings: list[_Recording] = []
        self._under_way: dict[int, list[_Recording | None]] = {}
        """By thread; None where it was entered inside itself, and records already."""
        self._lines = CodeLines(Page(color=color), _line_options(succinct, {}))
        self._lock = threading.RLock()
        """Ops of several threads print their lines one after the other."""

    def __enter__(self) -> TracingMode:
        under_way = self._under_way.setdefault(get_ident(), [])
        recording = None
        if not under_way and os.environ.get("TORCHGLASS") != "0":
            recording = _Recording()
            self._recordings.append(recording)
            self.recorded = recording.trace
        under_way.append(recording)
        own_frame = inspect.currentframe()
        try:
            if recording is not None:
                recording.start(own_frame and own_frame.f_back, None if self._quiet else self._show)
        except BaseException:  # Ctrl-C
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recording = self._under_way[get_ident()].pop()
        if recording is not None:
            recording.stop(error)

    @property
    def traces(self) -> list[Trace]:
        """Each op so far as text, with its stack; made when asked for."""
        return [trace for recording in self._recordings for trace in recording.traces()]

    def print(self, *, succinct: bool = True) -> None:
        """Print what was traced so far, in colour as the mode was told."""
        for line in self._stored(self._color, succinct):
            _print(line)

    def format(self, *, color: bool = False, succinct: bool = True) -> str:
        """What was traced so far as text."""
        return "\n".join(self._stored(color, succinct))

    def _stored(self, color: bool, succinct: bool) -> Iterator[str]:
        sources: dict[str, str] = {}
        lines = CodeLines(Page(color=color), _line_options(succinct, sources))
        for recording in self._recordings:
            tables = recording.trace.tables
            sources.update(tables.sources)
            for event in _ops(tables):
                yield from lines.feed(event, "close")
        yield from lines.finish()

    def _show(self, event: Event, edge: str) -> None:
        with self._lock:
            for line in self._lines.feed(event, edge):
                _print(line)


class _Recording:
    """One run of the block, and its traces once somebody has asked for them."""

    def __init__(self) -> None:
        self._recorder = Recorder(Options(ops=True))
        self._feed: LiveFeed | None = None
        self._traces: list[Trace] | None = None
        self.trace = Recorded(self._recorder)

    def start(self, frame: FrameType | None, show: Feed | None) -> None:
        self._recorder.start(frame)
        if show is not None:
            self._feed = LiveFeed(self._recorder, show, _is_op)
            self._recorder.listen(self._feed)

    def stop(self, error: BaseException | None) -> None:
        if self._feed is not None:
            self._recorder.unlisten(self._feed)
        self._recorder.stop(error)

    def traces(self) -> list[Trace]:
        if self._traces is not None:
            return self._traces
        tables = self.trace.tables
        frames = _Frames(tables.sources)
        traces = [Trace(op_text(event, _schema(event.name)), frames.of(event.stack)) for event in _ops(tables)]
        if tables.complete:
            self._traces = traces
        return traces


def _is_op(log: ThreadLog, words: list[int]) -> bool:
    what = words[WHAT]
    return what >= 0 and log.session.kinds[what] == OP


def _ops(tables: Tables) -> Iterator[Event]:
    """The ops that ended, in the order in which they did: that in which they were printed."""
    is_op = [what.kind == OP for what in tables.whats]
    numbers = [number for number, what in enumerate(tables.what) if is_op[what] and tables.end_ns[number] != NONE]
    for number in sorted(numbers, key=tables.end_ns.__getitem__):
        event = tables.event(number)
        if is_traced(event):
            yield event


class _Frames:
    """Stacks in the words of ``inspect``; each is made once."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._line_of = _line_reader(sources)
        self._known: dict[int, tuple[Stack, list[Frame]]] = {}

    def of(self, stack: Stack) -> list[Frame]:
        found = self._known.get(id(stack))
        if found is None:
            found = self._known[id(stack)] = (stack, [self._frame(at) for at in shown_frames(stack)])
        return found[1]

    def _frame(self, at: Location) -> Frame:
        line = self._line_of(at.file, at.line) if at.source else ""
        told = at.col < at.end_col or at.line < at.end_line
        columns = (at.col, at.end_col)
        if line.strip() == at.source:
            columns = (self._bytes(at.file, at.line, at.col), self._bytes(at.file, at.end_line, at.end_col))
        else:  # another text by that name, as what was given to ``exec`` before
            line = at.source
        positions = Positions(at.line, at.end_line, *(columns if told else (None, None)))
        return Frame(at.file, at.line, function_name(at), [line] if line else None, positions, 0 if line else None)

    def _bytes(self, file: str, line: int, column: int) -> int:
        """Python counts columns in bytes."""
        text = self._line_of(file, line)
        return column if text.isascii() else len(text[:column].encode(errors="replace"))


def _line_options(succinct: bool, sources: Mapping[str, str]) -> LineOptions:
    return LineOptions(succinct, _line_reader(sources), _schema)


def _line_reader(sources: Mapping[str, str]) -> LineOf:
    """Lines of the sources that were kept, else of the file as Python itself remembers it."""
    split: dict[str, list[str]] = {}

    def line_of(file: str, line: int) -> str:
        if file in sources and file not in split and file != "<string>":  # whose text is not at hand while it runs
            split[file] = sources[file].split("\n")
        lines = split.get(file, ())
        return lines[line - 1] if 0 < line <= len(lines) else linecache.getline(file, line).rstrip("\n")

    return line_of


@lru_cache(maxsize=4096)
def _schema(name: str) -> Schema:
    """What torch's own schema says of an op: ``_foreach_add_`` and many custom ops have no result."""
    packet, _, overload = name.partition(".")
    try:
        schema = private.get_schema(packet, overload)
    except RuntimeError:  # no schema: a higher-order operator
        schema = None
    if schema is None:
        return Schema()
    types = [each.type for each in (*schema.arguments, *schema.returns)]
    return Schema(bool(schema.returns), tuple(str(each) for each in types if each.kind() == "ClassType"))


def _print(line: str) -> None:
    print(writable(line, sys.stdout))  # noqa: T201 (printing is what a tracer does)
