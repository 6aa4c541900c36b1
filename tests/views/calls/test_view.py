"""The order of module calls: every call once, and folded rows that unfold to the same list."""

from __future__ import annotations

from typing import Any

import pytest

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, blocks
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.views.calls.view import Call, CallsOptions, CallsView, Repeat, Thread, calls_view

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


def unfolded(view: CallsView) -> list[str]:
    """Every call of a view, repeats written out; threads as their names in angle brackets."""
    return _unfolded(view.rows, 0, len(view.rows), 0)


def _unfolded(rows: list[Any], at: int, end: int, depth: int) -> list[str]:
    found: list[str] = []
    while at < end:
        row = rows[at]
        at += 1
        if isinstance(row, Thread):
            found.append(f"<{row.name}>")
        elif isinstance(row, Call):
            assert row.depth == depth
            found += [row.path] * row.times
        else:
            inside = at
            while at < end and not isinstance(rows[at], Thread) and rows[at].depth > row.depth:
                at += 1
            block = _unfolded(rows, inside, at, depth + 1)
            assert len(block) == row.calls
            found += block * row.times
    return found


@pytest.mark.parametrize("order", ["begin", "end"])
@pytest.mark.parametrize("name", RECORDED)
def test_folded_calls_unfold_to_all_calls(name: str, order: str) -> None:
    trace = recorded(name)
    plain = calls_view(trace, CallsOptions(order=order))
    assert not [row for row in plain.rows if isinstance(row, Repeat)]
    for shapes in (False, True):
        folded = calls_view(trace, CallsOptions(order=order, counts=True, shapes=shapes))
        assert unfolded(folded) == unfolded(plain)
        assert len(folded.rows) <= len(plain.rows)


@pytest.mark.parametrize("name", RECORDED)
def test_every_module_call_has_a_row_in_the_order_of_its_thread(name: str) -> None:
    trace = recorded(name)
    calls = list(trace.events(kind="module"))
    rows = [row for row in calls_view(trace, CallsOptions()).rows if isinstance(row, Call)]
    for thread in {event.thread for event in calls}:
        mine = [event for event in calls if event.thread == thread]
        shown = [row.event for row in rows if row.event.thread == thread]
        assert [(event.root, event.module) for event in shown] == [(event.root, event.module) for event in mine]
        ended = [row.event for row in calls_view(trace, CallsOptions(order="end")).rows if isinstance(row, Call)]
        mine.sort(key=lambda event: event.end_ns or 0)
        assert [event.module for event in ended if event.thread == thread] == [event.module for event in mine]


def test_blocks_that_repeat_are_counted() -> None:
    view = calls_view(recorded("generation"), CallsOptions(counts=True))
    assert view.rows[0] == Repeat(0, 4, 12)
    assert [row.path for row in view.rows[1:] if isinstance(row, Call)] == ["Decoder", "embed", "qkv", "out"]
    assert (view.calls, view.modules) == (48, 4)


def test_shapes_keep_calls_apart() -> None:
    view = calls_view(recorded("generation"), CallsOptions(counts=True, shapes=True))
    assert not [row for row in view.rows if isinstance(row, Repeat)]


def test_a_selection_and_several_roots() -> None:
    view = calls_view(blocks(3), CallsOptions(only=select(module="blocks.*.fc")))
    assert unfolded(view) == ["blocks.0.fc", "blocks.1.fc", "blocks.2.fc"]
    paths = unfolded(calls_view(recorded("root_in_root"), CallsOptions()))
    assert len({path.partition(".")[0] for path in paths}) > 1


def test_deep_nesting_needs_no_recursion() -> None:
    make = Maker()
    parent = None
    for depth in range(5000):
        parent = make.layer("Deep", parent, f"deep.{depth}", "self.deep(x)", (2,))
    for order in ("begin", "end"):
        view = calls_view(HandmadeTrace(make.made), CallsOptions(order=order, counts=True))
        assert view.calls == len(view.rows) == 5000


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
        CallsOptions(**options)
