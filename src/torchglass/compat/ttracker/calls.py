"""One call of a decorated function, from its head to its time, as lines of a tree that follows the calls."""

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
from torchglass.compat.ttracker.values import shown, type_name
from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import MOST_ITEMS, Words
from torchglass.views.text.words import clean

_NESTING: ContextVar[tuple[int, int]] = ContextVar("torchglass_ttracker_nesting", default=(0, 0))
"""How many decorated calls are under way, in which thread: a context may be carried into another one."""
MOST_CALLERS = 3
_FOLDER = os.path.dirname(__file__) + os.sep  # noqa: PTH120 (compared with co_filename, which is no Path)
_PARAMETERS = inspect.Parameter


def depth_here() -> int:
    """How many decorated calls are under way here: threads begin at 0, tasks where they were started."""
    depth, thread = _NESTING.get()
    return depth if thread == get_ident() else 0


# ---------------------------------------------------------------- functions


class Tracked:
    """What the lines say of a decorated function, worked out once."""

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
        """File and line of the ``def``, found with the first call."""
        if self._place is None:
            self._place = _place_of(self.code)
        return self._place


def _parameters(function: Callable[..., Any]) -> tuple[list[str], str]:
    """The names of positional parameters, and the name of ``*args``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return [], "args"
    by_position = (_PARAMETERS.POSITIONAL_ONLY, _PARAMETERS.POSITIONAL_OR_KEYWORD)
    rest = [each.name for each in parameters if each.kind is _PARAMETERS.VAR_POSITIONAL]
    return [each.name for each in parameters if each.kind in by_position], (rest or ["args"])[0]


def _place_of(code: CodeType | None) -> str:
    """A code object begins with its decorators: the ``def`` is looked for behind them."""
    if code is None:
        return "?"
    first = code.co_firstlineno
    definition = re.compile(rf"\s*(async\s+)?def\s+{re.escape(code.co_name)}\b")
    source = linecache.getlines(code.co_filename)[first - 1 : first + 99]
    behind = next((number for number, line in enumerate(source) if definition.match(line)), 0)
    return lines.place(code.co_filename, first + behind)


# ---------------------------------------------------------------- calls


class Watcher(Protocol):
    """Follows variables while the function's own code runs; ``stop`` is called as often as ``start``."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Call:
    """One call under way. Both edges pass here: whoever else wants to know of them is told in these methods."""

    __slots__ = ("_start", "_token", "_tracked", "_watcher", "_words", "depth")

    def __init__(
        self, tracked: Tracked, watcher: Watcher | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Begin; called by the wrapper of the function, whose caller is told."""
        self._tracked = tracked
        self._watcher = watcher
        self._words = words()
        self.depth = depth_here()
        self._begin(sys._getframe(1), args, kwargs)
        self._token: Token[tuple[int, int]] | None = None
        self._start = perf_counter()

    def enter(self) -> None:
        """The function's own code runs from here on: calls in it stand one level further in."""
        self._token = _NESTING.set((self.depth + 1, get_ident()))
        if self._watcher is not None:
            self._watcher.start()

    def leave(self) -> None:
        """The function's own code does not run any more, for now or for good."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._token is not None:
            try:
                _NESTING.reset(self._token)
            except ValueError:  # the program changed its context in the middle of a step
                _NESTING.set((self.depth, get_ident()))
            self._token = None

    @guarded
    def _begin(self, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tracked = self._tracked
        texts = [lines.head(self._words, self.depth, (tracked.place, tracked.name), _callers(frame))]
        if args or kwargs:
            texts += _inputs(tracked, self._words, lines.GUIDE * self.depth, args, kwargs)
        send(texts)

    @guarded
    def gave(self, item: Any) -> None:
        """A generator yields."""
        send([lines.yielded(self._words, self.depth, shown(item))])

    @guarded
    def returned(self, result: Any) -> None:
        """The end, with a result; a tuple's items are told one by one."""
        seconds = perf_counter() - self._start
        if issubclass(type(result), tuple) and tuple.__len__(result):
            items = [shown(tuple.__getitem__(result, at)) for at in range(min(tuple.__len__(result), MOST_ITEMS))]
            texts = [*lines.outputs(self._words, self.depth, items, tuple.__len__(result))]
        else:
            texts = [lines.output(self._words, self.depth, shown(result))]
        self._end(texts, seconds)

    @guarded
    def raised(self, error: BaseException) -> None:
        """The end, by an exception; a coroutine that is thrown away while it waits gets a GeneratorExit."""
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
        """The end of a generator; most return nothing."""
        if result is None:
            self._end([], perf_counter() - self._start)
        else:
            self.returned(result)

    @guarded
    def closed(self) -> None:
        """The end of a generator or coroutine that was not run to its own."""
        self._end([lines.closed(self._words, self.depth)], perf_counter() - self._start)

    def _end(self, texts: list[str], seconds: float) -> None:
        texts.append(lines.ending(self._words, self.depth, self._tracked.name, seconds))
        send(texts)


def _callers(frame: FrameType | None) -> list[tuple[str, str, int | None]]:
    """(function, file, line) of the nearest callers, without the wrappers of other decorated functions."""
    found: list[tuple[str, str, int | None]] = []
    while frame is not None and len(found) < MOST_CALLERS:
        code = frame.f_code
        if not code.co_filename.startswith(_FOLDER):
            found.append((code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def is_ours(frame: FrameType | None) -> bool:
    """Whether this is the frame of a wrapper: what it calls is a decorated function."""
    return frame is not None and frame.f_code.co_filename.startswith(_FOLDER)


def _inputs(
    tracked: Tracked, words: Words, indent: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[str]:
    """The arguments that were passed, in the order of the call; not ``self`` and ``cls``."""
    names = tracked.names
    for at in range(int(tracked.hides_first), min(len(args), len(names) + MOST_ITEMS)):
        name = names[at] if at < len(names) else f"{tracked.rest}[{at - len(names)}]"
        yield lines.named(indent, words.input, name, 0, shown(args[at]))
    if len(args) > len(names) + MOST_ITEMS:
        yield lines.left_out(words, indent, len(args) - len(names) - MOST_ITEMS)
    for name, value in kwargs.items():
        yield lines.named(indent, words.input, name, 0, shown(value))


def _begin_anew() -> None:
    """A forked child's lines are a tree of their own."""
    _NESTING.set((0, 0))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
