"""The table as text."""

from __future__ import annotations

import pytest

from tests.handmade import HandmadeTrace, Maker, blocks, infos_of
from tests.views import shown
from tests.views.table.test_view import tied
from tests.views.tree.test_text import ESCAPES, TRACES
from torchglass.events.selection import select
from torchglass.views.text.style import Page
from torchglass.views.text.words import width_of


def lines_of(trace: object, width: int = 80, page: Page | None = None, **options: object) -> list[str]:
    return shown.lines_of(trace, "table", page or Page(width), **options)


def test_repeated_layers() -> None:
    assert (
        "\n".join(lines_of(blocks(12)))
        == """\
Layer                       Output shape  Parameters   Time
───────────────────────────────────────────────────────────
Net                         f32[4, 8]          Σ 504  100 %
│ blocks.0–11 × 12 (Block)  f32[4, 8]      12 × Σ 42    1 %
│ │ fc (Linear)             f32[4, 8]        12 × 42    1 %
───────────────────────────────────────────────────────────
Parameters       504  (2.0 kB)
  trainable      504
  not trainable  0
Forward time     1.00 ms
Events           37"""
    )


def test_shared_frozen_and_uncalled() -> None:
    assert (
        "\n".join(lines_of(tied()))
        == """\
Layer              Output shape          Parameters   Time  Calls
─────────────────────────────────────────────────────────────────
Net                f32[2, 10]                  Σ 71  100 %      1
│ wte (Embedding)  f32[2, 4]                     40  100 %      1
│ fc (Linear)      f32[2, 4] varies              16  200 %      2
│ head (Linear)    f32[2, 10]        10 + 40 shared  100 %      1
│ spare (Linear)   not called                     5             0
─────────────────────────────────────────────────────────────────
Parameters       71  (252 B)
  trainable      55
  not trainable  16
  not counted    1 parameter without a shape yet
Forward time     1.00 µs
Events           5"""
    )


def test_depth_counts_what_is_below() -> None:
    assert lines_of(blocks(12), depth=1)[3].split() == [
        "│", "blocks.0–11", "×", "12", "(Block)", "f32[4,", "8]", "12", "×", "42", "1", "%",
    ]  # fmt: skip


def test_layers_that_repeat_together() -> None:
    make = Maker()
    root = make.layer("Sequential", None, "", "model(x)", (4, 8))
    for index in range(12):
        make.layer("ReLU" if index % 2 else "Linear", root, str(index), "model(x)", (4, 8), direct=False)
    lines = lines_of(HandmadeTrace(make.made, tuple(infos_of(make.made))))
    assert lines[3].strip() == "│ 0–11 × 6, 2 layers each:"
    assert lines[4].startswith("│ │ 0, 2, …, 10 (Linear)")
    assert "6 × 42" in lines[4]


def test_without_modules() -> None:
    make = Maker()
    make.add("function", "cat", None, "torch.cat(xs)")
    assert lines_of(HandmadeTrace(make.made)) == [
        "No module was called: 1 event, all of them functions. The tree shows them."
    ]
    assert "No module is selected" in lines_of(blocks(3), only=select(kind="mark"))[0]
    assert "Nothing was recorded" in lines_of(HandmadeTrace([]))[0]


@pytest.mark.parametrize("options", [{}, {"fold": False}, {"depth": 1}], ids=str)
@pytest.mark.parametrize("width", [40, 80, 157])
@pytest.mark.parametrize("name", [*TRACES, "tied"])
def test_no_line_is_wider_than_the_page_and_nothing_escapes(name: str, width: int, options: dict[str, object]) -> None:
    trace = tied() if name == "tied" else TRACES[name]
    trace.infos = trace.infos or tuple(infos_of(trace.made))
    plain = lines_of(trace, width, **options)
    for line in plain:
        assert line.isprintable(), line
        assert width_of(line) <= width, line
    colored = lines_of(trace, page=Page(width, color=True), **options)
    assert [ESCAPES.sub("", line).rstrip() for line in colored] == plain
