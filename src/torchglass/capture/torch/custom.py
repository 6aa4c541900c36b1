"""``autograd.Function.apply`` as a function event: no torch function announces it, and its node belongs to its line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from torchglass.capture.engine.edges import recorded_call
from torchglass.capture.engine.log import LOGS
from torchglass.capture.session import FUNCTION, UNSEEN, Session
from torchglass.journal.rows import WhatRow, encoded

__tracebackhide__ = True  # pytest leaves our frames out of its reports

_name_of = type.__dict__["__name__"].__get__


def make_apply(original: Any) -> Any:
    """The replacement for ``torch.autograd.Function.apply``, a class method."""
    plain = original.__func__

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return plain(cls, *args, **kwargs)
        what = _what(log.session, f"{_name_of(cls)}.apply")
        return recorded_call(log, what, sys._getframe(1), partial(plain, cls), args, kwargs)

    return classmethod(apply)


def _what(session: Session, name: str) -> int:
    """Its number; all that it is given by position goes to ``forward``, under names that need not be known."""
    number = session.named.get((FUNCTION, name, ""))
    if number is None:
        row = WhatRow(FUNCTION, name, None, "", [], "args", False)
        number = session.named[FUNCTION, name, ""] = session.add_what(FUNCTION, encoded(row))
    return number


# ---------------------------------------------------------------- scripted

# Scripted functions as ``unseen`` events: what they take and give, and a note that their inside is C++.


SCRIPTED = "scripted: its lines are not seen; call the Python function it was made from to look inside"


def make_script_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for ``ScriptFunction.__call__``."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(self, *args, **kwargs)
        what = log.session.what(UNSEEN, self.name, SCRIPTED)
        return recorded_call(log, what, sys._getframe(1), partial(original, self), args, kwargs)

    return __call__
