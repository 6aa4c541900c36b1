"""Small repairs of what recording would otherwise change or miss in torch."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from torchglass.capture.log import LOGS


def make_swap_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.utils.swap_tensors`` refuses tensors with weak references: drop ours first."""

    def swap_tensors(t1: Any, t2: Any) -> Any:
        for log in list(LOGS.values()):
            log.session.values.forget(t1, t2)
        return original(t1, t2)

    return swap_tensors


def make_run_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """The autograd engine's door: what happens inside is the backward phase."""

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on:
            return original(*args, **kwargs)
        begin, outer = len(log.records), log.session.in_backward
        log.session.in_backward = (log, log.parent)
        try:
            return original(*args, **kwargs)
        finally:
            log.session.in_backward = outer
            log.backward_spans.append((begin, len(log.records)))
            args = kwargs = None  # type: ignore[assignment]  # a traceback keeps this frame, not the tensors

    return _engine_run_backward
