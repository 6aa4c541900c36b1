"""Gradients that differ by decades are not shown as one, and below the table stands what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg


class Deep(nn.Module):
    """Sigmoids one after the other, behind a graph that is cut, with a layer that no optimizer has."""

    def __init__(self, activation: type[nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), activation()) for _ in range(10))
        for block in self.blocks:
            nn.init.orthogonal_(block[0].weight)
        self.head, self.extra = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).detach()
        for block in self.blocks:
            x = block(x)
        return self.head(x) + self.extra(x)


def shown(activation: type[nn.Module]) -> str:
    torch.manual_seed(0)
    net = Deep(activation)
    optimizer = torch.optim.SGD([each for name, each in net.named_parameters() if "extra" not in name], lr=0.01)
    with tg.record(values="stats") as trace:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
            optimizer.step()
    return tg.render(trace, "gradients", width=200)


def test_layers_are_one_row_only_if_their_gradients_are_alike() -> None:
    assert "0–9 × 10" not in shown(nn.Sigmoid)
    assert "│ │ 0–9 × 10 (Sequential)" in shown(nn.Identity)


def test_what_vanishes_is_named() -> None:
    (line,) = [line for line in shown(nn.Sigmoid).splitlines() if line.startswith("vanishing: ")]
    assert "Deep.blocks.0–" in line
    assert "head" not in line
    assert "vanishing" not in shown(nn.Identity)


def test_the_line_that_cuts_the_graph_and_who_is_in_no_optimizer_are_named() -> None:
    text = shown(nn.Identity)
    (cut,) = [line for line in text.splitlines() if line.startswith("no-gradient: ")]
    assert "Deep.first.weight, Deep.first.bias" in cut
    assert "detach" in cut
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "self.first(x).detach()" in line)
    assert f"test_sizes.py:{number}" in cut
    (forgotten,) = [line for line in text.splitlines() if line.startswith("not-in-optimizer: ")]
    assert "Deep.extra.weight" in forgotten


def test_what_an_optimizer_holds_and_nothing_uses_is_named_next_to_a_cut() -> None:
    net = nn.ModuleDict({"cut": nn.Linear(4, 4), "head": nn.Linear(4, 1), "never": nn.Linear(4, 4)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tg.record() as trace:
        for _ in range(3):
            loss = net["head"](net["cut"](torch.randn(2, 4)).detach()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    lines = [line for line in tg.render(trace, "gradients", width=200).splitlines() if line.startswith("no-gradient: ")]
    assert len(lines) == 2
    assert any("Linear.weight, Linear.bias never get a gradient" in line for line in lines)
    assert any("nothing used" in line for line in lines)
