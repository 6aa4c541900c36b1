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
from torchglass.events.types import Stats
from torchglass.views.page.columns import Texts, differences, newest_first, plain
from torchglass.views.page.html import page, page_data, script
from torchglass.views.page.sources import sources_of


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
    try:
        with tg.record(name=name) as trace:
            programs.load(name).main()
    except BaseException:
        assert name in programs.RAISES
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
    from torchglass.views.digest import digest_of
    from torchglass.views.graph.outline import outline_of
    from torchglass.views.options import GraphOptions

    texts = Texts()
    files = {texts.all[file["path"]]: file for file in sources_of(outline_of(digest_of(trace), GraphOptions()), texts)}
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


def test_statistics_are_told_also_where_nothing_is_finite() -> None:
    assert plain(Stats(4, 1, 1, 1, 0, 2.0, 2.0, 2.0, 0.0, 2.0)) == {
        "mean": 2.0, "std": 0.0, "min": 2.0, "max": 2.0, "nan": 1, "inf": 2, "zeros": 0,
    }  # fmt: skip
    with tg.record(values="stats") as trace:
        x = torch.zeros(2)
        x / x
    assert {"nan": 2, "inf": 0, "zeros": 0} in page_data(trace)["values"]["stats"].values()
    assert page(trace)  # which is JSON: it knows no NaN


def test_the_script_is_small() -> None:
    assert len(script()) <= 100_000


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
