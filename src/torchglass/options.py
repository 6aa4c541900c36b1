"""The options of ``torchglass.record``: each once, with its default, its check, and its flag of ``torchglass run``."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar, cast

from torchglass.errors import UnknownOption, UsageError, WrongType, closest, expect
from torchglass.events.selection import Selection

T = TypeVar("T")
VALUE_MODES = ("stats", "stats+sketch", "all")
"""What ``values`` takes beside a selection."""


def _flag(text: str, **argparse_arguments: Any) -> dict[str, Any]:
    """Return the metadata of an option that ``torchglass run`` has as a flag: its line of help, and more for argparse.

    An option that is False by default is switched on by ``--NAME``, one that is True is switched off by ``--no-NAME``
    (cli/run.py). The help says what the flag does.
    """
    return {"flag": {"help": text, **argparse_arguments}}


def rejects_unknown_options(cls: type[T]) -> type[T]:
    """Make a dataclass reject unknown options and suggest the closest one."""
    names = [each.name for each in fields(cast("Any", cls))]
    set_fields = cls.__init__

    @functools.wraps(set_fields)
    def __init__(self: T, *args: Any, **options: Any) -> None:
        for name in options:
            if name not in names:
                raise UnknownOption(
                    f"{cls.__name__}() has no option {name!r}; {closest(name, names)}"
                )
        set_fields(self, *args, **options)

    cls.__init__ = __init__
    return cls


@dataclass(kw_only=True, eq=False)
class Options:
    """What to record: the keywords of ``torchglass.record``, checked when an object is made."""

    modules: bool = field(default=True, metadata=_flag("do not record module calls"))
    """Whether calls of modules are events, and steps of optimizers."""
    functions: bool = field(default=True, metadata=_flag("do not record torch functions"))
    """Whether calls of torch functions are events."""
    ops: bool = field(default=False, metadata=_flag("record the aten ops below the functions too"))
    """Whether the ops that torch dispatches are events."""
    variables: bool | str | Sequence[str] = field(default=(), metadata=_flag(
        "follow these variables: names or globs, such as a,b; * for all", metavar="NAMES", action="append", default=[]
    ))  # fmt: skip
    """Which variables to follow: names or globs; True for all. ``names`` has them as a tuple."""
    calls: str | Sequence[str] = field(default="none", metadata=_flag(
        "record calls of Python functions: user for the program's own; or names of packages, such as user,trainer",
        metavar="WHOSE",
    ))  # fmt: skip
    """Whose functions are events when they are called. ``packages`` has them as a tuple."""
    values: str | Selection | None = field(default=None, metadata=_flag(
        "stats: measure every tensor; stats+sketch: fingerprint it too, for diff; all: keep it too; "
        "module=encoder.*,function=softmax: measure and keep only those of such events", metavar="WHICH",
    ))  # fmt: skip
    """Of which events values are measured, fingerprinted or kept: see ``measures`` and ``chosen``."""
    stop_on: str | None = field(
        default=None,
        metadata=_flag("stop the program at the first NaN or Inf", choices=["nonfinite"]),
    )
    """``nonfinite`` stops the program at the first NaN or Inf."""
    max_bytes: int = 1 << 30
    """The most bytes of tensors that are kept."""
    only: Selection | None = None
    """The events that the trace keeps; None for all."""
    to: str | os.PathLike[str] | None = field(
        default=None,
        metadata=_flag(
            "the bundle to write; default: the script's name with .trace", metavar="PATH"
        ),
    )
    """The bundle to write; None to record into memory."""
    fused: str = field(
        default="keep",
        metadata=_flag(
            "open: look inside the fused attention of torch.nn's layers", choices=["keep", "open"]
        ),
    )
    """``open`` takes the unfused path of attention layers, whose steps can be seen."""
    sources: bool = field(default=True, metadata=_flag("do not copy source files into the bundle"))
    """Whether the bundle gets copies of the source files that ran."""
    max_events: int | None = field(
        default=200_000,
        metadata=_flag(
            "keep at most N events of a long run: the first, the newest and samples between; counts stay those of "
            "the whole run (default: 200000)",
            metavar="N",
            type=int,
        ),
    )
    """The most events that are kept of a long run; None for all."""
    keep: str = "end"
    """Which events of a longer run are kept: ``end`` (the first, the newest and samples between) or ``begin``."""
    name: str = field(default="", metadata=_flag("a title for the trace"))
    """A title for the trace."""

    def __post_init__(self) -> None:
        if self.fused not in ("keep", "open"):
            raise UsageError(f"record(fused=…) takes 'keep' or 'open', not {self.fused!r}")
        if self.only is not None:
            expect(self.only, Selection, "record(only=…) takes a selection made by select(…)")
        if type(self.max_bytes) is not int or self.max_bytes < 0:
            raise UsageError(f"record(max_bytes=…) takes a number of bytes, not {self.max_bytes!r}")
        if self.stop_on not in (None, "nonfinite"):
            raise UsageError(f"record(stop_on=…) takes 'nonfinite' or None, not {self.stop_on!r}")
        if self.max_events is not None and (
            type(self.max_events) is not int or self.max_events < 1
        ):
            raise UsageError(
                f"record(max_events=…) takes a whole number from 1 on, or None for all, not {self.max_events!r}"
            )
        if self.keep not in ("begin", "end"):
            raise UsageError(f"record(keep=…) takes 'end' or 'begin', not {self.keep!r}")
        self.modules = bool(self.modules)
        self.functions = bool(self.functions)
        self.ops = bool(self.ops)
        self.sources = bool(self.sources)
        self.name = str(self.name)
        if self.to is not None:
            self.to = os.fspath(self.to)
        _check_values(self.values)
        self.names: tuple[str, ...] = _names(self.variables)
        """The variables to follow, as names and globs."""
        self.packages: tuple[str, ...] = _packages(self.calls)
        """Whose calls are events: ``user``, and names of packages."""

    @property
    def chosen(self) -> Selection | None:
        """The selection of events whose values are measured and kept; None if it is the same for all events."""
        if isinstance(self.values, Selection):
            return self.values
        return None

    @property
    def measures(self) -> str:
        """What is done with values: one of ``VALUE_MODES``; ``select`` for those of ``chosen``; "" for nothing."""
        if isinstance(self.values, Selection):
            return "select"
        if self.values:
            return self.values
        if self.stop_on:
            # Finding a NaN takes statistics.
            return "stats"
        return ""

    def as_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for the journal and other processes; ``Options.of`` reads them.

        Without ``only`` and ``to``, which do not concern them.
        """
        chosen = None
        if self.chosen is not None:
            chosen = self.chosen.patterns()
        return {
            "modules": self.modules,
            "functions": self.functions,
            "ops": self.ops,
            "max_bytes": self.max_bytes,
            "fused": self.fused,
            "sources": self.sources,
            "max_events": self.max_events,
            "keep": self.keep,
            "name": self.name,
            "variables": self.names,
            "calls": self.packages,
            "values": self.measures,
            "chosen": chosen,
            "stop_on": self.stop_on or "",
        }

    def as_text(self) -> str:
        """Return the options as JSON."""
        options = self.as_dict()
        if options["chosen"] is not None:
            return _to_json(options)
        # Without a selection all of them can be hashed, and most blocks have the options of a block before.
        return _cached_json(tuple(options.items()))

    @classmethod
    def of(cls, written: dict[str, Any], **others: Any) -> Options:
        """Return the options that another process has written with ``as_dict``; ``others`` are added."""
        options = written | others
        chosen = options.pop("chosen", None)
        if chosen is not None:
            options["values"] = Selection(**chosen)
        else:
            options["values"] = options.get("values") or None
        options["stop_on"] = options.get("stop_on") or None
        return cls(**options)


_to_json = json.JSONEncoder(separators=(",", ":")).encode


@lru_cache(maxsize=64)
def _cached_json(options: tuple[tuple[str, Any], ...]) -> str:
    return _to_json(dict(options))


def _names(variables: object) -> tuple[str, ...]:
    """Return the value of ``variables`` as names and globs."""
    if variables is True:
        return ("*",)
    if variables is False:
        return ()
    names = _as_texts(variables)
    if names is None:
        raise WrongType(
            "record(variables=…) takes names such as ['video', 'self.cache'], or True for all variables"
        )
    return names


def _packages(calls: object) -> tuple[str, ...]:
    """Return the value of ``calls`` as names of packages, and ``user``."""
    packages = _as_texts(calls)
    if packages is None:
        raise WrongType(
            "record(calls=…) takes 'user' for the program's own functions, 'none', or names of packages"
        )
    if packages == ("none",):
        return ()
    return packages


def _as_texts(value: object) -> tuple[str, ...] | None:
    """Return a text, or a list or tuple of texts, as a tuple; None if it is something else."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)):
        return None
    items = cast("Sequence[object]", value)
    texts = tuple(item for item in items if isinstance(item, str))
    if len(texts) < len(items):
        return None
    return texts


def _check_values(values: object) -> None:
    """Raise an error if ``values`` has a value that it cannot have."""
    if isinstance(values, Selection):
        if values.variable:
            raise UsageError(
                "record(values=select(…)) does not take variable=: use select(function=…) or select(module=…), or "
                "torchglass.mark(name, tensor) for a single tensor"
            )
    elif values is not None and values not in VALUE_MODES:
        raise UsageError(
            f"record(values=…) takes {', '.join(map(repr, VALUE_MODES))}, a select(…) or None, not {values!r}"
        )
