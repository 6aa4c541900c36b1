"""The table: parameters counted once, sums that add up."""

from __future__ import annotations

import pytest

from tests.handmade import HandmadeTrace, Maker, blocks, tensor
from torchglass.events.selection import select
from torchglass.events.types import ModuleInfo
from torchglass.views.table.view import TableOptions, TableRow, TableView, bytes_each, table_view


def rows_of(view: TableView) -> list[TableRow]:
    return [row for row in view.rows if isinstance(row, TableRow)]


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
    view = table_view(trace, TableOptions(depth=depth, fold=fold))
    assert sum(row.each * row.parameters for row in rows_of(view)) == view.totals.parameters


def test_shared_parameters_count_once() -> None:
    view = table_view(tied(), TableOptions())
    told = {row.name: (row.parameters, row.shared, row.calls, row.varies) for row in rows_of(view)}
    assert told == {
        "Net": (0, 0, 1, False),
        "wte": (40, 0, 1, False),
        "fc": (16, 0, 2, True),
        "head": (10, 40, 1, False),
        "spare": (5, 0, 0, False),
    }
    totals = view.totals
    assert (totals.parameters, totals.trainable, totals.without_shape) == (71, 55, 1)
    assert totals.size == 4 * 40 + 2 * 16 + 4 * 10 + 4 * 5


def test_repeated_layers_fold_as_in_the_tree() -> None:
    (_, block, linear) = rows_of(table_view(blocks(12), TableOptions()))
    assert (block.span, block.times, linear.each, linear.parameters) == ("blocks.0–11", 12, 12, 42)
    assert linear.spent_ns == 12 * 800


def test_a_selection_keeps_what_it_is_in() -> None:
    view = table_view(blocks(12), TableOptions(only=select(module="blocks.3*")))
    assert [row.name for row in rows_of(view)] == ["Net", "blocks.3", "fc"]
    assert view.totals.parameters == 12 * 42


def test_forward_time_is_that_of_the_outermost_calls() -> None:
    assert table_view(blocks(3), TableOptions()).totals.forward_ns == 1_000_000


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("bfloat16", 2), ("float8_e4m3fn", 1), ("bool", 1), ("complex128", 16), ("odd", 1)],
)
def test_bytes_of_a_number(dtype: str, size: int) -> None:
    assert bytes_each(dtype) == size
