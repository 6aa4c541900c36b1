"""The listing: each file that ran, with what its lines assigned or returned, how often, and what differed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchglass.views.options import ViewOptions, several, switch, word


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the listing shows."""

    own_filters: ClassVar[frozenset[str]] = frozenset({"path"})

    path: tuple[str, ...] = several(
        "parts of paths, or globs; by default your own files, and of installed ones those with most steps",
        "path='model.py'",
    )
    functions: str = word("ran", ("all", "ran"), "ran: only functions with a step; all: whole files")
    by: str | None = word(None, ("module",), "tell the calls of a line apart by the module they ran in")
    backward: bool = switch(False, "show below each line the gradient of what it gave, and what backward ran for it")
    times: bool = switch(False, "show how long each line took")
    style: str = word("margin", ("comments", "margin"), "comments: a copy of one file with the shapes as comments")
