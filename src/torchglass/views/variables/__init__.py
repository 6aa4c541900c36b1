"""The variables view: the life of each variable, line by line, or all changes as a tree that follows the calls."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.views.options import ViewOptions, several, switch, word


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ViewOptions):
    """What the variables view shows."""

    names: tuple[str, ...] = several("only variables that fit one of these globs", "names=('h*', 'self.cache')")
    by: str = word("variable", ("variable", "time"), "one block a variable, or all in program order as a tree of calls")
    fold: bool = switch(True, "show equal changes and equal calls once, and of very long lives both ends")
    times: bool = switch(False, "show when each change happened, since the recording began")
