"""Writes changes of variables in C, if the session has the compiled engine (``engine/fast/variables.c``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from torchglass.capture.engine.edges import stack_at
from torchglass.capture.engine.forms import Form, Forms
from torchglass.capture.session import VARIABLE, Session
from torchglass.capture.variables.watch import REPORTED, UNBOUND, Fields
from torchglass.compiled import extension
from torchglass.journal.rows import WhatRow, encoded

SIZED = frozenset(map(id, (set, frozenset, deque)))
"""Containers without an order or an index. They are shown by their length, which says more than a few members."""
MOST_KEPT = 4096
"""The most rows to cache in `_row_bytes`."""
_row_bytes: dict[tuple[str, str], bytes] = {}
"""The encoded rows of variables, keyed by the variable's name and how it changed."""
Changed = Callable[[Fields, FrameType], bool]


def make_sink(session: Session, calls: Any, changed: Changed, call_numbers: int) -> Any:
    """Return the sink in C that writes changes, or None without the compiled engine.

    The sink passes the changes that it cannot write to ``changed``. ``calls`` is the `ReportedCalls` of ``events.py``.
    """
    if session.engine is None:
        return None
    one_form: tuple[Any, ...] = (1, None)
    return extension.VariableSink(
        session.engine,
        calls,
        changed,
        calls.begin,
        stack_at,
        partial(_what, session),
        UNBOUND,
        REPORTED,
        one_form,
        partial(_form_of_class, session.forms),
        session.forms.pin((0,)),
        session.forms.pin(one_form),
        call_numbers,
    )


def _what(session: Session, name: str, how: str) -> int:
    """Return the number of a variable's row; the bytes of the row are cached, because each block writes the same."""
    number = session.named.get((VARIABLE, name, how))
    if number is None:
        payload = _row_bytes.get((name, how))
        if payload is None:
            payload = encoded(WhatRow(VARIABLE, name, None, how, [], None, False))
            if len(_row_bytes) < MOST_KEPT:
                _row_bytes[name, how] = payload
        number = session.named[VARIABLE, name, how] = session.add_what(VARIABLE, payload)
    return number


def _form_of_class(forms: Forms, cls: type) -> Form | None:
    """Return the form that all values of a class share, or None if their forms differ."""
    text = None
    if id(cls) not in SIZED:
        text = forms.constant(cls)
    if text is None:
        return None
    return (1, text)
