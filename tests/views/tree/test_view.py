"""Which events have rows: each once, folded or counted, whatever the options."""

from __future__ import annotations

from typing import Any

import pytest

from tests.handmade import HandmadeTrace, Maker, attention, blocks
from tests.views.shown import event_rows, not_shown, sheet_of
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.program.paths import settings_of
from torchglass.views.options import TreeOptions
from torchglass.views.row import CLASS, COUNT, FOLD, NAME, NOTE, REMARK, REPEAT, THREAD, TIME, Row


def rows_of(trace: HandmadeTrace, **options: Any) -> list[Row]:
    return event_rows(sheet_of(trace, "tree", **options))


def names(trace: HandmadeTrace, rows: list[Row]) -> list[str]:
    return [trace.event(row.event).name for row in rows]


def training(steps: int) -> HandmadeTrace:
    """A loop of a model call, a loss, an optimizer step that does more at first, and zero_grad."""
    make = Maker()
    for step in range(steps):
        root = make.layer("Net", None, "", "net(x)", (4, 8), line=1)
        for index in range(3):
            make.layer("Linear", root, f"layers.{index}", "layer(x)", (4, 8), line=9)
        make.add("function", "Tensor.sum", None, "y.sum()", inputs=[(4, 8)], outputs=[()], line=2)
        adam = make.add("step", "AdamW", None, "opt.step()", line=3)
        for _ in range(5 if step else 9):
            make.add("function", "Tensor.add_", adam, "opt.step()", direct=False, line=3)
        for _ in range(4):
            make.add("function", "Tensor.grad", None, "opt.zero_grad()", direct=False, line=4)
    return HandmadeTrace(make.made)


TRACES = {
    "attention": attention(),
    "blocks": blocks(12),
    "odd": blocks(12, odd=7),
    "training": training(5),
    "empty": HandmadeTrace([]),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"fold": False},
    {"inner": True},
    {"functions": False},
    {"depth": 0},
    {"depth": 1, "fold": False},
    {"only": select(module="blocks.3*")},
    {"only": select(function="softmax"), "times": True},
    {"only": select(module="nothing")},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", TRACES)
def test_every_event_is_counted_once(name: str, options: dict[str, Any]) -> None:
    sheet = sheet_of(TRACES[name], "tree", **options)
    counted = sum(row.each + row.hidden for row in event_rows(sheet)) + not_shown(sheet)
    assert counted == len(TRACES[name])


def test_equal_blocks_share_a_row() -> None:
    (_, block, linear, relu) = rows_of(blocks(12))
    assert (block.text(FOLD), block.times, block.each) == ("blocks.0–11 × 12", 12, 12)
    assert (linear.times, linear.each, relu.each) == (1, 12, 12)


def test_each_row_leads_to_its_event() -> None:
    trace = blocks(12)
    assert names(trace, rows_of(trace)) == ["Net", "Block", "Linear", "F.relu"]
    assert [row.event for row in rows_of(trace, fold=False)] == list(range(len(trace)))


def test_a_block_that_differs_breaks_the_fold_and_says_why() -> None:
    remarks = [cell.text for row in rows_of(blocks(6, odd=5)) for cell in row.below if cell.kind == REMARK]
    assert remarks == ["≠ blocks.4: output shapes differ"]


def test_other_parameters_break_the_fold() -> None:
    trace = blocks(4)
    frozen = trace.infos[-1]
    trace.infos = (*trace.infos[:-1], type(frozen)(frozen.id, frozen.root, frozen.path, frozen.name, frozen.detail, ()))
    rows = rows_of(trace)
    assert [row.times for row in rows if trace.event(row.event).name == "Block"] == [3, 1]
    assert [cell.text for row in rows for cell in row.below] == ["≠ blocks.2: the steps inside it differ"]


def test_a_training_loop_is_one_repeat() -> None:
    trace = training(5)
    sheet = sheet_of(trace, "tree", times=True)
    heading = sheet.rows[0]
    assert (heading.kind, heading.text(FOLD), heading.text(COUNT)) == (REPEAT, "× 5", ", 4 steps each:")
    step = next(row for row in event_rows(sheet) if trace.event(row.event).kind == "step")
    assert (step.each, step.hidden) == (5, 9 + 4 * 5)
    helper = event_rows(sheet)[-1]
    assert helper.text(COUNT) == "4 torch functions inside", "in each of them"
    assert helper.each + helper.hidden == 5 * 4
    assert helper.text(TIME).split()[:2] == ["20.0", "µs"]


def test_times_of_a_fold_are_those_of_all() -> None:
    (_, block, linear, _) = rows_of(blocks(12), times=True)
    assert [row.text(TIME).split()[:2] for row in (block, linear)] == [["12.0", "µs"], ["9.60", "µs"]]


def test_what_torch_does_inside_its_layers_is_left_out() -> None:
    trace = attention()
    assert names(trace, rows_of(trace)).count("F.linear") == 0
    assert names(trace, rows_of(trace, inner=True)).count("F.linear") == 3


def test_what_is_asked_for_by_name_is_shown_wherever_it_is() -> None:
    trace = attention()
    rows = rows_of(trace, only=select(function="linear"), fold=False)
    assert names(trace, rows) == ["MHA", "Linear", "F.linear", "Linear", "F.linear", "Linear", "F.linear"]


def test_code_of_the_program_inside_a_torch_function_is_shown() -> None:
    make = Maker()
    apply = make.add("function", "checkpoint", None, "checkpoint(block, x)")
    block = make.layer("Block", apply, "block", "function(*args)", (3,))
    make.add("function", "F.relu", block, "F.relu(x)", outputs=[(3,)])
    make.add("function", "Tensor.add", apply, "a + b", outputs=[(3,)])
    make.add("function", "Tensor.detach", apply, "checkpoint(block, x)", outputs=[(3,)], direct=False)
    rows = rows_of(HandmadeTrace(make.made))
    assert [(row.depth, make.made[row.event].name) for row in rows] == [
        (0, "checkpoint"), (1, "Block"), (2, "F.relu"), (1, "Tensor.add"),
    ]  # fmt: skip


def test_notes_of_what_has_no_row_are_not_lost() -> None:
    make = Maker()
    layer = make.layer("MultiheadAttention", None, "", "attn(x)", (3,))
    make.add("function", "_native_multi_head_attention", layer, "attn(x)", direct=False, note="fused")
    make.add("function", "other", None, "f(x)", note="fused")
    made = sheet_of(HandmadeTrace(make.made), "tree")
    assert [row.below for row in made.rows] == [(), ()]
    (note,) = [cell.text for cell in made.below if cell.kind == NOTE]
    assert note.startswith("note (")
    assert note.endswith(" and 1 more: fused")


def test_threads_are_sections() -> None:
    make = Maker()
    root = make.layer("Net", None, "", "net(x)", (3,))
    make.add("function", "F.relu", None, "F.relu(x)", thread="worker")
    make.add("function", "F.silu", root, "F.silu(x)")
    rows = sheet_of(HandmadeTrace(make.made), "tree").rows
    assert [row.text(NAME) if row.kind == THREAD else make.made[row.event].name for row in rows] == [
        "Net", "F.silu", "worker", "F.relu",
    ]  # fmt: skip


def test_what_autograd_runs_in_its_own_thread_belongs_to_the_backward_call() -> None:
    make = Maker()
    backward = make.add("function", "Tensor.backward", None, "loss.backward()")
    make.add("function", "Tensor.mul", backward, "2 * grad", thread="autograd")
    sheet = sheet_of(HandmadeTrace(make.made), "tree")
    assert [(row.depth, row.event) for row in sheet.rows] == [(0, backward), (1, backward + 1)]


def test_a_class_is_said_with_and_without_its_settings() -> None:
    cell = rows_of(attention())[1].cell(CLASS)
    assert cell is not None
    assert (cell.text, cell.short) == ("Linear(6, 6)", "Linear")


def test_a_thousand_levels() -> None:
    make = Maker()
    for level in range(1000):
        make.layer("Deep", level - 1 if level else None, ".".join(["deep"] * level), "self.deep(x)", (3,))
    assert [row.depth for row in rows_of(HandmadeTrace(make.made))] == list(range(1000))


@pytest.mark.parametrize(
    ("detail", "path", "left"),
    [
        ("layer_idx=5, heads=4", "h.5.attn", "heads=4"),
        ("heads=4, layer_idx=5", "h.5.attn", "heads=4"),
        ("layer_idx=5", "h.4.attn", "layer_idx=5"),
        ("heads=5", "h.5", "heads=5"),
        ("", "h.5", ""),
        ("layer_idx=5", None, "layer_idx=5"),
    ],
)
def test_a_layers_number_is_no_setting(detail: str, path: str | None, left: str) -> None:
    assert settings_of(detail, path) == left


@pytest.mark.parametrize(
    "wrong", [{"depth": "2"}, {"depth": True}, {"only": "encoder.*"}, {"fold": 1}, {"times": None}]
)
def test_wrong_options_say_what_is_taken(wrong: dict[str, object]) -> None:
    with pytest.raises(WrongType, match=f"{next(iter(wrong))}= takes"):
        TreeOptions(**wrong)  # type: ignore[arg-type]


def test_a_negative_depth() -> None:
    with pytest.raises(UsageError, match="0 shows the outermost level"):
        TreeOptions(depth=-1)
