"""The page opens with the answer: why it failed, the first bad value, what looks wrong, and the run in six lines."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from torchglass.views.page.about import about_lines
from torchglass.views.page.verdict import Answers, verdict_data


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


class Gated(nn.Module):
    """A gate that is shut for some numbers, and the logarithm of it; scores with a mask of -inf."""

    def __init__(self, is_bad: bool) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 4)
        self.leave = nn.Linear(4, 3)
        self.is_bad = is_bad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(x)
        mask = torch.ones(8, 4).tril() == 0
        scores = hidden.masked_fill(mask, float("-inf"))
        hidden = hidden + scores.softmax(-1)
        if self.is_bad:
            gate = F.relu(hidden - 10)
            weight = gate.log()
            hidden = hidden * weight
        return self.leave(hidden)


def trained(is_bad: bool, steps: int = 3) -> tg.Trace:
    torch.manual_seed(0)
    model = Gated(is_bad)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.record(name="gated", values="stats") as trace:
        for _ in range(steps):
            loss = F.cross_entropy(model(torch.ones(8, 4)), torch.zeros(8, dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace


def failed() -> tg.Trace:
    recorder = tg.record(name="wide")
    with pytest.raises(RuntimeError), recorder as trace:  # noqa: PT012
        first = torch.ones(2, 3)
        nn.Linear(5, 2)(first)
    return trace


def written(trace: tg.Trace, folder: Path) -> Path:
    tg.export(trace, folder / "page.html")
    return folder / "page.html"


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def is_fine(page: Page) -> None:
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def test_a_failed_run_opens_with_its_whole_story(browser: Any, tmp_path: Path) -> None:
    trace = failed()
    page = Page(browser, written(trace, tmp_path))
    card = page.page.locator(".details .card")
    shown = flat(card.inner_text())
    story = trace.failure_story()
    assert story is not None
    assert "cannot be multiplied" in card.locator(".verdict").inner_text()
    for evidence in story.mismatches:
        assert evidence.text in shown
    first = card.locator(".answer.made.leads").first
    event = int(first.get_attribute("data-event"))
    first.click()
    assert page.selected == event
    assert page.marked()["event"] == event
    assert card.count() == 0
    page.page.locator(".details header .home").click()
    assert card.count() == 1
    is_fine(page)


def test_a_bad_value_is_said_and_selected_where_it_was_made(browser: Any, tmp_path: Path) -> None:
    trace = trained(True)
    page = Page(browser, written(trace, tmp_path))
    bad = trace.first_bad()
    assert bad is not None
    assert page.selected == bad.event.id
    shown = flat(page.page.locator(".details .card").inner_text())
    assert bad.finding.text in shown
    for evidence in bad.finding.evidence:
        assert flat(evidence.text) in shown
    assert page.page.locator(".code .line.selected").inner_text().count("gate.log()") == 1
    is_fine(page)


def test_without_a_failure_the_findings_are_the_answer(browser: Any, tmp_path: Path) -> None:
    model, x = nn.Linear(3, 3), torch.ones(4, 3)
    with tg.record(values="stats") as trace:
        F.cross_entropy(model(x).softmax(-1), torch.zeros(4, dtype=torch.long)).backward()
    findings = trace.findings()
    assert findings
    page = Page(browser, written(trace, tmp_path))
    listed = page.page.locator(".card .finding")
    assert listed.count() == len(findings)
    assert findings[0].text in flat(listed.first.inner_text())
    assert findings[0].fix in flat(listed.first.inner_text())
    page.page.locator(".card .found > a.place").first.click()
    assert page.selected == findings[0].event
    is_fine(page)


def test_a_run_in_which_all_is_well_says_so(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(False), tmp_path))
    assert page.page.locator(".card .verdict.is-fine").count() == 1
    assert page.selected == -1
    page.page.locator(".about dd a", has_text="Gated, 35").click()
    assert page.ask("torchglass.model.samples[torchglass.model.events.sample[torchglass.selected]].name") == "Gated"
    is_fine(page)


def test_each_line_of_the_run_leads_to_its_step(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(False, steps=5), tmp_path))
    links = page.page.locator(".about dd a")
    events = [int(links.nth(at).get_attribute("data-event")) for at in range(links.count())]
    assert len(events) >= 5
    for at, event in enumerate(events):
        page.page.locator(".about dd a").nth(at).click()
        assert page.selected == event
        page.ask("torchglass.goHome()")
    assert page.page.locator(".about .sparkline path").count() == 1
    page.page.locator(".about .sparkline").click(position={"x": 148, "y": 10})
    assert page.selected == events[2]  # the last loss
    is_fine(page)


def test_the_loss_is_what_backward_was_called_on() -> None:
    model, losses = nn.Linear(2, 1), list[float]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.record(values="stats") as trace:
        for _ in range(4):
            loss = model(torch.ones(1, 2)).square().sum()
            losses.append(float(loss.detach()))
            loss.backward()
            optimizer.step()
    line = next(line for line in about_lines(trace) if line["label"] == "loss")
    assert [number for _, number in line["points"]] == pytest.approx(losses, rel=1e-4)
    assert line["parts"][-1][0] == "in 4 steps"


def test_parameters_are_counted_once_and_memory_by_its_storage() -> None:
    layer = nn.Linear(3, 3, bias=False)
    with tg.record() as trace:
        nn.Sequential(layer, layer)(torch.ones(2, 3)).view(3, 2).view(6)
    lines = {line["label"]: line["parts"] for line in about_lines(trace)}
    assert lines["model"][0][0] == "Sequential, 9 parameters"
    # The weight, what went in, and what each of the two calls gave; views are of the same memory.
    assert lines["memory"][0][0] == "108 B in 4 tensors"


def test_the_card_names_the_versions_that_ran_and_not_those_that_made_the_page(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "run.trace"):
        torch.ones(2).exp()
    loaded = tg.load(tmp_path / "run.trace")
    loaded._tables.torch = "2.9.1"
    (line,) = [line for line in about_lines(loaded) if line["label"] == "recorded"]
    assert f"Python {platform.python_version()}, PyTorch 2.9.1, page by torchglass" in line["parts"][0][0]


def test_a_search_for_bad_values_is_not_made_where_all_is_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchglass.views.page import verdict

    with tg.record(values="stats") as trace:
        torch.ones(2).exp()
    monkeypatch.setattr(verdict, "first_bad_story", lambda trace: pytest.fail("searched"))
    assert verdict_data(Answers(trace), {})["kind"] != "bad"


def test_findings_are_marks_at_lines_steps_and_boxes(browser: Any, tmp_path: Path) -> None:
    model, x = nn.Linear(3, 3), torch.ones(4, 3)
    with tg.record(values="stats") as trace:
        F.cross_entropy(model(x).softmax(-1), torch.zeros(4, dtype=torch.long)).backward()
    page = Page(browser, written(trace, tmp_path))
    finding = next(each for each in trace.findings() if each.severity == "bug")
    assert finding.location is not None
    line = page.page.locator(f".code .line[data-line='{finding.location.line}'] button.mark")
    assert finding.text in line.get_attribute("title")
    assert page.page.locator(".steps .row button.mark.bug").count() >= 1
    badge = page.page.locator(".sheet .badge.bug").first
    assert finding.text in badge.locator("title").text_content()
    badge.click()
    assert page.selected == finding.event
    assert finding.fix in flat(page.page.locator(".card .finding[open]").inner_text())
    page.ask("torchglass.closeAll()")
    assert page.page.locator(".steps .row button.mark").count() >= 1  # what is in a closed box shows at the box
    is_fine(page)
