"""How a module is found in its model and when it is described: right in every shape of model, and at a flat price."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.work import work_of

X = torch.ones(2, 3)


class Deep(nn.Module):
    """Calls modules that it holds by name, in a list, and in lists of lists."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Dropout(0.25)
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(width))
        self.grid = nn.ModuleDict({"a": nn.ModuleList([nn.ReLU(), nn.Tanh()]), "b": nn.ModuleList([nn.GELU()])})

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(self.first(x))
        for row in self.grid.values():
            for cell in row:
                x = cell(x)
        return x


@pytest.mark.parametrize("width", [1, 12, 300])
def test_paths_are_those_that_torch_gives(width: int) -> None:
    model = Deep(width)
    names = {id(module): name for name, module in model.named_modules()}
    called: list[str] = []
    for module in model.modules():
        module.register_forward_hook(lambda module, *_: called.append(names[id(module)]))
    with tg.record(functions=False) as trace:
        model(X)
    assert sorted(event.module or "" for event in trace.events()) == sorted(called)
    assert {"", "first", "blocks.0", f"blocks.{width - 1}", "grid.a.1", "grid.b.0"} <= set(called)


def test_a_module_is_searched_below_its_caller() -> None:
    """The same module is in two branches, and each call has the path of its own branch."""

    class Branch(nn.Module):
        def __init__(self, shared: nn.Module) -> None:
            super().__init__()
            self.layers = nn.ModuleList([shared])

        def forward(self, x: Any) -> Any:
            return self.layers[0](x)

    shared = nn.ReLU()
    with tg.record(functions=False) as trace:
        nn.Sequential(Branch(shared), Branch(shared))(X)
    assert [event.module for event in trace.events()] == ["", "0", "0.layers.0", "1", "1.layers.0"]


def test_the_work_for_new_modules_grows_with_their_number_only() -> None:
    def work(count: int) -> int:
        model = nn.Sequential(*(nn.ReLU() for _ in range(count)))

        def block() -> None:
            with tg.record(functions=False):
                model(X)

        block()
        return work_of(block)

    # Of so many children the paths are worked out once; below that each is looked for by itself.
    few, more, many = work(300), work(400), work(1200)
    assert many - more == pytest.approx(8 * (more - few), rel=0.1)
    few, more, many = work(20), work(40), work(200)
    assert many - more == pytest.approx(8 * (more - few), rel=0.1)


def test_settings_are_there_for_whoever_looks_inside_the_call(tmp_path: Path) -> None:
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Dropout(0.25)

        def forward(self, x: Any) -> Any:
            x = self.inner(x)
            seen.append(next(event.detail for event in trace.events() if event.module == "inner"))
            return x

    for to in (None, tmp_path / "run.trace"):
        seen: list[str] = []
        with tg.record(functions=False, to=to) as trace:
            Looking()(X)
        assert seen == ["p=0.25, inplace=False"]


def test_settings_are_there_after_an_exception() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Dropout(0.25)

        def forward(self, x: Any) -> Any:
            raise ValueError(self.inner(x))

    with tg.record(functions=False) as trace:
        with pytest.raises(ValueError):
            Failing()(X)
        details = [event.detail for event in trace.events()]
    assert details == ["", "p=0.25, inplace=False"]


def test_a_module_that_cannot_show_itself_costs_its_settings_only() -> None:
    model = nn.Sequential(nn.Dropout(0.25), nn.Linear(3, 3))
    del model[0].p
    model[0].forward = lambda x: x
    with tg.record(functions=False) as trace:
        model(X)
    assert [event.detail for event in trace.events()] == ["", "", "in_features=3, out_features=3, bias=True"]
    assert all(event.end_ns >= event.start_ns for event in trace.events())
    assert any("failed to record" in note for note in trace.notes)


class Marked(torch.Tensor):
    """A parameter of a class of the program's own."""


def test_to_read_parameters_is_no_event() -> None:
    """Those that C cannot read itself are Python's, which asks torch: without versions, or of a class of their own."""
    with torch.inference_mode():
        unversioned = nn.Linear(3, 3)
    marked = nn.Dropout().eval()
    marked.register_parameter("unused", nn.Parameter(torch.ones(2).as_subclass(Marked)))
    for module, called in ((unversioned, ["F.linear"]), (marked, ["F.dropout", "dropout"])):
        with torch.inference_mode(), tg.record() as trace:
            nn.Sequential(module)(X)
        assert [event.name for event in trace.events()] == ["Sequential", type(module).__name__, *called]


class Choosing(nn.Module):
    """Holds more than a call needs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.lazy = nn.Linear(3, 3), nn.Linear(3, 3), nn.LazyLinear(3)

    def forward(self, x: Any, name: str) -> Any:
        return getattr(self, name)(x)


def described(trace: tg.Trace) -> dict[str, tuple[str, list[str]]]:
    return {each.path: (each.name, [value.role for value in each.parameters]) for each in trace.modules() if each.path}


def test_what_was_not_called_is_known_of_a_model_that_is_gone() -> None:
    """As in a script with a ``main``: when the recording ends, nothing is left of what it made."""
    with tg.record() as trace:
        y, _ = nn.MultiheadAttention(8, 2)(*[torch.rand(3, 1, 8)] * 3)
        y.sum().backward()
    assert described(trace) == {"out_proj": ("NonDynamicallyQuantizableLinear", ["weight", "bias"])}
    assert sum(prod(value.shape or ()) for each in trace.modules() for value in each.parameters) == 288


def test_what_is_called_later_is_described_again() -> None:
    with tg.record() as trace:
        model = Choosing()
        for name in ("one", "lazy", "one"):
            model(X, name)
        del model
    both = ["weight", "bias"]
    assert described(trace) == {"one": ("Linear", both), "other": ("Linear", both), "lazy": ("Linear", both)}
    assert [event.module for event in trace.events(kind="module")] == ["", "one", "", "lazy", "", "one"]
