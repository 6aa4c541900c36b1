"""The tree: every call with what was written, the shapes that went in and came out, and the line."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, levels, switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the tree shows."""

    depth: int | None = levels("levels below the outermost one; all by default")
    functions: bool = switch(True, "show functions, not only modules")
    times: bool = switch(False, "show how long each call took, and its share")
    fold: bool = switch(True, "show rounds of loops and repeated layers once")
    inner: bool = switch(False, "show also what torch does inside its own layers, functions and optimizer steps")
    constructors: bool = switch(False, "show also what was computed while objects were made, as in Net()")
