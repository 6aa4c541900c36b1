"""What a library does around a model is one box, and no edge is lost or made up by that."""

from __future__ import annotations

import pytest
import torch

import torchglass as tg
from torchglass.views.graph.drawn import Drawn, drawn_of
from torchglass.views.graph.flow import flow_of
from torchglass.views.options import GraphOptions
from torchglass.views.page.html import page_data, page_flow


@pytest.fixture(scope="module")
def generated() -> tg.Trace:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 32}
    special = {"bos_token_id": 0, "eos_token_id": 1}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings, **special)).eval()
    prompt = torch.tensor([[2, 3, 4]])
    with tg.record() as trace:
        model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
    return trace


def lines(drawn: Drawn) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The edges between the innermost boxes, by the events that they stand for."""
    items = drawn.flow.outline.items
    ends = [(line.source, line.target) for line in drawn.lines]
    return {
        (tuple(items[source[0]].nodes), tuple(items[target[0]].nodes))
        for source, target in ends
        if source[1] < 0 and target[1] < 0
    }


def test_what_comes_before_the_model_is_one_box(generated: tg.Trace) -> None:
    top = page_flow(generated, GraphOptions()).outline.top
    assert len(flow_of(generated).outline.top) > 15
    assert len(top) < 6
    assert [box.library for box in top if box.library] == ["transformers"]
    inside = [box for box in page_flow(generated, GraphOptions()).outline.items if box.parent >= 0]
    names = [generated.event(box.nodes[0]).name for box in inside if 0 <= box.nodes[0] < len(generated)]
    assert "GPT2Attention" in names


def test_no_edge_is_lost_or_made_up(generated: tg.Trace) -> None:
    plain = drawn_of(flow_of(generated), None)
    grouped = drawn_of(page_flow(generated, GraphOptions()), None)
    assert lines(grouped) == lines(plain)


def test_in_a_layer_nothing_is_put_together(generated: tg.Trace) -> None:
    items = page_flow(generated, GraphOptions()).outline.items
    for box in items:
        around = items[box.parent] if box.parent >= 0 else None
        if box.library:
            assert around is None or around.nodes[0] >= len(generated)
            inner = [child.nodes[0] for child in box.children if 0 <= child.nodes[0] < len(generated)]
            assert all(generated.event(node).kind != "module" for node in inner)


def test_the_page_has_the_box_closed(generated: tg.Trace) -> None:
    data = page_data(generated)
    kinds = [data["text"][number] for number in data["items"]["kind"]]
    titles = [data["text"][number] for number in data["items"]["title"]]
    assert titles[kinds.index("library")] == "in transformers"
