"""Attributes and items: counted from the end, of owners that are replaced, and of several statements on one line."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any

import pytest

from tests.capture.variables.listing import CORES, FOLLOWS_INSTRUCTIONS, Listing, watched
from torchglass.errors import UsageError
from torchglass.source.codes import Code
from torchglass.source.instructions import instruction_at


class Box:
    """Something with attributes."""


def told(listing: Listing, name: str) -> list[tuple[str, str, str]]:
    """How, from what and to what."""
    olds = zip(listing.rows, listing.olds, strict=True)
    return [(row.how, old, row.new) for row, old in olds if row.name == name]


@pytest.mark.parametrize("core", CORES)
def test_items_are_counted_from_the_end(core: str) -> None:
    def run() -> None:
        pair = [1, 2]
        pair[-1] = 9
        pair.append(3)

    listing = watched(run, "pair[-1]", core=core)
    assert told(listing, "pair[-1]") == [
        ("assigned", "UNBOUND", "2"), ("assigned", "2", "9"), ("assigned", "9", "3")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["pair[~1]", "pair[-1.5]", "pair[-'a']"])
def test_other_signs_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot watch the variable"):
        watched(lambda: None, name)


@pytest.mark.parametrize("core", CORES)
def test_what_an_owner_took_along_is_shown_as_deleted(core: str) -> None:
    def run() -> None:
        box: Any = Box()
        box.inner = Box()
        box.inner.deep = 1
        box.inner = Box()
        box.inner.deep = 7
        box = 3

    assert told(watched(run, "box.inner.deep", core=core), "box.inner.deep") == [
        ("assigned", "UNBOUND", "1"), ("deleted", "1", "None"), ("assigned", "UNBOUND", "7"), ("deleted", "7", "None")
    ]  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_an_owner_at_the_address_of_the_last_one_begins_anew(core: str) -> None:
    def run() -> None:
        held = {"x": 1}
        held = {}
        held = {"x": 5}
        held.clear()

    assert told(watched(run, "held['x']", core=core), "held['x']") == [
        ("assigned", "UNBOUND", "1"), ("deleted", "1", "None"), ("assigned", "UNBOUND", "5"), ("deleted", "5", "None")
    ]  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_the_value_of_another_owner_is_compared_with_that_of_the_last(core: str) -> None:
    def run() -> None:
        first, second, third = Box(), Box(), Box()
        first.value, second.value, third.value = 1, 1, 2  # type: ignore[attr-defined]
        box: Any = first
        box = second
        box = third
        box.value = 3
        box = first

    assert told(watched(run, "box.value", core=core), "box.value") == [
        ("assigned", "UNBOUND", "1"), ("assigned", "1", "2"), ("assigned", "2", "3"), ("assigned", "3", "1")
    ]  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_several_statements_on_a_line_are_shown_by_the_one_that_did_it(core: str) -> None:
    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip("on Python 3.12 settrace does not follow single instructions")

    def run() -> None:
        box: Any = Box(); box.a = 1; box.b = 2  # fmt: skip # noqa: E702
        box.a = 3; box = Box()  # fmt: skip # noqa: E702

    listing = watched(run, "box.a", "box.b", core=core)
    places = [instruction_at(Code.of(code), offset).name for code, offset in listing.offsets]
    assert [(row.name, row.new, place) for row, place in zip(listing.rows, places, strict=True)] == [
        ("box.a", "1", "STORE_ATTR"), ("box.b", "2", "STORE_ATTR"), ("box.a", "3", "STORE_ATTR"),
        ("box.a", "None", "STORE_FAST"), ("box.b", "None", "STORE_FAST"),
    ]  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_items_of_the_standard_librarys_dictionaries(core: str) -> None:
    def run() -> None:
        for make in (OrderedDict, Counter, lambda: defaultdict(list)):
            held: Any = make()
            held["x"] = 1
            held["x"] = 2

    listing = watched(run, "held['x']", core=core)
    assert [row.new for row in listing.rows if row.how != "deleted"] == ["1", "2"] * 3
