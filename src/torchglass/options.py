"""What ``torchglass.record`` takes: each option once, with its default, its check and its flag of ``run``."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar, cast

from torchglass.errors import UnknownOption, UsageError, WrongType, closest, expect
from torchglass.events.selection import Selection

T = TypeVar("T")
WAYS = ("stats", "stats+sketch", "all")
"""What ``values`` takes beside a selection."""


def _flag(text: str, **how: Any) -> dict[str, Any]:
    """That ``torchglass run`` has a flag for an option: its line of help, and what else argparse is told of it."""
    return {"flag": {"help": text, **how}}


def knows_its_options(cls: type[T]) -> type[T]:
    """Of a dataclass: an option that there is not is told with the nearest that there is."""
    known = [each.name for each in fields(cast("Any", cls))]
    begin = cls.__init__

    @functools.wraps(begin)
    def __init__(self: T, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in known:
                raise UnknownOption(f"{cls.__name__}() has no option {name!r}; {closest(name, known)}")
        begin(self, *args, **given)

    cls.__init__ = __init__
    return cls


@dataclass(kw_only=True, eq=False)
class Options:
    """What to record: the keywords of ``torchglass.record``, checked when they are given."""

    modules: bool = field(default=True, metadata=_flag("do not record calls of modules"))
    functions: bool = field(default=True, metadata=_flag("do not record torch functions"))
    ops: bool = field(default=False, metadata=_flag("record the aten ops below the functions too"))
    variables: bool | str | Sequence[str] = field(default=(), metadata=_flag(
        "follow these variables: names or globs, as a,b; * is all", metavar="NAMES", action="append", default=[]
    ))  # fmt: skip
    calls: str | Sequence[str] = field(default="none", metadata=_flag(
        "user: calls of the program's own functions are events too; or names of packages, as user,trainer",
        metavar="WHOSE",
    ))  # fmt: skip
    values: str | Selection | None = field(default=None, metadata=_flag(
        "stats: measure what is in every tensor; stats+sketch: so that it is known again; all: keep them too; "
        "module=encoder.*,function=softmax: both, of such events only", metavar="WHICH",
    ))  # fmt: skip
    stop_on: str | None = field(
        default=None, metadata=_flag("stop the program at the first NaN or Inf", choices=["nonfinite"])
    )
    max_bytes: int = 1 << 30
    only: Selection | None = None
    to: str | os.PathLike[str] | None = field(
        default=None, metadata=_flag("the bundle to write; default: the script's name with .trace", metavar="PATH")
    )
    fused: str = field(default="keep", metadata=_flag("open: show inside fused attention", choices=["keep", "open"]))
    sources: bool = field(default=True, metadata=_flag("keep source texts out of the bundle"))
    max_events: int | None = field(default=1_000_000, metadata=_flag("the most to keep", metavar="N", type=int))
    keep: str = "end"
    name: str = field(default="", metadata=_flag("a title for the trace"))

    def __post_init__(self) -> None:
        if self.fused not in ("keep", "open"):
            raise UsageError(f"record(fused=…) takes 'keep' or 'open', not {self.fused!r}")
        if self.only is not None:
            expect(self.only, Selection, "record(only=…) takes a selection made by select(…)")
        if type(self.max_bytes) is not int or self.max_bytes < 0:
            raise UsageError(f"record(max_bytes=…) takes a number of bytes, not {self.max_bytes!r}")
        if self.stop_on not in (None, "nonfinite"):
            raise UsageError(f"record(stop_on=…) takes 'nonfinite' or None, not {self.stop_on!r}")
        if self.max_events is not None and (type(self.max_events) is not int or self.max_events < 1):
            raise UsageError(
                f"record(max_events=…) takes a whole number from 1 on, or None for all, not {self.max_events!r}"
            )
        if self.keep not in ("begin", "end"):
            raise UsageError(f"record(keep=…) takes 'end' or 'begin', not {self.keep!r}")
        self.modules, self.functions, self.ops = bool(self.modules), bool(self.functions), bool(self.ops)
        self.sources, self.name = bool(self.sources), str(self.name)
        self.to = None if self.to is None else os.fspath(self.to)
        _check_values(self.values)
        self.names: tuple[str, ...] = _names(self.variables)
        """The variables to follow, as names and globs."""
        self.packages: tuple[str, ...] = _packages(self.calls)
        """Whose calls are events: ``user``, and names of packages."""

    @property
    def chosen(self) -> Selection | None:
        """Of which events values are measured and kept, where not of all."""
        return self.values if isinstance(self.values, Selection) else None

    @property
    def measures(self) -> str:
        """What is done with values: one of ``WAYS``, ``select`` (then ``chosen`` says with which), or nothing."""
        return "select" if isinstance(self.values, Selection) else self.values or ("stats" if self.stop_on else "")

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for the journal and for other processes; ``Options.of`` has them again."""
        return dict(zip(_NAMES, self._plain(), strict=True))

    def as_text(self) -> str:
        """The same as JSON: mostly that of a block before."""
        return _text(self._plain()) if self.chosen is None else _spelt(self.as_dict())

    def _plain(self) -> tuple[Any, ...]:
        chosen = None if self.chosen is None else self.chosen.patterns()
        return (*_read_plain(self), self.names, self.packages, self.measures, chosen, self.stop_on or "")

    @classmethod
    def of(cls, plain: dict[str, Any], **others: Any) -> Options:
        """The options that another process has written down."""
        given = plain | others
        chosen = given.pop("chosen", None)
        values = Selection(**chosen) if chosen is not None else given.get("values") or None
        return cls(**given | {"values": values, "stop_on": given.get("stop_on") or None})


_PLAIN = ("modules", "functions", "ops", "max_bytes", "fused", "sources", "max_events", "keep", "name")
_NAMES = (*_PLAIN, "variables", "calls", "values", "chosen", "stop_on")
_read_plain = attrgetter(*_PLAIN)
_spelt = json.JSONEncoder(separators=(",", ":")).encode


@lru_cache(maxsize=64)
def _text(plain: tuple[Any, ...]) -> str:
    return _spelt(dict(zip(_NAMES, plain, strict=True)))


def _names(variables: object) -> tuple[str, ...]:
    if isinstance(variables, bool):
        return ("*",) if variables else ()
    found = (variables,) if isinstance(variables, str) else _texts(variables)
    if found is None:
        raise WrongType("record(variables=…) takes names such as ['video', 'self.cache'], or True for all variables")
    return found


def _packages(calls: object) -> tuple[str, ...]:
    found = (calls,) if isinstance(calls, str) else _texts(calls)
    if found is None:
        raise WrongType("record(calls=…) takes 'user' for the program's own functions, 'none', or names of packages")
    return () if found == ("none",) else found


def _texts(given: object) -> tuple[str, ...] | None:
    """A list or tuple of texts; None where it is something else."""
    several = cast("Sequence[object]", given) if isinstance(given, (list, tuple)) else (None,)
    texts = [each for each in several if isinstance(each, str)]
    return tuple(texts) if len(texts) == len(several) else None


def _check_values(values: object) -> None:
    if isinstance(values, Selection):
        if values.variable:
            raise UsageError(
                "record(values=select(variable=…)): variables name values that functions made; select(function=…) or "
                "select(module=…) keeps those, torchglass.mark(name, tensor) a single one"
            )
    elif values is not None and values not in WAYS:
        raise UsageError(f"record(values=…) takes {', '.join(map(repr, WAYS))}, a select(…) or None, not {values!r}")
