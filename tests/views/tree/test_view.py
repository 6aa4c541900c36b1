"""Which events have rows: each once, folded or counted, whatever the options."""

from __future__ import annotations

import pytest

from tests.handmade import HandmadeTrace, Maker, attention, blocks
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.views.nesting import edges, settings_of
from torchglass.views.tree.view import Heading, Row, TreeOptions, TreeView, tree_view


def rows_of(view: TreeView) -> list[Row]:
    return [row for row in view.rows if isinstance(row, Row)]


def counted(view: TreeView) -> int:
    return sum(row.each + row.inside + row.deeper for row in rows_of(view)) + view.left_out


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
OPTIONS = [
    TreeOptions(),
    TreeOptions(fold=False),
    TreeOptions(inner=True),
    TreeOptions(functions=False),
    TreeOptions(depth=0),
    TreeOptions(depth=1, fold=False),
    TreeOptions(only=select(module="blocks.3*")),
    TreeOptions(only=select(function="softmax"), times=True),
    TreeOptions(only=select(module="nothing")),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", TRACES)
def test_every_event_is_counted_once(name: str, options: TreeOptions) -> None:
    assert counted(tree_view(TRACES[name], options)) == len(TRACES[name])


def test_equal_blocks_share_a_row() -> None:
    (_, block, linear, relu) = rows_of(tree_view(blocks(12), TreeOptions()))
    assert (block.span, block.times, block.each) == ("blocks.0–11", 12, 12)
    assert (linear.times, linear.each, relu.each) == (1, 12, 12)


def test_a_block_that_differs_breaks_the_fold_and_says_why() -> None:
    view = tree_view(blocks(6, odd=5), TreeOptions())
    told = [row.unlike for row in rows_of(view) if row.unlike]
    assert told == ["blocks.4: output shapes"]


def test_other_parameters_break_the_fold() -> None:
    trace = blocks(4)
    frozen = trace.infos[-1]
    trace.infos = (*trace.infos[:-1], type(frozen)(frozen.id, frozen.root, frozen.path, frozen.name, frozen.detail, ()))
    rows = rows_of(tree_view(trace, TreeOptions()))
    assert [row.times for row in rows if row.event.name == "Block"] == [3, 1]
    assert [row.unlike for row in rows if row.unlike] == ["blocks.2: the steps inside it"]


def test_a_training_loop_is_one_repeat() -> None:
    view = tree_view(training(5), TreeOptions(times=True))
    heading = view.rows[0]
    assert isinstance(heading, Heading)
    assert (heading.times, heading.rows) == (5, 4)
    step = next(row for row in rows_of(view) if row.event.kind == "step")
    assert (step.each, step.inside) == (5, 9 + 4 * 5)
    helper = next(row for row in rows_of(view) if row.helper)
    assert helper.each + helper.inside == 5 * 4
    assert helper.spent_ns == 5 * 4 * 1000


def test_times_of_a_fold_are_those_of_all() -> None:
    (_, block, linear, _) = rows_of(tree_view(blocks(12), TreeOptions(times=True)))
    assert (block.spent_ns, linear.spent_ns) == (12 * 1000, 12 * 800)


def test_what_torch_does_inside_its_layers_is_left_out() -> None:
    assert [row.event.name for row in rows_of(tree_view(attention(), TreeOptions()))].count("F.linear") == 0
    assert [row.event.name for row in rows_of(tree_view(attention(), TreeOptions(inner=True)))].count("F.linear") == 3


def test_what_is_asked_for_by_name_is_shown_wherever_it_is() -> None:
    rows = rows_of(tree_view(attention(), TreeOptions(only=select(function="linear"), fold=False)))
    assert [row.event.name for row in rows] == ["MHA", "Linear", "F.linear", "Linear", "F.linear", "Linear", "F.linear"]


def test_code_of_the_program_inside_a_torch_function_is_shown() -> None:
    make = Maker()
    apply = make.add("function", "checkpoint", None, "checkpoint(block, x)")
    block = make.layer("Block", apply, "block", "function(*args)", (3,))
    make.add("function", "F.relu", block, "F.relu(x)", outputs=[(3,)])
    make.add("function", "Tensor.add", apply, "a + b", outputs=[(3,)])
    make.add("function", "Tensor.detach", apply, "checkpoint(block, x)", outputs=[(3,)], direct=False)
    rows = rows_of(tree_view(HandmadeTrace(make.made), TreeOptions()))
    assert [(row.depth, row.event.name) for row in rows] == [
        (0, "checkpoint"), (1, "Block"), (2, "F.relu"), (1, "Tensor.add"),
    ]  # fmt: skip


def test_notes_of_what_has_no_row_are_not_lost() -> None:
    make = Maker()
    layer = make.layer("MultiheadAttention", None, "", "attn(x)", (3,))
    make.add("function", "_native_multi_head_attention", layer, "attn(x)", direct=False, note="fused")
    (row,) = rows_of(tree_view(HandmadeTrace(make.made), TreeOptions()))
    assert (row.note, row.inside) == ("fused", 1)


def test_threads_are_sections() -> None:
    make = Maker()
    root = make.layer("Net", None, "", "net(x)", (3,))
    make.add("function", "F.relu", None, "F.relu(x)", thread="worker")
    make.add("function", "F.silu", root, "F.silu(x)")
    view = tree_view(HandmadeTrace(make.made), TreeOptions())
    assert [row.text if isinstance(row, Heading) else row.event.name for row in view.rows] == [
        "Net", "F.silu", "worker", "F.relu",
    ]  # fmt: skip
    assert counted(view) == 3


def test_what_autograd_runs_in_its_own_thread_belongs_to_the_backward_call() -> None:
    make = Maker()
    backward = make.add("function", "Tensor.backward", None, "loss.backward()")
    make.add("function", "Tensor.mul", backward, "2 * grad", thread="autograd")
    view = tree_view(HandmadeTrace(make.made), TreeOptions())
    assert [(row.depth, row.event.name) for row in rows_of(view)] == [(0, "Tensor.backward"), (1, "Tensor.mul")]
    assert not any(isinstance(row, Heading) for row in view.rows)


def test_a_thousand_levels() -> None:
    make = Maker()
    for level in range(1000):
        make.layer("Deep", level - 1 if level else None, ".".join(["deep"] * level), "self.deep(x)", (3,))
    assert [row.depth for row in rows_of(tree_view(HandmadeTrace(make.made), TreeOptions()))] == list(range(1000))


def test_both_edges_nest() -> None:
    open_now: list[int] = []
    seen = 0
    for event, edge in edges(blocks(3).events()):
        if edge == "open":
            assert (event.parent is None) == (not open_now)
            assert event.outputs == ()
            open_now.append(event.id)
        else:
            assert open_now.pop() == event.id
            seen += 1
    assert (open_now, seen) == ([], 10)


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
