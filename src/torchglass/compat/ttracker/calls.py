"""Logs one call of a decorated function, from its head to its running time, as lines of a tree of calls."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from threading import get_ident
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, Protocol

from torchglass.compat.ttracker.output import guarded, send, words
from torchglass.compat.ttracker.texts import shown, type_name
from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import MOST_ITEMS, Words
from torchglass.views.text.words import clean

_NESTING: ContextVar[tuple[int, int]] = ContextVar("torchglass_ttracker_nesting", default=(0, 0))
"""How many decorated calls are open, and in which thread, since a program may use a context in another thread."""
MOST_CALLERS = 3
_FOLDER = os.path.dirname(__file__) + os.sep  # noqa: PTH120 (compared with co_filename, which is no Path)
_PARAMETERS = inspect.Parameter


def depth_here() -> int:
    """Return how many decorated calls are open. A thread begins at 0, a task at the depth where it was started."""
    depth, thread = _NESTING.get()
    if thread == get_ident():
        return depth
    return 0


# ---------------------------------------------------------------- functions


class Tracked:
    """The facts about a decorated function that its lines show, computed once."""

    __slots__ = ("_place", "code", "hides_first", "name", "names", "rest")

    def __init__(self, function: Callable[..., Any]) -> None:
        qualified = str(getattr(function, "__qualname__", "?"))
        self.name = clean(qualified.rpartition("<locals>.")[2])
        self.code: CodeType | None = getattr(inspect.unwrap(function), "__code__", None)
        self._place: str | None = None
        self.names, self.rest = _parameters(function)
        self.hides_first = "." in self.name and self.names[:1] in (["self"], ["cls"])

    @property
    def place(self) -> str:
        """The file and line of the ``def``, found at the first call."""
        if self._place is None:
            self._place = _place_of(self.code)
        return self._place


def _parameters(function: Callable[..., Any]) -> tuple[list[str], str]:
    """Return the names of positional parameters, and the name of ``*args``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return [], "args"
    by_position = (_PARAMETERS.POSITIONAL_ONLY, _PARAMETERS.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in by_position]
    rest = "args"
    for parameter in parameters:
        if parameter.kind is _PARAMETERS.VAR_POSITIONAL:
            rest = parameter.name
    return names, rest


def _place_of(code: CodeType | None) -> str:
    """Return the place of the ``def``. A code object begins with its decorators, so search the lines after them."""
    if code is None:
        return "?"
    first = code.co_firstlineno
    definition = re.compile(rf"\s*(async\s+)?def\s+{re.escape(code.co_name)}\b")
    source = linecache.getlines(code.co_filename)[first - 1 : first + 99]
    for number, line in enumerate(source, first):
        if definition.match(line):
            return lines.place(code.co_filename, number)
    return lines.place(code.co_filename, first)


# ---------------------------------------------------------------- calls


class Watcher(Protocol):
    """Follows variables while the function's own code runs; ``stop`` is called as often as ``start``."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Call:
    """One running call. Its methods are called at each begin, end and pause of the call, and log the lines."""

    __slots__ = ("_start", "_token", "_tracked", "_watcher", "_words", "depth")

    def __init__(
        self,
        tracked: Tracked,
        watcher: Watcher | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Log the begin of a call. Only the function's wrapper may call this, because the line shows its caller."""
        self._tracked = tracked
        self._watcher = watcher
        self._words = words()
        self.depth = depth_here()
        self._begin(sys._getframe(1), args, kwargs)
        self._token: Token[tuple[int, int]] | None = None
        self._start = perf_counter()

    def enter(self) -> None:
        """Note that the function's code starts or continues to run. Calls inside of it are one level deeper."""
        self._token = _NESTING.set((self.depth + 1, get_ident()))
        if self._watcher is not None:
            self._watcher.start()

    def leave(self) -> None:
        """Note that the function's code stops running, because it waits or has ended."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._token is not None:
            try:
                _NESTING.reset(self._token)
            except ValueError:  # the program switched to another context meanwhile
                _NESTING.set((self.depth, get_ident()))
            self._token = None

    @guarded
    def _begin(self, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tracked = self._tracked
        texts = [
            lines.head(self._words, self.depth, (tracked.place, tracked.name), _callers(frame))
        ]
        if args or kwargs:
            texts += _inputs(tracked, self._words, lines.GUIDE * self.depth, args, kwargs)
        send(texts)

    @guarded
    def gave(self, item: Any) -> None:
        """Log an item that a generator yields."""
        send([lines.yielded(self._words, self.depth, shown(item))])

    @guarded
    def returned(self, result: Any) -> None:
        """Log the end of a call with its result. The items of a tuple get a line each."""
        seconds = perf_counter() - self._start
        if issubclass(type(result), tuple) and tuple.__len__(result):
            items = [
                shown(tuple.__getitem__(result, at))
                for at in range(min(tuple.__len__(result), MOST_ITEMS))
            ]
            texts = [*lines.outputs(self._words, self.depth, items, tuple.__len__(result))]
        else:
            texts = [lines.output(self._words, self.depth, shown(result))]
        self._end(texts, seconds)

    @guarded
    def raised(self, error: BaseException) -> None:
        """Log the end of a call by an exception. A GeneratorExit means that a coroutine was dropped while it waited."""
        if type(error) is GeneratorExit:
            self.closed()
            return
        seconds = perf_counter() - self._start
        try:
            text = str(error)
        except Exception:
            text = "(its text could not be read)"
        self._end([lines.error(self._words, self.depth, type_name(type(error)), text)], seconds)

    @guarded
    def exhausted(self, result: Any) -> None:
        """Log the end of a generator, with its result unless that is None."""
        if result is None:
            self._end([], perf_counter() - self._start)
        else:
            self.returned(result)

    @guarded
    def closed(self) -> None:
        """Log the end of a generator or coroutine that was not run to its end."""
        self._end([lines.closed(self._words, self.depth)], perf_counter() - self._start)

    def _end(self, texts: list[str], seconds: float) -> None:
        texts.append(lines.ending(self._words, self.depth, self._tracked.name, seconds))
        send(texts)


def _callers(frame: FrameType | None) -> list[tuple[str, str, int | None]]:
    """Return (function, file, line) of the nearest callers, without the wrappers of other decorated functions."""
    found: list[tuple[str, str, int | None]] = []
    while frame is not None and len(found) < MOST_CALLERS:
        code = frame.f_code
        if not code.co_filename.startswith(_FOLDER):
            found.append((code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def is_ours(frame: FrameType | None) -> bool:
    """Return whether a frame belongs to a wrapper, so that the function it calls is a decorated one."""
    return frame is not None and frame.f_code.co_filename.startswith(_FOLDER)


def _inputs(
    tracked: Tracked, words: Words, indent: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[str]:
    """Yield the arguments that were passed, in the order of the call, without ``self`` and ``cls``."""
    names = tracked.names
    most = len(names) + MOST_ITEMS
    for index, value in enumerate(args[:most]):
        if index == 0 and tracked.hides_first:
            continue
        if index < len(names):
            name = names[index]
        else:
            name = f"{tracked.rest}[{index - len(names)}]"
        yield lines.named(indent, words.input, name, 0, shown(value))
    if len(args) > most:
        yield lines.left_out(words, indent, len(args) - most)
    for name, value in kwargs.items():
        yield lines.named(indent, words.input, name, 0, shown(value))


def _begin_anew() -> None:
    """Start a new tree of lines in a forked child."""
    _NESTING.set((0, 0))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
