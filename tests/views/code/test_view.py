"""The code view: which steps stand under which lines, what is shown once, and that nothing is lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs, zoo
from tests.modules import module_of
from tests.views.shown import sheet_of
from torchglass.errors import TorchglassError
from torchglass.events.types import Location
from torchglass.views.code.view import DOWN
from torchglass.views.options import CodeOptions
from torchglass.views.row import (
    CLASS,
    COUNT,
    ERROR,
    EVENT,
    FOLD,
    GIVES,
    LINE,
    NAME,
    SOURCE,
    TAKES,
    THREAD,
    Row,
    Sheet,
)
from torchglass.views.text.tensors import args_in_common, mask_numbers


def view_of(trace: Any, **options: Any) -> Sheet:
    return sheet_of(trace, "code", **options)


def recorded(function: Callable[[], object], **options: Any) -> tg.Trace:
    with suppress(Exception, KeyboardInterrupt), tg.record(ops=True, **options) as trace:
        function()
    return trace


def steps(view: Sheet) -> list[str]:
    return [row.text(NAME) for row in view.rows if row.kind == EVENT]


def where(row: Row) -> Location:
    source = row.cell(SOURCE)
    assert source is not None
    assert source.at is not None
    return source.at


def sources(view: Sheet) -> list[str]:
    return [where(row).source for row in view.rows if row.kind == LINE]


def line(view: Sheet, start: str) -> Row:
    return next(row for row in view.rows if row.kind == LINE and where(row).source.startswith(start))


def step(view: Sheet, name: str) -> Row:
    return next(row for row in view.rows if row.kind == EVENT and row.text(NAME) == name)


def summary(view: Sheet) -> str:
    return view.below[0].text


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc(x)
        return x + h.relu()


class Net(nn.Module):
    def __init__(self, depth: int = 5) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        left, right = self.head(x).chunk(2, dim=-1)
        return left * right


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


def forward() -> None:
    with torch.no_grad():
        net = Net()
        net(torch.ones(3, 4))


# ---------------------------------------------------------------- which text a line has


def executed() -> None:
    names = {"x": torch.ones(2, 3)}
    exec("y = x * 3\nz = y.t()\n", names)
    exec("y = x * 4\nz = y.sum()\n", names)
    exec("y = x * 3\nz = y.t()\n", names)
    eval("x + x", names)


def loaded_again(folder: Path) -> tg.Trace:
    first, second = (f"def f(x):\n    y = x.{name}()\n    return y\n" for name in ("exp", "sum"))
    module = module_of(folder, first)
    with tg.record(ops=True) as trace:
        module.f(torch.ones(2))
        (folder / "sample.py").write_text(second)
        exec(compile(second, str(folder / "sample.py"), "exec"), vars(module))
        module.f(torch.ones(2))
    return trace


@pytest.mark.parametrize("fold", [True, False])
def test_a_line_has_the_text_that_ran_and_no_other(fold: bool, tmp_path: Path) -> None:
    texts = ["y = x * 3", "z = y.t()", "y = x * 4", "z = y.sum()", "y = x * 3", "z = y.t()", "x + x"]
    for trace, lines, ops in (
        (recorded(executed), texts, ["mul.Tensor", "t", "mul.Tensor", "sum", "mul.Tensor", "t", "add.Tensor"]),
        (loaded_again(tmp_path), ["", "y = x.sum()"], ["exp", "sum"]),
    ):
        rows = view_of(trace, fold=fold).rows
        pairs = [
            (where(above).source, row.text(NAME))
            for above, row in pairwise(rows)
            if row.kind == EVENT and above.kind == LINE
        ]
        assert [pair for pair in pairs if pair[1] not in ("ones", "full")] == list(zip(lines, ops, strict=True))


# ---------------------------------------------------------------- nothing is lost


ALL = [name for name in programs.names() if name not in programs.SLOW]


@pytest.mark.parametrize("name", ALL)
def test_every_op_has_its_step(name: str) -> None:
    """Unfolded the steps are the ops in their order, thread by thread; folded each still counts."""
    trace = programs.recorded(name, ops=True)
    expected: dict[str, list[str]] = {}
    parents = {event.id: event for event in trace.events()}
    for event in trace.events(kind="op"):
        around, thread = event, event.thread
        while not around.stack and around.parent is not None:
            around = parents[around.parent]
            thread = around.thread
        if event.inputs or event.outputs:
            expected.setdefault(thread, []).append(event.name)
    plain = view_of(trace, fold=False, inner=True)
    steps = [trace.event(row.event) for row in plain.rows if row.kind == EVENT]
    found = [event.name for event in steps if event.kind == "op"]
    assert found == [each for ops in expected.values() for each in ops]
    for options in ({}, {"fold": False}, {"depth": 1}, {"frames": "all"}):
        view = view_of(trace, **options)
        rows = [row for row in view.rows if row.kind == EVENT]
        counted = sum(row.each for row in rows) + sum(row.hidden for row in view.rows)
        said = re.match(r"[\d,]+", summary(view))
        assert counted == (int(said[0].replace(",", "")) if said else 0)


@pytest.mark.parametrize("name", ["attention", "mlp", "structured_outputs", "expressions", "recursion"])
def test_a_step_is_under_the_lines_of_its_stack(name: str) -> None:
    trace = programs.recorded(name, ops=True)
    view = view_of(trace, fold=False, frames="all")
    above: list[Row] = []
    checked = 0
    for row in view.rows:
        if row.kind == LINE:
            del above[row.depth :]
            above.append(row)
        elif row.kind == EVENT:
            frames = trace.event(row.event).stack  # a comprehension is part of its line, frame or not
            stack = [(at.file, at.line) for at in frames if not at.function.endswith(("comp>", "<genexpr>"))]
            shown = [(where(each).file, where(each).line) for each in above]
            lines = [each for each, row in zip(shown, above, strict=True) if not row.text(FOLD).startswith("  ")]
            # Heads of loops stand between; a comprehension without a frame of its own stands at its head alone.
            is_inlined = lines == stack[:-1] and shown[-1] == stack[-1]
            assert lines[: len(stack)] == stack or is_inlined
            rest = iter(shown)
            assert all(each in rest for each in stack)
            checked += 1
    assert checked > 3


# ---------------------------------------------------------------- what is shown once


def test_equal_layers_are_one_row_that_says_how_many() -> None:
    view = view_of(recorded(forward))
    call = next(row for row in view.rows if row.kind == DOWN and row.text(NAME).startswith("blocks"))
    assert call.text(NAME) == "blocks.0–4"
    assert line(view, "x = block(x)").text(FOLD) == " × 5"
    assert steps(view).count("relu") == 1
    assert step(view, "relu").each == 5


def test_an_odd_layer_is_shown_by_itself() -> None:
    net = Net()
    net.blocks[2].fc = nn.Linear(4, 4, bias=False)
    view = view_of(recorded(lambda: net(torch.ones(3, 4))))
    calls = [row for row in view.rows if row.kind == DOWN and row.cell(NAME) and row.text(NAME)]
    assert [row.text(NAME) for row in calls][1:] == ["blocks.0–1", "blocks.2", "blocks.3–4"]
    assert [row.text(FOLD) for row in view.rows if row.text(SOURCE) == "x = block(x)"] == [" × 2", "", " × 2"]


def test_a_loop_over_several_lines_is_one_heading() -> None:
    def loop() -> None:
        x = torch.ones(3)
        for _ in range(7):
            y = x * 2
            x = y + 1

    view = view_of(recorded(loop))
    heading = line(view, "for _ in range(7):")
    assert (heading.text(SOURCE), heading.text(FOLD)) == ("for _ in range(7):", "  × 7")
    assert [source for source in sources(view) if source in ("y = x * 2", "x = y + 1")] == ["y = x * 2", "x = y + 1"]


def test_a_loop_on_one_line_is_counted_at_the_line() -> None:
    def loop() -> None:
        x = torch.ones(3)
        for _ in range(7): x = (x * 2).exp() + 1  # fmt: skip # noqa: E701

    view = view_of(recorded(loop))
    row = line(view, "for _ in range(7): x")
    assert row.text(FOLD) == " × 7"
    assert steps(view) == ["ones", "mul.Tensor", "exp", "add.Tensor"]


def test_numbers_that_change_do_not_keep_a_loop_apart() -> None:
    def loop() -> None:
        x = torch.ones(3, 8)
        for index in range(8):
            x[:, index].sum().item()

    view = view_of(recorded(loop))
    row = step(view, "select.int")
    assert (row.text(TAKES), row.each) == ("f32[3, 8], 1, …", 8)
    assert step(view, "_local_scalar_dense").text(GIVES) == "3.0"


@pytest.mark.parametrize(
    ("texts", "both"),
    [
        (["f32[2, 3], 1, 0", "f32[2, 3], 1, 7"], "f32[2, 3], 1, …"),
        (["f32[2], value=-0.5", "f32[2], value=1e-05"], "f32[2], value=…"),
        (["f32[2], [0, 1], 2", "f32[2], [0, 1], 2"], "f32[2], [0, 1], 2"),
        (["f32[2, 3], -1", "f32[2, 4], -1", "f32[2, 5], -1"], "f32[2, 3–5], -1"),
        (["f32[2], mode='a'", "bf16[2], mode='b'"], "f32|bf16[2], mode=…"),
        (["f32[2], training=True", "f32[2], training=False"], "f32[2], training=True|False"),
        (["f32[2]", "f32[2, 3]"], "…"),
        (["f32[2]", "f32[2], 3"], "…"),
    ],
)
def test_what_several_texts_have_in_common(texts: list[str], both: str) -> None:
    assert args_in_common(texts) == both


def test_shapes_and_lists_keep_steps_apart() -> None:
    assert mask_numbers("f32[2, 3], [0]") != mask_numbers("f32[2, 4], [0]")
    assert mask_numbers("f32[2, 3], [0]") != mask_numbers("f32[2, 3], [1]")


def test_deep_recursion_is_folded_and_shallow_is_not() -> None:
    def down(x: torch.Tensor, levels: int) -> torch.Tensor:
        x = x + 1
        return down(x, levels - 1) if levels else x

    deep = view_of(recorded(lambda: down(torch.ones(2), 300)))
    assert line(deep, "return down").text(FOLD) == " × 300 deep"
    assert len(deep.rows) < 20
    assert sum(row.each for row in deep.rows if row.kind == EVENT) == 302
    shallow = view_of(recorded(lambda: down(torch.ones(2), 3)))
    assert sources(shallow).count("x = x + 1") == 4


# ---------------------------------------------------------------- lines


def test_what_a_line_assigned() -> None:
    view = view_of(recorded(forward))
    assert line(view, "left, right").text(GIVES) == "left, right: f32[3, 1]"
    assert line(view, "h = self.fc").text(GIVES) == "f32[3, 4]"
    assert line(view, "return left").cell(GIVES) is None


def test_what_a_line_assigned_without_an_op_of_its_own() -> None:
    def flatten() -> None:
        y = torch.ones(2, 3).t().t().contiguous()
        del y

    assert line(view_of(recorded(flatten)), "y = ").text(GIVES) == "f32[2, 3]"


def test_what_a_line_assigned_is_a_range_over_all_rounds() -> None:
    def grow() -> None:
        x = torch.ones(1, 2)
        for _ in range(4):
            x = torch.cat([x, x[:1]])

    assert line(view_of(recorded(grow)), "x = torch.cat").text(GIVES) == "f32[2–5, 2]"


def test_layers_of_torch_say_their_path_at_their_steps() -> None:
    view = view_of(recorded(forward))
    said = [(row.text(NAME), row.text(CLASS)) for row in view.rows if row.kind == EVENT and row.cell(CLASS)]
    assert [name for name, text in said if text == "head.1"] == ["gelu"]
    assert not any(text.startswith("fc") for _, text in said), "the line says self.fc already"


def test_frames_are_chosen() -> None:
    network, inputs = zoo.FAMILIES["gpt2"]()
    trace = recorded(lambda: network(**inputs))

    def files(**options: Any) -> set[str]:
        return {where(row).file for row in view_of(trace, **options).rows if row.kind == LINE}

    assert any("modeling_gpt2" in file for file in files())
    assert any("/utils/generic" in file for file in files())
    assert not any("/site-packages/torch/" in file for file in files())
    assert not any("/_pytest/" in file for file in files()), "what ran the program is left out"
    assert any("/site-packages/torch/" in file for file in files(frames="all"))
    assert any("/_pytest/" in file for file in files(frames="all"))
    assert files(hide="transformers") == {__file__}
    assert not any("/transformers/utils/" in file for file in files(hide=("transformers.utils",)))
    assert any("modeling_gpt2" in file for file in files(hide=("transformers.utils",)))


def test_only_what_is_selected() -> None:
    trace = recorded(forward)
    assert steps(view_of(trace, only=tg.select(op="relu"))) == ["relu"]
    assert set(steps(view_of(trace, only=tg.select(module="head.*")))) == {"t", "addmm", "gelu"}
    chunk = view_of(trace, only=tg.select(function="chunk"))
    assert steps(chunk) == ["split.Tensor"], "the ops of a function that is selected"
    assert f"{len(list(trace.events(kind='op'))) - 1} not selected" in summary(chunk)
    late = view_of(trace, only=tg.select(kind="op", where=lambda event: event.id > len(trace) - 2))
    assert steps(late) == ["mul.Tensor"]


def test_depth_counts_what_lies_deeper() -> None:
    trace = recorded(forward)
    view = view_of(trace, depth=0)
    assert [row.kind for row in view.rows if row.kind != DOWN] == [LINE]
    assert summary(view).startswith(f"{view.rows[0].hidden} ops")


def test_without_ops_functions_are_the_steps_and_without_those_modules() -> None:
    with tg.record() as trace:
        forward()
    assert "F.linear" in steps(view_of(trace))
    with tg.record(functions=False) as trace:
        forward()
    assert steps(view_of(trace)) == ["Linear", "Linear", "GELU", "Linear"]


def test_an_optimizer_is_one_step_unless_asked() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters())

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(3, 4)).sum().backward()
            optimizer.step()

    trace = recorded(train)
    view = view_of(trace)
    row = step(view, "SGD.step")
    assert row.each == 3
    assert row.text(COUNT) == f"{len(list(net.parameters()))} ops inside (inner=True)"  # in one round
    assert not any(name.startswith("add_") for name in steps(view))
    assert any(name.startswith("add_") for name in steps(view_of(trace, inner=True)))


def test_a_failing_call_is_a_step_even_before_its_ops() -> None:
    view = view_of(recorded(lambda: nn.functional.linear(torch.ones(2, 3), torch.ones(4, 5))))
    assert len([row for row in view.rows if row.kind == EVENT and row.cell(ERROR)]) == 1


def test_functions_whose_ops_are_not_seen_are_steps() -> None:
    view = view_of(recorded(lambda: torch.linalg.svdvals(torch.eye(3))))
    assert steps(view) == ["eye", "linalg.svdvals"]


def test_what_is_scripted_is_a_step_only_where_its_ops_are_not_seen() -> None:
    function = torch.jit.script(doubled)
    trace = recorded(lambda: function(torch.ones(2)))
    assert "unseen" in {event.kind for event in trace.events()}

    def kinds(trace: tg.Trace) -> set[str]:
        return {trace.event(row.event).kind for row in view_of(trace).rows if row.kind == EVENT}

    assert kinds(trace) == {"op"}
    with tg.record() as trace:
        function(torch.ones(2))
    assert "unseen" in kinds(trace)


def test_threads_have_lines_of_their_own() -> None:
    def work() -> None:
        workers = [threading.Thread(target=forward, name=f"worker {number}") for number in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        torch.ones(1)

    view = view_of(recorded(work))
    titles = [row.text(NAME) for row in view.rows if row.kind == THREAD]
    assert titles[-1] == threading.current_thread().name or titles[0] == threading.current_thread().name
    assert len(titles) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"frames": "torch"}, {"hide": 3}, {"hide": ("",)}, {"depth": -1}, {"only": "mm"},
        {"times": 1}, {"fold": None}, {"inner": 0},
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TorchglassError, match=next(iter(options))):
        CodeOptions(**options)


def test_a_line_is_shown_once_however_many_expressions_ran_on_it() -> None:
    def expressions() -> None:
        x = torch.ones(2)
        x.exp().add(x.sin())

    trace = recorded(expressions)
    assert sources(view_of(trace)).count("x.exp().add(x.sin())") == 1


class Built(torch.nn.Module):
    """A layer, and a weight of its own that is made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
        self.scale = torch.nn.Parameter(torch.full((3,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * self.scale
        return x


def test_a_line_that_builds_a_module_says_only_how_many_steps_that_took() -> None:
    with tg.record() as trace:
        net = Built()
        net(torch.ones(1, 3))
    text = tg.render(trace, "code", width=140)
    assert re.search(r"net = Built\(\)  # .*9 steps in its constructor", text)
    assert "__init__" not in text
    assert "9 in constructors (constructors=True)" in text
    rows, opened = (sheet_of(trace, "code", constructors=opened).rows for opened in (False, True))
    assert sum(row.hidden for row in rows) == 9
    assert sum(row.hidden + row.each for row in rows if row.kind == EVENT) + 9 == sum(
        row.each for row in opened if row.kind == EVENT
    )
    for options in ({"constructors": True}, {"fold": False}):
        assert "self.scale = torch.nn.Parameter" in tg.render(trace, "code", width=140, **options)


def test_constructors_of_torchs_own_modules_are_closed_too() -> None:
    with tg.record() as trace:
        net, head = Built(), torch.nn.Linear(3, 2)
        weight = torch.nn.Parameter(torch.empty(2))
        torch.nn.init.ones_(weight)
        head(net(torch.ones(1, 3)))
    text = tg.render(trace, "code", width=140)
    assert re.search(r"net, head = Built\(\), torch.nn.Linear\(3, 2\)  # .*13 steps in its constructor", text)
    assert "kaiming" not in text
    assert "nn.init.ones_(" in text  # by the program itself
    assert text.count("empty(") == 2  # the program's own, in its line and in its step
    assert "nn.init.kaiming_uniform_(" in tg.render(trace, "code", width=140, constructors=True)


def test_a_constructor_is_shown_where_nothing_else_ran_or_it_failed() -> None:
    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.ones(3) @ torch.ones(4)

    with tg.record() as alone:
        Built()
    assert "self.scale = torch.nn.Parameter" in tg.render(alone, "code", width=140)
    with suppress(RuntimeError), tg.record() as failed:
        torch.ones(2)
        Broken()
    assert "self.weight = torch.ones(3) @ torch.ones(4)" in tg.render(failed, "code", width=140)


def test_a_call_that_only_reads_gradients_is_one_step() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    with tg.record() as trace:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.zero_grad()
        model(torch.ones(1, 2))
    lines = tg.render(trace, "code", width=100).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("optimizer.zero_grad()"))
    assert lines[at + 1] == "│ # Tensor.grad;  of 2 parameters"
    assert lines[at + 2].startswith("model(torch.ones(1, 2))")
