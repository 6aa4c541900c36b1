"""The data of the page: what Python says is what the page reads, in few bytes and little time."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.modules import module_of
from torchglass.events.types import Stats
from torchglass.program.by_line.ran import runs_by_line
from torchglass.views.graph.flow import flow_of
from torchglass.views.graph.outline import outline_of
from torchglass.views.graph.shapes import Shapes
from torchglass.views.options import GraphOptions
from torchglass.views.page.columns import Texts, differences, newest_first, packed_stats, plain
from torchglass.views.page.html import page, page_data, script
from torchglass.views.page.sources import _pieces, sources_of
from torchglass.views.page.trail import NonFinite


def data_in(text: str) -> dict[str, Any]:
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', text)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


@pytest.fixture(scope="module")
def trace() -> tg.Trace:
    return tg.trace(nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)], nn.ReLU()), torch.ones(2, 4))


def test_numbers_and_texts_come_back() -> None:
    numbers = [5, 3, 3, 900]
    total, back = 0, []
    for step in differences(numbers):
        total += step
        back.append(total)
    assert back == numbers
    texts = Texts()
    assert [texts.all[texts.number(word)] for word in ("a", "b", "a", "")] == ["a", "b", "a", ""]
    assert newest_first([7, 8, 7, 9, 8]) == [0, 0, 2, 0, 2]


def test_equal_rounds_give_equal_columns() -> None:
    once, thrice = newest_first([0, 1, 1, 2]), newest_first([0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6])
    assert thrice[4:8] == thrice[8:]
    assert once == thrice[:4]


def test_all_of_the_trace_is_in_the_page(trace: tg.Trace) -> None:
    data = data_in(page(trace))
    assert data["run"]["events"] == len(data["events"]["sample"]) == len(trace)
    names = {data["text"][sample[1]] for sample in data["samples"]}
    assert names == {event.name for event in trace.events()}
    assert sum(data["items"]["count"]) == sum(1 for _ in data["items"]["nodes"])


@pytest.mark.parametrize("name", [name for name in programs.names() if name not in programs.SLOW])
def test_every_program_has_a_page_and_its_numbers_point_somewhere(name: str) -> None:
    trace = programs.recorded(name)
    data = page_data(trace)
    json.dumps(data, allow_nan=False)
    texts, events = len(data["text"]), len(trace)
    columns = data["items"]
    assert all(0 <= number < texts for name in ("title", "kind", "detail", "gives", "code") for number in columns[name])
    assert all(0 <= sample < len(data["samples"]) for sample in data["events"]["sample"])
    total = 0
    for step in columns["nodes"]:
        total += step
        assert 0 <= total < events


def test_the_page_asks_for_nothing_and_holds_no_text_of_the_program_as_markup() -> None:
    make = Maker()
    make.add("function", "</script><b>", None, "</script><b>", outputs=[tensor((2,), id=0)])
    text = page(HandmadeTrace(make.made, name="</title><script>"))
    assert "</script><b>" not in text
    assert "</title><script>" not in text
    assert "default-src &#x27;none&#x27;" in text
    assert not re.search(r"(?:src|href)=[\"']?https?:", text)
    assert text.count("</script>") == 2


def test_own_files_are_whole_and_of_installed_ones_only_what_ran(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=20, n_positions=8, bos_token_id=0, eos_token_id=0)
    )
    tokens = torch.zeros(1, 4, dtype=torch.long)
    with tg.record() as trace:
        model(tokens)
    texts = Texts()
    files = {texts.all[file["path"]]: file for file in sources_of(outline_of(trace, GraphOptions()), texts)}
    own = next(file for path, file in files.items() if path == __file__)
    assert [first for first, _ in own["pieces"]] == [1]
    installed = next(file for path, file in files.items() if path.endswith("modeling_gpt2.py"))
    shown = "\n".join(texts.all[number] for _, number in installed["pieces"])
    whole = trace.sources[texts.all[installed["path"]]]
    assert "class GPT2Attention" in shown
    assert "class GPT2DoubleHeadsModel" not in shown
    assert len(shown) < len(whole) / 2
    for first, number in installed["pieces"]:
        assert texts.all[number].splitlines()[0] == whole.splitlines()[first - 1]


def test_pieces_begin_at_the_lines_that_python_counts(tmp_path: Path) -> None:
    """A form feed or a line separator of Unicode ends no line."""
    text = "# one\x0c\ndef f(x):\n    return x.exp()  # \u2028 \x1c\n\ny = f(x)\n"
    file = tmp_path / "fed.py"
    file.write_text(text, encoding="utf-8")
    with tg.record() as trace:
        exec(compile(text, str(file), "exec"), {"x": torch.ones(2)})
    texts = Texts()
    (found,) = [
        each for each in sources_of(outline_of(trace, GraphOptions()), texts) if texts.all[each["path"]] == str(file)
    ]
    assert [(first, texts.all[number]) for first, number in found["pieces"]] == [(1, text.removesuffix("\n"))]


def test_a_class_is_no_function_whatever_its_first_line_says() -> None:
    rows = ["class A:  # has a def f", *["    x = 1"] * 9, "    def f(self):", *["        pass"] * 3]
    assert _pieces("/lib/site-packages/a.py", rows, {12}) == [(1, 1), (11, 14)]


def test_statistics_are_shown_also_where_nothing_is_finite() -> None:
    assert plain(Stats(4, 1, 1, 1, 0, 2.0, 2.0, 2.0, 0.0, 2.0)) == {
        "mean": 2.0, "std": 0.0, "min": 2.0, "max": 2.0, "nan": 1, "inf": 2, "zeros": 0,
    }  # fmt: skip
    with tg.record(values="stats") as trace:
        x = torch.zeros(2)
        x / x
    assert {"nan": 2, "inf": 0, "zeros": 0} in page_data(trace)["values"]["stats"].values()
    assert page(trace)  # which is JSON: it knows no NaN


def test_the_script_is_small() -> None:
    assert len(script()) <= 180_000  # docs/decisions/0015-the-page.md says why it is not 100,000


def test_repetition_costs_little() -> None:
    model, x = (
        nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)) for _ in range(24)]),
        torch.ones(2, 4),
    )
    with tg.record() as trace:
        for _ in range(45):
            model(x)
    bare = len(page(HandmadeTrace([])))
    assert len(trace) > 9_000
    assert (len(page(trace)) - bare) / len(trace) * 10_000 <= 100_000


def test_a_trace_that_is_still_running_is_text_in_a_notebook(trace: tg.Trace) -> None:
    with tg.record() as running:
        torch.ones(2)
        assert list(running._repr_mimebundle_()) == ["text/plain"]
    assert set(running._repr_mimebundle_()) == {"text/plain", "text/html"}
    shown = trace._repr_mimebundle_()
    assert shown["text/html"].startswith('<iframe sandbox="allow-scripts"')
    assert shown["text/plain"] == repr(trace)


def test_a_large_page_is_cut_to_its_outer_levels_in_a_notebook() -> None:
    from torchglass.views.page.html import mimebundle

    model, x = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)]), torch.ones(2, 4)
    with tg.record(name="large") as trace:
        for round_ in range(60):
            model(x * round_)
    whole = len(page(trace))
    cut = mimebundle(trace, whole - 5_000)
    assert "text/html" in cut
    assert len(cut["text/html"]) < len(mimebundle(trace)["text/html"])
    nothing = mimebundle(trace, 1000)
    assert list(nothing) == ["text/plain"]
    assert "run.html" in nothing["text/plain"]


LOOP = """
import torch

def main():
    x, w = torch.ones(2, 3), torch.ones(3, 3)
    for step in range(5):
        x = torch.relu(x @ w) + x.sum() + x.mean()
        if step == 3:
            x = x * 2
    return x
"""


def test_a_line_says_how_often_it_ran_as_the_listing_does(tmp_path: Path) -> None:
    """Not how many steps it had."""
    module = module_of(tmp_path, LOOP)
    with tg.record() as trace:
        module.main()
    data = data_in(page(trace))
    (file,) = [each for each in data["files"] if data["text"][each["path"]] == module.__file__]
    lines = file["lines"]
    times = dict(zip(lines[::5], lines[1::5], strict=True))
    text = LOOP.split("\n")
    assert {text[line - 1].strip(): often for line, often in times.items()} == {
        "x, w = torch.ones(2, 3), torch.ones(3, 3)": 1,
        "x = torch.relu(x @ w) + x.sum() + x.mean()": 5,
        "x = x * 2": 1,
    }
    listed = runs_by_line(trace)[module.__file__]
    assert all(listed[line] == often for line, often in times.items())


def test_statistics_are_packed_without_a_loss() -> None:
    stats: dict[str, dict[str, Any]] = {
        "0": {"mean": 1.5, "std": 0.5, "min": 1.0, "max": 2.0, "nan": 0, "inf": 0, "zeros": 0},
        "3": {"nan": 2, "inf": 0, "zeros": 0},
        "4": {"mean": 1.5, "std": 0.5, "min": 1.0, "max": 2.0, "nan": 0, "inf": 0, "zeros": 0, "histogram": "19"},
    }
    packed = packed_stats(stats)
    found: dict[str, dict[str, Any]] = {}
    place = row = 0
    for step, more in zip(packed["at"], packed["row"], strict=True):
        place, row = place + step, row + more
        values = [column[row] for column in packed["columns"]]
        known = {name: value for name, value in zip(packed["names"], values, strict=True) if value is not None}
        found[str(place)] = known | packed["rest"].get(str(place), {})
    assert found == stats
    assert len(packed["columns"][0]) == 2, "equal ones are there once"


def test_alarms_at_edges_are_those_of_the_events() -> None:
    x = torch.tensor([0.0, 1.0, -1.0])
    with tg.record(values="stats") as trace:
        for _ in range(3):
            y = x.log()
            y.exp().split([1, 2])
            x = y
    flow = flow_of(trace)
    contents = NonFinite(trace, flow.values, None)
    shapes = Shapes(flow)
    compared = 0
    for item in flow.outline.items:
        events = flow.outline.events_of(item)
        for value in flow.values.recorded_gives[events[0]] if events else ():
            assert contents.alarm(events, value) == shapes.contents(item, value)[1]
            compared += 1
    assert compared > 3


def optimized(steps: int) -> tg.Trace:
    """A training whose optimizer uses other numbers in each step."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    with tg.record() as trace:
        for step in range(steps):
            net(torch.ones(2 + step % 2, 3)).sum().backward()
            optimizer.step()
    return trace


def test_an_optimizer_adds_one_sample_a_step() -> None:
    """The optimizer reads the number of the step, which the page shows as its result."""
    few, many = optimized(3), optimized(12)
    assert len(many) > 3 * len(few)
    assert len(page_data(many)["samples"]) - len(page_data(few)["samples"]) <= 12 - 3


def test_events_of_one_sample_have_the_same_shapes() -> None:
    trace = optimized(3)
    shapes: dict[int, set[Any]] = {}
    for event, sample in zip(trace.events(), page_data(trace)["events"]["sample"], strict=True):
        own = [(value.dtype, value.shape) for value in (*event.inputs, *event.outputs)]
        shapes.setdefault(sample, set()).add((event.name, str(event.location), *own))
    assert all(len(each) == 1 for each in shapes.values())


def test_whole_numbers_and_single_numbers_keep_their_digits() -> None:
    with tg.record(values="stats") as trace:
        ids = torch.tensor([50256, 12345])
        ids.sort()
        torch.tensor(0.123456).exp()
        torch.tensor([0.123456, 1.0]).exp()
    stats = page_data(trace)["values"]["stats"].values()
    assert any(each["min"] == 12345 and each["max"] == 50256 for each in stats)
    assert any(each["mean"] == 1.1314 for each in stats)
    assert any(each["min"] == 1.131 and each["max"] == 2.718 for each in stats)
