"""The order of module calls: one row a call, as they begin or as they end, rounds of loops and equal layers once."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, switch, word


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the list of calls shows."""

    shapes: bool = switch(False, "show what each call took and gave")
    fold: bool = switch(True, "show rounds of loops and repeated layers once")
    order: str = word("begin", ("begin", "end"), "as calls begin, or as they return: a module after those it called")
