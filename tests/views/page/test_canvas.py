"""The page under a reader's hands, in a real browser: what holds still, what the keyboard reaches, what fits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from scripts.gallery_models import MODELS
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.views.page.browser import Page, running
from torchglass.views.page.html import page as page_text

ITEM = "torchglass.model.items.find((item) => item.title === '{}')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


def training() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 4)).square().mean()
        loss.backward()
        optimizer.step()


def failing() -> None:
    wide, narrow, x = nn.Linear(4, 4), nn.Linear(3, 4), torch.ones(2, 4)
    torch.relu(wide(x)) + narrow(x)


def long_names() -> None:
    class Inner(nn.Linear):
        pass

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + 1

    Inner.__name__ = Inner.__qualname__ = "Inner" + "n" * 10_000
    Outer.__name__ = Outer.__qualname__ = "Outer" + "W" * 10_000
    Outer()(torch.ones(1, 2))


def long_error() -> None:
    torch.ones(2).exp()
    torch.ones(2, *[1] * 60).view(*[7] * 60)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "training": training, "failing": failing, "long_names": long_names, "long_error": long_error,
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, made = tmp_path_factory.mktemp("canvas"), dict[str, Path]()

    def file(name: str) -> Path:
        if name not in made:
            torch.manual_seed(0)
            run = PROGRAMS[name] if name in PROGRAMS else MODELS[name]()
            trace: tg.Trace | None = None
            try:
                with tg.record(name=name) as trace:
                    run()
            except RuntimeError:
                pass
            assert trace is not None
            made[name] = folder / f"{name}.html"
            tg.export(trace, made[name])
        return made[name]

    return file


def test_loops_are_selected_like_steps_and_the_arrows_pass_them(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    loop = page.ask("torchglass.model.items.find((item) => item.kind === 'loop').number")
    page.page.locator(f".row[data-item='{loop}'] .label").click()
    assert page.ask("torchglass.item.number") == loop
    assert page.marked()["row"] == page.marked()["box"] == loop
    assert "round 1 of 3" in page.page.locator(".details").inner_text()
    seen = []
    for _ in range(4):
        page.page.keyboard.press("ArrowDown")
        seen.append(page.ask("torchglass.item.number"))
    assert len(set(seen)) == 4
    for _ in range(4):
        page.page.keyboard.press("ArrowUp")
    assert page.ask("torchglass.item.number") == loop
    page.ask("torchglass.turn(torchglass.item, 0)")
    page.page.keyboard.press("]")
    assert page.ask("torchglass.item.number") == loop
    assert "round 2 of 3" in page.page.locator(".details").inner_text()
    page.page.locator(".sheet .box").first.click()
    page.page.locator(f".sheet .group[data-item='{loop}']").dispatch_event("click")
    assert page.ask("torchglass.item.number") == loop
    assert page.errors == []
    page.close()


def test_enter_presses_the_button_that_has_the_focus(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    page.ask("torchglass.select(5)")
    before = page.ask("torchglass.open.size")
    page.ask("document.querySelector('[aria-label=\"close all\"]').focus()")
    page.page.keyboard.press("Enter")
    assert before > 0
    assert page.ask("torchglass.open.size") == 0
    page.page.get_by_role("button", name="Timeline").focus()
    page.page.keyboard.press("Enter")
    assert page.page.locator(".timeline canvas").first.is_visible()
    page.close()


def test_links_lead_somewhere_and_are_reached_by_the_keyboard(browser: Any, files: Any) -> None:
    page = Page(browser, files("failing"))
    assert page.page.locator("a").count() > 2
    assert (
        page.ask("[...document.querySelectorAll('a')].filter((a) => !/^#event=\\d+$/.test(a.getAttribute('href')))")
        == []
    )
    link = page.page.locator(".details .step, .failure a").first
    link.focus()
    page.page.keyboard.press("Enter")
    assert page.marked()["hash"] == link.get_attribute("href")
    page.close()


def test_the_tree_says_its_levels_and_the_data_flow_takes_the_focus(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    rows = page.ask(
        "[...document.querySelectorAll('.row')]"
        ".map((row) => [row.ariaLevel, row.ariaExpanded, row.getAttribute('role')])"
    )
    assert ["1", "true", "treeitem"] in rows
    assert {level for level, *_ in rows} >= {"1", "2"}
    assert any(expanded is None for _, expanded, _ in rows)
    page.page.locator(".sheet").focus()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("ArrowDown")
    assert page.selected >= 0
    assert page.ask("document.activeElement.classList.contains('sheet')")
    assert page.page.locator(".said").inner_text() != ""
    active = page.page.locator(".rows").get_attribute("aria-activedescendant")
    assert page.page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.close()


def test_enter_visits_each_of_those_found_and_escape_leaves_all_as_it_was(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"))
    before = page.ask("[[...torchglass.open].sort(), torchglass.panes.flow.place()]")
    page.page.keyboard.press("/")
    page.page.keyboard.insert_text("op:addmm")
    page.page.keyboard.press("Enter")
    count = page.ask("torchglass.found.count")
    assert count >= 12
    visited = [page.selected]
    while len(visited) < count:
        page.page.keyboard.press("Enter")
        visited.append(page.selected)
    assert len(set(visited)) == count
    assert page.page.locator(".search .count").inner_text() == f"{count} of {count}"
    page.page.keyboard.press("Enter")
    assert page.selected == visited[0]
    page.page.keyboard.press("Escape")
    around = page.ask("torchglass.pathTo(torchglass.item).slice(0, -1).map((item) => item.number)")
    assert set(page.ask("[...torchglass.open]")) == set(before[0]) | set(around)
    page.close()
    page = Page(browser, files("gpt2"))
    before = page.ask("[[...torchglass.open].sort(), torchglass.panes.flow.place()]")
    page.page.keyboard.press("/")
    page.page.keyboard.insert_text("op:addmm")
    page.until("torchglass.found")
    page.page.keyboard.press("Escape")
    assert page.ask("[[...torchglass.open].sort(), torchglass.panes.flow.place()]") == before
    page.close()


def test_what_leaves_backward_is_listed_where_an_edge_is_drawn(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    page.ask(f"torchglass.selectItem({ITEM.format('backward')})")
    text = page.page.locator(".details section", has=page.page.get_by_text("gives")).inner_text()
    assert "SGD" in text or "optimizer.step" in text
    assert "f32[" in text
    page.close()


def test_the_line_that_failed_says_so_in_its_margin(browser: Any, files: Any) -> None:
    page = Page(browser, files("failing"))
    margin = page.page.locator(".code .line.failed > .error")
    assert margin.count() == 1
    assert "✗ RuntimeError" in margin.inner_text()
    page.close()


def test_names_of_ten_thousand_letters_do_not_widen_the_sheet(browser: Any, files: Any, tmp_path: Path) -> None:
    page = Page(browser, files("long_names"))
    for _ in range(3):
        page.ask("torchglass.openAll()")
        assert page.ask("torchglass.panes.flow.drawn().w") < 1000
    page.ask("torchglass.selectItem(torchglass.model.top[0])")
    assert "W" * 10_000 in page.ask("JSON.stringify(torchglass.model.samples)") or page.ask(
        "torchglass.model.text.length"
    )
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    page.close()


@pytest.mark.parametrize("width", [1500, 1024, 390])
def test_long_errors_and_small_screens_lose_nothing_at_the_side(browser: Any, files: Any, width: int) -> None:
    page = Page(browser, files("long_error"), width=width, height=800)
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    banner = page.page.locator(".failure").bounding_box()
    assert banner["height"] <= 0.3 * 800 + 1
    assert page.ask(
        "[...document.querySelectorAll('.failure > *')].every((e) => e.getBoundingClientRect().right <= innerWidth)"
    )
    sheet = page.page.locator(".sheet").bounding_box()
    assert sheet["width"] >= 0.4 * width
    assert sheet["height"] >= 200
    outside = page.ask(
        "[...document.querySelectorAll('button, select, input')].filter((e) => e.offsetParent && "
        "(e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))"
        ".map((e) => e.outerHTML)"
    )
    assert outside == []
    page.close()


CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["gpt2", "failing"])
@pytest.mark.parametrize("is_dark", [False, True])
def test_all_text_has_enough_contrast(browser: Any, files: Any, name: str, is_dark: bool) -> None:
    page = Page(browser, files(name))
    if is_dark:
        page.page.keyboard.press("d")
    page.ask("torchglass.select(torchglass.selected < 0 ? 20 : torchglass.selected)")
    found = page.ask(CONTRAST)
    assert found["checked"] > 50
    assert found["weak"] == []
    page.close()


# ---------------------------------------------------------------- a canvas that holds still

PLACE = """(number) => {
  const box = document.querySelector(`.sheet [data-item="${number}"]:not(.head):not(.back)`).getBoundingClientRect();
  const { k } = torchglass.panes.flow.place();
  return [box.x + box.width / 2, box.y, k];
}"""


def settled(page: Page) -> None:
    page.until("document.getAnimations().length === 0")


def test_a_box_that_is_opened_and_closed_stays_where_it_is_at_the_same_scale(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"), is_moving=True)
    item = page.ask(
        "torchglass.model.items.find((item) => item.children.length && torchglass.open.has(item.parent)"
        " && !torchglass.open.has(item.number)).number"
    )
    page.ask(f"torchglass.selectItem(torchglass.model.items[{item}])")
    settled(page)
    before = page.page.evaluate(PLACE, item)
    for _ in range(2):
        page.page.keyboard.press("Enter")
        settled(page)
        after = page.page.evaluate(PLACE, item)
        assert after == pytest.approx(before, abs=1.5)
    page.close()


def test_close_all_keeps_the_place_of_what_is_around_the_selected_step(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"), is_moving=True)
    page.ask(f"torchglass.selectItem({ITEM.format('ln_1')})")
    settled(page)
    scale = page.ask("torchglass.panes.flow.place().k")
    page.ask("torchglass.closeAll()")
    settled(page)
    assert page.ask("torchglass.panes.flow.place().k") == scale
    x, y, _ = page.page.evaluate(PLACE, page.ask("torchglass.item.number"))
    sheet = page.page.locator(".sheet").bounding_box()
    assert sheet["x"] < x < sheet["x"] + sheet["width"]
    assert sheet["y"] < y < sheet["y"] + sheet["height"]
    page.close()


def test_a_large_sheet_has_a_map_that_leads_to_its_other_end(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"))
    for _ in range(4):
        page.ask("torchglass.openAll()")
    settled(page)
    assert page.page.locator(".minimap").is_visible()
    box = page.page.locator(".minimap").bounding_box()
    before = page.ask("torchglass.panes.flow.place()")
    page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
    after = page.ask("torchglass.panes.flow.place()")
    assert after["y"] < before["y"] - 200
    assert after["k"] == before["k"]
    page.ask("torchglass.closeAll()")
    page.until("document.querySelector('.minimap').hidden")
    page.close()


def test_an_edge_leads_to_the_tensor_on_it(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    edge = page.ask(
        "torchglass.panes.flow.drawn().marks.findIndex((mark) => mark.edge !== undefined && mark.from >= 0 && "
        "torchglass.model.items[mark.from].title === 'mean')"
    )
    page.ask(
        f"document.querySelector('[data-edge=\"{edge}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
    )
    assert page.ask("torchglass.item.title") == "mean"
    pointed = page.page.locator(".details .pointed")
    assert pointed.count() == 1
    assert "f32[]" in pointed.inner_text()
    page.close()


def test_what_leads_to_a_box_and_from_it_is_lit_while_the_pointer_is_over_it(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    number = page.ask(f"{ITEM.format('square')}.number")
    page.page.locator(f".sheet .box[data-item='{number}']").hover()
    titles = (
        "[...document.querySelectorAll('.sheet .{}[data-item]')]"
        ".map((box) => torchglass.model.items[box.dataset.item].title)"
    )
    up, down = set(page.ask(titles.format("upstream"))), set(page.ask(titles.format("downstream")))
    assert "Sequential" in up
    assert {"mean", "backward"} <= down
    assert up.isdisjoint({"mean", "backward"})
    page.page.mouse.move(5, 5)
    page.until("document.querySelectorAll('.upstream, .downstream').length === 0")
    page.close()


def test_panes_can_be_made_wider_and_stay_so(browser: Any, files: Any) -> None:
    page = Page(browser, files("training"))
    wide = "document.querySelector('.pane.steps').offsetWidth"
    before = page.ask(wide)
    line = page.page.get_by_role("separator", name="width of the steps").bounding_box()
    page.page.mouse.move(line["x"] + 2, line["y"] + 200)
    page.page.mouse.down()
    page.page.mouse.move(line["x"] + 92, line["y"] + 200, steps=4)
    page.page.mouse.up()
    assert page.ask(wide) == pytest.approx(before + 90, abs=2)
    page.page.get_by_role("separator", name="width of the steps").focus()
    page.page.keyboard.press("ArrowLeft")
    narrower = page.ask(wide)
    assert narrower < before + 90
    page.page.reload()
    page.page.wait_for_selector("html[data-ready]")
    assert page.ask(wide) == narrower
    page.close()


def test_code_scrolls_to_the_side_and_can_be_copied_without_its_margins(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"), width=1200)
    page.ask("torchglass.select(20)")
    assert page.ask("document.querySelector('.lines').scrollWidth > document.querySelector('.lines').clientWidth")
    selected = page.selected
    copied = page.ask(
        """(() => {
          const lines = [...document.querySelectorAll('.code .line.ran')].slice(0, 2), range = document.createRange();
          range.setStartBefore(lines[0]);
          range.setEndAfter(lines[1]);
          getSelection().removeAllRanges();
          getSelection().addRange(range);
          lines[1].click();
          return [getSelection().toString(), lines.map((line) => line.querySelector('.source').textContent)];
        })()"""
    )
    assert all(line.strip() in copied[0] for line in copied[1])
    assert "f32[" not in copied[0]
    assert page.selected == selected  # marking text is not clicking
    page.close()


# ---------------------------------------------------------------- time


def in_threads() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def work() -> None:
        for _ in range(3):
            torch.softmax(model(torch.ones(2, 4)), -1)

    threads = [threading.Thread(target=work, name=f"worker {number}") for number in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    work()


PROGRAMS["in_threads"] = in_threads


def test_threads_have_their_names_in_the_steps_the_boxes_and_the_timeline(browser: Any, files: Any) -> None:
    page = Page(browser, files("in_threads"))
    rows = page.page.locator(".steps .rows").inner_text()
    assert "worker 0" in rows
    assert "worker 1" in rows
    assert "repeat" not in rows
    drawn = page.ask(
        "torchglass.panes.flow.drawn().marks.filter((mark) => mark.t === 'text').map((mark) => mark.s).join('|')"
    )
    assert "worker 0" in drawn
    assert "repeat" not in drawn
    page.page.keyboard.press("t")
    assert {lane["name"] for lane in page.ask("torchglass.panes.timeline.lanes()")} == {
        "worker 0",
        "worker 1",
        "MainThread",
    }
    page.close()


def test_processes_are_apart_in_the_timeline(browser: Any, tmp_path: Path) -> None:
    make = Maker()
    for process in (2, 1, 2):
        given = [tensor((2,), id=process)]
        make.add("function", "exp", None, "x.exp()", process=process, thread=f"T{process}", outputs=given)
    (tmp_path / "two.html").write_text(page_text(HandmadeTrace(make.made)))
    page = Page(browser, tmp_path / "two.html")
    page.page.keyboard.press("t")
    lanes = page.ask("torchglass.panes.timeline.lanes()")
    assert [lane["name"].split(" · ")[0] for lane in lanes] == ["process 1", "process 2"]
    assert "process 2" in page.page.locator(".steps .rows").inner_text()
    page.page.locator(".bar select").select_option("2")
    assert len(page.ask("torchglass.panes.timeline.lanes()")) == 1
    page.close()


def test_the_timeline_has_a_ruler_and_the_colours_of_the_steps(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"))
    page.page.keyboard.press("t")
    view = page.ask("torchglass.panes.timeline.view()")
    ticks = (view["to"] - view["from"]) / view["step"]
    assert 3 <= ticks <= 25
    colours = page.ask(
        """(() => {
          const canvas = document.querySelector('.timeline canvas'), found = new Set();
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
          return found.size;
        })()"""
    )
    assert colours > 20
    canvas = page.page.locator(".timeline canvas").bounding_box()
    page.page.mouse.move(canvas["x"] + 300, canvas["y"] + 30)
    page.page.mouse.wheel(0, -600)
    page.until(f"torchglass.panes.timeline.view().step < {view['step']}")
    near = page.ask("torchglass.panes.timeline.view().from")
    page.page.mouse.down()
    page.page.mouse.move(canvas["x"] + 100, canvas["y"] + 30, steps=3)
    page.page.mouse.up()
    assert page.ask("torchglass.panes.timeline.view().from") > near
    page.close()


# ---------------------------------------------------------------- iterations


@pytest.fixture(scope="module")
def iterations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs of seven steps whose last steps are NaN."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.record(values="stats") as trace:
        for epoch in range(3):
            noise = torch.randn(5, 4)
            for step in range(7):
                optimizer.zero_grad()
                x = noise / (0 if epoch == 2 and step > 3 else 1)
                loss = nn.functional.cross_entropy(model(x), torch.ones(5, dtype=torch.long))
                loss.backward()
                optimizer.step()
    path = tmp_path_factory.mktemp("iterations") / "run.html"
    tg.export(trace, path)
    return path


HEAT = (Path(__file__).parent / "heat.js").read_text(encoding="utf-8")
STRIPS = "torchglass.panes.scrubber.strips().map(({loop, rows}) => [loop.title, rows.map((row) => row.name)])"


def test_each_loop_has_a_scrubber_with_its_layers_as_rows(browser: Any, iterations: Path) -> None:
    page = Page(browser, iterations)
    strips = page.ask(STRIPS)
    assert [title for title, _ in strips] == ["for epoch in range(3):", "for step in range(7):"]
    assert all(rows == ["0", "1", "2"] for _, rows in strips)
    assert page.page.locator(".scrubber .strip").count() == 2
    assert page.errors == []
    page.close()


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training program that everybody writes: nothing is recorded between its two loops."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(5, 4), torch.ones(5, dtype=torch.long)) for _ in range(7)]
    with tg.record(values="stats") as trace:
        for _ in range(3):
            for x, y in batches:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
    path = tmp_path_factory.mktemp("nested") / "run.html"
    tg.export(trace, path)
    return path


def test_loops_with_nothing_recorded_between_them_have_a_scrubber_each(browser: Any, nested: Path) -> None:
    page = Page(browser, nested)
    assert [title for title, _ in page.ask(STRIPS)] == ["for _ in range(3):", "for x, y in batches:"]
    page.ask(f"torchglass.select({ITEM.format('0')}.nodes[0])")
    calls = page.ask(f"{ITEM.format('0')}.nodes")
    assert len(calls) == 21
    for name, wanted in (("_", 2), ("x, y", 5)):
        number = page.page.get_by_label(f"go to iteration of for {name}").first
        number.fill(str(wanted))
        number.press("Enter")
    page.until(f"torchglass.selected === {calls[7 + 4]}")
    assert [text.splitlines()[1] for text in page.page.locator(".strip").all_inner_texts()] == ["of 3", "of 7"]
    assert page.errors == []
    page.close()


def test_dragging_over_iterations_moves_every_pane_and_a_number_jumps(browser: Any, iterations: Path) -> None:
    page = Page(browser, iterations)
    page.ask(f"torchglass.select({ITEM.format('0')}.nodes[0])")
    inner = page.page.locator(".scrubber .heat").nth(1)
    box = inner.bounding_box()
    wide = (box["width"] - 150) / 7
    page.page.mouse.move(box["x"] + 150 + 0.5 * wide, box["y"] + 5)
    page.page.mouse.down()
    seen = [page.selected]
    for step in (1, 3, 5):
        page.page.mouse.move(box["x"] + 150 + (step + 0.5) * wide, box["y"] + 5, steps=2)
        page.until(f"torchglass.selected === {ITEM.format('0')}.nodes[{step}]")
        assert page.marked()["event"] == page.selected
        assert f"{step + 1} of 7" in page.page.locator(".details .rounds").inner_text()
        seen.append(page.selected)
    page.page.mouse.up()
    assert len(set(seen)) == 4
    number = page.page.get_by_label("go to iteration of for epoch").first
    number.fill("3")
    number.press("Enter")
    layer = "torchglass.model.samples[torchglass.model.events.sample[torchglass.selected]].module"
    epoch = "torchglass.rounds.get(torchglass.pathTo(torchglass.item)[0].number)"
    page.until(f"{layer} === '0' && {epoch} === 2")
    inner.focus()
    page.page.keyboard.press("End")
    page.until(f"{layer} === '0' && torchglass.panes.scrubber.strips()[1].element.querySelector('input').value === '7'")
    assert page.ask("document.activeElement.getAttribute('aria-valuenow')") == "7"
    assert page.ask("torchglass.selected") > page.ask("torchglass.model.events.size") * 0.8
    page.close()


def test_what_is_not_finite_is_red_and_the_loss_is_drawn_over_it(browser: Any, iterations: Path) -> None:
    page = Page(browser, iterations)
    page.ask("torchglass.select(torchglass.model.run.events - 30)")
    cells, drawn = page.ask(HEAT)
    assert [all(red > blue + 60 for red, _, blue, _ in column) for column in cells] == [False] * 4 + [True] * 3
    assert drawn > 30
    page.close()


LABELS = """() => {
  const canvas = document.querySelectorAll('.heat')[1];
  const pen = canvas.getContext('2d');
  const high = canvas.height / 3;
  const ink = (row) => {
    const { data } = pen.getImageData(0, row * high, 140, high);
    return Math.max(...Array.from({ length: data.length / 4 }, (_, at) => data[4 * at + 3]));
  };
  return [0, 1, 2].map(ink);
}"""


def test_the_names_of_layers_are_as_dark_whatever_the_cells_are(browser: Any, iterations: Path) -> None:
    page = Page(browser, iterations)
    assert min(page.ask(LABELS)) > 200
    page.close()


def test_a_loop_over_layers_alone_is_no_picture_over_iterations(browser: Any, tmp_path: Path) -> None:
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
    x = torch.ones(2, 4)
    with tg.record() as trace:
        for layer in layers:
            x = layer(x)
    tg.export(trace, tmp_path / "layers.html")
    page = Page(browser, tmp_path / "layers.html")
    assert page.page.locator(".scrubber").is_hidden()
    page.close()


def test_code_opens_where_most_happens(browser: Any, tmp_path: Path) -> None:
    module = tmp_path / "helper.py"
    module.write_text("import torch\n\n\ndef run():\n    for _ in range(9):\n        torch.ones(2).exp()\n")
    scope: dict[str, Any] = {}
    with tg.record() as trace:
        torch.zeros(1)
        exec(compile(module.read_text(), str(module), "exec"), scope)
        scope["run"]()
    tg.export(trace, tmp_path / "helped.html")
    page = Page(browser, tmp_path / "helped.html")
    assert "for _ in range(9)" in page.page.locator(".code .lines").inner_text()
    page.close()


def test_a_run_without_loops_has_no_scrubber(browser: Any, files: Any) -> None:
    page = Page(browser, files("failing"))
    assert page.page.locator(".scrubber").is_hidden()
    assert page.page.get_by_role("button", name="Iterations").is_hidden()
    page.close()


# ---------------------------------------------------------------- for everybody

AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
VIOLATIONS = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ['violations'] });
  const isSerious = ({ impact }) => impact === 'serious' || impact === 'critical';
  return violations.filter(isSerious).map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html)]);
}"""


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: `make web-types` does it")
@pytest.mark.parametrize("name", ["training", "failing", "in_threads"])
def test_axe_finds_no_serious_fault(browser: Any, files: Any, name: str) -> None:
    page = Page(browser, files(name))
    page.page.keyboard.press("t")
    page.ask("torchglass.select(torchglass.selected < 0 ? 20 : torchglass.selected)")
    settled(page)
    page.ask(AXE.read_text(encoding="utf-8"))
    assert page.ask(VIOLATIONS) == []
    page.close()


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: `make web-types` does it")
@pytest.mark.parametrize("is_dark", [False, True])
def test_axe_finds_no_serious_fault_where_answers_and_iterations_are_shown(
    browser: Any, iterations: Path, is_dark: bool
) -> None:
    page = Page(browser, iterations)
    if is_dark:
        page.page.keyboard.press("d")
    settled(page)
    page.ask(AXE.read_text(encoding="utf-8"))
    assert page.page.locator(".scrubber .pin:visible").count() >= 1
    assert page.ask(VIOLATIONS) == []
    page.page.keyboard.press("?")
    assert page.page.locator(".help").is_visible()
    assert page.ask(VIOLATIONS) == []
    page.close()


def test_something_is_painted_before_the_page_is_ready(browser: Any, tmp_path: Path) -> None:
    """A large trace takes a second to unpack; what it says is there before."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)])
    with tg.record(values="stats") as trace:
        for _ in range(250):
            model(torch.ones(2, 4)).sum().backward()
    tg.export(trace, tmp_path / "large.html")
    page = Page(browser, tmp_path / "large.html")
    ready = page.ask("performance.now()")
    paints = page.ask("performance.getEntriesByType('paint').map((paint) => paint.startTime)")
    assert paints
    assert min(paints) < 0.6 * ready
    page.close()
