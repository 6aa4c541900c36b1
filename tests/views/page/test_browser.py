"""The page in a real browser: every row, box, line and value selects the same event everywhere; nothing is asked of
the network; names are data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from scripts.gallery_models import MODELS
from tests import programs
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.views.page.browser import PATIENCE_S, Page, running
from torchglass.views.page.html import page as page_text

TRACES = ["mlp", "resnet", "gpt2", "encoder-decoder", "unet", "experts"]
PROGRAMS = ["training_step", "threads", "shape_error", "inplace_and_views"]


def recorded(name: str) -> tg.Trace:
    torch.manual_seed(0)
    run: Callable[[], Any] = MODELS[name]() if name in MODELS else programs.load(name).main
    trace: tg.Trace | None = None
    try:
        with tg.record(name=name) as trace:
            run()
    except RuntimeError:
        assert name in programs.RAISES
    assert trace is not None
    return trace


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, made = tmp_path_factory.mktemp("pages"), dict[str, Path]()

    def file(name: str) -> Path:
        if name not in made:
            made[name] = folder / f"{name}.html"
            tg.export(recorded(name), made[name])
        return made[name]

    return file


def is_fine(page: Page) -> None:
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


# ---------------------------------------------------------------- one selection

AGREES = (Path(__file__).parent / "agrees.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*TRACES, *PROGRAMS])
def test_whatever_is_clicked_all_panes_select_the_same_event(browser: Any, files: Any, name: str) -> None:
    page = Page(browser, files(name))
    found = page.ask(AGREES)
    assert found["wrong"] == []
    assert found["clicked"] > 10
    is_fine(page)
    page.close()


OVERLAPS = (Path(__file__).parent / "overlaps.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*TRACES, *PROGRAMS])
def test_with_everything_open_no_two_boxes_overlap(browser: Any, files: Any, name: str) -> None:
    page = Page(browser, files(name))
    found = page.ask(OVERLAPS)
    assert found["wrong"] == []
    assert found["boxes"] > 2
    page.close()


WITHIN = (Path(__file__).parent / "within.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*TRACES, *PROGRAMS])
def test_titles_stay_in_their_boxes_whatever_the_type(browser: Any, files: Any, name: str) -> None:
    page = Page(browser, files(name))
    found = page.ask(WITHIN)
    assert found["wrong"] == []
    assert found["titles"] > 2 or name == "inplace_and_views"  # which has no modules
    page.close()


# ---------------------------------------------------------------- ways to a step


def test_a_deep_link_opens_at_its_event(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"), hash_="#event=40")
    assert page.selected == 40
    assert page.marked()["event"] == 40
    page.ask("location.hash = '#event=3'")
    page.until("torchglass.selected === 3")
    page.ask("torchglass.select(12)")
    assert page.marked()["hash"] == "#event=12"
    page.close()


def test_the_keyboard_alone_is_enough(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"))
    press = page.page.keyboard.press
    press("ArrowDown")
    first = page.selected
    press("ArrowDown")
    assert page.selected != first
    press("/")
    page.page.keyboard.type("op:addmm")
    page.until("torchglass.found && torchglass.found.count === 48")
    press("Enter")
    assert page.ask("torchglass.model.samples[torchglass.model.events.sample[torchglass.selected]].name") == "addmm"
    before = page.selected
    press("Enter")
    assert page.selected != before
    press("Escape")
    assert page.ask("torchglass.found") is None
    selected = page.selected
    press("]")
    assert page.selected != selected
    press("[")
    assert page.selected == selected
    press("t")
    assert page.page.locator(".timeline canvas").is_visible()
    press("ArrowLeft")
    assert page.selected != selected
    is_fine(page)
    page.close()


@pytest.mark.parametrize(
    ("query", "is_right"),
    [
        ("softmax", "name.toLowerCase().includes('softmax') || code.toLowerCase().includes('softmax')"),
        ("op:topk", "name === 'Tensor.topk'"),
        ("shape:2,*,32", "true"),
        ("module:experts.*", "module.startsWith('experts.')"),
        ("kind:module", "kind === 'module'"),
    ],
)
def test_search_finds_what_it_says(browser: Any, files: Any, query: str, is_right: str) -> None:
    page = Page(browser, files("experts"))
    page.ask(f"torchglass.searchFor({query!r})")
    found = page.ask(
        f"[...torchglass.found.events].map((event) => torchglass.model.samples[torchglass.model.events.sample[event]])"
        f".map(({{name, code, module, kind}}) => !!({is_right}))"
    )
    assert found
    assert all(found)
    page.close()


def test_a_star_in_a_shape_is_one_dimension(browser: Any, files: Any) -> None:
    page = Page(browser, files("experts"))
    counts = [
        page.ask(f"(torchglass.searchFor('shape:{shape}'), torchglass.found.count)")
        for shape in ("*", "*,*", "2,24,32")
    ]
    assert counts[1] > counts[0] >= 0
    assert counts[2] > 0
    page.close()


def test_rounds_change_in_steps_flow_and_details_together(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"))
    page.ask("torchglass.select(torchglass.model.items.find((item) => item.title === 'ln_1').nodes[0])")
    first = page.selected
    page.page.locator(".details .rounds button").last.click()
    assert page.ask("torchglass.model.items.find((item) => item.title === 'ln_1').nodes[1]") == page.selected != first
    assert "2 of 12" in page.page.locator(".flow .rounds").inner_text()
    assert page.marked()["event"] == page.selected
    page.close()


def looped(tmp_path: Path) -> Path:
    """The page of a loop with a hidden state, in which one step is only in some rounds."""
    cell, h = nn.Linear(3, 3), torch.zeros(3)
    with tg.record() as trace:
        for number in range(4):
            h = torch.tanh(cell(h))
            if number > 1:
                h.exp()
    tg.export(trace, tmp_path / "loop.html")
    return tmp_path / "loop.html"


def test_the_rounds_of_a_loop_are_stepped_through(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, looped(tmp_path))
    item = "torchglass.model.items.find((item) => item.title === '{}')"
    page.ask(f"torchglass.select({item.format('tanh')}.nodes[0])")
    for number in (1, 2, 3):
        page.page.keyboard.press("]")
        assert page.selected == page.ask(f"{item.format('tanh')}.nodes[{number}]")
        assert f"{number + 1} of 4" in page.page.locator(".details .rounds").inner_text()
    page.ask(f"torchglass.select({item.format('exp')}.nodes[0])")
    assert "in rounds 3–4" in page.page.locator(".details").inner_text()
    page.page.keyboard.press("[")  # to a round in which it was not: to the first step of that round
    assert "2 of 4" in page.page.locator(".details .rounds").inner_text()
    assert page.selected == page.ask(f"{item.format('Linear')}.nodes[1]") == page.marked()["event"]
    is_fine(page)
    page.close()


def test_what_a_round_hands_on_is_drawn(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, looped(tmp_path))
    page.ask("torchglass.openAll()")
    ends = page.ask(
        "torchglass.panes.flow.drawn().marks.filter((mark) => mark.c.includes('carried'))"
        ".map((mark) => [mark.from, mark.to].map((number) => torchglass.model.items[number].title))"
    )
    assert ["tanh", "Linear"] in ends
    assert page.page.locator(".sheet .edge.carried").count() == len(ends)
    assert "↻ h" in page.page.locator(".sheet").text_content()
    page.close()


# ---------------------------------------------------------------- what is shown


def test_a_failed_run_opens_at_the_failing_call(browser: Any, files: Any) -> None:
    page = Page(browser, files("shape_error"))
    assert "cannot be multiplied" in page.page.locator(".failure").inner_text()
    assert page.selected == page.ask("torchglass.model.run.failed")
    assert page.page.locator(".sheet .box.failed").count() == 1
    assert page.page.locator(".code .line.failed").count() >= 1
    assert "nothing: it failed" in page.page.locator(".details").inner_text()
    is_fine(page)
    page.close()


IN_SIGHT = """() => ['.steps .row.selected', '.sheet .box.selected', '.code .line.selected'].map((name) => {
  const it = document.querySelector(name), pane = it && it.closest('.rows, .sheet, .lines');
  if (!pane) return name + ' is not there';
  const at = it.getBoundingClientRect(), around = pane.getBoundingClientRect();
  return at.top >= around.top && at.bottom <= around.bottom && at.left < around.right ? '' : name + ' is out of sight';
})"""


@pytest.mark.parametrize("height", [420, 700, 950])
def test_what_is_selected_is_in_sight_in_every_pane(browser: Any, files: Any, height: int) -> None:
    for name in ("shape_error", "gpt2"):
        page = Page(browser, files(name), height=height)
        steps = page.ask("torchglass.model.items.filter((item) => !item.children.length).map((item) => item.nodes[0])")
        for event in steps[:: max(1, len(steps) // 12)]:
            page.ask(f"torchglass.select({event})")
            if page.marked()["line"] is not None:
                assert page.ask(IN_SIGHT) == ["", "", ""], (name, event)
        is_fine(page)
        page.close()


def test_a_search_is_answered_in_all_panes_as_soon_as_enter_is_pressed(browser: Any, files: Any) -> None:
    page = Page(browser, files("gpt2"))
    page.page.keyboard.press("/")
    page.page.keyboard.insert_text("op:addmm")
    page.page.keyboard.press("Enter")  # before the page has had time to search by itself
    name = page.ask("torchglass.model.samples[torchglass.model.events.sample[torchglass.selected]].name")
    assert name.endswith("addmm")
    assert page.page.locator(".code .line.hit").count() == 1
    assert page.page.locator(".code .line.hit.selected").count() == 1
    page.page.keyboard.press("Escape")
    assert page.page.locator(".code .line.hit").count() == 0
    is_fine(page)
    page.close()


def test_kept_tensors_have_bars_and_measured_ones_numbers(browser: Any, tmp_path: Path) -> None:
    for values, bars in (("stats", 0), ("all", 24)):
        with tg.record(values=values) as trace:
            torch.linspace(0, 1, 50).exp()
        tg.export(trace, tmp_path / "page.html")
        page = Page(browser, tmp_path / "page.html", hash_=f"#event={len(trace) - 1}")
        gives = page.page.locator(".details section", has=page.page.get_by_text("gives"))
        assert gives.locator(".histogram i").count() == bars
        assert "1 … 2.718" in gives.inner_text()
        is_fine(page)
        page.close()


def test_an_empty_trace_says_so(browser: Any, tmp_path: Path) -> None:
    with tg.record() as trace:
        pass
    tg.export(trace, tmp_path / "empty.html")
    page = Page(browser, tmp_path / "empty.html")
    assert "Nothing was recorded" in page.page.locator(".steps").inner_text()
    is_fine(page)
    page.close()


HOSTILE = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '" onload="alert(1)', "line\nbreak",
    "right\u202eto\u202c left", "🔥 ümlaut 汉字", "${alert(1)}", "<!--", "]]>", "\ud800 half",
    "javascript:alert(1)", "",
]  # fmt: skip


def test_names_from_the_program_are_data_never_markup(browser: Any, tmp_path: Path) -> None:
    make = Maker(file="/project/<b>&.py", root="<script>")
    for at, name in enumerate(HOSTILE):
        given = [tensor((2,), id=at, producer=at - 1 if at else None, role=name)]
        gives = [tensor((2,), id=at + 1, producer=at, role=name)]
        make.add(
            "module" if at % 2 else "function", name, None, name, module=name, inputs=given, outputs=gives,
            detail=name, target=(name,), operands=(name,), note=name, error=f"Error: {name}" if at == 3 else None,
            thread=name,
        )  # fmt: skip
    trace = HandmadeTrace(
        make.made, notes=tuple(HOSTILE), failed=3, name=HOSTILE[0], sources={"/project/<b>&.py": "\n".join(HOSTILE)}
    )
    (tmp_path / "hostile.html").write_bytes(page_text(trace).encode("utf-8", "replace"))
    page = Page(browser, tmp_path / "hostile.html")
    page.page.keyboard.press("t")
    for event in range(len(HOSTILE)):
        page.ask(f"torchglass.select({event})")
    assert page.ask("document.querySelectorAll('#page script, #page img, #page b b').length") == 0
    assert page.ask("document.scripts.length") == 2
    assert page.ask(
        "[...document.querySelectorAll('*')].every((e) => [...e.attributes].every((a) => !a.name.startsWith('on')))"
    )
    assert "</script><script>alert(1)</script>" in page.page.locator(".bar .name").inner_text()
    assert "\u202e" not in page.ask("document.body.innerText")
    is_fine(page)
    page.close()


def test_dark_light_and_narrow(browser: Any, files: Any) -> None:
    page = Page(browser, files("mlp"))
    light = page.ask("getComputedStyle(document.body).backgroundColor")
    page.page.keyboard.press("d")
    assert page.ask("getComputedStyle(document.body).backgroundColor") != light
    page.close()
    narrow = Page(browser, files("mlp"), width=700)
    assert narrow.page.locator(".tabs").is_visible()
    assert not narrow.page.locator(".steps").is_visible()
    narrow.page.locator(".tabs button", has_text="Steps").click()
    assert narrow.page.locator(".steps .row").first.is_visible()
    narrow.page.locator(".steps .row").nth(1).click()
    assert narrow.page.locator(".details").is_visible()
    is_fine(narrow)
    narrow.close()


def test_a_thousand_boxes_in_one_group_and_four_hundred_lines_into_one(browser: Any, tmp_path: Path) -> None:
    x = torch.ones(2)
    with tg.record() as trace:
        parts = [x * number for number in range(400)]
        torch.stack([part.neg() if at % 2 else part.abs() for at, part in enumerate(parts)])
    tg.export(trace, tmp_path / "wide.html", fold=False)
    page = Page(browser, tmp_path / "wide.html")
    assert page.ask("torchglass.panes.flow.drawn().boxes") == 801
    is_fine(page)
    page.close()


def test_processes_have_a_selector(browser: Any, tmp_path: Path) -> None:
    make = Maker()
    for process in (1, 2):
        make.add("function", "exp", None, "x.exp()", process=process, outputs=[tensor((2,), id=process)])
    (tmp_path / "two.html").write_text(page_text(HandmadeTrace(make.made)))
    page = Page(browser, tmp_path / "two.html")
    page.ask("torchglass.closeAll()")
    assert page.ask("torchglass.panes.steps.rows().length") in (1, 2)
    page.page.locator(".bar select").select_option("2")
    assert page.ask("torchglass.panes.steps.rows().every((row) => torchglass.processOf(row.item) === 2)")
    page.close()


def test_in_a_sandboxed_frame_everything_works(browser: Any, tmp_path: Path, files: Any) -> None:
    from torchglass.views.page.html import mimebundle

    shown = mimebundle(recorded("mlp"))
    (tmp_path / "cell.html").write_text(f"<!doctype html><title>cell</title>{shown['text/html']}", encoding="utf-8")
    opened = browser.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto((tmp_path / "cell.html").as_uri())
    frame = opened.frame_locator("iframe")
    frame.locator(".sheet .box").first.wait_for(timeout=PATIENCE_S * 1000)
    frame.locator(".sheet .box").first.click()
    frame.locator(".details h2").wait_for()
    assert errors == []
    opened.close()


class Deep(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.inner = Deep(depth - 1) if depth else nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def test_a_deep_recursion_is_drawn(browser: Any, tmp_path: Path) -> None:
    model, x = Deep(120), torch.ones(1, 2)
    with tg.record() as trace:
        model(x)
    tg.export(trace, tmp_path / "deep.html")
    page = Page(browser, tmp_path / "deep.html")
    page.ask("torchglass.select(torchglass.model.items.find((item) => item.detail.startsWith('Linear')).nodes[0])")
    assert page.ask("torchglass.open.size") >= 100
    is_fine(page)
    page.close()
