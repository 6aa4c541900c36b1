"""The order of module calls: every call once, and folded rows that unfold to the same list."""

from __future__ import annotations

from typing import Any

import pytest

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, blocks
from tests.views.shown import event_rows, sheet_of
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.views.calls import Options
from torchglass.views.row import COUNT, EVENT, FOLD, NAME, REPEAT, THREAD, Row, Sheet

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
    with tg.record() as trace:
        programs.load(name).main()
    return trace


def unfolded(sheet: Sheet) -> list[str]:
    """Every call, repeats written out; threads as their names in angle brackets."""
    return _unfolded(sheet.rows, 0, len(sheet.rows), 0)


def _unfolded(rows: list[Row], at: int, end: int, depth: int) -> list[str]:
    found: list[str] = []
    while at < end:
        row = rows[at]
        at += 1
        if row.kind == THREAD:
            found.append(f"<{row.text(NAME)}>")
        elif row.kind == EVENT:
            assert row.depth == depth
            found += [row.text(NAME)] * row.times
        else:
            inside = at
            while at < end and rows[at].kind != THREAD and rows[at].depth > row.depth:
                at += 1
            block = _unfolded(rows, inside, at, depth + 1)
            assert len(block) == row.each
            found += block * row.times
    return found


@pytest.mark.parametrize("order", ["begin", "end"])
@pytest.mark.parametrize("name", RECORDED)
def test_folded_calls_unfold_to_all_calls(name: str, order: str) -> None:
    trace = recorded(name)
    plain = sheet_of(trace, "calls", order=order)
    assert not [row for row in plain.rows if row.kind == REPEAT]
    for shapes in (False, True):
        folded = sheet_of(trace, "calls", order=order, counts=True, shapes=shapes)
        assert unfolded(folded) == unfolded(plain)
        assert len(folded.rows) <= len(plain.rows)


@pytest.mark.parametrize("name", RECORDED)
def test_every_module_call_has_a_row_in_the_order_of_its_thread(name: str) -> None:
    trace = recorded(name)
    calls = list(trace.events(kind="module"))
    rows = [trace.event(row.event) for row in event_rows(sheet_of(trace, "calls"))]
    for thread in {event.thread for event in calls}:
        mine = [event for event in calls if event.thread == thread]
        shown = [event for event in rows if event.thread == thread]
        assert [(event.root, event.module) for event in shown] == [(event.root, event.module) for event in mine]
        ended = [trace.event(row.event) for row in event_rows(sheet_of(trace, "calls", order="end"))]
        mine.sort(key=lambda event: event.end_ns or 0)
        assert [event.module for event in ended if event.thread == thread] == [event.module for event in mine]


def test_blocks_that_repeat_are_counted() -> None:
    view = sheet_of(recorded("generation"), "calls", counts=True)
    heading = view.rows[0]
    assert (heading.kind, heading.text(FOLD), heading.text(COUNT)) == (REPEAT, "× 12", ", 4 calls each:")
    assert [row.text(NAME) for row in view.rows[1:]] == ["Decoder", "embed", "qkv", "out"]
    assert view.below[0].text == "48 calls of 4 modules"


def test_shapes_keep_calls_apart() -> None:
    view = sheet_of(recorded("generation"), "calls", counts=True, shapes=True)
    assert not [row for row in view.rows if row.kind == REPEAT]


def test_a_selection_and_several_roots() -> None:
    view = sheet_of(blocks(3), "calls", only=select(module="blocks.*.fc"))
    assert unfolded(view) == ["blocks.0.fc", "blocks.1.fc", "blocks.2.fc"]
    paths = unfolded(sheet_of(recorded("root_in_root"), "calls"))
    assert len({path.partition(".")[0] for path in paths}) > 1


def test_deep_nesting_needs_no_recursion() -> None:
    make = Maker()
    parent = None
    for depth in range(5000):
        parent = make.layer("Deep", parent, f"deep.{depth}", "self.deep(x)", (2,))
    for order in ("begin", "end"):
        view = sheet_of(HandmadeTrace(make.made), "calls", order=order, counts=True)
        assert len(view.rows) == 5000
        assert view.below[0].text.startswith("5,000 calls")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"order": "middle"}, UsageError),
        ({"order": 1}, WrongType),
        ({"shapes": "yes"}, WrongType),
        ({"counts": 1}, WrongType),
        ({"only": "fc"}, WrongType),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        Options(**options)
