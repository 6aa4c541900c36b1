"""How a value went on over a run: each number is the one that the program had, under its true iteration."""

from __future__ import annotations

import runpy
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.errors import NotRecorded, UsageError
from torchglass.events.missing import is_gap, missing_of
from torchglass.program.series import bars
from torchglass.views.page.about import about_lines

MOST = 2_000


def train(steps: int) -> list[float]:
    """Return the losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.randn(16, 4)
    target = (data.sum(1) > 0).long()
    losses: list[float] = []
    for _ in range(steps):
        out = model(data)
        loss = F.cross_entropy(out, target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


@pytest.mark.parametrize("most", [None, MOST], ids=["kept whole", "longer than what is kept"])
def test_numbers_are_those_of_the_program(most: int | None, tmp_path: Path) -> None:
    with tg.record(values="stats", max_events=most, to=tmp_path / "written.trace") as trace:
        losses = train(400)
    trace.save(tmp_path / "saved.trace")
    for each in (trace, tg.load(tmp_path / "written.trace"), tg.load(tmp_path / "saved.trace")):
        series = each.series("loss")
        assert series.times == 400
        assert series.iterations() == sorted(set(series.iterations()))
        expected = [losses[number] for number in series.iterations()]
        assert series.numbers() == pytest.approx(expected, rel=1e-5)
        if most is None:
            assert len(series) == 400
        else:
            # Also of the middle, of which no event was kept.
            middle = [number for number, event, _ in series.points if event is None]
            assert len(middle) >= 16
            assert max(after - before for before, after in pairwise(middle)) <= 32


def test_a_module_s_output_has_a_series() -> None:
    with tg.record(values="stats", max_events=MOST) as trace:
        train(300)
    series = trace.series("2")
    assert series.times == 300
    assert series.module == "2"
    assert series.numbers("count") == [32.0] * len(series)
    assert any(event is None for _, event, _ in series.points)
    assert series.numbers("min") == [point.stats.min for point in series.points]


def test_the_tree_and_the_page_show_the_curve_of_the_whole_run() -> None:
    with tg.record(values="stats", max_events=MOST) as trace:
        losses = train(300)
    (row,) = [row for row in trace.render("tree", series=True).splitlines() if "loss = " in row]
    assert f"= {losses[0]:.2g} █" in row
    assert "▁" in row
    assert "▁" not in trace.render("tree")
    (line,) = [each for each in about_lines(trace) if each["label"] == "loss"]
    assert ["in 300 steps", -1] in line["parts"]
    assert line["points"][0][1] == pytest.approx(losses[0], rel=1e-5)
    assert len(line["points"]) > 20


def test_several_places_are_distinguished() -> None:
    x = torch.ones(2)
    with tg.record(values="stats") as trace:
        y = x + 1
        y = x * 3
        del y
    with pytest.raises(UsageError, match=r"2 places: test_series\.py:\d+, test_series\.py:\d+; choose one with at="):
        trace.series("y")
    first, second = (event.line for event in trace.events() if "y" in event.target)
    assert trace.series("y", at=f"test_series.py:{first}").numbers("max") == [2.0]
    assert trace.series("y", at=str(second)).numbers("max") == [3.0]


def test_a_place_is_chosen_by_the_whole_name_of_its_file(tmp_path: Path) -> None:
    for name in ("train.py", "my_train.py"):
        (tmp_path / name).write_text("import torch\n\ny = torch.ones(2) + 1\n")
    with tg.record(values="stats") as trace:
        runpy.run_path(str(tmp_path / "train.py"))
        runpy.run_path(str(tmp_path / "my_train.py"))
    for at in ("train.py:3", f"{tmp_path.name}/train.py:3", f"{tmp_path / 'train.py'}:3"):
        assert trace.series("y", at=at).place.file == str(tmp_path / "train.py")


def test_what_is_not_there_is_said() -> None:
    with tg.record(values="stats") as trace:
        losses = torch.ones(2).sum()
    with pytest.raises(NotRecorded, match="there is no value 'loses'; did you mean 'losses'"):
        trace.series("loses")
    with pytest.raises(UsageError, match="a series has no 'mim'; did you mean 'min'"):
        trace.series("losses").numbers("mim")
    del losses
    with tg.record() as plain:
        y = torch.ones(2)
    with pytest.raises(NotRecorded, match=r"record\(values='stats'\)"):
        plain.series("y")
    del y


@pytest.mark.parametrize(
    ("numbers", "width", "expected"),
    [
        ([1.0, 2.0, 3.0], 12, "▁▅█"),
        ([5.0, 5.0], 12, "▁▁"),
        ([0.0, float("nan"), 1.0], 12, "▁·█"),
        ([float(each) for each in range(100)], 4, "▁▃▆█"),
        ([], 12, ""),
    ],
)
def test_bars(numbers: list[float], width: int, expected: str) -> None:
    assert bars(range(len(numbers)), numbers, width) == expected


def test_what_a_gap_says_of_series_may_be_damaged() -> None:
    with tg.record(values="stats", max_events=600) as trace:
        train(60)
    gap = next(filter(is_gap, trace.events()))
    assert missing_of(gap).series
    for text in ('{"series": 3}', '{"series": [[1]]}', '{"series": [["f", 1, 1, 0, 1, null, [[1], "x", null]]]}'):
        assert not any(missing_of(gap._replace(detail=text)).series.values())
