"""The page travels: a summary without scripts, an address that keeps what is shown, and Markdown to copy."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.views.page.browser import Page, running
from tests.views.page.test_browser import HOSTILE
from tests.views.page.test_verdict import failed, flat, is_fine, trained, written
from torchglass.views.page.html import page as page_text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


# ---------------------------------------------------------------- without scripts


def test_without_scripts_it_says_why_it_failed(browser: Any, tmp_path: Path) -> None:
    trace = failed()
    file = written(trace, tmp_path)
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(file.as_uri())
    shown = flat(opened.locator("#summary").inner_text())
    story = trace.failure_story()
    assert story is not None
    assert flat(story.error) in shown
    for mismatch in story.mismatches:
        assert mismatch.text in shown
    assert "nn.Linear(5, 2)(first)" in shown
    assert opened.locator("#page").is_hidden()
    context.close()


def test_in_print_the_summary_is_there_and_the_panes_are_not(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(True), tmp_path))
    assert page.page.locator("#summary").is_hidden()
    page.page.emulate_media(media="print")
    assert page.page.locator("#summary").is_visible()
    assert page.page.locator("#page").is_hidden()
    assert "the logarithm of 0" in page.page.locator("#summary").inner_text()
    is_fine(page)


def test_names_from_the_program_are_text_in_the_summary(tmp_path: Path) -> None:
    make = Maker(file="/project/<b>&.py", root="<script>")
    for at, name in enumerate(HOSTILE):
        gives = [tensor((2,), id=at, producer=at, role=name)]
        make.add("function", name, None, name, outputs=gives, note=name, error=name if at == 3 else None)
    trace = HandmadeTrace(make.made, notes=tuple(HOSTILE), failed=3, name=HOSTILE[0])
    text = page_text(trace)
    summary = text.partition('<div id="summary">')[2].partition('<div id="page">')[0]
    tags = set(re.findall(r"<\s*/?\s*([a-z0-9]+)", summary))
    assert tags <= {"h1", "h2", "p", "ul", "li", "table", "tr", "th", "td", "pre", "div"}
    assert html.escape("<img src=x onerror=alert(1)>") in summary


# ---------------------------------------------------------------- policy


def test_only_the_script_of_the_page_may_run(browser: Any, tmp_path: Path) -> None:
    file = written(trained(False), tmp_path)
    text = file.read_text(encoding="utf-8")
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0])
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    file.write_text(text.replace("</body>", "<script>document.title = 'taken'</script></body>"), encoding="utf-8")
    page = Page(browser, file)
    assert page.page.title() != "taken"
    assert any("Content Security Policy" in error for error in page.errors)
    page.close()


# ---------------------------------------------------------------- address


def looped(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)])
    with tg.record(name="looped") as trace:
        for _ in range(3):
            layers(torch.ones(2, 4)).sum()
    tg.export(trace, tmp_path / "looped.html")
    return tmp_path / "looped.html"


def test_back_leads_to_what_was_selected_before(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, looped(tmp_path))
    for event in (2, 5, 9):
        page.ask(f"torchglass.select({event})")
        page.page.wait_for_timeout(450)
    page.page.go_back()
    page.until("torchglass.selected === 5")
    page.page.go_back()
    page.until("torchglass.selected === 2")
    page.page.go_forward()
    page.until("torchglass.selected === 5")
    assert page.marked()["event"] == 5
    is_fine(page)


def test_back_leads_to_the_card_that_the_page_opened_with(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, looped(tmp_path))
    card = page.page.locator(".details .card")
    assert card.is_visible()
    page.page.wait_for_timeout(450)
    page.page.locator(".about dd a").first.click()
    assert card.count() == 0
    page.page.go_back()
    card.wait_for()
    page.page.go_forward()
    page.until("!torchglass.isHome")
    assert card.count() == 0
    page.page.locator(".details .home").click()
    assert "card" in page.ask("location.hash")
    is_fine(page)


def test_an_address_opens_the_same_picture(browser: Any, tmp_path: Path) -> None:
    file = looped(tmp_path)
    page = Page(browser, file)
    page.ask("torchglass.closeAll()")
    page.ask("torchglass.toggle(torchglass.model.top[0])")
    page.ask("torchglass.select(torchglass.model.items.find((item) => item.hue === 'weights').nodes[2])")
    page.page.keyboard.press("/")
    page.page.keyboard.insert_text("relu")
    page.until("location.hash.includes('search=relu')")
    page.page.keyboard.press("Enter")
    page.page.mouse.move(700, 500)
    page.page.mouse.wheel(40, 90)
    page.until("location.hash.includes('at=')")
    shown = "torchglass.selected, [...torchglass.open].sort((a, b) => a - b), torchglass.found.count"
    ask = f"[{shown}, torchglass.panes.flow.place()]"
    before = page.ask(ask)
    hash_ = page.ask("location.hash")
    page.close()
    again = Page(browser, file, hash_=hash_)
    after = again.ask(ask)
    assert after[:3] == before[:3]
    assert after[3]["x"] == pytest.approx(before[3]["x"], abs=1)
    assert after[3]["y"] == pytest.approx(before[3]["y"], abs=1)
    assert after[3]["k"] == pytest.approx(before[3]["k"], abs=0.001)
    is_fine(again)


@pytest.mark.parametrize(
    "hash_", ["#event=99999999", "#event=x", "#open=1.x.99999", "#at=1,2", "#search=%E0%A4%A", "#item=99"]
)
def test_an_address_that_makes_no_sense_is_no_error(browser: Any, tmp_path: Path, hash_: str) -> None:
    page = Page(browser, looped(tmp_path), hash_=hash_)
    page.ask("torchglass.select(3)")
    assert page.selected == 3
    is_fine(page)


# ---------------------------------------------------------------- copy, help


def copied(page: Page) -> str:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.page.locator(".bar .share").click()
    page.page.locator(".toast").wait_for()
    return page.ask("navigator.clipboard.readText()")


def test_the_answer_is_copied_as_markdown(browser: Any, tmp_path: Path) -> None:
    trace = trained(True)
    page = Page(browser, written(trace, tmp_path))
    text = copied(page)
    assert text.startswith("### ")
    assert "the logarithm of 0" in text.splitlines()[0]
    assert "`weight = gate.log() in Gated`" in text
    assert "| model | Gated, 35 parameters |" in text
    page.ask("torchglass.select(torchglass.trail.source)")
    step = copied(page)
    assert step.startswith("### `weight = gate.log()`")
    assert "- gives out `f32[8, 4]` (inf 32)" in flat(step)
    is_fine(page)


def test_question_mark_explains_keys_and_colours(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, written(trained(False), tmp_path))
    page.page.keyboard.press("?")
    dialog = page.page.locator("dialog.help")
    assert dialog.is_visible()
    assert "the round before or after" in dialog.inner_text()
    page.page.keyboard.press("Escape")
    assert dialog.is_hidden()
    is_fine(page)
