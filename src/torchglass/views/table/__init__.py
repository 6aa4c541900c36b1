"""The table: one row a module, with its output, its parameters counted once, and its share of the time."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, levels, switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the table shows."""

    depth: int | None = levels("levels below the outermost module; all by default")
    fold: bool = switch(True, "show repeated layers once")
    times: bool = switch(True, "show shares of time, and the whole")
