"""What is kept of arguments and values: numbers of any length, numpy's own, and classes with strange metaclasses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchglass as tg

HUGE = 10**5000
WORDS = "an int of 16610 bits"


class Takes(nn.Module):
    """Takes anything beside a tensor."""

    def forward(self, x: Tensor, other: Any, **named: Any) -> Tensor:
        return x


def life(trace: Any, name: str) -> list[str]:
    return [event.result for event in trace.events(variable=name)]


class TestNumbersThatPythonDoesNotSpell:
    def test_as_variables_and_inside_of_others(self, tmp_path: Path) -> None:
        def run() -> None:
            x = 1
            x = HUGE
            y = [HUGE, {HUGE: -HUGE}]
            z = 3
            _ = (x, y, z)

        with tg.record(variables=["x", "y", "z"], to=tmp_path / "a.trace") as trace:
            run()
        for each in (trace, tg.load(tmp_path / "a.trace")):
            assert life(each, "x") == ["1", WORDS]
            assert life(each, "y") == [f"[{WORDS}, {{{WORDS}: {WORDS}}}]"]
            assert life(each, "z") == ["3"]
            assert each.notes == ()

    def test_as_arguments(self) -> None:
        with tg.record() as trace:
            Takes()(torch.ones(2), HUGE, named=[HUGE])
            with pytest.raises((OverflowError, RuntimeError)):
                torch.add(torch.ones(2), HUGE)
        module = next(trace.events(kind="module"))
        assert module.args == f"f32[2], {WORDS}, named=[{WORDS}]"
        assert next(trace.events(function="add")).args == f"f32[2], {WORDS}"

    def test_long_ones_are_spelt_as_long_as_that_is_short(self) -> None:
        with tg.record(variables=["x"]) as trace:
            for x in (2**512 - 1, 2**512, -(2**512)):  # noqa: B007
                pass
        assert life(trace, "x") == [str(2**512 - 1), "an int of 513 bits", "an int of 513 bits"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(1.5), "1.5"),
        (np.float32("nan"), "nan"),
        (np.int64(-3), "-3"),
        (np.bool_(True), "True"),
        (np.complex64(1 + 2j), "(1+2j)"),
        (np.datetime64("2020-01-01"), "2020-01-01"),
        (np.str_("it's"), '"it\'s"'),
        (np.bytes_(b"abc"), "<bytes of 3>"),
        (np.zeros(1, dtype=[("a", "O")])[0], "<void>"),
        ([np.float64(1.0), 2.0], "[1.0, 2.0]"),
    ],
)
def test_numpys_numbers_have_their_values(value: Any, text: str) -> None:
    def run() -> Any:
        x = value
        return x  # noqa: RET504 (a variable to follow)

    with tg.record(variables=["x"]) as trace:
        run()
    assert life(trace, "x") == [text]


def test_of_a_class_made_from_numpys_only_the_name() -> None:
    class Own(np.float64):
        def __str__(self) -> str:
            raise AssertionError("called")

    def run() -> Any:
        x = Own(1.5)
        return x  # noqa: RET504 (a variable to follow)

    with tg.record(variables=["x"]) as trace:
        run()
    assert life(trace, "x") == ["<Own>"]


class Loud(type):
    """Whose classes must not be asked anything."""

    def __eq__(cls, other: object) -> bool:
        raise AssertionError("__eq__ of a metaclass was called")

    def __hash__(cls) -> int:
        raise AssertionError("__hash__ of a metaclass was called")

    @property
    def __name__(cls) -> str:
        raise AssertionError("__name__ of a metaclass was called")


class Config(metaclass=Loud):
    """An object of the program."""


class Items(list[Any], metaclass=Loud):
    """A list of the program."""


class Options(dict[str, Any], metaclass=Loud):
    """A dictionary of the program."""


def test_a_metaclass_is_never_asked() -> None:
    def run() -> None:
        config = Config()
        items = Items([1, config])
        options = Options(key=config)
        keys = (config, {config: 1})
        Takes()(torch.ones(2), config, items=items, options=options, keys=keys)

    with tg.record(variables=["config", "items", "options", "keys"]) as trace:
        run()
    assert trace.notes == ()
    assert life(trace, "config") == ["<Config>"]
    assert life(trace, "items") == ["[1, <Config>]"]
    assert life(trace, "options") == ["{'key': <Config>}"]
    assert life(trace, "keys") == ["(<Config>, {<Config>: 1})"]
    assert next(trace.events(kind="module")).args.startswith("f32[2], <Config>, items=[1, <Config>]")


def test_a_module_whose_class_cannot_be_hashed() -> None:
    class Unhashable(type):
        def __eq__(cls, other: object) -> bool:
            return NotImplemented

    class Own(nn.Module, metaclass=Unhashable):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    with tg.record() as trace:
        Own()(torch.ones(2))
    assert [(event.kind, event.name) for event in trace.events()][-2:] == [("module", "Own"), ("function", "relu")]
    assert next(trace.events(function="relu")).module == ""


class TestPictures:
    """As Pillow's class holds them: that is not among what the tests need."""

    class Image:
        def __init__(self, mode: str, size: object) -> None:
            self._mode, self._size = mode, size

    Image.__module__ = "PIL.Image"

    class Own(Image):
        @property
        def size(self) -> None:
            raise AssertionError("a property of the program's was asked")

    def test_size_and_mode(self) -> None:
        def run() -> None:
            one = TestPictures.Image("RGB", (640, 480))
            two = TestPictures.Own("L", (3, 4))
            odd = TestPictures.Image("L", None)
            tg.mark("picture", one)
            Takes()(torch.ones(2), [one, two], odd=odd)

        with tg.record(variables=["one", "two", "odd"]) as trace:
            run()
        assert life(trace, "one") == ["Image(RGB, 640×480)"]
        assert life(trace, "two") == ["Image(L, 3×4)"]
        assert life(trace, "odd") == ["<Image>"]
        assert next(trace.events(kind="mark")).args == "Image(RGB, 640×480)"
        assert "[Image(RGB, 640×480), Image(L, 3×4)]" in next(trace.events(kind="module")).args
