"""The public functions: wiring between the recorder, the trace and the views."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TextIO, TypeVar

from torchglass._trace import Trace
from torchglass.answers.bad_story import FirstBad
from torchglass.answers.diff.result import Diff
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.transparency.signals import Uninterrupted
from torchglass.errors import UsageError, WrongType, expect
from torchglass.events.types import Stats
from torchglass.options import Options, rejects_unknown_options
from torchglass.recording import Recording, load_trace
from torchglass.system import get_ident, thread_name
from torchglass.views import VIEWS as VIEWS

TAKES_A_TRACE = "show() takes a trace, as 'with torchglass.record() as trace: …' or torchglass.trace(model, x) give"
LEFT_TWICE = "this recording is not running: it was left before, or never entered; each 'with record()' is left once"
LEFT_ELSEWHERE = (
    "this recording was entered in another thread ({}) than it is left in ({}): it has ended now, but what listens in "
    "that other thread can only be taken off there; enter and leave it in the same thread"
)

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")
_last: list[Trace] = []


@rejects_unknown_options
@dataclass(kw_only=True, eq=False, repr=False)
class record(Options):  # noqa: N801 (a verb: it is used as a function)
    """Record what happens in a ``with`` block, or in a function when used as a decorator.

    ::

        with tg.record() as trace:
            y = model(x)
        tg.show(trace)

    What to record:

    - ``modules`` (with optimizer steps), ``functions``, and ``ops``: what torch dispatches, such as ``aten::mm``.
    - ``variables``: which variables to follow: names, globs, or True for all.
    - ``calls="user"``: each call of your own functions is an event too; or names of packages.
    - ``only``: keep only the events that a ``select(…)`` chooses.
    - ``fused="open"``: take the unfused path of torch.nn's attention layers, to show what happens inside.

    What is in the tensors:

    - ``values="stats"`` measures each (``Value.stats``: how many numbers, NaN, Inf and zeros, minimum, maximum,
      mean, standard deviation, norm).
    - ``values="stats+sketch"`` adds a fingerprint of the numbers (``same``, ``trace.find``, ``trace.diff``).
    - ``values="all"`` keeps the tensors too, as they were at each event, up to ``max_bytes`` (``trace.tensor``).
    - ``values=select(module="encoder.*")`` measures and keeps only what those events took and gave.
    - ``stop_on="nonfinite"`` raises ``BadValue`` at the first NaN or Inf that is not a mask.

    How to keep it:

    - ``to``: a new folder, written while the program runs.
    - ``max_events``: of a long run keep at most so many events: the first, the newest and samples between. Counts
      stay those of the whole run. ``keep="begin"`` keeps only the first. None keeps all.
    - ``sources=False`` leaves the source texts out. ``name`` is a title.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recordings: dict[int, list[Recording]] = {}
        """Keyed by thread, because one object may be entered in several threads, and several times in each."""

    def __enter__(self) -> Trace:
        # Not the helper of capture/, which would be an import cycle.
        return self._begin(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording = (self._recordings.get(get_ident()) or [None]).pop()
        try:
            with Uninterrupted():
                _stop(recording, error)
        except BaseException:
            # Ctrl-C came before it could be held back.
            _stop(recording, error)
            raise
        if recording is None:
            problem = self._stop_in_wrong_thread(error)
            # Do not hide an exception that is being raised.
            if error is None:
                raise UsageError(problem)

    def _stop_in_wrong_thread(self, error: BaseException | None) -> str:
        """End a recording that was entered in another thread, if there is one, and return the text of the error."""
        others = {thread: entered for thread, entered in self._recordings.items() if entered}
        if get_ident() in self._recordings or not others:
            _sweep()
            return LEFT_TWICE
        thread, entered = others.popitem()
        _stop(entered.pop(), error)
        names = {each.ident: each.name for each in threading.enumerate()}
        return LEFT_ELSEWHERE.format(names.get(thread, "one that has ended"), thread_name())

    def begin_program(self, frame: FrameType) -> Trace:
        """Start recording a whole program, which runs below this frame of ours; ``__exit__`` ends it."""
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
        """Record every call of a decorated function; ``function.trace`` is the trace of the last call.

        Each call gets a recording object, because calls may overlap, in threads or as coroutines.
        """
        if not callable(function):
            raise WrongType(f"@record() decorates a function, not {type(function).__name__}")
        if inspect.isasyncgenfunction(function):
            raise WrongType(
                "@record() cannot decorate an async generator: put 'with record()' inside of it"
            )
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


def _stop(recording: Recording | None, error: BaseException | None) -> None:
    if recording is not None:
        _last[:] = [recording.trace]
        recording.stop(error)


def _sweep() -> None:
    """Remove from this thread what a recording that ended in another thread left here."""
    listeners = sys.modules.get("torchglass.capture.torch.listeners")
    if listeners is not None:
        listeners.sweep()


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Save a trace as a bundle, as ``trace.save(path)`` does: a new folder with its events, tensors and sources."""
    expect(trace, Trace, "save() takes a trace and a path")
    trace.save(path)


def load(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in a bundle, even one that is still being written, or whose program was killed."""
    return load_trace(Path(os.fspath(path)))


def mark(name: str, value: V) -> V:
    """Put a named event with a copy of the value into the trace that is being recorded; return the value.

    ``trace.tensor(value)`` returns the copy. Without a recording it costs next to nothing.
    """
    log = None
    if LOGS:
        log = LOGS.get(get_ident())
    if log is not None and log.on:
        from torchglass.capture.marks import write_mark

        write_mark(log, name if type(name) is str else _name_of(name, log), value, 1)
    return value


def _name_of(name: object, log: ThreadLog) -> str:
    """Return a name for whatever was given as one: a wrong type must not stop the program."""
    # str() of a tensor calls torch functions, which must not be recorded as the program's.
    was_on = log.on
    log.on = False
    try:
        return str(name)
    except Exception:
        return f"<{type(name).__name__}>"
    finally:
        log.on = was_on


def trace(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Trace:
    """Record one call of a model or another callable. All further arguments are passed to it."""
    if not callable(function):
        raise WrongType(
            f"trace() takes something to call (a model or a function) and its arguments, not {type(function).__name__}"
        )
    with record() as recorded:
        function(*args, **kwargs)
    return recorded


def compare(a: Callable[..., Any], b: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Diff:
    """Call two models or functions with the same arguments, record both, and find where they first really differ.

    Both draw the same random numbers. The second one sees what the first has changed in place.
    ``print(tg.compare(reference, port, x))``.
    """
    from torchglass.capture.random_numbers import RandomNumbers

    for each in (a, b):
        if not callable(each):
            raise WrongType(
                f"compare() takes two models or functions and their arguments, not {type(each).__name__}"
            )
    random_numbers = RandomNumbers()
    with record(ops=True, values="stats+sketch") as first:
        a(*args, **kwargs)
    random_numbers.put_back()
    with record(ops=True, values="stats+sketch") as second:
        b(*args, **kwargs)
    return first.diff(second)


def last_trace() -> Trace | None:
    """Return the trace of the last recording that ended, even if it ended by an exception."""
    if _last:
        return _last[0]
    return None


def first_bad(
    trace: Trace,
    when: str | Callable[[Stats], bool] = "nonfinite",
    *,
    allow: str | Sequence[str] = (),
) -> FirstBad | None:
    """Return where the first bad value came from, as ``trace.first_bad()`` does; None if there is no bad value.

    ``when`` says what is bad: ``"nonfinite"``, a condition such as ``"abs>1e4"``, or a function of ``Value.stats``.
    ``allow`` names functions (``"log"``) or places (``"model.py:12"``) whose results are never bad.
    """
    expect(trace, Trace, "first_bad() takes a trace recorded with values='stats'")
    return trace.first_bad(when, allow=allow)


def show(
    trace: Trace,
    view: str | None = None,
    *,
    file: TextIO | None = None,
    width: int | None = None,
    color: bool | None = None,
    **options: Any,
) -> None:
    """Print a view of a trace, as ``trace.show(view)`` does: ``tree``, ``code``, ``listing``, ``calls``, ``table`` …

    Without a name it prints the tree, or the ``failure`` view if an exception left the block.
    """
    expect(trace, Trace, TAKES_A_TRACE)
    trace.show(view, file=file, width=width, color=color, **options)


def render(
    trace: Trace,
    view: str | None = None,
    *,
    width: int | None = None,
    color: bool | None = None,
    **options: Any,
) -> str:
    """Return what ``show`` prints, as text."""
    expect(trace, Trace, TAKES_A_TRACE)
    return trace.render(view, width=width, color=color, **options)


def export(trace: Trace, path: str | os.PathLike[str], /, **options: Any) -> None:
    """Write a trace to a file for other programs, as ``trace.export(path)`` does; the suffix chooses the format.

    ``.html`` is the page. ``.svg`` and ``.png`` are pictures of the data flow, ``.dot`` and ``.mmd`` the same for
    Graphviz and Mermaid. ``.perfetto.json`` is a timeline for Perfetto and Chrome. ``.sqlite`` holds all tables
    (docs/format.md).
    """
    expect(trace, Trace, "export() takes a trace and the path of a file")
    trace.export(path, **options)
