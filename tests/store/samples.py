"""Tables to keep: made by hypothesis, taken from real programs, and growing as they do while a program runs."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from torchglass.capture.settling import settle

import torchglass as tg
from tests import programs
from torchglass.events.tables import EVENT_COLUMNS, NONE, Form, Meta, ModuleRow, SiteNames, Tables, What
from torchglass.events.types import Location
from torchglass.store.checks import KINDS, ORIGINS


def differences(one: Tables, two: Tables, ignore: tuple[str, ...] = ()) -> list[str]:
    """The fields in which two sets of tables differ."""
    names = [each.name for each in fields(Tables) if each.name != "_stacks" and each.name not in ignore]
    return [name for name in names if getattr(one, name) != getattr(two, name)]


def recorded(name: str) -> Tables:
    """The tables of one of the programs."""
    expected = programs.RAISES.get(name)
    with pytest.raises(expected) if expected else nullcontext(), tg.record(name=name) as trace:
        programs.load(name).main()
    return trace.tables


def recorded_raw(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Tables, Tables]:
    """The tables of a program as they are, and as they would be streamed: with addresses, not linked."""
    raw: list[tuple[array[int], array[int]]] = []
    link = settle.link_storages

    def spy(tables: Tables, addresses: list[int], before: list[int]) -> None:
        raw[:] = [(array("q", addresses), array("q", before))]
        link(tables, addresses, before)

    monkeypatch.setattr(settle, "link_storages", spy)
    linked = recorded(name)
    nothing = array("q", [NONE] * len(linked.value_meta))
    address, before = raw[0]
    streamed = replace(
        linked, value_storage=nothing[:], value_producer=nothing[:], value_address=address, value_before=before
    )
    return linked, streamed


def growing(whole: Tables, steps: int, seed: int = 0) -> Iterator[Tables]:
    """The same tables as they were at some moments: what had not ended is open, and nothing is linked yet."""
    moments = sorted({*whole.start_ns, *(end for end in whole.end_ns if end != NONE)})
    chosen = sorted(random.Random(seed).sample(moments, min(steps, len(moments))))
    for now in chosen:
        yield at_moment(whole, now)


def at_moment(whole: Tables, now: int, first: int = 0) -> Tables:
    """The tables at one moment, without the events before the ``first``."""
    last = sum(start <= now for start in whole.start_ns)
    known = replace(whole, complete=False, io=array("q"), _stacks={})
    for column in EVENT_COLUMNS:
        setattr(known, column, getattr(whole, column)[first:last])
    known.first_io = array("q")
    for at, number in enumerate(range(first, last)):
        args, result = whole.args[number], whole.result[number]
        count = len(whole.forms[args].roles) if args != NONE else 0
        if whole.end_ns[number] == NONE or whole.end_ns[number] > now:
            known.end_ns[at] = known.result[at] = known.error[at] = NONE
        else:
            count += len(whole.forms[result].roles) if result != NONE else 0
        known.first_io.append(len(known.io))
        known.io += whole.io[whole.first_io[number] : whole.first_io[number] + count]
    return known


# Made by hypothesis

TEXT = st.text(max_size=6) | st.sampled_from(
    ["", "a\0b", "\ud800", "é\udcff", "\x1b[31m", "../x", "'; DROP TABLE x --"]
)
MAYBE = st.none() | TEXT
BIG = 1 << 40


def numbers(low: int, high: int) -> st.SearchStrategy[int]:
    """From ``low`` to before ``high``; there must be one."""
    return st.integers(low, high - 1)


METAS = st.builds(
    Meta.of,
    st.none() | st.lists(numbers(0, BIG), max_size=3).map(tuple),
    TEXT,
    TEXT,
    st.none() | st.lists(numbers(0, BIG), max_size=3).map(tuple),
    TEXT,
    st.booleans(),
    TEXT,
)
LOCATIONS = st.builds(
    Location,
    TEXT,
    *[numbers(0, 1 << 20)] * 4,
    TEXT,
    TEXT,
    st.sampled_from(sorted(ORIGINS)),
)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)


@st.composite
def forms(draw: st.DrawFn) -> Form:
    roles = draw(TEXTS)
    return Form(roles, tuple(draw(st.lists(TEXT, min_size=len(roles) + 1, max_size=len(roles) + 1))))


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Any tables that make sense."""
    made = Tables(
        process=draw(numbers(0, BIG)), name=draw(TEXT), started_at=draw(st.floats(0, 1e12)),
        duration_ns=draw(numbers(0, BIG)), complete=draw(st.booleans()), notes=draw(st.lists(TEXT, max_size=3)),
        left_by=draw(TEXTS), sources=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
    )  # fmt: skip
    made.whats = draw(st.lists(st.builds(What, st.sampled_from(sorted(KINDS)), TEXT, MAYBE), min_size=1, max_size=4))
    made.forms = draw(st.lists(forms(), min_size=1, max_size=4))
    made.metas = draw(st.lists(METAS, min_size=1, max_size=4))
    made.threads = draw(st.lists(TEXT, min_size=1, max_size=3))
    if draw(st.booleans()):
        made.thread_processes = [made.process + 1 + n for n in range(len(made.threads))]
    made.texts = draw(st.lists(TEXT, min_size=1, max_size=3))
    made.operand_texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
    made.sites = draw(st.lists(st.builds(SiteNames, LOCATIONS, TEXT, TEXTS, MAYBE, MAYBE), min_size=1, max_size=4))
    for number in range(draw(numbers(1, 4))):
        made.stack_base.append(draw(numbers(NONE, number)))
        made.stack_user.append(draw(numbers(NONE, len(made.sites))))
        made.stack_sites.append(tuple(draw(st.lists(numbers(0, len(made.sites)), max_size=3))))
    _add_values(draw, made)
    for number in range(draw(numbers(0, 8))):
        _add_event(draw, made, number)
    events = len(made)
    made.value_producer = array("q", [draw(numbers(NONE, events)) for _ in made.value_meta])
    return made


def _add_values(draw: Any, made: Tables) -> None:
    count = draw(numbers(1, 6))
    for _ in range(count):
        made.value_meta.append(draw(numbers(0, len(made.metas))))
        made.value_version.append(draw(numbers(NONE, 3)))
        made.value_storage.append(draw(numbers(NONE, count)))
    parameters = st.lists(st.tuples(TEXT, numbers(0, count)), max_size=3).map(tuple)
    made.modules = draw(st.lists(st.builds(ModuleRow, TEXT, TEXT, TEXT, TEXT, parameters), max_size=3))


def _add_event(draw: Any, made: Tables, number: int) -> None:
    ranges = {
        "what": (0, len(made.whats)), "parent": (NONE, number), "thread": (0, len(made.threads)), "backward": (0, 2),
        "start_ns": (0, BIG), "end_ns": (NONE, BIG), "module": (NONE, len(made.modules)), "call": (NONE, 5),
        "stack": (NONE, len(made.stack_sites)), "owner": (NONE, len(made.texts)),
        "operands": (0, len(made.operand_texts)), "direct": (0, 2), "args": (NONE, len(made.forms)),
        "result": (NONE, len(made.forms)), "occurrence": (0, BIG), "error": (NONE, len(made.texts)),
    }  # fmt: skip
    for column, (low, high) in ranges.items():
        getattr(made, column).append(draw(numbers(low, high)))
    made.first_io.append(len(made.io))
    for form in (made.args[-1], made.result[-1]):
        for _ in made.forms[form].roles if form != NONE else ():
            made.io.append(draw(numbers(0, len(made.value_meta))))
