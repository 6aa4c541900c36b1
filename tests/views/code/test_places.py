"""The code view as text: which lines are shown of a loop, of recursion, of threads, and where a step belongs."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from tests.modules import module_of
from torchglass.compat.torch_code_tracing import TracingMode

LOOPS = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.ones(4, 3))
    for (x,) in DataLoader(data, batch_size=2):  # each
        y = x * 2
        z = y.sum()
    for (x,) in DataLoader(
        data,
        batch_size=4,
    ):
        y = x * 3
    for (x,) in DataLoader(data, batch_size=4): y = x * 4
"""


def lines_of(folder: Path, text: str, **options: Any) -> list[str]:
    module = module_of(folder, text)
    with tg.record(ops=True) as trace:
        module.main()
    return tg.render(trace, "code", width=140, **options).splitlines()


def test_of_a_loop_the_head_is_shown(tmp_path: Path) -> None:
    lines = [line.lstrip("│ ") for line in lines_of(tmp_path, LOOPS)]
    heads = [line for line in lines if line.startswith("for (x,)")]
    told = {re.split(r"( +× \d+)?  # (\S*:\d+|:)", head)[0] for head in heads}
    assert told == {
        "for (x,) in DataLoader(data, batch_size=2):  # each",  # where the iterator is made
        "for (x,) in DataLoader(data, batch_size=2):",
        "for (x,) in DataLoader(data, batch_size=4):",
        "for (x,) in DataLoader(data, batch_size=4): y = x * 4",
    }


RECURSION = """
import torch
from torch import nn

class Tree(nn.Module):
    def forward(self, x, levels):
        if levels:
            x = self(x, levels - 1)
        return self.down(x, 9)

    def down(self, x, levels):
        x = x + 1
        return self.down(x, levels - 1) if levels else x

def main():
    Tree()(torch.ones(2), 12)
"""


def test_only_recursion_that_is_left_out_says_how_deep_it_is(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, RECURSION)
    outer = [line for line in lines if "x = self(x, levels - 1)" in line]
    inner = [line for line in lines if "return self.down(x, levels - 1) if" in line]
    assert len(outer) == 12
    assert not any("deep" in line for line in outer)
    assert inner
    assert all("× 9 deep" in line for line in inner)


HOOKED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.head.register_forward_hook(self.hook)

    def hook(self, module, args, out):
        return out.neg()

    def forward(self, x):
        return self.head(x).exp()

def main():
    head = Net().head
    y = head(torch.ones(1, 2)).tanh()
    z = Net()(torch.ones(1, 2)).cos()
"""


@pytest.mark.parametrize(("op", "module"), [("exp", "Net"), ("tanh", "no module"), ("cos", ""), ("addmm", "")])
def test_a_step_after_those_of_a_module_says_that_it_is_not_in_it(tmp_path: Path, op: str, module: str) -> None:
    steps = [line for line in lines_of(tmp_path, HOOKED) if f"# {op}(" in line]
    assert steps
    assert {line.partition(";")[2].strip() for line in steps} == {module}


THREADED = """
import torch

def work(x, turns, other):
    for _ in range(2):
        turns.acquire()
        y = x * 2
        other.release()
"""


@pytest.mark.parametrize("succinct", [True, False])
def test_threads_do_not_share_lines(tmp_path: Path, succinct: bool, capsys: pytest.CaptureFixture[str]) -> None:
    work = module_of(tmp_path, THREADED).work
    first, second = threading.Semaphore(1), threading.Semaphore(0)
    threads = [
        threading.Thread(target=work, args=(torch.ones(2), first, second)),
        threading.Thread(target=work, args=(torch.ones(3), second, first)),
    ]
    with TracingMode(color=False, succinct=succinct) as mode:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for text in (capsys.readouterr().out, mode.format(succinct=succinct)):
        assert text.count("# mul.Tensor") == 4
        assert text.count("y = x * 2") == 4
