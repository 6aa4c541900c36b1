"""Options of views, checked the same way everywhere, with messages that say what is taken."""

from __future__ import annotations

from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import Selection


def check_depth(depth: object) -> None:
    """None, or how many levels below the outermost one are shown."""
    if depth is None:
        return
    if not isinstance(depth, int) or isinstance(depth, bool):
        raise WrongType(f"depth= takes a number of levels or None (all), not {type(depth).__name__}")
    if depth < 0:
        raise UsageError(f"depth={depth}: 0 shows the outermost level alone, 1 the one below it too")


def check_only(only: object) -> None:
    """None, or what select() gives."""
    if only is not None and not isinstance(only, Selection):
        kind = type(only).__name__
        raise WrongType(f'only= takes a selection, as in only=select(module="encoder.*"), not {kind}')


def check_switch(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise WrongType(f"{name}= takes True or False, not {type(value).__name__}")
