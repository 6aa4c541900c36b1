"""The order of module calls as text."""

from __future__ import annotations

import pytest

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, blocks
from tests.views import shown
from tests.views.tree.test_text import ESCAPES, TRACES
from torchglass.events.selection import select
from torchglass.views.text.style import Page
from torchglass.views.text.words import width_of


def lines_of(trace: object, width: int = 80, page: Page | None = None, **options: object) -> list[str]:
    return shown.lines_of(trace, "calls", page or Page(width), **options)


def recorded(name: str) -> tg.Trace:
    return programs.recorded(name)


def test_one_path_a_line() -> None:
    assert lines_of(blocks(2), fold=False) == [
        "Net", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc", "5 calls of 5 modules",
    ]  # fmt: skip
    assert lines_of(blocks(2), order="end", fold=False) == [
        "blocks.0.fc", "blocks.0", "blocks.1.fc", "blocks.1", "Net", "5 calls of 5 modules",
    ]  # fmt: skip


def test_shapes_stand_in_columns() -> None:
    assert (
        "\n".join(lines_of(recorded("attention"), shapes=True))
        == """\
MHA                 f32[10, 20, 6] → f32[10, 20, 6]
query_weights       f32[10, 20, 6] → f32[10, 20, 6]
key_weights         f32[10, 20, 6] → f32[10, 20, 6]
value_weights       f32[10, 20, 6] → f32[10, 20, 6]
dropout         f32[10, 3, 20, 20] → f32[10, 3, 20, 20]
out_projection      f32[10, 20, 6] → f32[10, 20, 6]
6 calls of 6 modules"""
    )


def test_repeats_are_counted() -> None:
    assert (
        "\n".join(lines_of(recorded("generation")))
        == """\
for _ in range(steps):  × 12
  Decoder
  embed
  qkv
  out
48 calls of 4 modules"""
    )


def test_threads_are_distinguished() -> None:
    trace = recorded("threads")
    others = {event.thread for event in trace.events(kind="module")} - {"MainThread"}
    titles = [line for line in lines_of(trace) if line.startswith("── thread ")]
    assert len(titles) == len(others) > 1


def test_a_failing_call_says_its_error() -> None:
    lines = lines_of(recorded("shape_error"))
    assert lines[0].startswith("✗ RuntimeError")
    (third,) = [line for line in lines if line.startswith("third ")]
    assert "✗ RuntimeError" in third


def test_nothing_to_list() -> None:
    make = Maker()
    make.add("function", "cat", None, "torch.cat(xs)")
    assert lines_of(HandmadeTrace(make.made)) == ["No module was called. The tree shows what was recorded."]
    assert "No module call is selected" in lines_of(blocks(3), only=select(kind="mark"))[0]
    assert "Nothing was recorded" in lines_of(HandmadeTrace([]))[0]


@pytest.mark.parametrize("options", [{"fold": False}, {"shapes": True}, {"shapes": True, "order": "end"}], ids=str)
@pytest.mark.parametrize("width", [40, 80, 157])
@pytest.mark.parametrize("name", [*TRACES, "generation", "shape_error", "threads", "structured_outputs"])
def test_no_line_is_wider_than_the_page_and_nothing_escapes(name: str, width: int, options: dict[str, object]) -> None:
    trace = TRACES[name] if name in TRACES else recorded(name)
    plain = lines_of(trace, width, **options)
    for line in plain:
        assert line.isprintable(), line
        assert width_of(line) <= width, line
    colored = lines_of(trace, page=Page(width, color=True), **options)
    assert [ESCAPES.sub("", line).rstrip() for line in colored] == plain
