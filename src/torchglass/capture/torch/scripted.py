"""Scripted functions as ``unseen`` events: what they take and give, and a note that their inside is C++."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from torchglass.capture.engine.edges import recorded_call
from torchglass.capture.engine.log import LOGS
from torchglass.capture.session import UNSEEN

__tracebackhide__ = True  # pytest leaves our frames out of its reports

NOTE = "scripted: its lines are not seen; call the Python function it was made from to look inside"


def make_script_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for ``ScriptFunction.__call__``."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(self, *args, **kwargs)
        what = log.session.what(UNSEEN, self.name, NOTE)
        return recorded_call(log, what, sys._getframe(1), partial(original, self), args, kwargs)

    return __call__
