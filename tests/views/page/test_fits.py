"""What is on the page can be read and pressed, whatever the screen: nothing is cut off, covered or run together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from tests.views.page.test_diff_page import Port, Reference, traces
from tests.views.page.test_verdict import trained
from torchglass.views.page.about import about_lines


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with a bad value, and two runs."""
    folder = tmp_path_factory.mktemp("fits")
    trained(True).export(folder / "bad.html")
    a, b = traces(Reference, Port)
    a.export(folder / "diff.html", against=b)
    return {"bad": folder / "bad.html", "diff": folder / "diff.html"}


CUT_OFF = (Path(__file__).parent / "cut_off.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("name", ["bad", "diff"])
def test_no_button_is_cut_off_or_covered(browser: Any, files: dict[str, Path], name: str, width: int) -> None:
    page = Page(browser, files[name], width=width, height=850)
    assert page.ask(CUT_OFF) == []
    page.close()


COVERED = """() => {
  const marked = document.querySelector('.code .line.selected mark').getBoundingClientRect();
  const margin = document.querySelector('.code .line.selected > .shape');
  return margin ? marked.right - margin.getBoundingClientRect().left : 0;
}"""


def test_the_margin_does_not_cover_the_selected_expression(browser: Any, tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    with tg.record() as trace:
        y = (x.view(3, 2) @ x.reshape(2, 3) + x.reshape(3, 2) @ x.reshape(2, 3)).transpose(0, 1).softmax(-1).sum(-1)
    assert y.shape == (3,)
    trace.export(tmp_path / "long.html")
    page = Page(browser, tmp_path / "long.html", width=1200)
    page.ask(f"torchglass.select({len(trace) - 1})")
    assert page.ask(COVERED) <= 0
    page.close()


def test_counts_of_lines_do_not_run_into_their_numbers(browser: Any, tmp_path: Path) -> None:
    x = torch.ones(1)
    with tg.record() as trace:
        for _ in range(4321):
            x.exp()
    trace.export(tmp_path / "often.html")
    page = Page(browser, tmp_path / "often.html")
    times = page.page.locator(".code .times", has_text="4321×")
    assert times.count() == 1
    assert times.evaluate("(element) => element.scrollWidth <= element.clientWidth")
    page.close()


FRAME = (Path(__file__).parent / "frame.js").read_text(encoding="utf-8")


def test_the_map_of_a_sheet_frames_what_is_shown_on_all_four_sides(browser: Any, tmp_path: Path) -> None:
    x = torch.ones(2)
    with tg.record() as trace:
        for _ in range(2):
            x = x.exp().log().neg().abs().sqrt().square().sin().cos().tan().tanh().relu().sigmoid()
    trace.export(tmp_path / "tall.html", fold=False)
    page = Page(browser, tmp_path / "tall.html", height=600)
    sides = page.ask(FRAME)
    assert sides == [True] * 4
    page.close()


def test_code_opens_at_the_function_that_does_most(browser: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    filler = "\n" * 80
    text = (
        "import torch\n\n\ndef forward(x):\n    x = x.exp()\n    x = x.log()\n    x = x.neg()\n    return x\n"
        f"{filler}\ndef run():\n    return forward(torch.ones(2))\n"
    )
    program.write_text(text)
    scope: dict[str, Any] = {}
    exec(compile(text, str(program), "exec"), scope)
    with tg.record() as trace:
        scope["run"]()
    trace.export(tmp_path / "program.html")
    page = Page(browser, tmp_path / "program.html")
    line = page.page.locator(".code .line[data-line='5']").bounding_box()
    lines = page.page.locator(".code .lines").bounding_box()
    assert lines["y"] <= line["y"] <= lines["y"] + lines["height"]
    page.close()


def test_layers_of_several_models_say_which() -> None:
    first, second = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))
    with tg.record() as trace:
        second(first(torch.ones(2, 4)))
    line = next(line for line in about_lines(trace) if line["label"] == "slowest")
    names = {words.split()[0] for words, _ in line["parts"]}
    assert len(names) == len(line["parts"])
    assert any(name.startswith("Sequential#2") for name in names)


def test_a_name_of_hundreds_of_characters_does_not_fill_the_card() -> None:
    model = nn.Module()
    model.add_module("layer_" + "x" * 300, nn.Linear(4, 4))
    model.forward = lambda x: next(model.children())(x)  # type: ignore[method-assign]
    with tg.record(values="stats") as trace:
        model(torch.ones(2, 4)).sum().backward()
    words = [words for line in about_lines(trace) for words, _ in line["parts"]]
    assert any("layer_x" in each and "…" in each for each in words)
    assert max(map(len, words)) < 120


def adversaries() -> tg.Trace:
    """Two models with layers of the same names, each with a loss and an optimizer of its own."""
    torch.manual_seed(0)
    maker, judge = (nn.Sequential(nn.Linear(a, 8), nn.ReLU(), nn.Linear(8, b)) for a, b in ((2, 6), (6, 1)))
    makes, judges = (torch.optim.SGD(model.parameters(), lr=0.01) for model in (maker, judge))
    loss = nn.BCEWithLogitsLoss()
    with tg.record(values="stats") as trace:
        for _ in range(6):
            made = maker(torch.randn(4, 2))
            judges.zero_grad()
            real, fake = judge(torch.randn(4, 6)), judge(made.detach())
            judge_loss = loss(real, torch.ones(4, 1)) + loss(fake, torch.zeros(4, 1))
            judge_loss.backward()
            judges.step()
            makes.zero_grad()
            maker_loss = loss(judge(made), torch.ones(4, 1))
            maker_loss.backward()
            makes.step()
    return trace


def test_each_of_two_models_has_its_loss_and_its_rows(browser: Any, tmp_path: Path) -> None:
    trace = adversaries()
    lines = {line["label"]: line for line in about_lines(trace)}
    for name in ("judge_loss", "maker_loss"):
        runs = [event for event in trace.events(function="Tensor.backward") if event.operands == (name,)]
        taken = [event.inputs[0].stats.mean for event in runs if event.inputs[0].stats is not None]
        assert len(taken) == 6
        assert [number for _, number in lines[name]["points"]] == pytest.approx(taken, rel=1e-5)
    trace.export(tmp_path / "two.html")
    page = Page(browser, tmp_path / "two.html")
    layers = [f"{root}.{path}" for root in ("Sequential", "Sequential#2") for path in "012"]
    rows = page.ask("torchglass.panes.scrubber.strips()[0].rows.map((row) => row.name)")
    assert sorted(rows) == sorted(layers)
    assert page.page.locator(".strip .losses").inner_text().startswith("maker_loss ")
    series = page.ask("torchglass.model.series.gradient.map(([root, path]) => `${root}.${path}`)")
    assert sorted(series) == sorted(name for name in layers if not name.endswith("1"))
    assert page.errors == []
    page.close()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768)])
def test_two_loops_share_the_room_for_iterations(browser: Any, tmp_path: Path, width: int, height: int) -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(11)])
    x = torch.ones(2, 4)
    with tg.record(values="stats") as trace:
        for _ in range(3):
            for _each in range(4):
                model(x)
    trace.export(tmp_path / "loops.html")
    page = Page(browser, tmp_path / "loops.html", width=width, height=height)
    assert page.page.locator(".strip").count() == 2
    assert page.ask("((pane) => pane.scrollHeight - pane.clientHeight)(document.querySelector('.strips'))") <= 0
    page.close()


def test_the_number_of_boxes_is_not_cut_off(browser: Any, files: dict[str, Path]) -> None:
    page = Page(browser, files["diff"], width=1440)
    count = "document.querySelector('.pane.flow header .dim')"
    assert page.ask(f"((count) => count.scrollWidth - count.clientWidth)({count})") <= 0
    page.close()
