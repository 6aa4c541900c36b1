"""Writes a trace to a file for other programs; the suffix chooses the format."""

# Views may read what a trace keeps from users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import gzip
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any

from torchglass.errors import UsageError, closest
from torchglass.events.database import database_file
from torchglass.events.tables import NONE
from torchglass.events.types import Event
from torchglass.program.program import program_of
from torchglass.program.recorded import HasTables, Recorded
from torchglass.views.page.about import losses
from torchglass.views.render import check, options_for
from torchglass.views.table import bytes_each
from torchglass.views.text.cells import class_word, expression, shape_words
from torchglass.views.text.tensors import is_measured, stats_word
from torchglass.views.text.words import path_word

TIMELINE, PACKED, DATABASE = ".perfetto.json", ".perfetto.json.gz", ".sqlite"
FORMATS = {
    ".html": "the page: code, steps, data flow and tensors, linked",
    ".svg": "a picture of the data flow",
    ".png": "the same as pixels",
    ".dot": "the data flow for Graphviz",
    ".mmd": "the data flow for Mermaid",
    TIMELINE: "the timeline for Perfetto and Chrome",
    PACKED: "the same compressed, which both open as it is",
    DATABASE: "all tables, for SQLite",
}
"""What each suffix stands for. All formats except timelines and tables take the options of the view
``graph``.
"""


def suffix_of(path: Path) -> str:
    """Return the suffix that chooses the format. If it is unknown, raise an error that lists all
    formats.
    """
    name = path.name.lower()
    for suffix in FORMATS:
        if name.endswith(suffix):
            return suffix
    known = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
    given = path.suffix or "no suffix"
    raise UsageError(f"cannot export to {path.name!r}: its suffix ({given}) is not one of {known}")


def export(trace: Recorded, path: Path, given: Mapping[str, Any]) -> None:
    """Write a trace to a file. An existing file is replaced only when the new one is complete."""
    suffix = suffix_of(path)
    options = None
    given = dict(given)
    against = given.pop("against", None)
    if against is not None and suffix != ".html":
        raise UsageError("against= compares two runs on the page: give a name that ends in .html")
    if suffix not in (TIMELINE, PACKED, DATABASE):
        options = options_for("graph", given)
        check(trace, options)
    elif given:
        name = next(iter(given))
        raise UsageError(
            f"export to {suffix} takes no option {name!r}; {closest(name, ['only the trace and the path'])}"
        )
    if against is None:
        content = _made(suffix, trace, options)
    else:
        content = _diff_page(trace, against, options)
    write(path, content)


def write(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that an existing file is replaced only by a
    complete one.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def _diff_page(trace: Recorded, against: Recorded, options: Any) -> bytes:
    """Return the page that compares two runs."""
    html = importlib.import_module("torchglass.views.page.html")
    compare = importlib.import_module("torchglass.answers.diff").compare
    return html.diff_page(trace, against, compare(trace, against), options).encode(
        "utf-8", "replace"
    )


def _made(suffix: str, trace: Recorded, options: Any) -> bytes:
    """Return the content of the file, importing only what this format needs."""
    if suffix in (".html", ".svg", ".png"):
        html = importlib.import_module("torchglass.views.page.html")
        made = {".html": html.page, ".svg": html.svg, ".png": html.png}[suffix](trace, options)
        if isinstance(made, bytes):
            return made
        return made.encode("utf-8", "replace")
    if suffix == DATABASE:
        if not isinstance(trace, HasTables):
            raise UsageError("export to .sqlite takes a trace from record() or load()")
        return database_file(trace._tables)
    if suffix == PACKED:
        return gzip.compress(_made(TIMELINE, trace, options), 6, mtime=0)
    if suffix == TIMELINE:
        lines = chrome_json(trace)
    else:
        from torchglass.views.graph.drawn import dot, drawn_of, mermaid
        from torchglass.views.graph.flow import flow_of

        drawn = drawn_of(flow_of(trace, options), options.depth)
        if suffix == ".dot":
            lines = dot(drawn, trace.name)
        else:
            lines = mermaid(drawn)
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


# ---------------------------------------------------------------- timeline

# The timeline as the JSON of Chrome's trace viewer, which Perfetto reads, too. Times are those of the host.

_RANK = re.compile(r"rank \d+")
INSTANT = ("variable", "mark")
"""Kinds of events that take no time."""


def chrome_json(trace: Recorded) -> Iterator[str]:
    """Yield the lines of the file, one for each event."""
    return _Timeline(trace).lines()


class _Timeline:
    def __init__(self, trace: Recorded) -> None:
        distinct = program_of(trace).distinct
        self._distinct = distinct
        self._trace = trace
        self._tracks: dict[tuple[int, str], int] = {}
        """A number for each process and thread, since names of threads are not unique."""
        self._heads = [self._head(event) for event in distinct.samples]
        self._arguments = [_arguments(event) for event in distinct.samples]
        self._bodies = [_json(arguments) for arguments in self._arguments]
        self._has_statistics = is_measured(trace)

    def lines(self) -> Iterator[str]:
        yield (
            '{"displayTimeUnit":"ms","otherData":'
            + _json({"name": self._trace.name, "time": "host"})
            + ","
        )
        yield '"traceEvents":['
        comma = ""
        for row in self._rows():
            yield comma + row
            comma = ","
        yield "]}"

    def _rows(self) -> Iterator[str]:
        yield from self._names()
        starts, ends = self._times()
        begin = min(starts, default=0)
        until = max([*starts, *ends], default=0)
        for number, alike in enumerate(self._distinct.alike):
            start = starts[number] - begin
            end = ends[number]
            sample = self._distinct.samples[alike]
            head = self._heads[alike]
            rest = f'"id":{number},"args":{self._body(number, alike)}}}'
            if sample.kind in INSTANT:
                yield f'{head},"ph":"i","s":"t","ts":{start / 1000},{rest}'
                continue
            spent = max((until if end < 0 else end) - begin - start, 0)
            yield f'{head},"ph":"X","ts":{start / 1000},"dur":{spent / 1000},{rest}'
        yield from self._arrows(starts, begin)
        yield from self._loss(ends, begin)
        yield from self._memory(starts, ends, begin)

    def _body(self, number: int, alike: int) -> str:
        """Return the arguments of an event as JSON. Equal events share them unless they have
        statistics.
        """
        if not self._has_statistics:
            return self._bodies[alike]
        values = self._trace.event(number).outputs
        contents = ", ".join(
            stats_word(value.stats, value.dtype) for value in values if value.stats
        )
        if contents:
            return _json({**self._arguments[alike], "contents": contents})
        return self._bodies[alike]

    def _times(self) -> tuple[list[int], list[int]]:
        """Return when events began and ended. An end is -1 if the event did not end."""
        tables = None
        if isinstance(self._trace, HasTables):
            tables = self._trace._tables
        if tables is not None:
            return tables.start_ns.tolist(), tables.end_ns.tolist()
        events = list(self._trace.events())
        return [event.start_ns for event in events], [
            -1 if event.end_ns is None else event.end_ns for event in events
        ]

    def _head(self, event: Event) -> str:
        """Return an event as JSON without times, arguments and closing brace. Equal events share
        it.
        """
        track = self._tracks.setdefault((event.process, event.thread), len(self._tracks) + 1)
        head = {"name": _name(event), "cat": event.kind, "pid": event.process, "tid": track}
        return _json(head)[:-1]

    def _names(self) -> Iterator[str]:
        name = self._trace.name or "torchglass"
        first: dict[int, str] = {}
        for process, thread in self._tracks:
            first.setdefault(process, thread)
        for process, thread in first.items():
            shown = name
            if len(first) > 1:
                rank = _RANK.search(thread)
                if rank:
                    shown = f"{name}, {rank[0]}"
                else:
                    shown = f"{name}, process {process}"
            yield _json(
                {"ph": "M", "name": "process_name", "pid": process, "args": {"name": shown}}
            )
        for (process, thread), track in self._tracks.items():
            shown = {"name": f"{thread} (host time)"}
            yield _json(
                {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": shown}
            )

    def _loss(self, ends: list[int], begin: int) -> Iterator[str]:
        """Yield a counter of the loss, the value on which backward was called, if values were
        measured.
        """
        for event, number in losses(self._trace, self._distinct):
            if isfinite(number) and ends[event] >= 0:
                yield self._counter(
                    "loss", ends[event] - begin, self._distinct.sample(event).process, number
                )

    def _memory(self, starts: list[int], ends: list[int], begin: int) -> Iterator[str]:
        """Yield a counter of the bytes in use. Memory counts from the step that makes a value to
        the last one that takes it.
        """
        tables = None
        if isinstance(self._trace, HasTables):
            tables = self._trace._tables
        if tables is None:
            return
        flow = program_of(self._trace).flow
        each = [bytes_of(meta.dtype, meta.shape) for meta in tables.metas]
        sizes: dict[int, int] = {}
        spans: dict[int, tuple[int, int]] = {}
        for event, (takes, gives) in enumerate(
            zip(flow.recorded_takes, flow.recorded_gives, strict=True)
        ):
            start = starts[event]
            end = max(starts[event], ends[event])
            for value in (*takes, *gives):
                if flow.producers[value] == NONE or tables.value_meta[value] == NONE:
                    continue
                storage = value
                if flow.storages[value] != NONE:
                    storage = flow.storages[value]
                sizes[storage] = max(sizes.get(storage, 0), each[tables.value_meta[value]])
                made, last = spans.get(storage, (start, end))
                spans[storage] = min(made, start), max(last, end)
        changes = sorted(
            [(made, sizes[storage]) for storage, (made, _) in spans.items()]
            + [(last, -sizes[storage]) for storage, (_, last) in spans.items()]
        )
        now = 0
        peak = 1
        last_written = -1
        for at, (time, change) in enumerate(changes, 1):
            now += change
            peak = max(peak, now)
            # A change of less than a two-hundredth of the peak cannot be seen.
            if abs(now - last_written) * 200 >= peak or at == len(changes):
                last_written = now
                yield self._counter(
                    "tensors in use (bytes)", time - begin, self._distinct.sample(0).process, now
                )

    @staticmethod
    def _counter(name: str, time: int, process: int, number: float) -> str:
        return _json(
            {"name": name, "ph": "C", "ts": time / 1000, "pid": process, "args": {"value": number}}
        )

    def _arrows(self, starts: list[int], begin: int) -> Iterator[str]:
        """Yield arrows from forward steps to the backward events that belong to them, as far as the
        trace knows.
        """
        known = [sample.forward_event is not None for sample in self._distinct.samples]
        for number, alike in enumerate(self._distinct.alike):
            forward = None
            if known[alike]:
                forward = self._trace.event(number).forward_event
            if forward is None:
                continue
            for event, phase in ((forward, "s"), (number, "f")):
                sample = self._distinct.sample(event)
                arrow = {
                    "name": "backward", "cat": "autograd", "ph": phase, "id": number, "bp": "e",
                    "ts": (starts[event] - begin) / 1000, "pid": sample.process,
                    "tid": self._tracks[sample.process, sample.thread],
                }  # fmt: skip
                yield _json(arrow)


def _name(event: Event) -> str:
    if event.kind == "module":
        return event.module or event.root or event.name
    if event.operator and event.kind == "function":
        return event.operator
    return event.name


def _arguments(event: Event) -> dict[str, str]:
    """Return what the timeline shows when the event is selected."""
    at = event.location
    found = {
        "class": class_word(event.name, event.detail) if event.kind == "module" else "",
        "function": event.name if event.kind == "function" else "",
        "code": expression(event.target, event.code, event.operator) if event.code else "",
        "line": f"{path_word(at.file)}:{at.line}" if at else "",
        "in": at.function if at else "",
        "module": event.module or "",
        "takes": ", ".join(shape_words(event.inputs)),
        "gives": ", ".join(shape_words(event.outputs)),
        "phase": event.phase if event.phase != "forward" else "",
        "error": event.error or "",
        "note": event.note or "",
        "unfinished": "it had not ended when the recording did" if event.end_ns is None else "",
    }
    return {key: text for key, text in found.items() if text}


def bytes_of(dtype: str, shape: tuple[int, ...] | None) -> int:
    """Return the bytes of a tensor's numbers."""
    return prod(shape or ()) * bytes_each(dtype)


def _json(what: object) -> str:
    return json.dumps(what, ensure_ascii=True, separators=(",", ":"))
