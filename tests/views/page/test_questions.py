"""Ten questions of somebody who has never seen the page: what it shows answers each of them after few clicks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchglass as tg
from tests.views.page.browser import Page, running

MOST_CLICKS = 3
BAD, ROUNDS = 33, 160
PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(6, width)
        self.down = nn.Linear(width, 2)

    def forward(self, x):
        hidden = self.up(x)
        active = F.relu(hidden)
        return self.down(active)


def train(rounds, bad=-1):
    torch.manual_seed(0)
    net = Net(8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(rounds):
        x = torch.randn(4, 6)
        loss = net(x).square().mean()
        scale = torch.tensor(0.0 if step == bad else 1.0)
        loss = loss * (scale / scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def once(width):
    torch.manual_seed(0)
    return Net(width)(torch.ones(4, 6))


def fail():
    net = Net(8)
    return net(torch.ones(4, 7))
"""
LINES = PROGRAM.splitlines()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


class Reader:
    """Somebody who looks, clicks and types; clicks are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def sees(self, selector: str) -> str:
        """The text of what is in sight without scrolling the page."""
        found = self.page.page.locator(selector).first
        # What a click brings may come a moment later: copying, for one, is asynchronous.
        found.wait_for(state="visible")
        return re.sub(r"\s+", " ", found.inner_text())

    def click(self, selector: str) -> None:
        self.clicks += 1
        self.page.page.locator(selector).first.click()

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.page.page.locator(selector).first.fill(text)
        self.page.page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("questions")
    (folder / "program.py").write_text(PROGRAM)
    scope: dict[str, Any] = {}
    exec(compile(PROGRAM, str(folder / "program.py"), "exec"), scope)
    with tg.record(values="stats") as good:
        scope["train"](ROUNDS)
    with tg.record(values="stats") as bad:
        scope["train"](ROUNDS, BAD)
    recorder = tg.record()
    with pytest.raises(RuntimeError), recorder as failed:
        scope["fail"]()
    several = list[tg.Trace]()
    for width in (8, 16):
        with tg.record() as trace:
            scope["once"](width)
        several.append(trace)
    made = {name: folder / f"{name}.html" for name in ("good", "bad", "failed", "diff")}
    good.export(made["good"])
    bad.export(made["bad"])
    failed.export(made["failed"])
    several[0].export(made["diff"], against=several[1])
    return made


@pytest.fixture
def reads(browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    readers = list[Reader]()

    def opened(name: str) -> Reader:
        readers.append(Reader(Page(browser, files[name])))
        return readers[-1]

    yield opened
    for reader in readers:
        assert reader.clicks <= MOST_CLICKS
        assert reader.page.errors == []
        reader.page.close()


def test_where_did_it_fail(reads: Any) -> None:
    reader = reads("failed")
    card = reader.sees(".details .card")
    assert f"program.py:{line_of('hidden = self.up(x)')}" in card
    assert "7" in card
    assert "✗ RuntimeError" in reader.sees(".code .line.failed")
    assert reader.clicks == 0


def test_where_does_the_nan_come_from(reads: Any) -> None:
    reader = reads("bad")
    card = reader.sees(".details .card")
    assert "0 / 0" in card
    assert f"program.py:{line_of('scale / scale')}" in card
    assert reader.clicks == 0


def test_which_step_did_it_begin_at(reads: Any) -> None:
    reader = reads("bad")
    assert f"in iteration {BAD + 1} of {ROUNDS}" in reader.sees(".details .card")
    assert reader.sees(".scrubber .pin") == "first bad value"
    assert reader.clicks == 0


def test_which_layer_is_slowest(reads: Any) -> None:
    reader = reads("good")
    assert re.search(r"(up|down|Net) \d+\s%", reader.sees(".about dt:text-is('slowest') + dd a"))
    assert reader.clicks == 0


def test_what_does_a_line_return(reads: Any) -> None:
    reader = reads("good")
    line = line_of("active = F.relu(hidden)")
    reader.type(".search input", f"line:{line}")
    assert "f32[4, 8]" in reader.sees(".details section:has(h3:text-is('gives'))")
    assert "f32[4, 8]" in reader.sees(f".code .line[data-line='{line}']")


def test_who_uses_this_tensor(reads: Any) -> None:
    reader = reads("good")
    reader.click(".steps .row:has-text('up')")
    gives = reader.sees(".details section:has(h3:text-is('gives'))")
    assert "to active = F.relu(hidden)" in gives


def test_which_layers_differ_in_shape(reads: Any) -> None:
    reader = reads("diff")
    card = reader.sees(".details .card")
    assert "up: Linear out_features=8, f32[4, 8] → out_features=16, f32[4, 16]" in card
    assert "down: Linear in_features=8, f32[4, 8] → in_features=16, f32[4, 16]" in card
    assert reader.clicks == 0


def test_what_is_the_largest_gradient(reads: Any) -> None:
    reader = reads("good")
    words = reader.sees(".about dt:text-is('gradients') + dd")
    assert re.match(r"largest [\d.]+ in (up|down)\.(weight|bias)", words)
    reader.click(".about dt:text-is('gradients') + dd a")
    assert "backward" in reader.sees(".details")


def test_what_did_iteration_150_do(reads: Any) -> None:
    reader = reads("good")
    reader.type(".scrubber input", "150")
    reader.page.until("document.querySelector('.details').innerText.includes('round 150 of 160')")
    assert "net(x)" in reader.sees(".details") or "Net" in reader.sees(".details")
    assert "150 of 160" in reader.sees(".flow .rounds")


def test_how_do_i_send_this_to_a_colleague(reads: Any) -> None:
    reader = reads("bad")
    reader.click(".bar .share")
    assert reader.sees(".toast") == "Copied as Markdown"
    reader.click(".bar [aria-label=help]")
    assert "one file and needs no network" in reader.sees(".help")
