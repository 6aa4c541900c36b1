"""The page of two runs: both codes side by side, green where they agree and red where they first differ."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from torchglass.errors import UsageError
from torchglass.views.page.diff import diff_words


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


class Reference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(6, 12)
        self.back = nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.wide(x)
        hidden = F.gelu(hidden, approximate="tanh")
        return self.back(hidden)


class Port(Reference):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        up = self.wide(inputs)
        return self.back(F.gelu(up))


def traces(*kinds: type[nn.Module]) -> list[tg.Trace]:
    found = list[tg.Trace]()
    for kind in kinds:
        torch.manual_seed(0)
        model, x = kind(), torch.randn(4, 6)
        with tg.record(name=kind.__name__, ops=True, values="stats+sketch") as trace:
            model(x)
        found.append(trace)
    return found


def opened(browser: Any, tmp_path: Path, *kinds: type[nn.Module]) -> tuple[Page, tg.Trace, tg.Trace]:
    a, b = traces(*kinds)
    a.export(tmp_path / "diff.html", against=b)
    return Page(browser, tmp_path / "diff.html"), a, b


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def is_fine(page: Page) -> None:
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def test_it_opens_at_the_first_difference_with_both_codes(browser: Any, tmp_path: Path) -> None:
    page, a, b = opened(browser, tmp_path, Reference, Port)
    diff = a.diff(b)
    assert diff.first is not None
    assert diff.first.title in flat(page.page.locator(".card .diff .verdict").inner_text())
    assert page.selected == diff.first.a[0].event
    left = page.page.locator(".pane.code:not(.other) .line.selected")
    right = page.page.locator(".pane.other .line.selected")
    assert 'F.gelu(hidden, approximate="tanh")' in left.inner_text()
    assert "self.back(F.gelu(up))" in right.inner_text()
    shown = flat(page.page.locator(".card .diff").inner_text())
    assert "tanh" in shown
    assert f"before: {diff.before} value" in shown
    is_fine(page)


def test_what_agrees_is_green_and_what_does_not_is_red(browser: Any, tmp_path: Path) -> None:
    page, _, _ = opened(browser, tmp_path, Reference, Port)
    state = "torchglass.diff.stateOf(torchglass.model.items.find((item) => item.code.startsWith({!r})))"
    page.ask("torchglass.openAll()")
    assert page.ask("torchglass.diff.stateOf(torchglass.model.items.find((item) => item.title === 'wide'))") == "agrees"
    assert page.ask(state.format("hidden = F.gelu")) == "parts"
    assert (
        page.ask("torchglass.diff.stateOf(torchglass.model.items.find((item) => item.title === 'back'))") == "differs"
    )
    assert page.page.locator(".sheet .box.parts, .sheet .group.parts").count() >= 1
    assert page.page.locator(".growth circle.agrees").count() >= 1
    assert page.page.locator(".growth circle.differs").count() >= 1
    is_fine(page)


def test_the_selected_step_has_its_like_next_to_it(browser: Any, tmp_path: Path) -> None:
    page, _, _ = opened(browser, tmp_path, Reference, Port)
    page.ask("torchglass.select(torchglass.model.items.find((item) => item.title === 'wide').nodes[0])")
    assert "up = self.wide(inputs)" in page.page.locator(".pane.other .line.selected").inner_text()
    is_fine(page)


def test_equal_runs_say_so(browser: Any, tmp_path: Path) -> None:
    page, _, _ = opened(browser, tmp_path, Reference, Reference)
    assert "equal bits" in page.page.locator(".card .diff .verdict.is-bits").inner_text()
    assert page.page.locator(".sheet .differs, .sheet .parts, .line.differs").count() == 0
    is_fine(page)


def test_runs_without_numbers_are_compared_by_what_ran(browser: Any, tmp_path: Path) -> None:
    with tg.record() as a:
        torch.ones(2).exp()
    with tg.record() as b:
        torch.ones(2).sin()
    a.export(tmp_path / "diff.html", against=b)
    page = Page(browser, tmp_path / "diff.html")
    assert page.ask("torchglass.model.diff.verdict") == "structure"
    assert "sin" in page.page.locator(".card .diff").inner_text()
    assert "exp" in page.page.locator(".pane.code:not(.other) .line.parts").inner_text()
    assert "sin" in page.page.locator(".pane.other .line.parts").inner_text()
    is_fine(page)


def test_the_code_of_b_opens_at_the_file_in_which_the_runs_part(browser: Any, tmp_path: Path) -> None:
    """Not at the first file of B, which may be the script that calls everything."""
    recorded = list[tg.Trace]()
    for function in ("exp", "sin"):
        (tmp_path / "steps.py").write_text(f"def compute(x):\n    return x.{function}()\n")
        (tmp_path / "main.py").write_text("import torch\nfrom steps import compute\n\ncompute(torch.ones(2))\n")
        done = [sys.executable, "-m", "torchglass", "run", "--to", f"{function}.trace", "main.py"]
        subprocess.run(done, cwd=tmp_path, check=True, capture_output=True)
        recorded.append(tg.load(tmp_path / f"{function}.trace"))
    a, b = recorded
    a.export(tmp_path / "diff.html", against=b)
    page = Page(browser, tmp_path / "diff.html")
    assert "sin" in page.page.locator(".pane.other .line.parts").inner_text()


def test_what_ran_with_another_setting_is_selected_in_both_codes(browser: Any, tmp_path: Path) -> None:
    recorded = list[tg.Trace]()
    for factor in (2.0, 3.0):
        with tg.record() as trace:
            torch.ones(2).exp().mul(factor)
        recorded.append(trace)
    a, b = recorded
    a.export(tmp_path / "diff.html", against=b)
    page = Page(browser, tmp_path / "diff.html")
    assert (
        page.ask("torchglass.model.samples[torchglass.model.events.sample[torchglass.selected]].name") == "Tensor.mul"
    )
    for pane in (".pane.code:not(.other)", ".pane.other"):
        assert "mul(factor)" in page.page.locator(f"{pane} .line.selected").inner_text()
    is_fine(page)


@pytest.mark.parametrize(("width", "tab"), [(1024, ""), (390, ""), (390, "code")])
def test_two_runs_fit_on_small_screens(browser: Any, tmp_path: Path, width: int, tab: str) -> None:
    a, b = traces(Reference, Port)
    a.export(tmp_path / "diff.html", against=b)
    page = Page(browser, tmp_path / "diff.html", width=width, height=800)
    if tab:
        page.page.locator(f".tabs [data-tab={tab}]").click()
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    boxes = [page.page.locator(f".{name}").first.bounding_box() for name in ("pane.details", "panes")]
    assert all(box is not None for box in boxes)
    assert boxes[0]["width"] >= 250
    assert boxes[0]["x"] + boxes[0]["width"] <= width + 1
    assert boxes[0]["height"] >= 120
    if not tab:
        sheet = page.page.locator(".sheet").bounding_box()
        assert sheet["height"] >= 250
    if tab or width > 390:
        assert page.page.locator(".pane.other .line.selected").is_visible()
    is_fine(page)


def test_only_a_page_compares(tmp_path: Path) -> None:
    a, b = traces(Reference, Port)
    with pytest.raises(UsageError, match=r"ends in \.html"):
        a.export(tmp_path / "diff.svg", against=b)


def test_the_words_for_readers_without_scripts_name_both_lines() -> None:
    from torchglass.views.page.diff import diff_data

    a, b = traces(Reference, Port)
    words = [text for _, text in diff_words(diff_data(a.diff(b), b, {}, {}))]
    assert any('hidden = F.gelu(hidden, approximate="tanh")' in text and "test_diff_page.py" in text for text in words)
    assert any("F.gelu(up)" in text for text in words)
