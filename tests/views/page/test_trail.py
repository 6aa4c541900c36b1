"""The trail of a bad value on the page: red where it went, in the round in which it did, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from tests.views.page.test_verdict import Gated, is_fine, trained, written

STATE = "torchglass.trail.stateOf(torchglass.model.items.find((item) => item.code.startsWith({!r})))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


def test_the_trail_is_red_in_every_pane(browser: Any, tmp_path: Path) -> None:
    trace = trained(True)
    page = Page(browser, written(trace, tmp_path))
    page.page.keyboard.press("t")
    assert page.ask(STATE.format("weight = gate.log()")) == "source"
    assert page.ask(STATE.format("hidden = hidden * weight")) == "bad"
    assert page.page.locator(".steps .row.source").count() == 1
    assert page.page.locator(".sheet .box.source").count() == 1
    assert page.page.locator(".sheet .edge.bad").count() >= 2
    line = page.page.locator(".code .line.selected")
    assert "−Inf" in line.locator(".alarm.bad").inner_text()
    bad = trace.first_bad()
    assert bad is not None
    assert page.ask("[...torchglass.trail.events].sort((a, b) => a - b)") == sorted({bad.event.id, *bad.after})
    is_fine(page)


def test_before_the_value_went_bad_nothing_is_red(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(True), tmp_path))
    assert page.ask(STATE.format("gate = F.relu")) == "later"  # good in the first round, bad in the next ones
    page.page.keyboard.press("]")
    assert page.ask(STATE.format("gate = F.relu")) == "bad"
    assert page.ask(STATE.format("mask = ")) == ""
    is_fine(page)


def test_a_word_next_to_a_line_counts_the_round_that_is_shown(browser: Any, tmp_path: Path) -> None:
    norm = nn.LayerNorm(4)
    with tg.record(values="stats") as trace:
        for step in range(3):
            good = norm(torch.ones(2, 4))
            ratio = good.abs() / (0 if step == 1 else 1)
            ratio.mean()
    page = Page(browser, written(trace, tmp_path))
    words = (
        "[...document.querySelectorAll('.sheet text')].map((text) => text.textContent.match(/\\d+ NaN/))"
        ".filter(Boolean).map(String)"
    )
    assert page.ask(words) == ["8 NaN"]
    page.page.keyboard.press("[")
    assert page.ask("torchglass.rounds.get(torchglass.pathTo(torchglass.item)[0].number)") == 0
    assert page.ask(words) == []
    assert page.page.locator(".sheet text.bad").count() == 0
    is_fine(page)


def test_a_mask_is_not_red_in_any_layer(browser: Any, tmp_path: Path) -> None:
    """Masks of -inf are made before the NaN and after it: neither is on the trail."""
    torch.manual_seed(0)
    layers = nn.Sequential(Gated(False), nn.Linear(3, 4), Gated(True), nn.Linear(3, 4), Gated(False))
    with tg.record(values="stats") as trace:
        layers(torch.ones(8, 4))
        masked = torch.zeros(8, 4).masked_fill(torch.ones(8, 4).tril() == 0, float("-inf"))
        masked.softmax(-1).sum()
    bad = trace.first_bad()
    assert bad is not None
    alone = [event for event in trace.events(function="Tensor.masked_fill") if not event.inputs[0].stats.nan]
    assert len(alone) == 3  # two layers, and the one after the NaN
    for event in alone:
        assert not bad.reached & {value.id for value in event.outputs}
    page = Page(browser, written(trace, tmp_path))
    page.ask(f"torchglass.select({alone[-1].id})")
    assert page.page.locator(".details .stats.bad").count() == 0
    assert "Inf" in page.page.locator(".code .line.selected .alarm:not(.bad)").inner_text()
    is_fine(page)


def test_a_run_with_masks_alone_has_no_trail(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(False), tmp_path))
    page.ask("torchglass.openAll(), torchglass.openAll()")
    assert page.ask("torchglass.model.trail") is None
    assert page.page.locator(".sheet .bad, .row.bad, .row.source, .alarm.bad").count() == 0
    is_fine(page)


def test_the_last_good_value_is_one_click_away(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(True), tmp_path))
    page.page.locator(".card .also a").click()
    assert "gate = F.relu(hidden - 10)" in page.page.locator(".details h2").inner_text()
    is_fine(page)


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_nan_and_inf_are_found_by_what_is_in_the_values(browser: Any, tmp_path: Path, word: str) -> None:
    with tg.record(values="stats") as trace:
        for number in (1.0, 0.0, float("nan")):
            F.relu(torch.tensor([number]).log())
    events = [event for event in trace.events() if any(_has(value, word) for value in event.outputs)]
    page = Page(browser, written(trace, tmp_path))
    page.page.keyboard.press("/")
    page.page.keyboard.insert_text(word)
    page.page.keyboard.press("Enter")
    assert page.ask("[...torchglass.found.events]") == [event.id for event in events]
    assert events
    is_fine(page)


def _has(value: tg.Value, word: str) -> bool:
    stats = value.stats
    if stats is None:
        return False
    return bool(stats.nan if word == "nan" else stats.posinf + stats.neginf)


def test_the_iteration_of_the_first_bad_value_is_marked(browser: Any, tmp_path: Path) -> None:
    layer = nn.Linear(4, 4)
    with tg.record(values="stats") as trace:
        for step in range(8):
            loss = layer(torch.ones(2, 4)).square().mean()
            loss = loss / (0.0 if step == 5 else 1.0)
            loss.backward()
    page = Page(browser, written(trace, tmp_path))
    pin = page.page.locator(".scrubber .pin")
    bad = trace.first_bad()
    assert bad is not None
    assert pin.get_attribute("href") == f"#event={bad.event.id}"
    page.ask("torchglass.select(0)")
    shown, cells = pin.bounding_box(), page.page.locator(".scrubber .heat").bounding_box()
    wide = (cells["width"] - 150) / 8
    assert shown["x"] + shown["width"] / 2 == pytest.approx(cells["x"] + 150 + 5.5 * wide, abs=2)
    pin.click()
    assert page.selected == bad.event.id
    is_fine(page)
