"""Boxes coloured by a number: the one that has most is the strongest, and the legend says how much that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from tests.views.page.test_verdict import is_fine, written
from torchglass.views.page.html import page_data


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


def recorded() -> tg.Trace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    with tg.record(values="stats") as trace:
        model(torch.randn(8, 4))
    return trace


def strengths(page: Page, overlay: str) -> dict[str, int]:
    """By title how much colour a box has, in percent."""
    page.page.locator(".flow header select").select_option(overlay)
    fills = page.ask(
        "Object.fromEntries([...document.querySelectorAll('.sheet .box:not(.back)')].map((box) => "
        "[torchglass.model.items[box.getAttribute('data-item')].title, box.style.fill]))"
    )
    found = {title: re.search(r"(\d+)%", fill) for title, fill in fills.items()}
    return {title: int(match[1]) for title, match in found.items() if match}


def test_what_has_most_is_the_strongest(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(recorded(), tmp_path))
    by_parameters = strengths(page, "parameters")
    assert by_parameters == {"0": 4, "1": 55, "3": by_parameters["3"]}
    assert 4 < by_parameters["3"] < 55
    legend = page.page.locator(".flow .key")
    assert "20" in legend.inner_text()
    assert "320" in legend.inner_text()
    by_memory = strengths(page, "memory")
    assert max(by_memory, key=by_memory.__getitem__) in ("1", "2")
    assert "2.0 kB" in legend.inner_text()
    by_zeros = strengths(page, "zeros")
    assert max(by_zeros, key=by_zeros.__getitem__) == "2"
    assert strengths(page, "time")
    assert strengths(page, "spread")
    assert strengths(page, "") == {}
    assert legend.is_hidden()
    is_fine(page)


def test_the_address_keeps_the_colours(browser: Any, tmp_path: Path) -> None:
    file = written(recorded(), tmp_path)
    page = Page(browser, file, hash_="#event=1&colour=memory")
    assert page.page.locator(".flow .key").is_visible()
    is_fine(page)


def test_parameters_that_are_shared_are_counted_once() -> None:
    layer = nn.Linear(3, 3, bias=False)
    with tg.record() as trace:
        nn.Sequential(layer, nn.ReLU(), layer)(torch.ones(1, 3))
    data = page_data(trace)
    titles = [data["text"][number] for number in data["items"]["title"]]
    counted = dict(zip(titles, data["items"]["parameters"], strict=True))
    assert counted["Sequential"] == 9
