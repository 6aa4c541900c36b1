"""The data flow as text, for Graphviz and for Mermaid: what was written is what the flow says, whatever the names."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pygraphviz
import pytest
import torch
from torch import nn

import torchglass as tg
from tests.handmade import HandmadeTrace, Maker, tensor
from torchglass.views.export import export
from torchglass.views.graph.drawn import dot, drawn_of, escaped, mermaid
from torchglass.views.graph.flow import flow_of
from torchglass.views.options import GraphOptions

HOSTILE = [
    '</script><script>alert(1)</script>', 'a"; evil [label="x', "back\\slash\\N", "<b>bold</b>", "line\nbreak",
    "right\u202eto left", "🔥 ümlaut", "]-->|x|", "end", "%%{init}%%", "click n0 call()", "'quotes'", "{{a}}",
]  # fmt: skip


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc(self.norm(x)).relu()


@pytest.fixture(scope="module")
def trace() -> tg.Trace:
    model, x = nn.Sequential(*[Block() for _ in range(3)]), torch.ones(2, 4)
    with tg.record() as trace:
        out = model(x)
        out.sum()
    return trace


def hostile_trace() -> HandmadeTrace:
    make = Maker()
    for at, name in enumerate(HOSTILE):
        given = [tensor((2,), id=at, producer=at - 1 if at else None, role=name)]
        make.add("module", name, None, name, module=name, inputs=given, outputs=[tensor((2,), id=at + 1, producer=at)])
    return HandmadeTrace(make.made)


def test_what_an_unpacking_does_has_the_name_of_its_function() -> None:
    x = torch.ones(3, 2)
    with tg.record() as trace:
        a, b, c = x.mul(2).add(1)
        a @ b + c.sum()
    text = tg.render(trace, "graph", width=100)
    assert re.search(r"^unbind +a, b, c → f32\[2\] ×3", text, re.MULTILINE)
    assert re.search(r"^@ +unbind #\d+ → f32\[\]", text, re.MULTILINE)


def test_places_stand_below_each_other_where_the_page_has_room() -> None:
    with tg.record(values="stats") as trace:
        x = torch.arange(24.0).reshape(2, 3, 4)
        y = (x - x.mean()) / x.std()
        y.flatten(1).log().nan_to_num().softmax(-1)
    lines = tg.render(trace, "graph", width=160).splitlines()[1:-1]
    assert {line.rindex(" :") for line in lines} == {lines[0].rindex(" :")}


def test_the_text_names_the_source_of_each_step(trace: tg.Trace) -> None:
    text = tg.render(trace, "graph", width=100)
    assert re.search(r"0–2 × 3 +Block +input, 0–2 before → f32\[2, 4\]", text)
    assert re.search(r"│ │ \+ +x, relu #\d+ → f32\[2, 4\]", text)
    assert re.search(r"sum +out → f32\[\]|sum +Sequential → f32\[\]", text)


def test_the_text_opens_to_a_depth(trace: tg.Trace) -> None:
    text = tg.render(trace, "graph", depth=0)
    assert "norm" not in text
    assert "Sequential" in text


def parsed(text: str, path: Path) -> pygraphviz.AGraph:
    path.write_text(text, encoding="utf-8")
    return pygraphviz.AGraph(str(path))


def test_graphviz_reads_back_the_edges_that_were_drawn(trace: tg.Trace, tmp_path: Path) -> None:
    drawn = drawn_of(flow_of(trace), None)
    graph = parsed("\n".join(dot(drawn)), tmp_path / "a.dot")
    assert len(graph.edges()) == len(drawn.lines)
    assert len(graph.nodes()) == len(drawn.flow.outline.items) - len(drawn.open) + sum(map(len, drawn.outside.values()))


def test_several_equal_values_between_two_boxes_are_one_line() -> None:
    x = torch.ones(2)
    with tg.record() as trace:
        parts = [x.exp() for _ in range(5)]
        torch.stack(parts)
    lines = [line for line in mermaid(drawn_of(flow_of(trace), None)) if "-->" in line]
    assert len(lines) == 2


@pytest.mark.parametrize("depth", [0, 1, 2, None])
def test_at_every_depth_all_that_is_drawn_hangs_together(trace: tg.Trace, depth: int | None) -> None:
    drawn = drawn_of(flow_of(trace), depth)
    ends = {end for line in drawn.lines for end in (line.source, line.target)}
    closed = {(item.number, -1) for item in drawn.flow.outline.items if _is_drawn(drawn, item)}
    assert closed <= ends


def _is_drawn(drawn: Any, item: Any) -> bool:
    while item.parent >= 0:
        if item.parent not in drawn.open:
            return False
        item = drawn.flow.outline.items[item.parent]
        if item.number not in drawn.open:
            return False
    return item.number not in drawn.open


def test_hostile_names_are_text_in_dot(tmp_path: Path) -> None:
    drawn = drawn_of(flow_of(hostile_trace(), GraphOptions(fold=False)), None)
    graph = parsed("\n".join(dot(drawn)), tmp_path / "a.dot")
    assert len(graph.nodes()) == len(HOSTILE) + 1
    assert len(graph.edges()) == len(HOSTILE)


def test_hostile_names_are_text_in_mermaid() -> None:
    for name in HOSTILE:
        assert re.fullmatch(r'"(?:[\w .,:–×▸✗]|#\d+;)*"', escaped(name))
    lines = list(mermaid(drawn_of(flow_of(hostile_trace(), GraphOptions(fold=False)), None)))
    assert sum("-->" in line for line in lines) == len(HOSTILE)
    assert all("\n" not in line for line in lines)


def test_export_by_suffix(trace: tg.Trace, tmp_path: Path) -> None:
    for name, begins in (("a.dot", "digraph"), ("a.mmd", "flowchart TB"), ("A.DOT", "digraph")):
        tg.export(trace, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    tg.export(trace, str(tmp_path / "b.dot"), depth=0, functions=False)
    assert "LayerNorm" not in (tmp_path / "b.dot").read_text(encoding="utf-8")


def test_export_says_what_it_cannot_do(trace: tg.Trace, tmp_path: Path) -> None:
    with pytest.raises(tg.UsageError, match=r"'a\.docx'.*\.dot \(the data flow for Graphviz\)"):
        tg.export(trace, tmp_path / "a.docx")
    with pytest.raises(tg.UnknownOption, match="no option 'deep'"):
        tg.export(trace, tmp_path / "a.dot", deep=3)
    with pytest.raises(tg.UsageError, match=r"cannot write .*no-folder"):
        tg.export(trace, tmp_path / "no-folder" / "a.dot")
    with pytest.raises(tg.WrongType, match="takes a trace"):
        tg.export("trace", tmp_path / "a.dot")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_there_is_whole_or_as_before(trace: tg.Trace, tmp_path: Path) -> None:
    (tmp_path / "a.dot").mkdir()
    with pytest.raises(tg.UsageError, match="cannot write"):
        tg.export(trace, tmp_path / "a.dot")
    assert [path.name for path in tmp_path.iterdir()] == ["a.dot"]


@pytest.mark.parametrize("name", ["a.dot", "a.mmd", "a.perfetto.json"])
def test_an_empty_trace_is_a_file_that_can_be_read(name: str, tmp_path: Path) -> None:
    export(HandmadeTrace([]), tmp_path / name, {})
    assert (tmp_path / name).stat().st_size > 10


def test_a_sign_says_how_often_in_both_drawings() -> None:
    x = torch.ones(2)
    with tg.record() as trace:
        functools.reduce(lambda one, other: one + other, [x] * 5)
    drawn = drawn_of(flow_of(trace), None)
    assert 'label="+ × 4", shape=circle' in "\n".join(dot(drawn))
    assert '(("#43; × 4"))' in "\n".join(mermaid(drawn))
