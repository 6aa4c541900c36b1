"""The gradients: a row a parameter, with the norm of its gradient, of its updates, and what got none."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, levels, switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What is shown of gradients."""

    depth: int | None = levels("levels of modules below the outermost; their parameters are taken together")
    fold: bool = switch(True, "show repeated layers once")
