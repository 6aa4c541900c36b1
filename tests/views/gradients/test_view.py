"""The view of gradients: norms as torch computes them, and what got none said plainly."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests.views.shown import sheet_of
from torchglass._trace import Trace
from torchglass.events.gradients import Gradients, Leaf, gradients_of
from torchglass.views.gradients import CALLED, GRADIENT, RATIO, UPDATE
from torchglass.views.row import NAME, Row
from torchglass.views.text.tensors import numbers_word


class Net(nn.Module):
    """Two layers that are used, one that is not, one that is frozen, and a weight by which nothing is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.spare = nn.Linear(3, 3)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.zero = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(self.out(self.fc(x).relu())) + 0 * self.zero


Noted = dict[str, list[dict[str, Tensor]]]


def trained(rounds: int = 3, **options: Any) -> tuple[Trace, Noted]:
    """A few steps, and what torch itself says of gradients and weights around each."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    noted: Noted = {"gradient": [], "before": [], "after": []}
    with tg.record(**options) as trace:
        for _ in range(rounds):
            optimizer.zero_grad()
            net(torch.randn(5, 4)).square().mean().backward()
            noted["gradient"].append(
                {name: each.grad for name, each in net.named_parameters() if each.grad is not None}
            )
            noted["before"].append(copies(net))
            optimizer.step()
            noted["after"].append(copies(net))
    return trace, noted


def copies(net: nn.Module) -> dict[str, Tensor]:
    return {name: torch.from_numpy(each.detach().numpy().copy()) for name, each in net.named_parameters()}


def found_in(trace: Trace) -> Gradients:
    return gradients_of(trace.events(), trace.modules())


def rows_of(trace: object, **options: object) -> dict[str, Row]:
    """Rows by path: names of the rows around them joined."""
    rows: dict[str, Row] = {}
    path: list[str] = []
    for row in sheet_of(trace, "gradients", **options).rows:
        path = [*path[: row.depth], row.text(NAME).partition(" (")[0]]
        rows[".".join(path)] = row
    return rows


def below(trace: object, **options: object) -> list[str]:
    return [cell.text for cell in sheet_of(trace, "gradients", **options).below]


@pytest.mark.parametrize("ops", [False, True])
def test_norms_are_those_that_torch_computes(ops: bool) -> None:
    trace, noted = trained(values="stats", ops=ops)
    rows = rows_of(trace)
    for name in ("fc.weight", "fc.bias", "out.weight", "out.bias"):
        gradients = [each[name].double().norm().item() for each in noted["gradient"]]
        updates = [
            (after[name] - before[name]).double().norm().item()
            for before, after in zip(noted["before"], noted["after"], strict=True)
        ]
        weights = [each[name].double().norm().item() for each in noted["before"]]
        assert rows[f"Net.{name}"].text(GRADIENT) == numbers_word(gradients)
        assert rows[f"Net.{name}"].text(UPDATE) == numbers_word(updates)
        assert rows[f"Net.{name}"].text(RATIO) == numbers_word([a / b for a, b in zip(updates, weights, strict=True)])
        assert rows[f"Net.{name}"].text(CALLED) == "3"


def test_a_module_has_the_norm_of_all_its_parameters_together() -> None:
    trace, noted = trained(values="stats")
    together = [hypot(each["fc.weight"].norm(), each["fc.bias"].norm()) for each in noted["gradient"]]
    assert rows_of(trace)["Net.fc"].text(GRADIENT) == numbers_word(together)
    assert rows_of(trace, depth=1)["Net.fc"].text(GRADIENT) == numbers_word(together)
    assert "Net.fc.weight" not in rows_of(trace, depth=1)


def test_what_got_none_or_zero_is_said_and_marked() -> None:
    trace, _ = trained(values="stats")
    rows = rows_of(trace)
    for name, word in (("spare.weight", "none"), ("spare", "none"), ("zero", "0 zero")):
        cell = rows[f"Net.{name}"].cell(GRADIENT)
        assert cell is not None
        assert cell.mark is not None
        assert (cell.text, cell.text[slice(*cell.mark)]) == (word, word.split()[-1])
    assert rows["Net.frozen.weight"].text(GRADIENT) == "frozen"
    assert rows["Net.frozen.weight"].cell(GRADIENT).mark is None  # type: ignore[union-attr]
    assert "no gradient: Net.spare (2 parameters)" in below(trace)
    red = "\x1b[31m"
    assert f"{red}none" in tg.render(trace, "gradients", color=True, width=160).replace("\x1b[1;31m", red)


def test_without_statistics_it_says_who_got_one_and_how_to_have_norms() -> None:
    trace, _ = trained()
    rows = rows_of(trace)
    assert (rows["Net.fc.weight"].text(CALLED), rows["Net.spare.weight"].text(CALLED)) == ("3", "0")
    assert rows["Net.spare.weight"].text(GRADIENT) == "none"
    assert not any(row.text(UPDATE) for row in rows.values())
    assert 'norms were not measured: record(values="stats") measures them' in below(trace)


def test_nan_in_a_gradient_is_counted() -> None:
    net = nn.Linear(2, 1)
    with tg.record(values="stats") as trace:
        (net(torch.ones(1, 2)) * float("nan")).sum().backward()
    cell = rows_of(trace)["Linear.weight"].cell(GRADIENT)
    assert cell is not None
    assert cell.text == "2 NaN"
    assert cell.mark == (0, len("2 NaN"))


def test_nan_in_an_update_is_counted_and_each_ratio_is_of_its_own_step() -> None:
    net = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        net.weight.fill_(1.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with tg.record(values="stats") as trace:
        for scale in (float("nan"), 0.5):
            optimizer.zero_grad()
            (net(torch.ones(1, 2)) * scale).sum().backward()
            optimizer.step()
            with torch.no_grad():
                net.weight.fill_(2.0)
    row = rows_of(trace)["Linear.weight"]
    update = row.cell(UPDATE)
    assert update is not None
    assert update.text == "0.71 2 NaN"
    assert update.mark == (len("0.71 "), len("0.71 2 NaN"))
    assert row.text(RATIO) == "0.25"  # half of each number of the second round, which were 2 before it


def test_no_backward_says_so() -> None:
    with tg.record() as trace:
        nn.Linear(2, 1)(torch.ones(1, 2))
    assert tg.render(trace, "gradients").startswith("No backward ran")
    assert "no gradient" not in str(trace)


def test_equal_layers_are_shown_once_and_an_odd_one_by_itself() -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(6)])

        def forward(self, x: Tensor) -> Tensor:
            for number, block in enumerate(self.blocks):
                x = block(x.detach() if number == 5 else x)
            return x

    with tg.record(values="stats") as trace:
        Blocks()(torch.ones(1, 4)).sum().backward()
    rows = rows_of(trace)
    assert rows["Blocks.blocks.0–4 × 5"].times == 5
    assert rows["Blocks.blocks.0–4 × 5.weight × 5"].text(GRADIENT) == "none"
    assert rows["Blocks.blocks.5.weight"].text(CALLED) == "1"
    assert len(rows_of(trace, fold=False)) == 2 + 6 * 3


def test_leaves_outside_of_modules_have_the_names_of_the_program() -> None:
    before = torch.ones(2, requires_grad=True)
    with tg.record(values="stats") as trace:
        inside = torch.ones(2, requires_grad=True)
        (before * inside).sum().backward()
    assert {leaf.full_name for leaf in found_in(trace).leaves} == {"tensor 0", "tensor 1"}
    assert set(rows_of(trace)) == {"before", "inside"}


def test_two_models_of_one_class_are_kept_apart() -> None:
    one, two = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    with tg.record() as trace:
        one(torch.ones(1, 2)).sum().backward()
        two(torch.ones(1, 2))
    rows = rows_of(trace)
    assert rows["Sequential.0.weight"].text(CALLED) == "1"
    assert rows["Sequential#2.0.weight"].text(GRADIENT) == "none"


def test_only_shows_the_parameters_of_selected_modules() -> None:
    trace, _ = trained(values="stats")
    rows = rows_of(trace, only=tg.select(module="fc"))
    assert set(rows) == {"Net", "Net.fc", "Net.fc.weight", "Net.fc.bias"}
    assert "No gradient is selected" in tg.render(trace, "gradients", only=tg.select(function="Tensor.relu"))


def test_a_kept_trace_shows_the_same(tmp_path: Path) -> None:
    trace, _ = trained(values="stats", to=tmp_path / "run.trace")
    assert tg.render(tg.load(tmp_path / "run.trace"), "gradients") == tg.render(trace, "gradients")


# ---------------------------------------------------------------- the summary


def named(count: int) -> Callable[[], nn.Module]:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for number in range(count):
                self.register_parameter(f"w{number}", nn.Parameter(torch.ones(1)))
            self.used = nn.Parameter(torch.ones(1))

        def forward(self) -> Tensor:
            return self.used * 2

    return Wide


def test_print_names_parameters_without_a_gradient() -> None:
    trace, _ = trained(rounds=1)
    assert "  no gradient: Net.spare (2 parameters)\n" in f"{trace}\n"


def test_print_names_a_few_and_counts_the_rest() -> None:
    with tg.record() as trace:
        named(8)()().sum().backward()
    assert "no gradient: Wide.w0, Wide.w1, Wide.w2, Wide.w3, Wide.w4 and 3 more" in str(trace)


def test_print_says_nothing_where_all_got_one() -> None:
    with tg.record() as trace:
        named(0)()().sum().backward()
    assert "no gradient" not in str(trace)


def layers(count: int) -> nn.Module:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.ModuleDict({"used": nn.Linear(2, 2), "dead": nn.Linear(2, 2)}) for _ in range(count)
            )

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block["used"](x)  # type: ignore[index]
            return x

    return Layers()


def test_print_names_layers_that_follow_each_other_as_one() -> None:
    model = layers(4)
    with tg.record() as trace:
        model(torch.ones(1, 2)).sum().backward()
    assert "no gradient: Layers.blocks.0–3.dead (8 parameters)\n" in f"{trace}\n"


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_on_a_narrow_page_the_least_said_columns_go_and_the_ratio_stays(width: int) -> None:
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.record(values="stats") as trace:
        for _ in range(3):
            model(torch.randn(4, 2)).pow(2).sum().backward()
            optimizer.step()
    text = tg.render(trace, "gradients", width=width)
    table = text.splitlines()[: len(text.splitlines()) - 2]
    assert max(map(len, table)) <= width
    if width >= 80:
        assert "Update / weight" in table[0]
        assert not any(line.endswith("…") for line in table)
    assert ("Backward" in table[0]) == (width >= 100)


def test_reads_of_gradients_by_torch_are_no_steps_of_the_code() -> None:
    model = layers(2)
    with tg.record() as trace:
        model(torch.ones(1, 2)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for parameter in model.parameters():
            parameter.grad = None if parameter.grad is None else parameter.grad * 2
    reads = [event for event in trace.events() if event.name == "Tensor.grad"]
    own = [event for event in reads if event.direct]
    assert 0 < len(own) < len(reads)
    assert tg.render(trace, "code", fold=False).count("Tensor.grad") == len(own)
    assert tg.render(trace, "code", fold=False, inner=True).count("Tensor.grad") == len(reads)


def test_what_one_process_evaluates_and_another_trains_is_not_missed() -> None:
    trace, _ = trained(1)
    found = gradients_of(trace.events(), trace.modules())
    got = next(leaf for leaf in found.leaves if leaf.full_name == "Net.fc.weight")
    assert not got.is_missed
    evaluated = Leaf(got.name, got.value, got.holder)
    assert evaluated.is_missed
    names = [leaf.full_name for leaf in found.missed]
    found.leaves.append(evaluated)
    assert [leaf.full_name for leaf in found.missed] == names == ["Net.spare.weight", "Net.spare.bias"]


@pytest.mark.parametrize("cleared", [True, False])
def test_steps_made_inside_of_backward_count_as_runs_that_gave_a_gradient(cleared: bool) -> None:
    net = nn.Linear(3, 2)
    optimizers = {each: torch.optim.SGD([each], lr=0.1) for each in net.parameters()}

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        if cleared:
            optimizers[parameter].zero_grad()

    for each in net.parameters():
        each.register_post_accumulate_grad_hook(step)
    with tg.record(values="stats") as trace:
        for _ in range(3):
            net(torch.ones(1, 3)).sum().backward()
    rows = rows_of(trace)
    assert rows["Linear.weight"].text(CALLED) == "3"
    assert rows["Linear.bias"].text(CALLED) == "3"
    assert found_in(trace).missed == []
