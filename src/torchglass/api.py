"""The public functions: wiring between the recorder, the trace and the views."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, TextIO, TypeVar

from torchglass.capture.signals import Uninterrupted
from torchglass.errors import UnknownOption, UnknownView, UsageError, WrongType, closest, expect
from torchglass.events.selection import Selection
from torchglass.events.tables import Tables
from torchglass.events.trace import Trace
from torchglass.renderers.style import Page, page_for, writable

F = TypeVar("F", bound=Callable[..., Any])
VIEWS = ("table", "tree")
_last: list[Trace] = []


class record:  # noqa: N801 (a verb: it is used as a function)
    """Record what happens in a ``with`` block, or in a function when used as a decorator.

    ::

        with tg.record() as trace:
            y = model(x)
        tg.show(trace)

    ``modules`` (and with them optimizer steps), ``functions`` and ``ops`` (what torch dispatches below the
    functions: ``aten::mm``) choose the probes; ``only`` keeps what a
    ``select(…)`` chooses; ``fused="open"`` takes the unfused attention path to show its inside; ``sources=False``
    keeps source texts out of the trace; ``max_events`` bounds the memory; ``name`` is shown in titles.
    """

    def __init__(
        self,
        *,
        modules: bool = True,
        functions: bool = True,
        ops: bool = False,
        only: Selection | None = None,
        fused: str = "keep",
        sources: bool = True,
        max_events: int = 1_000_000,
        name: str = "",
    ) -> None:
        if fused not in ("keep", "open"):
            raise UsageError(f"record(fused=…) takes 'keep' or 'open', not {fused!r}")
        if only is not None:
            expect(only, Selection, "record(only=…) takes a selection made by select(…)")
        if type(max_events) is not int or max_events < 1:
            raise UsageError(f"record(max_events=…) takes a whole number from 1 on, not {max_events!r}")
        self._options: dict[str, Any] = {
            "modules": bool(modules),
            "functions": bool(functions),
            "ops": bool(ops),
            "fused": fused,
            "sources": bool(sources),
            "max_events": max_events,
            "name": str(name),
        }
        self._only = only
        self._recordings: dict[int, list[_Recording]] = {}
        """By thread: one object may be entered in several, and more than once in each."""

    def __enter__(self) -> Trace:
        return self._begin(inspect.currentframe())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recording = self._recordings[get_ident()].pop()
        try:
            with Uninterrupted():
                recording.stop(error)
        except BaseException:  # Ctrl-C before it could be held back
            recording.stop(error)
            raise

    def _begin(self, own_frame: FrameType | None) -> Trace:
        recording = _Recording(self._options, self._only)
        self._recordings.setdefault(get_ident(), []).append(recording)
        try:
            recording.start(own_frame.f_back if own_frame is not None else None)
            return recording.trace
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __call__(self, function: F) -> F:
        """As a decorator: every call is a recording; ``function.trace`` is that of the last call."""
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
            with self._another() as trace:
                recorded.trace = trace  # type: ignore[attr-defined]
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def _another(self) -> record:
        """The same again for one call: calls may overlap, in threads or as coroutines."""
        return record(only=self._only, **self._options)

    def _around_coroutine(self, function: Any) -> Any:
        @functools.wraps(function)
        async def recorded(*args: Any, **kwargs: Any) -> Any:
            with self._another() as trace:
                recorded.trace = trace  # type: ignore[attr-defined]
                return await function(*args, **kwargs)

        return recorded

    def _around_generator(self, function: Any) -> Any:
        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self._another() as trace:
                recorded.trace = trace  # type: ignore[attr-defined]
                return (yield from function(*args, **kwargs))  # pyright: ignore[reportUnknownVariableType]

        return recorded


class _Recording:
    """One run of a ``record`` block, and where its trace gets its tables from."""

    def __init__(self, options: dict[str, Any], only: Selection | None) -> None:
        self._options = options
        self._only = only
        self._recorder: Any = None
        self._settled: Tables | None = None
        self.trace = Trace(self)

    def start(self, frame: FrameType | None) -> None:
        if os.environ.get("TORCHGLASS") == "0":
            return
        from torchglass.capture.recorder import Options, Recorder

        self._recorder = Recorder(Options(**self._options))
        self._recorder.start(frame)

    def stop(self, error: BaseException | None) -> None:
        """End it, if it has not ended."""
        if self._recorder is not None:
            self._recorder.stop(error)
        if error is not None:
            _last[:] = [self.trace]

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
        tables = self._recorder.tables()
        if self._only is not None:
            tables = tables.keep([n for n in range(len(tables)) if self._only.matches(tables.event(n))])
        if tables.complete:
            self._settled, self._recorder = tables, None
        return tables


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
    """The trace of the last recording that an exception left."""
    return _last[0] if _last else None


def show(
    trace: Trace,
    view: str = "tree",
    *,
    file: TextIO | None = None,
    width: int | None = None,
    color: bool | None = None,
    **options: Any,
) -> None:
    """Print a view of a trace: ``tree`` or ``table``."""
    stream = sys.stdout if file is None else file
    for line in _lines(trace, view, page_for(stream, width=width, color=color), options):
        print(writable(line, stream), file=stream)


def render(
    trace: Trace,
    view: str = "tree",
    *,
    width: int | None = None,
    color: bool | None = None,
    **options: Any,
) -> str:
    """The same as ``show``, as text."""
    return "\n".join(_lines(trace, view, page_for(None, width=width, color=color), options))


def _lines(trace: Trace, view: str, page: Page, options: dict[str, Any]) -> Iterator[str]:
    expect(
        trace,
        Trace,
        "show() takes a trace, as 'with torchglass.record() as trace: …' or torchglass.trace(model, x) give",
    )
    if view not in VIEWS:
        raise UnknownView(f"no view {view!r}; {closest(str(view), VIEWS)}")
    renderer = importlib.import_module(f"torchglass.renderers.{view}")
    known = [field.name for field in fields(renderer.Options)]
    for name in options:
        if name not in known:
            raise UnknownOption(f"the view {view!r} has no option {name!r}; {closest(name, known)}")
    return renderer.render(trace, renderer.Options(**options), page)
