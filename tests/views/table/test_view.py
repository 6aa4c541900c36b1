"""The table: parameters counted once, sums that add up."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.handmade import HandmadeTrace, Maker, blocks, tensor
from tests.views.shown import sheet_of
from torchglass.events.selection import select
from torchglass.events.types import ModuleInfo
from torchglass.views.row import COUNT, GIVES, NAME, TIME, Row
from torchglass.views.table import CALLS, MODULE, TOTAL, bytes_each


def rows_of(trace: HandmadeTrace, **options: Any) -> list[Row]:
    return [row for row in sheet_of(trace, "table", **options).rows if row.kind == MODULE]


def total(trace: HandmadeTrace, name: str, **options: Any) -> str:
    return next(
        row.text(COUNT)
        for row in sheet_of(trace, "table", **options).rows
        if row.kind == TOTAL and row.text(NAME).strip() == name
    )


def parameters(row: Row) -> int:
    """All that a row counts, with how often it stands for a layer; sums of the rows below are no more."""
    counted = re.fullmatch(r"(?:([\d,]+) × )?([\d,]+)(?: \+ .*)?", row.text(COUNT))
    return 0 if counted is None else int((counted[1] or "1").replace(",", "")) * int(counted[2].replace(",", ""))


def tied() -> HandmadeTrace:
    """An embedding whose weight the head shares; a frozen layer; one that is never called, one without shape."""
    make = Maker()
    root = make.layer("Net", None, "", "net(ids)", (2, 10))
    make.layer("Embedding", root, "wte", "self.wte(ids)", (2, 4))
    for shape in ((2, 4), (3, 4)):
        make.layer("Linear", root, "fc", "self.fc(x)", shape)
    make.layer("Linear", root, "head", "self.head(x)", (2, 10))
    weight = tensor((10, 4), id=1, role="weight", requires_grad=True)
    infos = (
        ModuleInfo(0, "Net", "", "Net", "", ()),
        ModuleInfo(1, "Net", "wte", "Embedding", "10, 4", (weight,)),
        ModuleInfo(2, "Net", "fc", "Linear", "", (tensor((4, 4), "bfloat16", id=2), tensor(None, id=3))),
        ModuleInfo(3, "Net", "head", "Linear", "", (weight, tensor((10,), id=4, requires_grad=True))),
        ModuleInfo(4, "Net", "spare", "Linear", "", (tensor((5,), id=5, requires_grad=True),)),
    )
    return HandmadeTrace(make.made, infos)


@pytest.mark.parametrize("depth", [None, 0, 1, 2])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("trace", [blocks(12), blocks(5, odd=2), tied()], ids=["blocks", "odd", "tied"])
def test_the_rows_add_up_to_the_total(trace: HandmadeTrace, fold: bool, depth: int | None) -> None:
    rows = rows_of(trace, depth=depth, fold=fold)
    assert sum(map(parameters, rows)) == int(total(trace, "Parameters").partition(" ")[0].replace(",", ""))


def test_shared_parameters_count_once() -> None:
    trace = tied()
    said = {row.text(NAME): [row.text(kind) for kind in (COUNT, CALLS, GIVES)] for row in rows_of(trace)}
    assert said == {
        "Net": ["Σ 71", "1", "f32[2, 10]"],
        "wte (Embedding)": ["40", "1", "f32[2, 4]"],
        "fc (Linear)": ["16", "2", "f32[2, 4] varies"],
        "head (Linear)": ["10 + 40 shared", "1", "f32[2, 10]"],
        "spare (Linear)": ["5", "0", "not called"],
    }
    size = 4 * 40 + 2 * 16 + 4 * 10 + 4 * 5
    assert total(trace, "Parameters") == f"71  ({size} B)"
    assert (total(trace, "trainable"), total(trace, "not counted")) == ("55", "1 parameter without a shape yet")


def test_repeated_layers_fold_as_in_the_tree() -> None:
    (_, block, linear) = rows_of(blocks(12))
    assert (block.text(NAME), block.times) == ("blocks.0–11 × 12 (Block)", 12)
    assert (linear.each, linear.text(COUNT), linear.text(TIME)) == (12, "12 × 42", "1 %")


def test_a_row_leads_to_the_first_call_of_its_module() -> None:
    trace = blocks(12)
    assert [(trace.event(row.event).module, trace.event(row.event).call) for row in rows_of(trace)] == [
        ("", 0),
        ("blocks.0", 0),
        ("blocks.0.fc", 0),
    ]


def test_a_selection_keeps_what_it_is_in() -> None:
    only = select(module="blocks.3*")
    names = [row.text(NAME).partition(" ")[0] for row in rows_of(blocks(12), only=only)]
    assert names == ["Net", "blocks.3", "fc"]
    assert total(blocks(12), "Parameters of all modules", only=only).startswith(f"{12 * 42} ")


def test_forward_time_is_that_of_the_outermost_calls() -> None:
    assert total(blocks(3), "Forward time") == "1.00 ms"


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("bfloat16", 2), ("float8_e4m3fn", 1), ("bool", 1), ("complex128", 16), ("odd", 1)],
)
def test_bytes_of_a_number(dtype: str, size: int) -> None:
    assert bytes_each(dtype) == size


def test_modules_that_are_made_anew_in_each_step_have_one_row() -> None:
    x, target, layer = torch.randn(4, 3), torch.randint(0, 3, (4,)), nn.Linear(3, 3)
    with tg.record() as trace:
        for _ in range(30):
            nn.CrossEntropyLoss()(layer(x), target)
    (row,) = [row for row in trace.render("table").splitlines() if "CrossEntropyLoss" in row]
    assert "CrossEntropyLoss × 30" in row
    assert row.split()[-1] == "1"
