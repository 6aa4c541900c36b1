"""The page uses its room well: no pane is left empty, nothing covers what is below it, names are short enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.views.page.browser import Page, running
from torchglass.views.page.html import page as page_text

ROUNDS, PEAK_AT, PEAK = 200, 100, 50.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training whose loss is no call of a loss function, with one peak."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    with tg.record(values="stats") as trace:
        for step in range(ROUNDS):
            peak = PEAK if step == PEAK_AT else 1.0
            loss = net(torch.ones(2, 4)).mean() * 0 + peak
            loss.backward()
            net.zero_grad()
    path = tmp_path_factory.mktemp("room") / "run.html"
    trace.export(path)
    return path


SHEET = """(() => {
  const pane = document.querySelector('.sheet').getBoundingClientRect();
  const sheet = document.querySelector('.sheet > g').getBoundingClientRect();
  return [sheet.bottom - pane.top, pane.height, sheet.height];
})()"""


def test_the_last_step_is_shown_with_as_much_of_the_sheet_as_fits(browser: Any, file: Path) -> None:
    page = Page(browser, file, height=600)
    page.ask("torchglass.select(torchglass.eventOf(torchglass.panes.steps.rows().at(-1).item))")
    bottom, pane, sheet = page.ask(SHEET)
    assert sheet > pane
    assert pane - 60 < bottom < pane
    page.close()


def test_the_map_of_a_sheet_covers_little_of_a_small_pane(browser: Any, file: Path) -> None:
    page = Page(browser, file, width=1024, height=640)
    covering = page.page.locator(".minimap").bounding_box()
    pane = page.page.locator(".sheet").bounding_box()
    assert covering["width"] <= 0.42 * pane["width"]
    assert covering["height"] <= 0.42 * pane["height"]
    page.close()


OPAQUE = """[...document.querySelectorAll('.searched .line:not(.hit) > .shape')].map((element) => {
  const { opacity, backgroundColor } = getComputedStyle(element);
  return opacity === '1' && /^rgb\\(/.test(backgroundColor);
})"""


def test_what_a_line_gave_hides_the_code_below_it_in_a_search_too(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    page.ask("torchglass.searchFor('op:backward')")
    found = page.ask(OPAQUE)
    assert found
    assert all(found)
    page.close()


def test_the_timeline_of_one_process_begins_with_its_first_step(browser: Any, tmp_path: Path) -> None:
    make = Maker()
    for process in (1, 2):
        given = [tensor((2,), id=process)]
        thread = f"SpawnProcess-{process}"
        make.add("function", "exp", None, "x.exp()", process=process, thread=thread, outputs=given)
        make.clock += 1_000_000
    (tmp_path / "two.html").write_text(page_text(HandmadeTrace(make.made)))
    page = Page(browser, tmp_path / "two.html")
    # A process with one thread is called by its number.
    assert page.page.locator(".steps .where").all_inner_texts() == ["process 1", "process 2"]
    page.page.keyboard.press("t")
    assert page.ask("torchglass.panes.timeline.view().from") == 0
    page.page.locator(".bar select").select_option("2")
    assert page.ask("torchglass.panes.timeline.view().from === torchglass.model.events.start[1]")
    assert page.ask("torchglass.model.events.start[1]") > 0
    page.page.locator(".bar select").select_option("")
    assert page.ask("torchglass.panes.timeline.view().from") == 0
    page.close()


def test_the_curve_of_the_loss_has_each_round(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    assert page.page.locator(".strip .losses").inner_text().startswith("loss 1.00 … 50.0")
    page.close()


def test_a_cell_of_the_picture_says_its_iteration(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    box = page.page.locator(".heat").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 4)
    assert f" · iteration {ROUNDS} · " in page.page.locator(".tip").inner_text()
    page.close()


def loops() -> tg.Trace:
    with tg.record() as trace:
        for epoch in range(2):
            for _ in range(3):
                torch.ones(epoch + 1).exp()
            torch.ones(2).log()
    return trace


def test_a_loop_of_loops_says_how_long_its_steps_took(browser: Any, tmp_path: Path) -> None:
    loops().export(tmp_path / "loops.html")
    page = Page(browser, tmp_path / "loops.html")
    found = page.ask(
        """(() => {
          const { model } = torchglass, loop = model.items.find((item) => item.title.startsWith('for epoch'));
          torchglass.selectItem(loop);
          const round = model.events.size / 2;
          return [...model.events.spent].slice(0, round).reduce((sum, each) => sum + each, 0) * model.tick;
        })()"""
    )
    words = page.page.locator(".details section", has_text="host time in these steps").inner_text()
    number, unit = words.split("\n")[-1].split()[:2]
    shown = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert shown == pytest.approx(found, rel=0.01)
    page.close()


def test_on_a_phone_the_names_of_layers_leave_room_for_the_picture(browser: Any, file: Path) -> None:
    page = Page(browser, file, width=390, height=800)
    page.ask("torchglass.select(5)")
    header = page.page.locator(".pane.flow > header").bounding_box()
    assert header["height"] < 50
    heat = page.page.locator(".heat").bounding_box()
    cursor = page.page.locator(".heatmap .cursor").bounding_box()
    assert cursor["x"] - heat["x"] < heat["width"] / 3
    page.close()
