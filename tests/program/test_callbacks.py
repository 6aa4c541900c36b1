"""Code of the program that torch or a library calls back is the program's, and is shown where it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchglass as tg
from tests.modules import module_of
from torchglass.program import program_of

HEAD = """
import torch
from torch import nn

"""
CLOSURE = """
def main():
    net = nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3, tolerance_grad=0, tolerance_change=0)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = net(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return len(calls)
"""
OWN_OPTIMIZER = """
class Mine(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad * -0.1)

def main():
    net = nn.Linear(3, 2)
    net(torch.ones(1, 3)).sum().backward()
    Mine(net.parameters()).step()
"""
CHECKPOINT = """
from torch.utils.checkpoint import checkpoint

def hook(module, args, out):
    return out + 1

def main():
    net = nn.Linear(3, 2)
    net.register_forward_hook(hook)

    def block(x):
        return net(x).relu() * 2

    checkpoint(block, torch.ones(1, 3, requires_grad=True), use_reentrant=False).sum().backward()
"""
LIBRARY = """
class Trainer:
    def fit(self, task):
        optimizer = task.optimizer()
        for batch in range(2):
            def closure():
                loss = task.training_step(batch)
                loss.backward()
                return loss
            optimizer.step(closure)
"""
TASK = """
import tglightning

class Task:
    def __init__(self):
        self.net = nn.Linear(3, 2)

    def optimizer(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)

    def training_step(self, batch):
        y = self.net(torch.ones(4, 3))
        return y.square().mean()

def main():
    tglightning.Trainer().fit(Task())
"""


def run(folder: Path, text: str, **options: Any) -> tuple[tg.Trace, Any]:
    module = module_of(folder, HEAD + text)
    with tg.record(**options) as trace:
        result = module.main()
    return trace, result


def written(trace: tg.Trace, view: str) -> list[str]:
    return [line.strip("│ ").split("  ")[0] for line in tg.render(trace, view, width=140).splitlines()]


@pytest.mark.parametrize("ops", [False, True])
def test_the_lines_of_a_closure_are_shown_under_its_step(tmp_path: Path, ops: bool) -> None:
    trace, calls = run(tmp_path, CLOSURE, ops=ops)
    tree = tg.render(trace, width=140).splitlines()
    (step,) = [at for at, line in enumerate(tree) if line.startswith("optimizer.step(closure)")]
    assert tree[step + 1].startswith(f"│ × {calls}: main.closure(…)")
    shown = written(trace, "tree")
    assert "loss = net(torch.ones(4, 3)).square().mean()" in shown
    assert "loss.backward()" in shown
    code = tg.render(trace, "code", width=140)
    assert "loss = net(torch.ones(4, 3)).square().mean()  # " in code
    assert "loss.backward()  # " in code


def test_a_closure_is_a_call_in_the_program_tree(tmp_path: Path) -> None:
    trace, calls = run(tmp_path, CLOSURE)
    tree = program_of(trace).tree
    closures = [node for node in range(len(tree)) if tree.site(node).function.endswith("closure")]
    assert len(closures) == calls
    (step,) = [event.id for event in trace.events(kind="step")]
    assert {tree.parent[node] for node in closures} == {step}


def test_the_step_of_an_optimizer_of_the_program_s_own_is_shown(tmp_path: Path) -> None:
    trace, _ = run(tmp_path, OWN_OPTIMIZER)
    shown = written(trace, "tree")
    assert "parameter.add_(parameter.grad * -0.1)" in shown
    assert "parameter.add_(parameter.grad * -0.1)" in tg.render(trace, "code", width=140)
    torchs, _ = run(tmp_path, OWN_OPTIMIZER.replace("Mine(net.parameters())", "torch.optim.SGD(net.parameters())"))
    assert not any("add_" in line for line in written(torchs, "tree"))


def test_what_a_checkpoint_computes_again_is_not_shown_again_with_its_hooks(tmp_path: Path) -> None:
    trace, _ = run(tmp_path, CHECKPOINT)
    assert len([event for event in trace.events() if event.code == "out + 1"]) == 2
    assert written(trace, "tree").count("out + 1") == 1


def test_what_a_library_calls_in_its_closure_is_the_program_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "tglightning" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    trace, _ = run(tmp_path, TASK)
    for view in ("tree", "code"):
        assert any("y.square().mean()" in line for line in written(trace, view)), view
        assert any("net(torch.ones(4, 3))" in line for line in written(trace, view)), view


NO_GRAD = """
import torch

@torch.no_grad()
def generate(x):
    y = x + 1
    return y.exp()

# From torch 2.15 on the frame of the decorator has the name of the context manager.
generate.__code__ = generate.__code__.replace(co_name="no_grad", co_qualname="no_grad")
"""
GENERATES = """
def main():
    from tggenerating import generate
    return generate(torch.ones(2))
"""


def test_what_a_library_does_under_no_grad_is_shown_whatever_the_frame_of_the_decorator_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "tggenerating.py"
    package.parent.mkdir(parents=True)
    package.write_text(NO_GRAD)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    trace, _ = run(tmp_path, GENERATES)
    assert {"no_grad"} < {at.function for event in trace.events() for at in event.stack}
    assert "y = x + 1" in written(trace, "tree")
