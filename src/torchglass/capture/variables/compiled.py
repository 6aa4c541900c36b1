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

SIZED = frozenset(map(id, (set, frozenset, deque)))
"""Containers without an order or an index: their length says more than a few members."""
Changed = Callable[[Fields, FrameType], bool]


def make_sink(session: Session, calls: Any, changed: Changed, call_numbers: int) -> Changed | None:
    """The function that C writes changes with; ``changed`` is asked for what it does not do. None without C.

    ``calls`` are those of ``events.py``.
    """
    if session.engine is None:
        return None
    one_form: tuple[Any, ...] = (1, None)
    return extension.VariableSink(
        session.engine,
        calls,
        changed,
        lambda serial, above, log, frame: calls.begin(serial, log, frame, above),
        stack_at,
        session.stacks.intern_one,
        lambda name, how: session.what(VARIABLE, name, detail=how),
        UNBOUND,
        TOLD,
        one_form,
        partial(_form_of_class, session.forms),
        session.forms.pin((0,)),
        session.forms.pin(one_form),
        call_numbers,
    )


def _form_of_class(forms: Forms, cls: type) -> Form | None:
    """The form that every value of a class has; None where they differ."""
    text = None if id(cls) in SIZED else forms.constant(cls)
    return None if text is None else (1, text)
