"""Changes in place: what is noticed, what is not and is said not to be, and that no foreign method runs."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest

from tests.capture.variables.listing import CORES, Listing, watched
from torchglass.capture.variables.arrays import EXACT_BYTES, PLACES, Fingerprints, differ
from torchglass.capture.variables.snapshots import ENDS, Snapshots, has_changed, same_atom

LOOKS = Snapshots(depth=2, stamp=None, in_place=True)


def notices(value: Any, change: Any, depth: int = 2) -> bool:
    looks = Snapshots(depth, None, True)
    role = looks.kind(value).role
    before = looks.signature(value, role)
    change(value)
    return has_changed(role, before, looks.signature(value, role))


@pytest.mark.parametrize(
    ("value", "change", "depth", "noticed"),
    [
        ([1, 2], lambda v: v.append(3), 1, True),
        ([1, 2], lambda v: v.__setitem__(0, True), 1, True),
        ([0.0], lambda v: v.__setitem__(0, -0.0), 1, True),
        ([[1]], lambda v: v[0].append(2), 1, False),
        ([[1]], lambda v: v[0].append(2), 2, True),
        ([[[1]]], lambda v: v[0][0].append(2), 2, False),
        ({"a": 1}, lambda v: v.update(a=2), 1, True),
        ({"a": [1]}, lambda v: v["a"].append(2), 2, True),
        ({1, 2}, lambda v: v.add(3), 1, True),
        (deque([1, 2], maxlen=2), lambda v: v.append(3), 1, True),
        (OrderedDict(a=1), lambda v: v.update(a=2), 1, True),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a"), 1, False),
        (defaultdict(list), lambda v: v["new"], 1, True),
        (defaultdict(list, a=[1]), lambda v: v["a"].append(2), 2, True),
        (Counter("aab"), lambda v: v.update("b"), 1, True),
        (Counter(range(1000)), lambda v: v.update([999]), 1, True),
        (([],), lambda v: v[0].append(1), 2, True),
        (list(range(1000)), lambda v: v.__setitem__(ENDS - 1, None), 1, True),
        (list(range(1000)), lambda v: v.__setitem__(-ENDS, None), 1, True),
        (list(range(1000)), lambda v: v.__setitem__(500, None), 1, False),
        (dict.fromkeys(range(1000)), lambda v: v.__setitem__(999, 1), 1, True),
        (deque(range(1000)), lambda v: v.rotate(1), 1, True),
        ([1], lambda v: v, 2, False),
    ],
)
def test_containers(value: Any, change: Any, depth: int, noticed: bool) -> None:
    assert notices(value, change, depth) is noticed


def test_a_long_or_self_containing_list_costs_little() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (list(range(1_000_000)), endless, dict.fromkeys(range(1_000_000)), set(range(1_000_000))):
        assert len(str(LOOKS.signature(value, LOOKS.kind(value).role))) < 3000


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [(1, 1, True), (1, True, False), (1, 1.0, False), (0.0, -0.0, False), ("a", "a", True), (None, None, True),
     ([1], [1], False), (float("nan"), float("nan"), False)],
)  # fmt: skip
def test_atoms(old: Any, new: Any, same: bool) -> None:
    assert same_atom(old, new) is same


class Hostile(list[Any]):
    """Whatever is asked of it, it complains."""

    def _complain(self, *args: Any) -> Any:
        raise AssertionError("a foreign method was called")

    __eq__ = __ne__ = __repr__ = __str__ = __len__ = __iter__ = __bool__ = __getitem__ = _complain  # type: ignore[assignment]
    __array__ = __getattr__ = __getattribute__ = __contains__ = __reduce_ex__ = _complain  # type: ignore[assignment]
    __hash__ = _complain  # type: ignore[assignment]


class HostileType(type):
    def __eq__(cls, other: object) -> bool:
        raise AssertionError("a foreign type was compared")

    def __hash__(cls) -> int:
        raise AssertionError("a foreign type was hashed")

    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(f"a foreign type was asked for {name}")


@pytest.mark.parametrize("core", CORES)
def test_no_method_of_a_foreign_type_is_called(core: str) -> None:
    made = HostileType("Made", (), {})

    def program() -> None:
        hostile = Hostile()
        inside = [hostile, {1: hostile}]
        inside.append(hostile)
        other = type.__call__(made)
        both = (other, hostile)
        hostile = both
        del hostile, inside, other, both

    class Quiet(Listing):
        def changed(self, change: Any, frame: Any) -> None:
            self.rows.append(change.name)

    sink = Quiet()
    watched(program, "hostile", "inside", "inside[0]", "hostile.x", "other", "both", core=core, sink=sink)
    assert len(sink.rows) >= 8


# ------------------------------------------------------------ arrays


def big(np: Any) -> Any:
    return np.zeros(EXACT_BYTES // 8 + 1000)


@pytest.mark.parametrize("size", [3, 500, 600, EXACT_BYTES // 8])
def test_every_byte_of_an_array_counts_up_to_a_size(size: int) -> None:
    np = pytest.importorskip("numpy")
    for make in (lambda: np.zeros(size), lambda: np.zeros((2 * size,))[::2], lambda: np.zeros((1, size)).T):
        for at in (0, size // 2, -1):
            assert notices(make(), lambda a, at=at: a.__setitem__(at, -0.0))
    nan = np.full(size, np.nan)
    assert not notices(nan, lambda a: a.fill(np.nan))


def test_shape_and_type_count_and_objects_do_not() -> None:
    np = pytest.importorskip("numpy")
    assert notices(np.zeros(4), lambda a: setattr(a, "shape", (2, 2)))
    assert notices(np.zeros(4), lambda a: setattr(a, "dtype", np.int64))
    assert not notices(np.array([[], 1], dtype=object), lambda a: a.__setitem__(1, 2))
    assert notices(np.zeros(3, dtype="datetime64[s]"), lambda a: a.__setitem__(0, 1))
    assert notices(np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]), lambda a: a["b"].fill(1))


def test_a_large_array_is_looked_at_in_places() -> None:
    np = pytest.importorskip("numpy")
    assert notices(big(np), lambda a: a.fill(1))
    assert notices(big(np)[::2], lambda a: a.fill(1))
    assert notices(np.zeros((2, EXACT_BYTES)).T, lambda a: a.fill(1))
    seen = sum(notices(big(np), lambda a, at=at: a.__setitem__(at, 1)) for at in range(0, 9000, 7))
    assert seen < PLACES  # a single element: hardly ever, and so it is said


def test_all_of_a_large_array_is_read_when_there_is_time() -> None:
    np = pytest.importorskip("numpy")
    prints = Fingerprints()
    assert prints.of(np.zeros(20_000_000), whole=True)[4] is None  # 160 MB would take too long at once
    prints._started -= 1000
    for array in (np.arange(20_000.0), np.arange(20_000.0).reshape(200, 100).T, np.arange(20_003.0)):
        before = prints.of(array, whole=True)
        array.flat[-1], array.flat[-2] = array.flat[-2], array.flat[-1]
        assert differ(before, prints.of(array, whole=True))
        assert before[4] is not None
    assert not differ(before, (*before[:4], None))


@pytest.mark.parametrize("core", CORES)
def test_what_is_written_as_a_store_into_a_large_array_counts(core: str) -> None:
    np = pytest.importorskip("numpy")

    def program() -> None:
        video = big(np)
        video[77] = 1
        video[5:6][0] = 1
        other = video
        video += 0
        del other

    listing = watched(program, "video", core=core)
    assert [row.how for row in listing.rows] == ["assigned", "changed", "changed", "changed"]


@pytest.mark.parametrize("core", CORES)
def test_a_value_that_gets_a_second_name_is_watched_under_both(core: str) -> None:
    """The engine leaves out values that only one name can reach; every way to a second one must end that."""
    np = pytest.importorskip("numpy")

    def keep(value: Any, into: list[Any]) -> None:
        into.append(value)

    def program() -> None:
        kept: list[Any] = []
        a, b, c, d = np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2)
        alias = a
        alias.fill(1)
        keep(b, kept)
        kept.pop().fill(1)
        view = c[:1]
        view.fill(1)
        pair = (d, 1)
        pair[0].fill(1)

    listing = watched(program, "a", "b", "c", "d", core=core)
    first = program.__code__.co_firstlineno
    changes = [(row.name, row.line - first) for row in listing.rows if row.how == "changed"]
    assert changes == [("a", 4), ("b", 6), ("c", 8), ("d", 10)]


@pytest.mark.parametrize("core", CORES)
def test_stamps_tell_of_types_that_the_engine_does_not_know(core: str) -> None:
    class Tensor:
        version = 0

        def add_(self) -> None:
            self.version += 1

    def program() -> None:
        t = Tensor()
        t.add_()
        u = t
        u.add_()
        del u

    def stamp(value: Any) -> Any:
        return (value.version, id(value)) if type(value) is Tensor else None

    listing = watched(program, "t", "u", core=core, stamp=stamp)
    assert [(row.name, row.how) for row in listing.rows if row.name == "t"] == [
        ("t", "assigned"),
        ("t", "changed"),
        ("t", "changed"),
    ]
    assert [how for how, _ in watched(program, "t", core=core).of("t")] == ["assigned"]
