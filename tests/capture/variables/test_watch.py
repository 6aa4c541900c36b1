"""Which variables are watched: names, globs, attributes and items."""

from __future__ import annotations

import gc
import weakref
from threading import Thread
from typing import Any

import pytest
from execnet.gateway_base import dumps, loads

from tests.capture.variables.listing import CORES, Listing, watched
from torchglass.capture.variables import Engine, Watch
from torchglass.errors import UsageError


@pytest.mark.parametrize(
    ("names", "wanted", "unwanted"),
    [
        (("*",), ["x", "_y", "__z"], ["__doc__", ".0"]),
        (("hidden_*", "q"), ["hidden_1", "q"], ["hidden", "qq"]),
        (("[ab]?",), ["a1", "b2"], ["c1", "a"]),
        (("x[ab]*", "h_[a-c]"), ["xa", "xb1", "h_b"], ["xc", "h_d"]),
        (("__doc__",), ["__doc__"], ["doc"]),
        (("self.cache",), [], ["self", "cache"]),
    ],
)
def test_names(names: tuple[str, ...], wanted: list[str], unwanted: list[str]) -> None:
    watch = Watch(names)
    assert [name for name in (*wanted, *unwanted) if watch.wants(name)] == wanted


@pytest.mark.parametrize("name", ["self.*", "a.b()", "x['", "batch[i].y", "1.5", "d[k]", "a b", "", "a-b"])
def test_a_name_that_cannot_be_watched_is_refused_with_a_cure(name: str) -> None:
    with pytest.raises(UsageError, match=r"attributes and items take no globs"):
        Watch((name,))


class Slotted:
    __slots__ = ("value",)


class Thing:
    shared = 1

    def __init__(self) -> None:
        self.cache: Any = None
        self.asked = 0

    @property
    def computed(self) -> int:
        self.asked += 1
        return self.asked

    def fill(self) -> None:
        self.cache = {"a": 1}
        self.grow()

    def grow(self) -> None:
        self.cache["b"] = 2

    def drop(self) -> None:
        del self.cache


@pytest.mark.parametrize("core", CORES)
def test_an_attribute_is_shown_once_however_many_frames_see_it(core: str) -> None:
    def program() -> None:
        thing = Thing()
        thing.fill()
        thing.drop()

    listing = watched(program, "self.cache", "thing.cache", core=core, code=lambda c: c.co_filename == __file__)
    told = [(row.scope.rpartition(".")[2], row.how, row.new) for row in listing.rows]
    assert told == [
        ("__init__", "assigned", "None"),
        ("fill", "assigned", "dict('a': 1)"),
        ("grow", "changed", "dict('a': 1, 'b': 2)"),
        ("drop", "deleted", "None"),
    ]


@pytest.mark.parametrize("core", CORES)
def test_items_slots_and_values_of_the_class(core: str) -> None:
    def program() -> int:
        batch = {"x": [1], "y": 2}
        batch["x"] = [2]
        batch["x"].append(3)
        batch["y"] = 3
        pair = [[0], 1]
        pair[0] = 5
        slotted = Slotted()
        slotted.value = 1
        thing = Thing()
        thing.shared = 2
        return thing.asked

    listing = watched(program, 'batch["x"]', "pair[0]", "slotted.value", "thing.shared", "thing.computed", core=core)
    assert listing.brief == [
        ('batch["x"]', "assigned", "list(1)"), ('batch["x"]', "assigned", "list(2)"),
        ('batch["x"]', "changed", "list(2, 3)"), ("pair[0]", "assigned", "list(0)"), ("pair[0]", "assigned", "5"),
        ("slotted.value", "assigned", "1"), ("thing.shared", "assigned", "1"), ("thing.shared", "assigned", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_a_modules_buffer_is_found_where_it_is_kept(core: str) -> None:
    class Module:
        def __init__(self) -> None:
            self._buffers = {"mean": 0}

        def __getattr__(self, name: str) -> Any:
            raise AssertionError("never asked")

        def update(self) -> None:
            self._buffers["mean"] = 1

    def program() -> None:
        Module().update()

    assert watched(program, "self.mean", core=core).brief == [
        ("self.mean", "assigned", "0"),
        ("self.mean", "assigned", "1"),
    ]


@pytest.mark.parametrize("core", CORES)
def test_names_that_never_appear_are_said_with_near_ones(core: str) -> None:
    def program() -> None:
        video, audio = 1, 2
        del video, audio

    watch = Watch(("vidoe", "video", "aud*", "x*", "slef.cache"), code=lambda code: code is program.__code__)
    with Engine(watch, Listing(), core=core) as engine:
        program()
    assert engine.never_seen() == {"vidoe": ["video"], "x*": [], "slef.cache": []}


@pytest.mark.parametrize("core", CORES)
def test_attributes_and_items_that_never_appear_are_said_with_near_ones(core: str) -> None:
    def program() -> None:
        thing = Thing()
        thing.fill()
        box = {"image": 1}
        box["image"] = 2

    names = ("self.cach", "self.cache", "thing.computted", "box['imag']", "box['image']", "box[7]")
    with Engine(Watch(names, code=lambda code: code.co_filename == __file__), Listing(), core=core) as engine:
        program()
    assert engine.never_seen() == {
        "self.cach": ["self.cache"], "thing.computted": [], "box['imag']": ["box['image']"], "box[7]": []
    }  # fmt: skip


def test_self_is_followed_only_when_it_is_named() -> None:
    """Every method has one, and it hardly ever changes."""
    assert not Watch(("*",)).wants("self")
    assert not Watch(("s*",)).wants("self")
    assert Watch(("self",)).wants("self")
    assert Watch(("*",)).wants("selfish")


def test_functions_without_a_watched_name_are_not_followed() -> None:
    def other(x: int) -> int:
        y = x + 1
        return y  # noqa: RET504 (a variable that nobody watches)

    def program() -> None:
        watched = other(1)
        watched = other(watched)

    class Sink:
        def changed(self, change: Any, frame: Any) -> None:
            pass

    engine = Engine(Watch(("watched",)), Sink())
    with engine:
        program()
    assert engine.plans[id(program.__code__)] is not None
    assert engine.plans[id(other.__code__)] is None


@pytest.mark.parametrize("core", CORES)
def test_variables_of_a_test_runner_are_not_followed(core: str) -> None:
    """pytest-xdist hands out tests to its processes by a thread that reads messages, with variables of such names."""
    message = dumps([1358, 1359])

    def program() -> None:
        value = loads(message)
        assert value == [1358, 1359]

    thread = Thread(target=loads, args=(message,))
    listing = Listing()
    with Engine(Watch(("value",)), listing, core=core):
        thread.start()
        thread.join()
        program()
    assert [new for how, new in listing.of("value") if how == "assigned"] == ["list(1358, 1359)"]


def test_what_was_read_of_a_function_is_used_again_and_keeps_no_engine() -> None:
    def program() -> None:
        value = [1]

        def inner() -> None:
            value.append(2)

        inner()

    class Sink:
        def changed(self, change: Any, frame: Any) -> None:
            pass

    engines = [Engine(Watch(("value",)), Sink()) for _ in range(2)]
    for engine in engines:
        with engine:
            program()
    first, second = (engine.plans[id(program.__code__)] for engine in engines)
    assert first is not None
    assert second is not None
    assert first is not second
    assert (first.targets, first.alert) == (second.targets, set())
    assert first.targets is second.targets
    gone = weakref.ref(engines[0])
    del engine, engines, first, second
    gc.collect()
    assert gone() is None


class Held:
    def __init__(self) -> None:
        self.cache: Any = None


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, "x" * 300, b"x" * 300, (1, 2)], ids=lambda value: type(value).__name__
)
def test_none_after_what_is_not_kept_is_a_change(core: str, value: Any) -> None:
    held, box = Held(), {"a": None}

    def program() -> None:
        held.cache = value
        held.cache = None
        held.cache = 1
        box["a"] = value
        box["a"] = None
        local = value
        local = None
        del local

    listing = watched(program, "held.cache", "box['a']", "local", core=core)
    assert listing.of("held.cache")[1:] == [("assigned", "None"), ("assigned", "1")]
    assert listing.olds[2] == "None"
    assert listing.of("box['a']")[1:] == [("assigned", "None")]
    assert [how for how, _ in listing.of("local")] == ["assigned", "assigned", "deleted"]
