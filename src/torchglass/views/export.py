"""Writes a trace as a file that other programs open; the suffix of its name says which."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchglass.errors import UsageError, closest
from torchglass.events.types import Event
from torchglass.views.digest import Digest, Recorded, digest_of
from torchglass.views.render import check, options_for
from torchglass.views.text.cells import class_word, expression, shape_words
from torchglass.views.text.tensors import is_measured, stats_word
from torchglass.views.text.words import path_word

TIMELINE = ".perfetto.json"
FORMATS = {
    ".html": "the page: code, steps, data flow and tensors, linked",
    ".svg": "a picture of the data flow",
    ".png": "the same as pixels",
    ".dot": "the data flow for Graphviz",
    ".mmd": "the data flow for Mermaid",
    TIMELINE: "the timeline for Perfetto and Chrome",
}
"""By suffix what it is; all but the timeline take the options of the view ``graph``."""


def suffix_of(path: Path) -> str:
    """The suffix that says what to write; an unknown one is an error that names those there are."""
    name = path.name.lower()
    for suffix in FORMATS:
        if name.endswith(suffix):
            return suffix
    known = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
    given = path.suffix or "no suffix"
    raise UsageError(f"cannot export to {path.name!r}: its suffix ({given}) is none of {known}")


def export(trace: Recorded, path: Path, given: Mapping[str, Any]) -> None:
    """Write the file; it is made whole before the one that was there is replaced."""
    suffix = suffix_of(path)
    options = None
    if suffix != TIMELINE:
        options = options_for("graph", given)
        check(trace, options)
    elif given:
        name = next(iter(given))
        raise UsageError(
            f"export to {suffix} takes no option {name!r}; {closest(name, ['only the trace and the path'])}"
        )
    content = _made(suffix, trace, options)
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def _made(suffix: str, trace: Recorded, options: Any) -> bytes:
    """The content of the file; only what makes it is imported."""
    if suffix in (".html", ".svg", ".png"):
        html = importlib.import_module("torchglass.views.page.html")
        made = {".html": html.page, ".svg": html.svg, ".png": html.png}[suffix](trace, options)
        return made if isinstance(made, bytes) else made.encode("utf-8", "replace")
    if suffix == TIMELINE:
        lines = chrome_json(trace)
    else:
        from torchglass.views.graph.drawn import dot, drawn_of, mermaid
        from torchglass.views.graph.flow import flow_of

        drawn = drawn_of(flow_of(trace, options), options.depth)
        lines = dot(drawn, trace.name) if suffix == ".dot" else mermaid(drawn)
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


# ---------------------------------------------------------------- timeline

# The timeline as the JSON of Chrome's trace viewer, which Perfetto reads: host times, nested by process and thread.

INSTANT = ("variable", "mark")
"""Kinds of events that take no time."""


def chrome_json(trace: Recorded) -> Iterator[str]:
    """The lines of the file: one event a line."""
    return _Timeline(digest_of(trace)).lines()


class _Timeline:
    def __init__(self, digest: Digest) -> None:
        self._digest, self._trace = digest, digest.trace
        self._tracks: dict[tuple[int, str], int] = {}
        """By process and thread a number of its own: names of threads are not unique."""
        self._heads = [self._head(event) for event in digest.samples]
        self._arguments = [_arguments(event) for event in digest.samples]
        self._bodies = [_json(arguments) for arguments in self._arguments]
        self._has_statistics = is_measured(digest.trace)

    def lines(self) -> Iterator[str]:
        yield '{"displayTimeUnit":"ms","otherData":' + _json({"name": self._trace.name, "time": "host"}) + ","
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
        for number, alike in enumerate(self._digest.alike):
            start, end, sample = starts[number] - begin, ends[number], self._digest.samples[alike]
            head, rest = self._heads[alike], f'"id":{number},"args":{self._body(number, alike)}}}'
            if sample.kind in INSTANT:
                yield f'{head},"ph":"i","s":"t","ts":{start / 1000},{rest}'
                continue
            spent = max((until if end < 0 else end) - begin - start, 0)
            yield f'{head},"ph":"X","ts":{start / 1000},"dur":{spent / 1000},{rest}'
        yield from self._arrows(starts, begin)

    def _body(self, number: int, alike: int) -> str:
        """The arguments of an event: equal for those that are alike but for what was in its tensors."""
        if not self._has_statistics:
            return self._bodies[alike]
        values = self._trace.event(number).outputs
        told = ", ".join(stats_word(value.stats, value.dtype) for value in values if value.stats)
        return _json({**self._arguments[alike], "contents": told}) if told else self._bodies[alike]

    def _times(self) -> tuple[list[int], list[int]]:
        """Beginnings and ends (-1: still open), from the columns where the trace has them."""
        tables = getattr(self._trace, "tables", None)
        if tables is not None:
            return tables.start_ns.tolist(), tables.end_ns.tolist()
        events = list(self._trace.events())
        return [event.start_ns for event in events], [-1 if event.end_ns is None else event.end_ns for event in events]

    def _head(self, event: Event) -> str:
        """All of an event but its times and arguments, without the closing brace: equal for events that are alike."""
        track = self._tracks.setdefault((event.process, event.thread), len(self._tracks) + 1)
        head = {"name": _name(event), "cat": event.kind, "pid": event.process, "tid": track}
        return _json(head)[:-1]

    def _names(self) -> Iterator[str]:
        name = self._trace.name or "torchglass"
        for process in dict.fromkeys(process for process, _ in self._tracks):
            yield _json({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        for (process, thread), track in self._tracks.items():
            shown = {"name": f"{thread} (host time)"}
            yield _json({"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": shown})

    def _arrows(self, starts: list[int], begin: int) -> Iterator[str]:
        """From a step of the forward pass to what backward did for it, where the trace knows."""
        known = [sample.forward_event is not None for sample in self._digest.samples]
        for number, alike in enumerate(self._digest.alike):
            forward = self._trace.event(number).forward_event if known[alike] else None
            if forward is None:
                continue
            for event, phase in ((forward, "s"), (number, "f")):
                sample = self._digest.sample(event)
                arrow = {
                    "name": "backward", "cat": "autograd", "ph": phase, "id": number, "bp": "e",
                    "ts": (starts[event] - begin) / 1000, "pid": sample.process,
                    "tid": self._tracks[sample.process, sample.thread],
                }  # fmt: skip
                yield _json(arrow)


def _name(event: Event) -> str:
    if event.kind == "module":
        return event.module or event.root or event.name
    return event.operator if event.operator and event.kind == "function" else event.name


def _arguments(event: Event) -> dict[str, str]:
    """What one reads when the event is selected."""
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


def _json(what: object) -> str:
    return json.dumps(what, ensure_ascii=True, separators=(",", ":"))
