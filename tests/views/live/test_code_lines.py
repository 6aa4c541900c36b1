"""torch-code-tracing's lines: stacks shared with the op before, ops letter for letter."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.handmade import Maker
from tests.views.shown import edges
from torchglass.events.types import Event, Location
from torchglass.views.live.code_lines import CodeLines, LineOptions, Schema, op_text
from torchglass.views.text.style import Page

ESCAPES = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;;[^\x1b]*\x1b\\")


def op(name: str, args: str = "", result: str = "", *stack: Location, **fields: Any) -> Event:
    make = Maker()
    make.add("op", name, args=args, result=result, stack=stack, **fields)
    return make.made[0]


OUTER = Location("/project/train.py", 7, 7, 4, 20, "main", "loss = model(x, y)", "user")
INNER = Location("/project/net.py", 3, 3, 8, 15, "Net.forward", "return x * self.scale + 1", "user")
TORCH = Location("/site-packages/torch/nn/modules/module.py", 1, 1, 0, 1, "Module._call_impl", "return f(x)", "torch")


def test_the_lines_of_ops() -> None:
    lines = CodeLines(Page())
    first = op("aten::mul.Tensor", "bf16[2, 3], bf16[]", "bf16[2, 3]", OUTER, TORCH, INNER)
    assert lines.feed(first, "open") == []
    assert lines.feed(first, "close") == [
        "loss = model(x, y)  # /project/train.py:7 in main:",
        "│ ⬇️",
        "│ return x * self.scale + 1  # /project/net.py:3 in forward:",
        "│ │ # mul.Tensor(bf16[2, 3], bf16[]) -> bf16[2, 3];",
    ]
    again = op("aten::add.Tensor", "bf16[2, 3], 1", "bf16[2, 3]", OUTER, TORCH, replace(INNER, col=20, end_col=24))
    assert lines.feed(again, "close") == ["│ │ # add.Tensor(bf16[2, 3], 1) -> bf16[2, 3];"]
    assert lines.feed(op("mylib::log", "f32[]", "f32[]", OUTER), "close") == ["│ # mylib::log(f32[]) -> f32[];"]
    assert lines.finish() == []


def test_lines_are_shared_by_columns_when_not_succinct() -> None:
    lines = CodeLines(Page(), LineOptions(succinct=False))
    lines.feed(op("aten::mul", "f32[]", "f32[]", OUTER, INNER), "close")
    again = op("aten::add", "f32[]", "f32[]", OUTER, replace(INNER, col=20, end_col=24))
    assert [line.lstrip("│ ")[:6] for line in lines.feed(again, "close")] == ["return", "# add("]


def test_lines_with_other_texts_are_not_shared() -> None:
    """Every text that is given to ``exec`` begins at the first line of a file of the same name."""
    made = Location("<string>", 1, 1, 4, 9, "<module>", "y = x * 3", "user")
    lines = CodeLines(Page())
    lines.feed(op("aten::mul", "f32[]", "f32[]", OUTER, made), "close")
    other = lines.feed(op("aten::add", "f32[]", "f32[]", OUTER, replace(made, source="y = x + 4")), "close")
    assert other == ["│ y = x + 4  # <string>:1 in <module>:", "│ │ # add(f32[]) -> f32[];"]
    assert len(lines.feed(op("aten::add", "f32[]", "f32[]", OUTER, replace(made, source="y = x + 4")), "close")) == 1


def test_functions_modules_and_failed_ops_have_no_lines() -> None:
    lines = CodeLines(Page())
    make = Maker()
    make.add("function", "F.relu")
    make.add("op", "aten::mm", error="RuntimeError: no")
    assert [line for event, edge in edges(make.made) for line in lines.feed(event, edge)] == []


def test_an_op_without_a_stack_has_one_line() -> None:
    assert CodeLines(Page()).feed(op("aten::mm", "f32[2, 2]", "f32[2, 2]"), "close") == [
        "# mm(f32[2, 2]) -> f32[2, 2];"
    ]


def test_source_that_is_not_known_is_left_empty() -> None:
    unknown = replace(OUTER, source="")
    assert CodeLines(Page(color=True)).feed(op("aten::mm", "", "f32[]", unknown), "close")[0] == (
        "  \x1b[2m# /project/train.py:7 in main:\x1b[0m"
    )


@pytest.mark.parametrize(
    ("args", "result", "text"),
    [
        ("[f32[1, 4], f32[1, 4]], 1", "f32[2, 4]", "(['f32[1, 4]', 'f32[1, 4]'], 1) -> f32[2, 4]"),
        ("[2], dtype=torch.bfloat16, device='cpu'", "bf16[2]", "([2], dtype=torch.bfloat16, device=cpu) -> bf16[2]"),
        ("f32[4], rounding_mode='floor'", "f32[4]", "(f32[4], rounding_mode=floor) -> f32[4]"),
        ("f32[4], 'it\\'s, [odd]'", "f32[4]", "(f32[4], it's, [odd]) -> f32[4]"),
        ("[None, i64[2]], ['f32[2]', 'b']", "None", "([None, 'i64[2]'], ['f32[2]', 'b']) -> None"),
        ("f32[3]", "(f32[2], i64[2])", "(f32[3]) -> (f32[2], i64[2])"),
        ("f32[3]", "[f32[1], f32[2]]", "(f32[3]) -> (f32[1], f32[2])"),
        ("f32[3]", "(f32[2],)", "(f32[3]) -> (f32[2])"),
        ("f32[]", "0.5", "(f32[]) -> 0.5"),
        ("", "f32[?]", "() -> f32[?]"),
    ],
)
def test_op_texts(args: str, result: str, text: str) -> None:
    assert op_text(op("aten::op", args, result)) == f"op{text}"


def test_an_op_that_gives_nothing() -> None:
    event = op("aten::_foreach_add_.Scalar", "[f32[2]], 1", "[f32[2]]")
    assert op_text(event, Schema(has_result=False)).endswith(") -> None")


def test_objects_of_torch_go_by_their_class() -> None:
    event = op("c10d::send", "[f32[2]], <ScriptObject>, 0", "<ScriptObject>")
    text = op_text(event, Schema(objects=("a.Group", "a.Work")))
    assert text == "c10d::send(['f32[2]'], ScriptObject <a.Group>, 0) -> ScriptObject <a.Work>"
    assert op_text(event, Schema(objects=("a.Group",))).count("<ScriptObject>") == 2, "which is which is not known"
