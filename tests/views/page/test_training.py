"""Training on the page: gradients and updates over iterations, the largest gradient, the tables, values over rounds."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.views.page.browser import Page, running
from torchglass.views.gradients import recorded_gradients
from torchglass.views.page import training as training_module
from torchglass.views.page.training import largest_gradient, series_data

STEPS = 6


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as found:
        yield found


def trained() -> tuple[tg.Trace, list[dict[str, float]], list[dict[str, float]]]:
    """A small training, and the norms of gradients and updates by parameter as the program itself sees them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = list[dict[str, float]]()
    updates = list[dict[str, float]]()
    x = torch.randn(5, 4)
    with tg.record(values="stats") as trace:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            with torch.no_grad():
                gradients.append(
                    {name: p.grad.norm().item() for name, p in model.named_parameters() if p.grad is not None}
                )
                updates.append({name: 0.1 * norm for name, norm in gradients[-1].items()})
            optimizer.step()
    return trace, gradients, updates


@pytest.fixture(scope="module")
def recorded() -> tuple[tg.Trace, list[dict[str, float]], list[dict[str, float]]]:
    return trained()


@pytest.fixture(scope="module")
def file(recorded: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("training") / "run.html"
    recorded[0].export(path)
    return path


def together(norms: dict[str, float], module: str) -> float:
    return sum(norm**2 for name, norm in norms.items() if name.startswith(f"{module}.")) ** 0.5


def test_series_are_the_norms_that_the_program_sees(recorded: Any) -> None:
    trace, gradients, updates = recorded
    made = series_data(recorded_gradients(trace))
    for name, expected in (("gradient", gradients), ("update", updates)):
        found = {module: norms for _, module, _, norms in made[name]}
        assert set(found) == {"0", "2"}
        for module, norms in found.items():
            assert len(norms) == STEPS
            for norm, own in zip(norms, expected, strict=True):
                assert isclose(norm, together(own, module), rel_tol=0.01)


def test_a_gradient_that_is_not_finite_does_not_count(recorded: Any) -> None:
    weight = torch.ones(3, requires_grad=True)
    module = nn.Module()
    module.weight = nn.Parameter(weight.detach())
    with tg.record(values="stats") as trace:
        module.weight.sqrt().sub(1).sqrt().sum().backward()
    assert trace.first_bad() is not None
    found = recorded_gradients(trace)
    assert [norm for _, norm in training_module.gradient_points(found.leaves[0])] == pytest.approx(
        [float("nan")], nan_ok=True
    )


def test_the_largest_gradient_is_named_in_the_card_and_leads_to_its_backward(
    browser: Any, recorded: Any, file: Path
) -> None:
    trace, gradients, _ = recorded
    expected = max((norm, name) for norms in gradients for name, norm in norms.items())
    largest = largest_gradient(recorded_gradients(trace))
    assert largest is not None
    assert largest[0] == expected[1]
    assert isclose(largest[2], expected[0], rel_tol=0.01)
    page = Page(browser, file)
    link = page.page.locator(".about dd a", has_text="largest").filter(has_text=largest[0])
    assert f"{largest[2]:.4g}" in link.inner_text()
    link.click()
    assert page.selected == largest[1]
    assert page.errors == []
    page.close()


def test_gradients_and_updates_are_a_picture_over_iterations(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    names = page.ask("[...document.querySelectorAll('.scrubber option')].map((option) => option.value)")
    assert {"gradient", "update"} <= set(names)
    chooser = page.page.get_by_label("what the colours show")
    legends = set[str]()
    for name in ("rms", "gradient", "update"):
        chooser.select_option(name)
        legends.add(page.page.locator(".scrubber .legend").inner_text())
    assert len(legends) == 3
    box = page.page.locator(".heat").bounding_box()
    page.page.mouse.move(box["x"] + 200, box["y"] + 4)
    tip = page.page.locator(".tip").inner_text()
    assert tip.startswith("0 · ")
    assert page.errors == []
    page.close()


def test_tables_of_layers_and_gradients_lead_to_their_steps(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    tables = page.page.locator(".card details.table")
    assert tables.locator("summary").all_inner_texts() == ["layers", "gradients"]
    tables.nth(1).locator("summary").click()
    assert "0.weight" in tables.nth(1).inner_text() or "weight" in tables.nth(1).inner_text()
    tables.nth(0).locator("summary").click()
    assert "40" in tables.nth(0).inner_text()  # parameters of the first layer
    tables.nth(0).locator("a", has_text="Linear").first.click()
    assert page.ask("torchglass.model.samples[torchglass.model.events.sample[torchglass.selected]].name") == "Linear"
    page.close()


def test_a_value_has_its_history_and_a_dot_at_the_round_that_is_shown(browser: Any, file: Path) -> None:
    page = Page(browser, file)
    page.ask("torchglass.select(torchglass.model.items.find((item) => item.title === 'mean').nodes[2])")
    line = page.page.locator(".details [data-side=gives] .sparkline")
    assert line.get_attribute("aria-label") == f"over {STEPS} rounds"
    before = line.locator("circle").get_attribute("cx")
    page.page.keyboard.press("]")
    assert float(page.page.locator(".details [data-side=gives] .sparkline circle").get_attribute("cx")) > float(before)
    page.page.locator(".details [data-side=gives] .sparkline").click(position={"x": 4, "y": 8})
    assert page.selected == page.ask("torchglass.model.items.find((item) => item.title === 'mean').nodes[0]")
    assert page.errors == []
    page.close()
