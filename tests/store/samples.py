"""Tables to keep: made by hypothesis, taken from real programs, and left by those that were killed."""

from __future__ import annotations

import shutil
from array import array
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

import torchglass as tg
from tests import programs
from torchglass.events import schema
from torchglass.events.schema import KINDS, NONE, ORIGINS, Callee, Form, Meta, ModulePath, SiteNames
from torchglass.events.tables import Tables
from torchglass.events.types import Location


def differences(one: Tables, two: Tables, ignore: tuple[str, ...] = ()) -> list[str]:
    """The fields in which two sets of tables differ."""
    names = [each.name for each in fields(Tables) if each.name != "_stacks" and each.name not in ignore]
    return [name for name in names if _plain(getattr(one, name)) != _plain(getattr(two, name))]


def _plain(field: Any) -> Any:
    """Columns of floats by their bits: NaN, which stands for nothing, is not equal to itself."""
    return field.tobytes() if isinstance(field, array) else field


def recorded(name: str) -> Tables:
    """The tables of one of the programs."""
    expected = programs.RAISES.get(name)
    with pytest.raises(expected) if expected else nullcontext(), tg.record(name=name) as trace:
        programs.load(name).main()
    return trace._tables


def left_by_a_kill(folder: Path, name: str = "mlp", **options: Any) -> tuple[Path, Tables]:
    """A bundle as a kill leaves it in this folder, and what was recorded until then.

    A copy, made while it was being written: the kernel has no more of the file of a process that is killed.
    """
    expected = programs.RAISES.get(name)
    with tg.record(to=folder / "living", name=name, **options) as trace:
        with pytest.raises(expected) if expected else nullcontext():
            programs.load(name).main()
        tg.mark("x", torch.arange(100, dtype=torch.uint8))
        tables = trace._tables
        shutil.copytree(folder / "living", folder / "killed")
    shutil.rmtree(folder / "living")
    return folder / "killed", tables


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
    callees = st.builds(Callee, st.sampled_from(sorted(KINDS)), TEXT, MAYBE)
    made.callees = draw(st.lists(callees, min_size=1, max_size=4))
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
    if draw(st.booleans()):
        _measure_values(draw, made)
    parameters = st.lists(st.tuples(TEXT, numbers(0, count)), max_size=3).map(tuple)
    made.modules = draw(st.lists(st.builds(ModulePath, TEXT, TEXT, TEXT, TEXT, parameters), max_size=3))


def _measure_values(draw: Any, made: Tables) -> None:
    """What was in the values; of some it is not known, but not of all, or nothing was measured."""
    floats = st.floats(allow_nan=False).map(lambda number: number + 0.0)  # settling makes -0.0 into 0.0
    for number in range(len(made.value_meta)):
        is_known = number == 0 or draw(st.booleans())
        for column, nothing in zip(schema.MEASURED, schema.NOT_MEASURED, strict=True):
            known = draw(floats if column.type == "float | None" else numbers(0, 3))
            getattr(made, column.field).append(known if is_known else nothing)


def _add_event(draw: Any, made: Tables, number: int) -> None:
    for column in schema.EVENT_ROWS.columns:
        if column.field:
            high = len(getattr(made, schema.BY_NAME[column.to].rows)) if column.to else min(column.high, BIG)
            low = NONE if column.name == "duration_ns" else max(column.low, NONE)
            getattr(made, column.field).append(draw(numbers(low, number if column.is_back else high)))
    made.first_io.append(len(made.io))
    for form in (made.args[-1], made.result[-1]):
        for _ in made.forms[form].roles if form != NONE else ():
            made.io.append(draw(numbers(0, len(made.value_meta))))
