"""A sink that lists what it is told, and the cores that this Python has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tests.capture.variables.oracle import Row, shown
from torchglass.capture.variables import UNBOUND, Engine, VariableChange, Watch

CORES = ["settrace"] if sys.version_info < (3, 12) else ["monitoring", "settrace"]
"""settrace is the second choice from 3.12 on, used when all ids of sys.monitoring are taken."""
FOLLOWS_INSTRUCTIONS = {"monitoring": True, "settrace": sys.version_info[:2] != (3, 12)}


class Listing:
    """Keeps text only, so that it keeps nothing alive."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.serials: list[int] = []
        self.olds: list[str] = []
        self.offsets: list[tuple[CodeType, int]] = []

    def changed(self, change: VariableChange, frame: FrameType) -> None:
        assert type(change) is VariableChange
        assert frame.f_code is change.code
        new = "None" if change.new is UNBOUND else shown(change.new)
        self.rows.append(Row(change.scope, change.line, change.name, change.how, new))
        self.serials.append(change.serial)
        self.olds.append("UNBOUND" if change.old is UNBOUND else shown(change.old))
        self.offsets.append((change.code, change.offset))

    @property
    def brief(self) -> list[tuple[str, str, str]]:
        return [(row.name, row.how, row.new) for row in self.rows]

    def of(self, name: str) -> list[tuple[str, str]]:
        return [(row.how, row.new) for row in self.rows if row.name == name]


class Calls(Listing):
    """A listing that is told of calls too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def entered(self, code: CodeType, serial: int, caller: int | None) -> None:
        self.calls.append(("entered", code.co_name, serial, caller))

    def left(self, serial: int, error: BaseException | str | None) -> None:
        name = error if error is None or isinstance(error, str) else type(error).__name__
        self.calls.append(("left", serial, name))


def in_file(function: Callable[..., Any]) -> Callable[[CodeType], bool]:
    """A predicate: code of the file that the function is written in."""
    filename = function.__code__.co_filename
    return lambda code: code.co_filename == filename


def watched(
    function: Callable[[], Any], *names: str, core: str | None = None, sink: Listing | None = None, **options: Any
) -> Listing:
    """What the engine tells of one call of a function, which may raise."""
    listing = sink if sink is not None else Listing()
    options.setdefault("code", in_file(function))
    engine = Engine(Watch(names or ("*",), **options), listing, core=core)
    engine.start(sys._getframe())
    try:
        function()
    except Exception:
        pass
    finally:
        engine.stop()
    assert engine.faults == []
    assert engine.notes == []
    return listing
