"""Pauses ``torch.jit.trace`` while we read tensors, so that our reads do not appear in its graph or cause warnings."""

from __future__ import annotations

from typing import Any

from torchglass.capture.torch.names import get_tracing_state, set_tracing_state
from torchglass.compiled import extension

TRACES: list[bool] = []
"""One entry for each running ``torch.jit.trace`` in the process. Each tracer belongs to one thread."""


def begin_trace() -> None:
    """Look for a tracer at each event from now on."""
    TRACES.append(True)
    _tell_compiled()


def begin_inside_trace() -> bool:
    """Look for a tracer at each event if this thread is tracing already, and return whether it is."""
    if get_tracing_state() is None:
        return False
    begin_trace()
    return True


def end_trace() -> None:
    """Undo one ``begin_trace``."""
    TRACES.pop()
    _tell_compiled()


def _tell_compiled() -> None:
    if extension is not None:
        extension.pause_traces(bool(TRACES))


def pause_trace() -> Any:
    """Stop this thread's tracer, and return its state for ``resume_trace``. The state is None without a tracer."""
    state = get_tracing_state()
    if state is not None:
        set_tracing_state(None)
    return state


def resume_trace(state: Any) -> None:
    """Restart the tracer that ``pause_trace`` stopped."""
    if state is not None:
        set_tracing_state(state)
