"""The page of a run of which only some iterations were kept: it counts them as the program did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from torchglass.program.program import program_of

EPOCHS, STEPS, MOST_EVENTS = 2, 300, 1500
ALL = EPOCHS * STEPS
LOOP = "torchglass.model.items.find((item) => item.title.startsWith('for step'))"
STEP = "torchglass.model.items.find((item) => item.title === 'full')"
OWN = f"torchglass.model.values.stats[torchglass.model.events.gives[torchglass.eventOf({STEP})][0]].mean"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def trace() -> tg.Trace:
    """A run in which each step makes a tensor that holds its number among all steps, from 1."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    with tg.record(values="stats", max_events=MOST_EVENTS) as found:
        for epoch in range(EPOCHS):
            for step in range(STEPS):
                number = torch.full((1,), epoch * STEPS + step + 1.0)
                loss = net(torch.ones(2, 4)).mean() + 0 * number
            loss = loss.exp()
    return found


@pytest.fixture(scope="module")
def file(trace: tg.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("partly") / "run.html"
    trace.export(path)
    return path


def test_numbers_of_calls_are_those_that_the_program_counts(trace: tg.Trace) -> None:
    totals = program_of(trace).totals
    names = [event.name for event in trace.events()]
    made = [number for number, name in enumerate(names) if name == "full"]
    assert 0 < len(made) < ALL
    found = totals.numbers(made)
    own = [trace.event(each).outputs[0].stats.mean for each in made]
    assert found == own
    assert totals.all_like(made[0]) == ALL
    assert totals.numbers([made[0], names.index("relu")]) is None


def test_a_typed_number_is_the_number_that_the_program_counts(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    strip = page.page.locator(".strip", has_text="for step in")
    field = strip.locator("input")
    for wanted in (1, ALL, ALL // 2 + 20, 3):
        field.fill(str(wanted))
        field.press("Enter")
        page.until(f"Math.abs({LOOP}.numbers[torchglass.shown({LOOP}).at] - {wanted}) <= {ALL // 10}")
        field.blur()
        page.ask(f"torchglass.select(torchglass.eventOf({STEP}))")
        shown = int(field.input_value())
        own = page.ask(OWN)
        assert shown == own
        assert f"of {ALL}" in strip.inner_text()
        assert f"{shown} of {ALL}" in page.page.locator(".flow .rounds").inner_text()
    page.ask(f"torchglass.selectItem({LOOP})")
    assert f"round {shown} of {ALL}" in page.page.locator(".details").inner_text()
    assert page.errors == []
    page.close()


def test_a_typed_number_that_was_not_kept_leads_to_the_nearest(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    kept = page.ask(f"{LOOP}.numbers")
    missing = next(number for number in range(1, ALL) if number not in kept)
    nearest = min(abs(each - missing) for each in kept)
    field = page.page.locator(".strip", has_text="for step in").locator("input")
    field.fill(str(missing))
    field.press("Enter")
    page.until(f"Math.abs({LOOP}.numbers[torchglass.shown({LOOP}).at] - {missing}) === {nearest}")
    page.close()


def later() -> tg.Trace:
    """A run whose inner loop is not in the first rounds of the outer one."""
    with tg.record() as found:
        for epoch in range(4):
            if epoch > 1:
                for _ in range(9):
                    torch.ones(epoch).exp().log()
            torch.ones(3).sum()
    return found


def test_an_inner_loop_that_the_shown_round_lacks_is_shown_where_it_is(browser: Any, tmp_path: Path) -> None:
    later().export(tmp_path / "later.html")
    page = Page(browser, tmp_path / "later.html")
    strip = page.page.locator(".strip", has_text="for _ in range(9)")
    assert "of 9" in strip.inner_text()
    field = strip.locator("input")
    field.fill("5")
    field.press("Enter")
    page.until("document.querySelector('.details').innerText.includes('round 5 of 9')")
    assert page.errors == []
    page.close()
