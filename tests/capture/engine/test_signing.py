"""What containers hold is signed in C as in Python; a look that finds no change there needs no Python."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest
import torch

import torchglass as tg
from torchglass import compiled
from torchglass.capture.variables import snapshots
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.snapshots import Snapshots

pytestmark = pytest.mark.skipif(compiled.engine() != compiled.COMPILED, reason=f"the engine is {compiled.described()}")


class Odd(dict[str, Any]):
    """Not asked for what it holds."""

    def __len__(self) -> int:
        raise RuntimeError("asked")


ARRAY, TENSOR, ODD = np.arange(3.0), torch.ones(2), Odd(a=1)
MEMBERS: list[Any] = [
    0, -1, 2**70, True, None, 1.5, -0.0, float("nan"), 2j, "text", "long" * 100, b"bytes", "é", int, len, TENSOR, ARRAY,
    ODD, [], (), {}, [1, [2, [3]]], {"a": {"b": {"c": 1}}}, {1, 2}, frozenset("x"), deque([1]), OrderedDict(a=1),
    defaultdict(list, a=[1]), Counter("aab"), range(3), ..., slice(1), TENSOR.shape, [None] * 100,
    dict.fromkeys(range(80)),
]  # fmt: skip
CONTAINERS: list[Any] = [
    MEMBERS, tuple(MEMBERS), dict(enumerate(MEMBERS)), {str(each)[:9]: each for each in range(70)}, list(range(64)),
    list(range(65)), [], (), {}, {(1, "a"): 2, None: 3, 1.5: [1]}, {1, "a"}, deque(MEMBERS),
    *([each] for each in MEMBERS),
]  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_both_sign_alike(depth: int) -> None:
    for stamp in (None, lambda value: value._version if type(value) is torch.Tensor else None):
        mine, theirs = Snapshots(depth, stamp, True), Snapshots(depth, stamp, True)
        for container in CONTAINERS:
            assert compiled.extension.sign(container, depth, mine) == snapshots._sign(container, depth, theirs)


def test_a_container_that_holds_itself() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    both = Snapshots(5, None, True)
    assert compiled.extension.sign(endless, 5, both) == snapshots._sign(endless, 5, both)


def test_a_dictionary_that_another_thread_fills_while_it_is_signed() -> None:
    shared: dict[int, Any] = {number: [number] for number in range(20)}
    stop = threading.Event()

    def fill() -> None:
        while not stop.is_set():
            for number in range(20, 60):
                shared[number] = [number]
            for number in range(20, 60):
                del shared[number]

    thread = threading.Thread(target=fill)
    thread.start()
    both = Snapshots(2, lambda value: None, True)
    try:
        for _ in range(3000):
            both.kinds.pop(id(object), None)
            shared[0] = [object()]  # of a type that is asked of Python, where threads take turns
            signature = compiled.extension.sign(shared, 2, both)
            assert signature[0] == id(dict)
    finally:
        stop.set()
        thread.join()


def test_whoever_asks_with_something_else_gets_an_error() -> None:
    with pytest.raises(TypeError):
        compiled.extension.sign([])
    with pytest.raises(TypeError):
        compiled.extension.sign([], "deep", None)


def test_a_look_needs_no_python_but_to_tell_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("look", "_compare", "_changed"):
        method = getattr(Activation, name)
        monkeypatch.setattr(
            Activation, name, lambda *args, name=name, method=method: (asked.append(name), method(*args))[1]
        )

    def followed(n: int) -> int:
        held = {"n": n, "inner": [n]}
        seen = []
        for _ in range(n):
            len(held)
            str(seen)
        counted = len(asked)
        held["inner"].append(1)
        seen.append(2)
        return counted

    with tg.record(variables=["held", "seen"]) as trace:
        assert followed(5) == 0
    assert [each.name for each in trace.events(kind="variable")] == ["held", "seen", "held", "seen"]
    assert asked == ["_changed", "_changed"]


def test_what_somebody_else_holds_from_now_on_is_looked_at_everywhere() -> None:
    others: list[list[int]] = []

    def keep(items: list[int]) -> None:
        others.append(items)

    def change() -> None:
        others[0].append(2)

    def followed() -> list[int]:
        items = [1]
        len(items)
        keep(items)
        change()
        return items

    with tg.record(variables=["items"]) as trace:
        assert followed() == [1, 2]
    told = [each for each in trace.events(kind="variable") if each.stack[-1].function.endswith("followed")]
    assert len(told) == 2
