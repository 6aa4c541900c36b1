"""Records which gradients backward accumulated into ``.grad``, as an event after each run of the autograd engine.

Torch calls no function for this, and the program would see hooks on its parameters. So we compare the leaves that the
trace knows before and after a run: a leaf has got a gradient if ``.grad`` is another tensor or has a newer version.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import Tensor

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.session import FUNCTION, Session
from torchglass.capture.torch import private
from torchglass.capture.transparency.ours import foreign

ACCUMULATE = "AccumulateGrad"
"""The name of the event, which is the name of torch's autograd node."""
MOST_IN_ONE = 500
"""The most parameters of one event. More parameters get several events, because the description of one argument or
result is limited (``MOST_ITEMS`` in engine/forms.py)."""

Seen = dict[int, tuple[int, int]]
"""Keyed by ``id`` of a leaf: the ``id`` and the version of its gradient."""


class Run:
    """One run of the autograd engine, with the gradients that existed before it."""

    def __init__(self, log: ThreadLog) -> None:
        self._log = log
        self._before: Seen = {}
        session = log.session
        # Gradients of an inner run (checkpointing runs backward inside of backward) are recorded after the outer run.
        is_inner = log.spawned_by is not None or any(run._log is log for run in session.runs)
        if session.records_functions and not is_inner:
            with private.no_functions():
                self._before = {id(leaf): _state(grad) for leaf, grad in _with_gradients(session)}
            session.runs.append(self)

    def end(self, frame: FrameType | None, always: bool) -> None:
        """Record the leaves that got gradients. With ``always``, record an event even if there are none."""
        log = self._log
        session = self._log.session
        if self not in session.runs:
            return
        session.runs.remove(self)
        if not log.on or not session.records_functions:
            return
        with private.no_functions():
            got = [
                (leaf, grad) for leaf, grad in _with_gradients(session) if self._is_new(leaf, grad)
            ]
            # Runs of other threads must not record the same gradients again.
            for other in session.runs:
                other._before.update((id(leaf), _state(grad)) for leaf, grad in got)
            if got or always:
                _record(log, frame, got)

    def drop(self) -> None:
        """Forget this run if it ended by an exception."""
        if self in self._log.session.runs:
            self._log.session.runs.remove(self)

    def _is_new(self, leaf: Any, grad: Any) -> bool:
        return self._before.get(id(leaf)) != _state(grad)


def _with_gradients(session: Session) -> Iterator[tuple[Any, Any]]:
    """Yield the leaves that the session has seen and that have a gradient now."""
    for tensor in session.values.living_objects():
        try:
            if issubclass(type(tensor), Tensor) and tensor.requires_grad and tensor.is_leaf:
                grad = tensor.grad
                if grad is not None:
                    yield tensor, grad
        except Exception as refusal:
            foreign(refusal)


def _state(grad: Any) -> tuple[int, int]:
    return id(grad), -1 if grad.is_inference() else grad._version


def _record(log: ThreadLog, frame: FrameType | None, got: list[tuple[Any, Any]]) -> None:
    session = log.session
    parent = log.parent
    # The compiled and the Python engine keep values in different orders, so sort them.
    got.sort(key=lambda pair: session.values.last_number(pair[0]))
    names = session.parameters.names([leaf for leaf, _ in got])
    what = session.what(FUNCTION, ACCUMULATE)
    for first in range(0, max(len(got), 1), MOST_IN_ONE):
        part = slice(first, first + MOST_IN_ONE)
        leaves = dict(zip(names[part], (leaf for leaf, _ in got[part]), strict=True))
        at = session.open_event(log, what, frame, (), leaves)
        log.parent = parent
        if at >= 0:
            session.close_event(log, at, [grad for _, grad in got[part]])
