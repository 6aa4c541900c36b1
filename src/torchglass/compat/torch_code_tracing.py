"""Offers torch-code-tracing's interface: ``TracingMode`` prints each op under the source lines that led to it."""

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

from torchglass._trace import Trace as Recorded
from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.live import Feed, LiveFeed
from torchglass.capture.recorder import Recorder
from torchglass.capture.session import OP
from torchglass.capture.torch import private
from torchglass.events.tables import Tables
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
    """One frame of a trace's stack, with the field names of ``inspect.FrameInfo``. It does not keep the real frame."""

    filename: str
    lineno: int
    function: str
    code_context: list[str] | None
    """The source line with its indentation, or None if it is not known."""
    positions: Positions
    index: int | None = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """One op as text and the frames that led to it, outermost first, without torch's own."""

    op_str: str
    stack: list[Frame]


class TracingMode:
    """Prints every tensor op with the source lines that led to it, as it happens.

    - ``quiet`` records without printing.
    - ``succinct`` prints a source line once for consecutive ops on the same line. If it is False, a line is printed
      once for consecutive ops of the same expression.
    - ``color`` highlights the expression.

    Entering the same object again adds to its traces. ``traces`` holds each op as text with its stack. ``recorded`` is
    the whole trace of the last block, for every other view.
    """

    def __init__(self, *, quiet: bool = False, succinct: bool = True, color: bool = True) -> None:
        self.recorded: Recorded | None = None
        self._quiet = quiet
        self._color = color
        self._recordings: list[_Recording] = []
        self._under_way: dict[int, list[_Recording | None]] = {}
        """Keyed by thread: the recordings of the open blocks. None for a block inside another block of this object."""
        self._lines = CodeLines(Page(color=color), _line_options(succinct, {}))
        self._lock = threading.RLock()
        """Keeps the lines of one op together when several threads print."""

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording = self._under_way[get_ident()].pop()
        if recording is not None:
            recording.stop(error)

    @property
    def traces(self) -> list[Trace]:
        """Each op so far, as text with its stack. The list is computed when this is read."""
        return [trace for recording in self._recordings for trace in recording.traces()]

    def print(self, *, succinct: bool = True) -> None:
        """Print the ops so far, in colour if the object was created with ``color``."""
        for line in self._stored(self._color, succinct):
            _print(line)

    def format(self, *, color: bool = False, succinct: bool = True) -> str:
        """Return the ops so far as text."""
        return "\n".join(self._stored(color, succinct))

    def _stored(self, color: bool, succinct: bool) -> Iterator[str]:
        sources: dict[str, str] = {}
        lines = CodeLines(Page(color=color), _line_options(succinct, sources))
        for recording in self._recordings:
            tables = recording.trace._tables
            sources.update(tables.sources)
            for event in _ops(tables):
                yield from lines.feed(event, "close")
        yield from lines.finish()

    def _show(self, event: Event, edge: str) -> None:
        with self._lock:
            for line in self._lines.feed(event, edge):
                _print(line)


class _Recording:
    """One run of the block, and a cache of its traces."""

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
        tables = self.trace._tables
        frames = _Frames(tables.sources)
        traces = [
            Trace(op_text(event, _schema(event.name)), frames.of(event.stack))
            for event in _ops(tables)
        ]
        if tables.complete:
            self._traces = traces
        return traces


def _is_op(log: ThreadLog, words: list[int]) -> bool:
    what = words[WHAT]  # less than 0: a module
    return what >= 0 and log.session.kinds[what] == OP


def _ops(tables: Tables) -> Iterator[Event]:
    """Yield the ops that have ended, in the order in which they ended. They were printed in that order."""
    is_op = [callee.kind == OP for callee in tables.callees]
    numbers = [
        number
        for number, what in enumerate(tables.callee)
        if is_op[what] and tables.end_ns[number] != NONE
    ]
    for number in sorted(numbers, key=tables.end_ns.__getitem__):
        event = tables.event(number)
        if is_traced(event):
            yield event


class _Frames:
    """Converts stacks to lists of ``Frame``, each stack only once."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._line_of = _line_reader(sources)
        self._kept: dict[int, tuple[Stack, list[Frame]]] = {}
        """By the id of a stack: the stack, kept so that no other gets its id, and its frames."""

    def of(self, stack: Stack) -> list[Frame]:
        kept = self._kept.get(id(stack))
        if kept is None:
            kept = (stack, [self._frame(at) for at in shown_frames(stack)])
            self._kept[id(stack)] = kept
        _, frames = kept
        return frames

    def _frame(self, at: Location) -> Frame:
        line = ""
        if at.source:
            line = self._line_of(at.file, at.line)
        begin = at.col
        end = at.end_col
        if line.strip() == at.source:
            begin = self._bytes(at.file, at.line, at.col)
            end = self._bytes(at.file, at.end_line, at.end_col)
        else:
            # The file name now stands for another text: a later one that was passed to `exec`.
            line = at.source
        are_columns_known = at.col < at.end_col or at.line < at.end_line
        if are_columns_known:
            positions = Positions(at.line, at.end_line, begin, end)
        else:
            positions = Positions(at.line, at.end_line, None, None)
        function = function_name(at)
        if not line:
            return Frame(at.file, at.line, function, None, positions, None)
        return Frame(at.file, at.line, function, [line], positions, 0)

    def _bytes(self, file: str, line: int, column: int) -> int:
        """Convert a column from characters to bytes, which ``Positions`` counts."""
        text = self._line_of(file, line)
        if text.isascii():
            return column
        return len(text[:column].encode(errors="replace"))


def _line_options(succinct: bool, sources: Mapping[str, str]) -> LineOptions:
    return LineOptions(succinct, _line_reader(sources), _schema)


def _line_reader(sources: Mapping[str, str]) -> LineOf:
    """Return a function that reads a line from the kept sources, or else from the file through ``linecache``."""
    split: dict[str, list[str]] = {}

    def line_of(file: str, line: int) -> str:
        # Skip `<string>`: its text is not available while the program runs, and both ways must print the same.
        if file in sources and file not in split and file != "<string>":
            split[file] = sources[file].split("\n")
        lines = split.get(file, ())
        if 0 < line <= len(lines):
            return lines[line - 1]
        return linecache.getline(file, line).rstrip("\n")

    return line_of


@lru_cache(maxsize=4096)
def _schema(name: str) -> Schema:
    """Read from torch's schema whether an op has a result (``_foreach_add_`` has none), and its C++ class types."""
    packet, _, overload = name.partition(".")
    try:
        schema = private.get_schema(packet, overload)
    except RuntimeError:  # a higher-order operator has no schema
        schema = None
    if schema is None:
        return Schema()
    types = [each.type for each in (*schema.arguments, *schema.returns)]
    return Schema(
        bool(schema.returns), tuple(str(each) for each in types if each.kind() == "ClassType")
    )


def _print(line: str) -> None:
    print(writable(line, sys.stdout))  # noqa: T201 (printing is what a tracer does)
