"""The order of module calls: every call in one row, loops and equal layers once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, blocks
from tests.views.shown import event_rows, sheet_of
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.views.options import CallsOptions
from torchglass.views.row import COUNT, EXPRESSION, FOLD, GIVES, LOOP, NAME, REPEAT, TAKES, TIMES, Row

RECORDED = (
    "attention",
    "called_twice",
    "generation",
    "hooks",
    "recurrent_layers",
    "root_in_root",
    "threads",
    "two_paths",
)


def recorded(name: str) -> tg.Trace:
    return programs.recorded(name)


def names(rows: Sequence[Row]) -> list[str]:
    return [row.text(NAME) for row in rows]


@pytest.mark.parametrize("order", ["begin", "end"])
@pytest.mark.parametrize("name", RECORDED)
def test_folded_or_not_every_call_is_in_one_row(name: str, order: str) -> None:
    trace = recorded(name)
    calls = list(trace.events(kind="module"))
    plain = event_rows(sheet_of(trace, "calls", order=order, fold=False))
    assert sorted(row.event for row in plain) == [event.id for event in calls]
    for shapes in (False, True):
        folded = sheet_of(trace, "calls", order=order, shapes=shapes)
        assert sum(row.each for row in event_rows(folded)) == len(calls)
        assert len(event_rows(folded)) <= len(plain)


@pytest.mark.parametrize("name", RECORDED)
def test_unfolded_calls_stand_in_the_order_of_their_thread(name: str) -> None:
    trace = recorded(name)
    calls = list(trace.events(kind="module"))
    begun = [trace.event(row.event) for row in event_rows(sheet_of(trace, "calls", fold=False))]
    ended = [trace.event(row.event) for row in event_rows(sheet_of(trace, "calls", fold=False, order="end"))]
    for thread in {event.thread for event in calls}:
        mine = [event for event in calls if event.thread == thread]
        assert [event.id for event in begun if event.thread == thread] == [event.id for event in mine]
        mine.sort(key=lambda event: event.end_ns or 0)
        assert [event.id for event in ended if event.thread == thread] == [event.id for event in mine]


def test_a_loop_is_shown_once_with_its_rounds() -> None:
    loop, *rows = sheet_of(recorded("generation"), "calls").rows
    assert (loop.kind, loop.text(EXPRESSION), loop.text(TIMES)) == (LOOP, "for _ in range(steps):", "× 12")
    assert names(rows) == ["Decoder", "embed", "qkv", "out"]
    assert [row.each for row in rows] == [12] * 4


def test_shapes_that_differ_between_rounds_are_ranges() -> None:
    rows = event_rows(sheet_of(recorded("generation"), "calls", shapes=True))
    assert (rows[0].text(TAKES), rows[0].text(GIVES)) == ("i64[2, 1–12]", "f32[2, 1–12, 20]")


def test_equal_layers_are_one_row() -> None:
    heading, block, linear = sheet_of(blocks(12), "calls").rows[1:]
    assert (heading.kind, heading.text(FOLD), heading.text(COUNT)) == (REPEAT, "× 12", ", 2 calls each:")
    assert names([block, linear]) == ["blocks.0–11", "blocks.0–11.fc"]


def test_a_selection_and_several_roots() -> None:
    (row,) = event_rows(sheet_of(blocks(3), "calls", only=select(module="blocks.*.fc")))
    assert (row.text(NAME), row.each) == ("blocks.0–2.fc", 3)
    paths = names(event_rows(sheet_of(recorded("root_in_root"), "calls")))
    assert len({path.partition(".")[0] for path in paths}) > 1


def test_deep_nesting_needs_no_recursion() -> None:
    make = Maker()
    parent = None
    for depth in range(5000):
        parent = make.layer("Deep", parent, f"deep.{depth}", "self.deep(x)", (2,))
    for order in ("begin", "end"):
        view = sheet_of(HandmadeTrace(make.made), "calls", order=order)
        assert len(view.rows) == 5000
        assert view.below[0].text.startswith("5,000 calls")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"order": "middle"}, UsageError),
        ({"order": 1}, WrongType),
        ({"shapes": "yes"}, WrongType),
        ({"fold": 1}, WrongType),
        ({"only": "fc"}, WrongType),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        CallsOptions(**options)
