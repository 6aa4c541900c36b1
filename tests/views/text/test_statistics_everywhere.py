"""Statistics stand wherever a shape does: in the listing, the variables view, and the data flow."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch

import torchglass as tg
from torchglass.events.types import Event
from torchglass.views.text.tensors import number_word

ROUNDS = 4
RED = "\x1b[1;31m"


def scaled(x: torch.Tensor) -> list[numpy.ndarray]:
    """What ``y`` was in each round."""
    made: list[numpy.ndarray] = []
    for i in range(ROUNDS):
        y = x * (i + 1)
        made.append(y.detach().double().numpy())
    return made


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = x.split(4)
    return low.log(), high + 1


def ends(several: list[numpy.ndarray], of: Callable[[numpy.ndarray], float]) -> str:
    numbers = [float(of(each)) for each in several]
    low, high = number_word(min(numbers)), number_word(max(numbers))
    return low if low == high else f"{low} … {high}"


def expected(several: list[numpy.ndarray]) -> str:
    """The range over rounds, by numpy in double precision."""
    low, high = (number_word(float(find([find(each) for each in several]))) for find in (numpy.min, numpy.max))
    return f"μ {ends(several, numpy.mean)} σ {ends(several, numpy.std)} [{low}, {high}]"


@pytest.fixture(name="x")
def some_numbers() -> torch.Tensor:
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(3)) + 0.5


@pytest.mark.parametrize(("view", "variables"), [("listing", False), ("variables", True), ("graph", False)])
def test_over_folded_rounds_a_line_tells_the_ends_that_numpy_finds(view: str, variables: bool, x: torch.Tensor) -> None:
    with tg.record(values="stats", variables=variables) as trace:
        made = scaled(x)
    assert f"f32[8, 3] {expected(made)}" in tg.render(trace, view, width=160)


@pytest.mark.parametrize("suffix", ["dot", "mmd"])
def test_pictures_have_them_at_the_shapes(suffix: str, x: torch.Tensor, tmp_path: Path) -> None:
    with tg.record(values="stats") as trace:
        halves(x.abs())
    path = tmp_path / f"flow.{suffix}"
    tg.export(trace, str(path))
    drawn = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), path.read_text()).replace("\\n", " ")
    low, high = x.abs().double().numpy()[:4], x.abs().double().numpy()[4:]
    assert f"f32[4, 3] {expected([low])}" in drawn
    assert f"f32[4, 3] {expected([high])}" in drawn
    assert "b91c1c" not in drawn


def test_an_edge_with_nan_is_red_in_the_picture(tmp_path: Path) -> None:
    with tg.record(values="stats") as trace:
        x = torch.tensor([-1.0, 1.0])
        x.log().sum()
    path = tmp_path / "flow.dot"
    tg.export(trace, str(path))
    (bad,) = [line for line in path.read_text().splitlines() if "NaN" in line]
    assert 'label="f32[2]\\n1 NaN all 0", fontcolor="#b91c1c"' in bad


class Logs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x - 0.5).log()
        return y + 1


@pytest.mark.parametrize("view", ["tree", "code", "calls", "listing", "variables", "graph"])
def test_what_is_not_finite_is_red_and_only_with_colour(view: str, x: torch.Tensor) -> None:
    with tg.record(values="stats", variables=view == "variables") as trace:
        Logs()(x)
    nan = int((x < 0.5).sum())
    options = {"shapes": True} if view == "calls" else {}
    plain, coloured = (tg.render(trace, view, width=140, color=color, **options) for color in (False, True))
    assert f"f32[8, 3] {nan} NaN μ" in plain
    assert "\x1b" not in plain
    assert f"{RED}{nan} NaN\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_the_listing_marks_each_of_several_results_that_are_not_finite() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.log(), x / 0

    with tg.record(values="stats") as trace:
        both(torch.tensor([-1.0, 1.0, 1.0]))
    coloured = tg.render(trace, "listing", width=120, color=True)
    assert f"{RED}1 NaN\x1b[0m" in coloured
    assert f"{RED}2 +Inf, 1 −Inf\x1b[0m" in coloured


def test_results_that_are_returned_together_take_a_line_each_where_they_need_it(x: torch.Tensor) -> None:
    with tg.record(values="stats") as trace:
        halves(x.abs())
    narrow = tg.render(trace, "listing", width=80).splitlines()
    first = next(at for at, line in enumerate(narrow) if "→ (" in line)
    low, high = (line.strip() for line in narrow[first : first + 2])
    assert low.startswith("→ (f32[4, 3] ")
    assert low.endswith("],")
    assert high.startswith("f32[4, 3] ")
    assert high.endswith("])")
    copy = tg.render(trace, "listing", style="comments")
    assert re.search(
        r"return low\.log\(\), high \+ 1  # → \(f32\[4, 3\] μ \S+ σ \S+ \[[^,]+, [^,]+\], f32\[4, 3\] μ", copy
    )


def test_a_part_of_a_result_has_the_statistics_of_that_part(x: torch.Tensor) -> None:
    with tg.record(values="stats") as trace:
        halves(x)
    listing = tg.render(trace, "listing", width=160)
    for name, part in (("low", x[:4]), ("high", x[4:])):
        assert f"{name}: f32[4, 3] {expected([part.double().numpy()])}" in listing


def test_modules_that_gave_the_same_shapes_stand_together_whatever_was_in_them() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    net = Net()
    with tg.record(values="stats") as trace:
        net(torch.ones(2, 3))
    outputs = [event.outputs[0].stats for event in trace.events() if event.kind == "module"]
    spread = f"[{number_word(min(each.min for each in outputs if each))}, "
    (line,) = [
        line
        for line in tg.render(trace, "listing", by="module", width=200).splitlines()
        if line.endswith("in layers.0–2")
    ]
    assert spread in line
    assert line.count("f32[2, 3]") == 1


def test_a_selection_tells_only_of_what_is_selected(x: torch.Tensor) -> None:
    with tg.record(values="stats") as trace:
        made = scaled(x)

    def is_last(event: Event) -> bool:
        return event.name == "Tensor.mul" and event.args.endswith("4")

    listing = tg.render(trace, "listing", only=tg.select(where=is_last), width=140)
    assert f"f32[8, 3] {expected(made[-1:])}" in listing


@pytest.mark.parametrize("view", ["tree", "code", "listing", "variables", "graph"])
@pytest.mark.parametrize("width", range(60, 130, 7))
def test_on_a_narrow_page_figures_are_whole_or_not_there(view: str, width: int, x: torch.Tensor) -> None:
    with tg.record(values="stats", variables=view == "variables") as trace:
        Logs()(x)
    told = {word for each in (tg.render(trace, view, width=300), str(trace)) for word in each.split()}
    for line in tg.render(trace, view, width=width).splitlines():
        assert len(line) <= width
        figures = re.findall(r"[μσ] (\S+)", line.partition("→")[2] or line)
        assert set(figures) <= told, line


@pytest.mark.parametrize("view", ["listing", "variables", "graph"])
def test_without_statistics_nothing_of_them_is_shown(view: str, x: torch.Tensor) -> None:
    with tg.record(variables=view == "variables") as trace:
        halves(x - 9)
    shown = tg.render(trace, view, width=140)
    assert "f32[4, 3]" in shown
    assert not re.search(r"\] (\d+ NaN|[μ=σ]|all) ", shown)


def test_the_table_keeps_the_names_of_layers_on_a_narrow_page() -> None:
    with tg.record(values="stats") as trace:
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        for _ in range(3):
            net(torch.full((2, 4), torch.nan))
    for width in (60, 80, 100):
        lines = tg.render(trace, "table", width=width).splitlines()
        assert lines[0].startswith("Layer")
        assert any("0 (Lin" in line and "48 NaN" in line for line in lines), width
        assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize("view", ["listing", "graph"])
def test_a_step_of_an_optimizer_does_not_list_its_updates(view: str) -> None:
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(1, 4)).sum().backward()
    with tg.record(values="stats") as trace:
        optimizer.step()
    (step,) = [
        line
        for line in tg.render(trace, view, width=120).splitlines()
        if re.search(r"SGD\.step|        optimizer\.step\(\)", line)
    ]
    assert "f32[2, 4]" not in step
