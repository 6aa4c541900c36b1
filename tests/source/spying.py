"""A spy that takes part in any expression and notes the instruction of every operation on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from torchglass.source.codes import Code
from torchglass.source.operands import Slot, Slots, operands
from torchglass.source.sites import Site, resolve
from torchglass.source.text import SourceText

NAME = "<sample>"
SPECIAL = (
    "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor "
    "radd rsub rmul rmatmul rtruediv iadd isub imul imatmul ior ipow "
    "lt le gt ge eq ne neg pos invert abs getitem setitem delitem contains call getattr format enter exit"
).split()


class Step:
    """One operation of a spy, and the instruction it came from."""

    def __init__(self, name: str, args: tuple[Any, ...], keywords: dict[str, Any], frame: Any) -> None:
        self.name, self.args, self.keywords = name, args, keywords
        self.code: CodeType = frame.f_code
        self.lasti: int = frame.f_lasti


class Spy:
    """Takes part in any expression, gives a spy back, and writes down who asked."""

    steps: list[Step] = []

    def __init__(self, result: Any = None) -> None:
        self.__dict__["result"] = result

    def __bool__(self) -> bool:
        self.steps.append(Step("__bool__", (self,), {}, sys._getframe(1)))
        return bool(self.__dict__["result"])

    def __iter__(self) -> Any:
        self.steps.append(Step("__iter__", (self,), {}, sys._getframe(1)))
        return iter([Spy(), Spy()])

    def __setattr__(self, name: str, value: Any) -> None:
        self.steps.append(Step("__setattr__", (self, value), {}, sys._getframe(1)))

    def __await__(self) -> Any:
        return Spy()
        yield

    __hash__ = object.__hash__


def _special(name: str) -> Callable[..., Any]:
    def operate(*args: Any, **keywords: Any) -> Any:
        if name == "__getattr__" and args[1].startswith("__"):
            raise AttributeError(args[1])
        Spy.steps.append(Step(name, args, keywords, sys._getframe(1)))
        return {"__contains__": True, "__exit__": False, "__format__": ""}.get(name) or Spy(True)

    return operate


for _name in SPECIAL:
    setattr(Spy, f"__{_name}__", _special(f"__{_name}__"))
Spy.__format__ = lambda self, spec: Spy.steps.append(Step("__format__", (self,), {}, sys._getframe(1))) or ""
Spy.__exit__ = lambda *args: Spy.steps.append(Step("__exit__", args, {}, sys._getframe(1)))


NAMES = "a b c d f g h i k m n p q t u v w x y z xs ys out torch self cond scores é größe".split()


def run(text: str, **names: Any) -> list[tuple[Step, Site]]:
    """Run a text and resolve every step that it made, except those in this file."""
    source = SourceText(NAME, text)
    Spy.steps = []
    exec(compile(text, NAME, "exec"), {**{name: Spy(True) for name in NAMES}, "__name__": "sample", **names})
    steps = [step for step in Spy.steps if step.code.co_filename == NAME]
    return [(step, resolve(Code.of(step.code), step.lasti, source)) for step in steps]


def sites(text: str, only: str | None = "__call__", **names: Any) -> list[Site]:
    """The sites of the calls (or another kind of step), in the order in which they ran."""
    found = [site for step, site in run(text, **names) if only is None or step.name == only]
    assert all(site.problem is None for site in found), [site.problem for site in found]
    return found


def codes(text: str, only: str | None = "__call__", **names: Any) -> list[str]:
    return [site.code for site in sites(text, only, **names)]


def targets(text: str, only: str | None = "__call__", **names: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(site.code, site.target) for site in sites(text, only, **names)]


def position(site: Site) -> tuple[int, int, int, int]:
    where = site.location
    return where.line, where.end_line, where.col, where.end_col


def slots(name: str, *positions: int | str, positional: int | None = None, **more: Any) -> Slots:
    arguments = tuple(Slot(each) if isinstance(each, int) else Slot(None, each) for each in positions)
    places = [each for each in positions if isinstance(each, int)]
    return Slots(arguments, max(places, default=-1) + 1 if positional is None else positional, name, **more)


def written(text: str, asked: Slots) -> tuple[str, ...]:
    """The operands of the last step of a text."""
    return operands(sites(text, None)[-1], asked)
