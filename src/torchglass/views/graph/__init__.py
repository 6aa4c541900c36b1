"""Data flow: which step made what another one takes, at every level."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, levels, switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the data flow shows."""

    depth: int | None = levels("levels below the outermost one; all by default")
    functions: bool = switch(True, "show functions, not only modules")
    fold: bool = switch(True, "show rounds of loops and repeated layers once")
    inner: bool = switch(False, "show also what torch does inside its own layers, functions and optimizer steps")
    constructors: bool = switch(False, "show also what was computed while objects were made, as in Net()")
