"""Changes of variables are events among the others, joined by value to what made them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchglass as tg


def of(trace: tg.Trace, name: str) -> list[tg.Event]:
    """The changes of one variable."""
    return list(trace.events(variable=name))


def life(trace: tg.Trace, name: str) -> list[tuple[str, str, str]]:
    """How a variable got each of its values."""
    return [(event.detail, event.args, event.result) for event in of(trace, name)]


def attend(x: Tensor) -> Tensor:
    scores = x @ x.T
    weights = scores.softmax(dim=-1)
    out = weights @ x
    return out  # noqa: RET504 (a variable to follow)


def test_each_assignment_is_an_event_with_its_line_and_statement() -> None:
    with tg.record(variables=True) as trace:
        attend(torch.ones(3, 2))
    first = attend.__code__.co_firstlineno
    found = [(event.name, event.detail, event.line, event.code) for event in trace.events(kind="variable")]
    assert found == [
        ("x", "argument", first, ""),
        ("scores", "assigned", first + 1, "scores = x @ x.T"),
        ("weights", "assigned", first + 2, "weights = scores.softmax(dim=-1)"),
        ("out", "assigned", first + 3, "out = weights @ x"),
    ]
    assert {event.function for event in trace.events(kind="variable")} == {"attend"}
    assert trace.notes == ()


@pytest.mark.parametrize("ops", [False, True])
def test_a_value_knows_the_function_or_op_that_made_it(ops: bool) -> None:
    with tg.record(variables=["weights"], ops=ops) as trace:
        attend(torch.ones(3, 2))
    (event,) = of(trace, "weights")
    producer = trace.event(event.outputs[0].producer)  # type: ignore[arg-type]
    assert producer.name == ("aten::_softmax" if ops else "Tensor.softmax")
    assert producer.outputs[0].id == event.outputs[0].id
    assert producer.line == event.line


def test_the_module_under_way_is_told() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.fc(x)
            return hidden  # noqa: RET504 (a variable to follow)

    model = nn.Sequential(Net(), Net())
    with tg.record(variables=["hidden"]) as trace:
        model(torch.ones(1, 2))
    assert [event.module for event in of(trace, "hidden")] == ["0", "1"]
    parents = [trace.event(event.parent) for event in of(trace, "hidden") if event.parent is not None]
    assert [(parent.kind, parent.name) for parent in parents] == [("module", "Net")] * 2


class TestInPlace:
    def test_a_torch_function_tells_every_variable_that_holds_the_tensor(self) -> None:
        def run() -> None:
            a = torch.zeros(2)
            b = a
            a.add_(1)
            a[0] = 5
            a = a + 1
            a.mul_(2)
            b.sub_(1)

        with tg.record(variables=["a", "b"]) as trace:
            run()
        assert [(event.name, event.detail) for event in trace.events(kind="variable")] == [
            ("a", "assigned"), ("b", "assigned"),
            ("a", "changed"), ("b", "changed"), ("a", "changed"), ("b", "changed"),
            ("a", "assigned"), ("a", "changed"), ("b", "changed"),
        ]  # fmt: skip
        changed = [event for event in of(trace, "a") if event.detail == "changed"]
        assert [trace.event(event.outputs[0].producer).name for event in changed] == [  # type: ignore[arg-type]
            "Tensor.add_", "Tensor.__setitem__", "Tensor.mul_",
        ]  # fmt: skip
        assert all(event.inputs[0].id != event.outputs[0].id for event in changed)

    def test_a_function_that_has_returned_holds_nothing(self) -> None:
        kept: list[Tensor] = []

        def make() -> None:
            inside = torch.zeros(2)
            kept.append(inside)

        with tg.record(variables=["inside"]) as trace:
            make()
            kept[0].add_(1)
        assert [event.detail for event in of(trace, "inside")] == ["assigned"]

    def test_without_the_functions_probe_versions_are_compared(self) -> None:
        def run() -> None:
            a = torch.zeros(2)
            a.add_(1)
            return

        with tg.record(variables=["a"], functions=False) as trace:
            run()
        assert [event.detail for event in of(trace, "a")] == ["assigned", "changed"]

    def test_arrays_and_containers(self) -> None:
        def run() -> None:
            array = np.zeros((2, 3))
            array[0] = 1
            items = [1]
            items.append(2)
            items = None

        with tg.record(variables=["array", "items"]) as trace:
            run()
        assert life(trace, "array") == [
            ("assigned", "", "f64[2, 3] numpy"),
            ("changed", "f64[2, 3] numpy", "f64[2, 3] numpy"),
        ]
        assert life(trace, "items") == [
            ("assigned", "", "[1]"), ("changed", "[1]", "[1, 2]"), ("assigned", "[1, 2]", "None")
        ]  # fmt: skip
        first, second = of(trace, "array")
        assert first.outputs[0].id != second.outputs[0].id
        assert first.outputs[0].storage == second.outputs[0].storage


def test_deletion_gives_nothing() -> None:
    def run() -> None:
        x = torch.ones(1)
        del x

    with tg.record(variables=["x"]) as trace:
        run()
    assert life(trace, "x") == [("assigned", "", "f32[1]"), ("deleted", "f32[1]", "")]


def test_a_name_that_never_appears_is_said_with_near_ones() -> None:
    with tg.record(variables=["wieghts"]) as trace:
        attend(torch.ones(3, 2))
    assert any("'wieghts' never appeared" in note and "'weights'" in note for note in trace.notes)


def test_recordings_inside_each_other_have_what_each_asked_for() -> None:
    def run() -> None:
        a = torch.zeros(1)
        b = a + 1
        a.add_(b)

    with tg.record(variables=["a"]) as outer:
        with tg.record(variables=["a", "b"]) as inner:
            run()
        with tg.record() as none:
            run()
    changes = [("a", "assigned"), ("a", "changed")]
    assert [(e.name, e.detail) for e in inner.events(kind="variable")] == [
        ("a", "assigned"), ("b", "assigned"), ("a", "changed")
    ]  # fmt: skip
    assert [(e.name, e.detail) for e in outer.events(kind="variable")] == changes * 2
    assert list(none.events(kind="variable")) == []


@pytest.mark.parametrize("wrong", [5, [1], object()])
def test_variables_are_names(wrong: Any) -> None:
    with pytest.raises(tg.WrongType, match=r"record\(variables=…\) takes names"):
        tg.record(variables=wrong)


def test_results_and_versions_are_the_same() -> None:
    def run() -> tuple[Tensor, int]:
        torch.manual_seed(0)
        x = torch.rand(3, 2, requires_grad=True)
        y = attend(x)
        y = y.clone().add_(1)
        y.sum().backward()
        assert x.grad is not None
        return x.grad, y._version

    plain = run()
    with tg.record(variables=True):
        recorded = run()
    assert torch.equal(plain[0], recorded[0])
    assert plain[1] == recorded[1]
    assert sys.gettrace() is None


def test_a_program_without_torch(tmp_path: Any) -> None:
    """Nothing of torch can be imported; numpy programs are followed all the same."""
    script = """
        import sys
        sys.modules["torch"] = None
        import numpy as np
        import torchglass as tg

        def load(n):
            video = np.zeros((n, 4, 3), dtype=np.uint8)
            video = video.transpose(2, 0, 1)
            video = video.astype(np.float32)
            return video

        with tg.record(variables=["video"], to="plain.trace") as trace:
            load(2)
        for event in tg.load("plain.trace").events():
            print(event.name, event.detail, event.args, "->", event.result, event.outputs[0].kind)
    """
    path = tmp_path / "plain.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "video assigned  -> u8[2, 4, 3] numpy array",
        "video assigned u8[2, 4, 3] numpy -> u8[3, 2, 4] numpy array",
        "video assigned u8[3, 2, 4] numpy -> f32[3, 2, 4] numpy array",
    ]
