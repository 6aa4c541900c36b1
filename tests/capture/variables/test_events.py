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
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.variables import UNBOUND
from torchglass.capture.variables.events import LastReport, VariableEvents
from torchglass.journal.layout import INPUTS, NONE, OUTPUTS
from torchglass.system import get_ident


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

    @pytest.mark.parametrize("ops", [False, True])
    def test_what_a_function_writes_into_out(self, ops: bool) -> None:
        def run() -> None:
            a = torch.zeros(2, 3)
            torch.add(a, 1, out=a)
            b = torch.zeros(2, dtype=torch.long)
            c = torch.zeros(2)
            torch.max(a, 1, out=(c, b))
            torch.add(a, 1, out=None)

        with tg.record(variables=True, ops=ops) as trace:
            run()
        changed = [event for event in trace.events(kind="variable") if event.detail == "changed"]
        assert [(event.name, event.code) for event in changed] == [
            ("a", "torch.add(a, 1, out=a)"),
            ("c", "torch.max(a, 1, out=(c, b))"), ("b", "torch.max(a, 1, out=(c, b))"),
        ]  # fmt: skip
        assert all(event.inputs[0].id != event.outputs[0].id for event in changed)
        made = {trace.event(event.outputs[0].producer).kind for event in changed}  # type: ignore[arg-type]
        assert made == {"op" if ops else "function"}

    def test_other_memory_for_a_tensor(self) -> None:
        """No mode sees ``set_``."""

        def run() -> None:
            a = torch.zeros(4)
            a.set_(torch.ones(5))
            a.set_()

        original = torch.Tensor.set_
        with tg.record(variables=["a"]) as trace:
            run()
        assert life(trace, "a") == [
            ("assigned", "", "f32[4]"), ("changed", "f32[4]", "f32[5]"), ("changed", "f32[5]", "f32[0]")
        ]  # fmt: skip
        assert [event.code for event in of(trace, "a")[1:]] == ["a.set_(torch.ones(5))", "a.set_()"]
        assert torch.Tensor.set_ is original
        assert "set_" not in vars(torch.Tensor)

    def test_none_in_the_place_of_a_tensor(self) -> None:
        class Holder:
            cache: Any = None

        holder = Holder()

        def run() -> None:
            holder.cache = torch.ones(3)
            holder.cache = None
            holder.cache = 1

        with tg.record(variables=["holder.cache"]) as trace:
            run()
        assert life(trace, "holder.cache")[1:] == [("assigned", "f32[3]", "None"), ("assigned", "None", "1")]

    def test_sets_show_how_many(self) -> None:
        def run() -> None:
            names = {"a"}
            names.add("b")
            names = frozenset(names)
            del names

        with tg.record(variables=["names"]) as trace:
            run()
        assert [result for _, _, result in life(trace, "names")] == ["<set of 1>", "<set of 2>", "<frozenset of 2>", ""]


def test_arrays_over_memory_that_is_known_share_it() -> None:
    def run() -> None:
        a = torch.zeros(4)
        b = np.from_dlpack(a)
        c = b[1:]
        d = np.asarray(memoryview(c))
        e = np.from_dlpack(a[2:])
        other = np.zeros(4)
        view = other[::2]
        assert all(np.shares_memory(b, each) for each in (c, d, e))
        del view

    with tg.record(variables=True) as trace:
        run()
    storages = {event.name: event.outputs[0].storage for event in trace.events(kind="variable") if event.outputs}
    assert {storages[name] for name in "abcde"} == {storages["a"]}
    assert storages["a"] is not None
    assert storages["other"] == storages["view"] != storages["a"]


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


def test_a_closures_variable_shows_what_another_function_gave_it() -> None:
    def run() -> None:
        count = 1

        def first() -> None:
            nonlocal count
            count = 2

        def second() -> None:
            nonlocal count
            count = 3

        first()
        second()
        count = 4

    with tg.record(variables=["count"]) as trace:
        run()
    assert life(trace, "count")[1:3] == [("assigned", "1", "2"), ("assigned", "2", "3")]


class TestStacks:
    """The stack above a call is walked once, and yet each change has the whole of it."""

    def test_in_recursion_each_call_has_its_own(self) -> None:
        def down(depth: int) -> None:
            left = torch.zeros(depth)
            if depth:
                down(depth - 1)
            left = left + 1

        with tg.record(variables=["left"]) as trace:
            down(20)
        depths = [sum(each.function.endswith("down") for each in event.stack) for event in of(trace, "left")]
        assert depths == [*range(1, 22), *range(21, 0, -1)]
        for event in of(trace, "left"):
            producer = trace.event(event.outputs[0].producer)  # type: ignore[arg-type]
            assert [(each.file, each.line) for each in event.stack] == [(p.file, p.line) for p in producer.stack]

    def test_a_generator_has_those_of_whoever_resumes_it(self) -> None:
        def numbers() -> Any:
            number = 1
            yield number
            number = 2
            yield number

        def first(source: Any) -> None:
            next(source)

        def second(source: Any) -> None:
            next(source)

        with tg.record(variables=["number"]) as trace:
            source = numbers()
            first(source)
            second(source)
        callers = [[each.function.rsplit(".", 1)[-1] for each in event.stack][-2:] for event in of(trace, "number")]
        assert callers == [["first", "numbers"], ["second", "numbers"]]


def test_variables_are_followed_behind_errors_in_functions_and_modules() -> None:
    def run() -> None:
        for wrong in (lambda: torch.ones(2) @ torch.ones(3), lambda: nn.Linear(2, 2)(torch.ones(1, 3))):
            with pytest.raises(RuntimeError):
                wrong()
            after = torch.ones(1)
            after = after + 1

    with tg.record(variables=["after"]) as trace:
        run()
    assert len(of(trace, "after")) == 4
    assert trace.notes == ()
    assert sys.gettrace() is None


def countdown(n: int) -> int:
    left = n - 1
    below = countdown(left) if left else 0
    return below + left


def letters(count: int) -> Any:
    for at in range(count):
        letter = "abc"[at]
        yield letter


def test_each_call_of_a_python_function_has_a_number() -> None:
    """Recursion, one call after the other and generators that take turns are told apart by it, and by nothing else."""
    with tg.record(variables=["left", "below", "letter"]) as trace:
        countdown(3)
        countdown(1)
        for _ in zip(letters(2), letters(2), strict=True):
            pass
        torch.ones(1)
    calls = [[event.python_call for event in of(trace, name)] for name in ("left", "below", "letter")]
    first, second, third, again = calls[0]
    assert len({first, second, third, again}) == 4
    assert calls[1] == [third, second, first, again]
    one, two = calls[2][:2]
    assert calls[2] == [one, two, one, two]
    assert len({*calls[0], one, two}) == 6
    (ones,) = trace.events(function="ones")
    assert ones.python_call is None
    rows = trace.sql("SELECT DISTINCT python_call FROM events WHERE kind = 'variable' ORDER BY 1")
    assert rows == [(number,) for number in range(6)]


def test_a_change_without_room_for_its_values_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = torch.ones(2), torch.ones(2)
    with tg.record():
        log, frame = LOGS[get_ident()], sys._getframe()
        write, last = VariableEvents(log.session)._write, {}
        change = ("x", frame.f_code, 0, 1, "", "assigned", UNBOUND)
        write(log, (*change, first, 0), NONE, last, False)
        monkeypatch.setattr(ThreadLog, "add_ids", lambda *_: NONE)
        at = log.at
        write(log, (*change, second, 0), NONE, last, False)
        monkeypatch.undo()
        assert (log.at, log.word(at, INPUTS), log.word(at, OUTPUTS)) == (at + 1, NONE, NONE)


def test_a_call_that_another_thread_ends_while_its_tensor_is_reported() -> None:
    tensor = torch.ones(2)
    reported: list[str] = []
    with tg.record():
        log, frame = LOGS[get_ident()], sys._getframe()
        events = VariableEvents(log.session)
        for serial in range(2):
            call = events.calls.begin(serial, log, frame)
            call.last[f"x{serial}"] = LastReport(0, (), id(tensor), 0, (1, None))

        def write(log: ThreadLog, change: Any, *_: Any) -> None:
            reported.append(change[0])
            events.calls.clear()  # as another thread might

        events._write = write
        events.written(tensor)
    assert reported == ["x0"]
