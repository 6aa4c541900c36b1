"""What is told of variables, written in C where the session has the compiled engine (``engine/fast/variables.c``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from torchglass.capture.engine.edges import stack_at
from torchglass.capture.engine.forms import Form, Forms
from torchglass.capture.session import VARIABLE, Session
from torchglass.capture.variables.watch import TOLD, UNBOUND, Fields
from torchglass.compiled import extension
from torchglass.journal.rows import WhatRow, encoded

SIZED = frozenset(map(id, (set, frozenset, deque)))
"""Containers without an order or an index: their length says more than a few members."""
MOST_KEPT = 4096
_row_bytes: dict[tuple[str, str], bytes] = {}
"""Of the rows of variables, by name and how; at most ``MOST_KEPT``. C looks here, too."""
Changed = Callable[[Fields, FrameType], bool]


def make_sink(session: Session, calls: Any, changed: Changed, call_numbers: int) -> Any:
    """The function that C writes changes with; ``changed`` is asked for what it does not do. None without C.

    ``calls`` are those of ``events.py``.
    """
    if session.engine is None:
        return None
    session.engine.ask(
        {
            "variable_rows": _row_bytes,
            "named": session.named,
            "variable_kind": VARIABLE,
            "what_numbers": session.what_numbers,
            "kinds": session.kinds,
        }
    )
    one_form: tuple[Any, ...] = (1, None)
    return extension.VariableSink(
        session.engine,
        calls,
        changed,
        calls.begin,
        stack_at,
        partial(_what, session),
        UNBOUND,
        TOLD,
        one_form,
        partial(_form_of_class, session.forms),
        session.forms.pin((0,)),
        session.forms.pin(one_form),
        call_numbers,
    )


def _what(session: Session, name: str, how: str) -> int:
    """The number of a variable's row, as ``Session.what`` gives it; its bytes are kept: each block writes the same."""
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
    """The form that every value of a class has; None where they differ."""
    text = None if id(cls) in SIZED else forms.constant(cls)
    return None if text is None else (1, text)
