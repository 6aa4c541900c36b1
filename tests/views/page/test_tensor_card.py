"""What the page says of one tensor: sensible words, first numbers, a map of a matrix, a picture of what may be one."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchglass as tg
from tests.views.page.browser import Page, running
from tests.views.page.test_verdict import flat, is_fine, written
from torchglass.views.page.preview import LEVELS, preview


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_a_matrix_is_a_map_of_its_numbers(make: Any) -> None:
    found = preview(make([[0.0, 1.0], [float("nan"), 0.5]]), with_pictures=True)
    assert found["first"] == [0.0, 1.0, "nan", 0.5]
    assert found["map"] == {"columns": 2, "cells": f"{LEVELS[0]}{LEVELS[-1]}!{LEVELS[17]}", "ends": [0.0, 1.0]}


def test_a_large_matrix_is_thinned_and_a_vector_has_no_map() -> None:
    found = preview(torch.arange(1_000_000.0).view(1000, 1000), with_pictures=True)["map"]
    assert found["columns"] <= 40
    assert len(found["cells"]) <= 24 * 40
    assert "map" not in preview(torch.ones(9), with_pictures=True)
    assert "map" not in preview(torch.ones(9, 9), with_pictures=False)


def test_three_channels_are_a_picture() -> None:
    content = torch.zeros(2, 3, 16, 12)
    content[0, 0] = 1.0  # red
    found = preview(content, with_pictures=True)["picture"]
    assert found["width"] == 12
    assert base64.b64decode(found["rgb"]) == bytes([255, 0, 0]) * 16 * 12
    assert "picture" not in preview(torch.zeros(2, 5, 16, 12), with_pictures=True)


@pytest.mark.parametrize("content", [torch.eye(3).to_sparse(), torch.ones(3, dtype=torch.complex64), np.array(["a"])])
def test_what_cannot_be_looked_at_has_nothing_or_its_texts(content: Any) -> None:
    assert "map" not in preview(content, with_pictures=True)


def test_the_card_says_what_is_in_a_tensor(browser: Any, tmp_path: Path) -> None:
    with tg.record(values="all") as trace:
        loss = torch.tensor(2.5) * 1
        image = torch.rand(3, 16, 16).neg()
        labels = torch.tensor([1, 2, 2, 3]).clone()
    page = Page(browser, written(trace, tmp_path))

    def card(name: str) -> str:
        event = next(event for event in trace.events() if name in event.target)
        page.ask(f"torchglass.select({event.id})")
        page.ask("document.querySelectorAll('details.tensor').forEach((each) => { each.open = true; })")
        return flat(page.page.locator(".details section[aria-label=gives], .details section").nth(1).inner_text())

    assert "= 2.5" in card("loss")
    assert "3.1 kB" in card("image")
    assert page.page.locator(".details canvas.picture").count() >= 1
    shown = card("labels")
    assert "1 … 3" in shown
    assert "first 1 2 2 3" in shown
    assert page.page.locator(".details .histogram.whole").last.locator("i").count() == 3
    assert loss is not image is not labels
    is_fine(page)
