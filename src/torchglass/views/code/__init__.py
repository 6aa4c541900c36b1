"""The code view: each step under the source lines that led to it, with loops and equal layers shown once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchglass.views.options import ViewOptions, levels, several, switch, word


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the code view shows."""

    own_filters: ClassVar[frozenset[str]] = frozenset({"hide"})

    steps: str = word(
        "auto", ("auto", "ops", "functions"), "what stands under the lines; auto: ops where there are any"
    )
    frames: str = word(
        "user",
        ("user", "own", "all"),
        "whose lines; user: all but torch's and the standard library's; own: no installed packages",
    )
    hide: tuple[str, ...] = several("packages whose lines are not shown", 'hide=("transformers", "transformers.utils")')
    depth: int | None = levels("levels of lines below the outermost; all by default")
    times: bool = switch(False, "show how long each line and step took")
    inner: bool = switch(False, "show also the ops of optimizer steps")
    constructors: bool = switch(False, "show also what was computed while modules were made, as in Net()")
    backward: bool = switch(False, "show what backward ran under the line whose gradient it was")
    fold: bool = switch(True, "show loops and equal layers once")
    succinct: bool = switch(True, "one line for all that is computed on it; off: one for each expression")
