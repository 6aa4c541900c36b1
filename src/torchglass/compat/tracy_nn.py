"""Offers Tracy NN's interface: ``Tracer`` and ``trace_model`` print every step of a model's call as it happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch import nn

from torchglass._trace import Trace
from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.live import LeafCall, LiveFeed
from torchglass.capture.recorder import Recorder
from torchglass.capture.session import FUNCTION
from torchglass.errors import WrongType
from torchglass.events.types import Event
from torchglass.journal.layout import NONE, PARENT, WHAT
from torchglass.options import Options
from torchglass.views.live.tracy import TracyLines
from torchglass.views.text.style import page_for, writable

__all__ = ["Tracer", "trace_model"]


class Tracer:
    """Prints the modules and torch functions of a model's call, with the shapes that go in and out.

    ``recorded`` is the trace between the last ``start`` and its ``stop``.
    """

    def __init__(self, name: str = "Neural Network") -> None:
        self.name = name
        self.recorded: Trace | None = None
        self._recorder: Recorder | None = None
        self._feed: LiveFeed | None = None
        self._lines: TracyLines | None = None
        self._model: Any = None
        self._inside: set[int] = set()
        """The threads in which a call of the model is running."""

    @property
    def active(self) -> bool:
        return self._recorder is not None

    def start(self, model: nn.Module) -> None:
        """Start to print the steps of all calls of a model, until ``stop`` is called."""
        if not isinstance(model, nn.Module):
            raise WrongType(
                f"Tracer.start() takes a model (torch.nn.Module), not {type(model).__name__}"
            )
        if self.active:
            self._print([f"  {self.name!r} is being traced already: stop() it first"])
            return
        if os.environ.get("TORCHGLASS") == "0":
            return
        recorder = Recorder(Options(name=self.name))
        self.recorded = Trace(recorder)
        self._model = model
        self._inside = set()
        self._lines = TracyLines(self.name, page_for(sys.stdout))
        self._print(self._lines.start())
        recorder.start()
        brief = LeafCall(self._lines.is_silent, self._show_whole)
        self._recorder, self._feed = (
            recorder,
            LiveFeed(recorder, self._show, self._wants, keyed=False, brief=brief),
        )
        recorder.listen(self._feed)

    def stop(self) -> None:
        """Stop tracing and print the closing lines. Do nothing if no tracing is running."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        recorder = self._recorder
        lines = self._lines
        if recorder is None or lines is None or self._feed is None:
            return
        self._recorder = None
        recorder.unlisten(self._feed)
        recorder.stop(error)
        self._print(lines.finish())
        self._model = self._feed = self._lines = None

    @contextmanager
    def trace(self, model: nn.Module) -> Iterator[Tracer]:
        """Trace a model in a block: ``with tracer.trace(model): model(x)``."""
        self.start(model)
        try:
            yield self
        finally:
            self.stop()

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wants(self, log: ThreadLog, words: list[int]) -> bool:
        """Return whether to print a record, which must be inside a call of the model."""
        what = words[WHAT]
        if log.ident in self._inside:
            return what < 0 or not _is_inside_torch(log, words[PARENT])
        if what < 0 and log.session.modules[-2 - what].module() is self._model:
            self._inside.add(log.ident)
            return True
        return False

    def _show(self, event: Event, edge: str) -> None:
        if self._lines is None:
            return
        self._print(self._lines.feed(event, edge))
        if edge == "close" and event.kind == "module" and event.parent is None:
            self._inside.clear()
            if (
                event.error is not None
                and self._recorder is not None
                and self._recorder.session is not None
            ):
                self._end(self._recorder.session.leaving.get(get_ident()))

    def _show_whole(self, event: Event, parent: int) -> None:
        if self._lines is not None:
            self._print(self._lines.whole(event, parent))

    def _print(self, lines: list[str]) -> None:
        if lines and sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # as under pythonw
            # One write keeps the lines together. `print` would write the text and the newline separately.
            sys.stdout.write(writable("\n".join([*lines, ""]), sys.stdout))


def _is_inside_torch(log: ThreadLog, parent: int) -> bool:
    """Return whether a function was called by a torch function, or by a layer of torch.nn that has no layers in it."""
    what = NONE
    if parent != NONE:
        what = log.word(parent, WHAT)
    if what >= 0:
        return log.session.kinds[what] == FUNCTION
    if parent == NONE:
        return False
    module = log.session.modules[-2 - what].module()
    return (
        module is not None
        and type(module).__module__.startswith("torch.nn.")
        and not module._modules
    )


def trace_model(model: nn.Module, name: str = "Quick Trace") -> Tracer:
    """Return an idle tracer, as ``Tracer(name)`` does. Pass the model again to ``start``."""
    if not isinstance(model, nn.Module):
        raise WrongType(
            f"trace_model() takes a model (torch.nn.Module), not {type(model).__name__}"
        )
    return Tracer(name)
