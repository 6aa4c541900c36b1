"""How a trace ended that an exception left: the failing call, what went into it and how that came to be."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the story of a failure shows."""

    depth: int | None = levels("steps back from each input; 2 by default")
