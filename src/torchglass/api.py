"""The public functions: wiring between the recorder, the trace and the views."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, TextIO, TypeVar

from torchglass import store
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.transparency.ours import unseen
from torchglass.capture.transparency.patches import Uninterrupted
from torchglass.errors import NotRecorded, WrongType, expect
from torchglass.events.trace import Trace
from torchglass.events.types import Stats
from torchglass.options import Options, knows_its_options
from torchglass.recording import Recording, Stored, load_trace
from torchglass.views import VIEWS as VIEWS
from torchglass.views.bad_story import FirstBad
from torchglass.views.text.style import Page, page_for, writable


def _in_notebook(shown: Trace) -> dict[str, str]:
    from torchglass.views.page.html import mimebundle  # not needed to record

    with unseen():
        return mimebundle(shown)


def _at_prompt(shown: Trace) -> str:
    """The first rows of the tree; of a trace whose tree takes a while how to see it."""
    how = "show(trace) shows all"
    if len(shown) > LARGEST_AT_PROMPT:
        return f"  {how}"
    lines = list(islice(view_lines(shown, "tree", page_for(None, color=False), {}), ROWS_AT_PROMPT + 1))
    more = [f"… {how}, show(trace, 'listing') your lines with shapes"] if len(lines) > ROWS_AT_PROMPT else []
    return "\n".join([*lines[:ROWS_AT_PROMPT], *more])


Trace.in_notebook = staticmethod(_in_notebook)
Trace.at_prompt = staticmethod(_at_prompt)
ROWS_AT_PROMPT = 12
LARGEST_AT_PROMPT = 50_000
"""Events up to which a bare trace shows its first rows."""

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")
_last: list[Trace] = []


@knows_its_options
@dataclass(kw_only=True, eq=False, repr=False)
class record(Options):  # noqa: N801 (a verb: it is used as a function)
    """Record what happens in a ``with`` block, or in a function when used as a decorator.

    ::

        with tg.record() as trace:
            y = model(x)
        tg.show(trace)

    ``modules`` (and with them optimizer steps), ``functions`` and ``ops`` (what torch dispatches below the
    functions: ``aten::mm``) choose the probes, ``variables`` which variables of the program are followed, by name,
    glob or (True) all of them; ``calls="user"`` makes each call of a function of the program's own an event, names
    of packages those of their functions; ``values="stats"`` measures what is in every tensor (``Value.stats``: how
    many numbers, NaN, Inf and zeros, minimum, maximum, mean, standard deviation, norm), ``values="all"`` keeps the
    tensors themselves too, as they were at each event, up to ``max_bytes`` in all (``trace.tensor(value)``),
    ``values="stats+sketch"`` keeps beside the statistics by what numbers are known again (``same``, ``trace.find``),
    ``values=select(module="encoder.*")`` measures and keeps what those events took and gave, and nothing else, and
    ``stop_on="nonfinite"`` raises ``BadValue`` with the story of ``first_bad`` as soon as one is NaN or infinite
    and was not meant to be; ``only`` keeps what a ``select(…)`` chooses; ``fused="open"`` takes the unfused
    attention path to show its inside; ``sources=False`` keeps source texts out of the trace; ``to`` names a new
    folder, into which everything is written while it happens; ``max_events`` bounds the memory (None: all are
    kept): of more events the first tenth and the newest are kept, or with ``keep="begin"`` the first; ``name`` is
    shown in titles.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recordings: dict[int, list[Recording]] = {}
        """By thread: one object may be entered in several, and more than once in each."""

    def __enter__(self) -> Trace:
        return self._begin(sys._getframe(1))  # pyright: ignore[reportPrivateUsage] (our own would be a circle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recording = self._recordings[get_ident()].pop()
        try:
            with Uninterrupted():
                _last[:] = [recording.trace]
                recording.stop(error)
        except BaseException:  # Ctrl-C before it could be held back
            recording.stop(error)
            _last[:] = [recording.trace]
            raise

    def begin_program(self, frame: FrameType) -> Trace:
        """Begin in a frame of ours that runs a whole program: stacks begin below it. ``__exit__`` ends it."""
        return self._begin(frame, outermost=True)

    def _begin(self, frame: FrameType | None, outermost: bool = False) -> Trace:
        recording = Recording(self)
        self._recordings.setdefault(get_ident(), []).append(recording)
        try:
            recording.start(frame, outermost)
            return recording.trace
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __call__(self, function: F) -> F:
        """As a decorator: every call is a recording; ``function.trace`` is that of the last call.

        Each by an object of its own: calls may overlap, in threads or as coroutines.
        """
        if not callable(function):
            raise WrongType(f"@record() decorates a function, not {type(function).__name__}")
        if inspect.isasyncgenfunction(function):
            raise WrongType("@record() cannot decorate an async generator: put 'with record()' inside of it")
        if inspect.iscoroutinefunction(function):
            return self._around_coroutine(function)
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with replace(self) as trace:
                recorded.trace = trace  # type: ignore[attr-defined]
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def _around_coroutine(self, function: Any) -> Any:
        @functools.wraps(function)
        async def recorded(*args: Any, **kwargs: Any) -> Any:
            with replace(self) as trace:
                recorded.trace = trace  # type: ignore[attr-defined]
                return await function(*args, **kwargs)

        return recorded

    def _around_generator(self, function: Any) -> Any:
        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with replace(self) as trace:
                recorded.trace = trace  # type: ignore[attr-defined]
                return (yield from function(*args, **kwargs))  # pyright: ignore[reportUnknownVariableType]

        return recorded


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Keep a trace as a bundle: a new folder with its events, tensors and sources."""
    expect(trace, Trace, "save() takes a trace and a path")
    contents: list[Stored] = list(trace.stored())
    there = {row.value for row, _ in contents}
    lost = sorted({name or "(no name)" for value, name in trace.kept().items() if value not in there})
    tables = trace.tables
    if lost:
        reason = "their tensors have no plain bytes"
        if trace.running:
            reason += ", or are still on their way into another bundle: save the trace after its block"
        note = f"the marks {', '.join(map(repr, lost))} are not in the bundle: {reason}"
        tables = replace(tables, notes=[*tables.notes, note])
    store.save(tables, Path(os.fspath(path)), contents)


def load(path: str | os.PathLike[str]) -> Trace:
    """The trace that a bundle holds; also one that is still being written, or whose program was killed."""
    return load_trace(Path(os.fspath(path)))


def mark(name: str, value: V) -> V:
    """Put a named event into a running trace, with a copy of the value as it is now; returns the value.

    ``trace.tensor(value)`` gives the copy back. Costs nearly nothing when nothing is recorded.
    """
    log = LOGS.get(get_ident()) if LOGS else None
    if log is not None and log.on:
        from torchglass.capture.marks import write_mark

        write_mark(log, name if type(name) is str else _name_of(name, log), value, 1)
    return value


def _name_of(name: object, log: ThreadLog) -> str:
    """Whatever was given as a name: it costs nothing unrecorded, so it must not stop the program when recorded."""
    was_on, log.on = log.on, False  # the text of a tensor is made by torch functions that are not the program's
    try:
        return str(name)
    except Exception:
        return f"<{type(name).__name__}>"
    finally:
        log.on = was_on


def trace(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Trace:
    """Record one call of a model or of anything callable; all further arguments are its own."""
    if not callable(function):
        raise WrongType(
            f"trace() takes something to call (a model or a function) and its arguments, not {type(function).__name__}"
        )
    with record() as recorded:
        function(*args, **kwargs)
    return recorded


def last_trace() -> Trace | None:
    """The trace of the last recording that ended, by an exception or not."""
    return _last[0] if _last else None


def first_bad(
    trace: Trace, when: str | Callable[[Stats], bool] = "nonfinite", *, allow: str | Sequence[str] = ()
) -> FirstBad | None:
    """Where the first bad value came from: the event that made it, not those that passed it on; None: there is none.

    ``when`` says what is bad: ``"nonfinite"``, a condition such as ``"abs>1e4"``, or a function of ``Value.stats``.
    ``allow`` names functions (``"log"``) or places (``"model.py:12"``) that may give what they like. A mask of -inf
    that is written as such, or only added to scores before a softmax, is known as a mask. Printed it tells the story:
    expression, line, module, what went in, where that came from, what came after.
    """
    expect(trace, Trace, "first_bad() takes a trace recorded with values='stats'")
    from torchglass.views.bad_story import story_of
    from torchglass.views.first_bad import first_bad as search
    from torchglass.views.first_bad import test_of

    test = test_of(when)
    if not trace.measured and len(trace):
        raise NotRecorded(
            "this trace has no statistics, so nothing is known of its numbers: record(values='stats') takes them"
        )
    found = search(trace, test, (allow,) if isinstance(allow, str) else tuple(allow))
    return None if found is None else story_of(trace, found)


def show(
    trace: Trace,
    view: str | None = None,
    *,
    file: TextIO | None = None,
    width: int | None = None,
    color: bool | None = None,
    **options: Any,
) -> None:
    """Print a view of a trace: ``tree``, ``code``, ``listing``, ``calls``, ``table`` …

    Without a name the tree; of a trace that an exception left its story, ``failure``.
    """
    if file is not None and not hasattr(file, "write"):
        raise WrongType(
            f"show(file=…) takes something to print to, such as an open file, not {type(file).__name__}; "
            "which source files the listing shows is its option path="
        )
    stream = sys.stdout if file is None else file
    for line in view_lines(trace, view, page_for(stream, width=width, color=color), options):
        print(writable(line, stream), file=stream)


def render(
    trace: Trace,
    view: str | None = None,
    *,
    width: int | None = None,
    color: bool | None = None,
    **options: Any,
) -> str:
    """The same as ``show``, as text."""
    return "\n".join(view_lines(trace, view, page_for(None, width=width, color=color), options))


def export(trace: Trace, path: str | os.PathLike[str], /, **options: Any) -> None:
    """Write a trace as a file for other programs; the suffix says which.

    ``.html`` is the page: code, steps, data flow and tensors in one file. ``.svg`` and ``.png`` are pictures of the
    data flow, ``.dot`` and ``.mmd`` the same for Graphviz and Mermaid; these take the options of the view ``graph``,
    among them ``path="model.py"``: what the lines of a file did.
    ``.perfetto.json`` is the timeline for Perfetto and Chrome.
    """
    expect(trace, Trace, "export() takes a trace and the path of a file")
    from torchglass.views.export import export as write  # not needed to record

    with unseen():
        write(trace, Path(os.fspath(path)), options)


def view_lines(trace: Trace, view: str | None, page: Page, options: dict[str, Any]) -> Iterator[str]:
    """The lines of a view, for a page of one's own."""
    expect(
        trace,
        Trace,
        "show() takes a trace, as 'with torchglass.record() as trace: …' or torchglass.trace(model, x) give",
    )
    from torchglass.views.render import lines, options_for  # not needed to record

    if view is None:
        view = "failure" if trace.failure() is not None and not options else "tree"
    return lines(trace, view, options_for(view, options), page)
