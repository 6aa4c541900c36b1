"""The modules probe: every call, where it stood in the model, what it took and gave."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests import programs
from tests.zoo import FAMILIES

X = torch.ones(2, 3)


class Pair(NamedTuple):
    left: Tensor
    right: Any


class PairOfOurs(Pair):
    """A subclass of a named tuple."""


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


class OutputOfOurs(Output):
    """Inherits its fields, without the decorator."""


@dataclass(slots=True)
class Slotted:
    logits: Tensor
    rest: Any = None


class Tuple(tuple):
    """A tuple that is called otherwise."""

    def __iter__(self) -> Any:
        raise AssertionError("the program's own code must not run")


class List(list):
    """A list that is called otherwise."""


class Returns(nn.Module):
    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


class Signature(nn.Module):
    def forward(self, x: Any, *rest: Any, flag: bool = False, mask: Any = None, **more: Any) -> Any:
        return x


class Shares(nn.Module):
    """A layer under two paths, through two callers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(3, 3)
        self.encoder, self.decoder = nn.Sequential(layer), nn.Sequential(layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


def calls(trace: tg.Trace) -> list[tg.Event]:
    return list(trace.events(kind="module"))


def roles(values: tuple[tg.Value, ...]) -> list[str]:
    return [value.role for value in values]


def test_nested_in_order_with_path_and_class() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 1))
    events = calls(tg.trace(model, X))
    assert [(e.name, e.module, e.root, e.call) for e in events] == [
        ("Sequential", "", "Sequential", 0),
        ("Sequential", "0", "Sequential", 0),
        ("Linear", "0.0", "Sequential", 0),
        ("ReLU", "0.1", "Sequential", 0),
        ("Linear", "1", "Sequential", 0),
    ]
    assert [e.parent for e in events] == [None, events[0].id, events[1].id, events[1].id, events[0].id]
    assert [e.outputs[0].shape for e in events] == [(2, 1), (2, 4), (2, 4), (2, 4), (2, 1)]
    for event in events:
        assert event.start_ns <= (event.end_ns or 0)


def test_a_function_knows_the_module_it_runs_in() -> None:
    trace = tg.trace(nn.Sequential(nn.Linear(3, 4)), X)
    linear = next(trace.events(function="linear"))
    assert (linear.module, linear.root, trace.event(linear.parent or 0).name) == ("0", "Sequential", "Linear")
    with tg.record() as outside:
        torch.relu(X)
    assert (next(outside.events()).module, next(outside.events()).root) == (None, None)


def test_settings_are_what_the_class_shows() -> None:
    assert calls(tg.trace(nn.Linear(3, 4, bias=False), X))[0].detail == nn.Linear(3, 4, bias=False).extra_repr()


def test_settings_of_own_classes_run_no_own_code() -> None:
    class Own(nn.Module):
        def __init__(self, width: int, data: Any, *, name: str = "n") -> None:
            super().__init__()
            self.width, self.data, self.name = width, data, name

        def extra_repr(self) -> str:
            raise AssertionError("ours to show, not to run")

        __repr__ = extra_repr

        def forward(self, x: Tensor) -> Tensor:
            return x

    trace = tg.trace(Own(4, object()), X)
    assert calls(trace)[0].detail == "width=4, name='n'"
    assert not any("failed" in note for note in trace.notes)


def test_inputs_have_the_names_of_the_parameters() -> None:
    event = calls(tg.trace(Signature(), X, X, [X, 3], mask=X, other={"k": X}, flag=True))[0]
    assert roles(event.inputs) == ["x", "rest[0]", "rest[1][0]", "mask", "other['k']"]
    assert event.args == "f32[2, 3], f32[2, 3], [f32[2, 3], 3], mask=f32[2, 3], other={'k': f32[2, 3]}, flag=True"


def test_called_twice() -> None:
    events = calls(programs_trace("called_twice"))
    counted: dict[tuple[str | None, str | None], int] = defaultdict(int)
    for event in events:
        assert event.call == counted[event.root, event.module]
        counted[event.root, event.module] += 1
    assert max(counted.values()) > 1


def programs_trace(name: str) -> tg.Trace:
    return tg.trace(programs.load(name).main)


def test_one_module_under_two_paths_has_the_path_through_its_caller() -> None:
    events = [e for e in calls(tg.trace(Shares(), X)) if e.name == "Linear"]
    assert [(e.module, e.call) for e in events] == [("encoder.0", 0), ("decoder.0", 0)]
    infos = [m for m in tg.trace(Shares(), X).modules() if m.name == "Linear"]
    assert [v.id for v in infos[0].parameters] == [v.id for v in infos[1].parameters]


def test_shared_parameters_are_one_value() -> None:
    infos = {info.path: info for info in programs_trace("two_paths").modules()}
    assert infos["embed"].parameters[0].id == infos["head"].parameters[0].id
    assert infos["embed"].parameters[0].role == "weight"


def test_containers_that_are_not_called_leave_their_name_in_the_path() -> None:
    model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])})

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            for block in self.parts["blocks"]:
                x = block(x)
            return x

    assert [e.module for e in calls(tg.trace(Holder(), X))] == ["", "parts.blocks.0", "parts.blocks.1"]


def test_a_root_in_a_root_and_two_of_one_class() -> None:
    events = calls(programs_trace("root_in_root"))
    assert [(e.name, e.root, e.module) for e in events] == [
        ("Student", "Student", ""),
        ("Linear", "Student", "body"),
        ("Student", "Student#2", ""),
        ("Linear", "Student#2", "body"),
        ("Student", "Student#3", ""),
        ("Linear", "Student#3", "body"),
    ]
    assert events[2].parent == events[0].id


def test_a_lazy_module_is_shown_as_what_it_became() -> None:
    trace = programs_trace("lazy")
    infos = {info.path: info for info in trace.modules()}
    assert (infos["3"].name, infos["3"].parameters[0].shape) == ("Linear", (2, 36))
    assert infos["3"].detail == "in_features=36, out_features=2, bias=True"
    assert [e.name for e in calls(trace) if e.module == "3"] == ["Linear", "Linear"]


def test_outputs_are_those_after_the_hooks() -> None:
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda module, args, out: {"out": out, "in": args[0]})
    layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    event = calls(tg.trace(layer, X))[0]
    assert roles(event.outputs) == ["out['out']", "out['in']"]
    assert event.outputs[1].id != event.inputs[0].id


@pytest.mark.parametrize(
    ("make", "expected", "text"),
    [
        (lambda t: t, ["out"], "f32[2, 3]"),
        (lambda t: (t, [t]), ["out[0]", "out[1][0]"], "(f32[2, 3], [f32[2, 3]])"),
        (lambda t: (t,), ["out[0]"], "(f32[2, 3],)"),
        (lambda t: {"a": t, 3: t, "n": None}, ["out['a']", "out[3]"], "{'a': f32[2, 3], 3: f32[2, 3], 'n': None}"),
        (lambda t: OrderedDict(a=t), ["out['a']"], "{'a': f32[2, 3]}"),
        (lambda t: Pair(t, 7), ["out.left"], "Pair(left=f32[2, 3], right=7)"),
        (lambda t: PairOfOurs(t, t), ["out.left", "out.right"], "PairOfOurs(left=f32[2, 3], right=f32[2, 3])"),
        (lambda t: Output(t, (t, t)), ["out.logits", "out.hidden[0]", "out.hidden[1]"], None),
        (lambda t: OutputOfOurs(t), ["out.logits"], "OutputOfOurs(logits=f32[2, 3], hidden=())"),
        (lambda t: Slotted(t, [t]), ["out.logits", "out.rest[0]"], "Slotted(logits=f32[2, 3], rest=[f32[2, 3]])"),
        (lambda t: t.max(0), ["out.values", "out.indices"], "max(values=f32[3], indices=i64[3])"),
        (lambda t: Tuple((t, 1)), ["out[0]"], "(f32[2, 3], 1)"),
        (lambda t: List([t]), ["out[0]"], "[f32[2, 3]]"),
        (lambda t: None, [], "None"),
        (lambda t: object(), [], "<object>"),
    ],
)
def test_results_of_every_form(make: Callable[[Tensor], Any], expected: list[str], text: str | None) -> None:
    event = calls(tg.trace(Returns(make), X))[0]
    assert roles(event.outputs) == expected
    assert text is None or event.result == text


def test_a_model_output_of_transformers_by_field() -> None:
    model, inputs = FAMILIES["gpt2"]()
    event = calls(tg.trace(model, **inputs, output_hidden_states=True, use_cache=False))[0]
    assert roles(event.outputs)[:3] == ["out.logits", "out.hidden_states[0]", "out.hidden_states[1]"]
    assert roles(event.inputs) == ["input_ids"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_module_of_a_transformer_that_runs_is_seen(name: str) -> None:
    """Against torch's own hooks: the same modules, as often, in the same order, under a name they have."""
    model, inputs = FAMILIES[name]()
    order: list[nn.Module] = []
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, args: order.append(module))
    try:
        with torch.no_grad(), tg.record() as trace:
            model(**inputs)
    finally:
        handle.remove()
    events = calls(trace)
    assert [event.name for event in events] == [type(module).__name__ for module in order]
    names = defaultdict(set)
    for path, module in model.named_modules(remove_duplicate=False):
        names[id(module)].add(path)
    for event, module in zip(events, order, strict=True):
        if event.root == type(model).__name__:
            assert event.module in names[id(module)]


def test_an_exception_leaves_every_call_around_it() -> None:
    def fail(x: Tensor) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), tg.record() as trace:
        nn.Sequential(nn.ReLU(), nn.Sequential(Returns(fail)))(X)
    errors = {e.module: e.error for e in calls(trace)}
    assert errors == {"": "ValueError: mine", "0": None, "1": "ValueError: mine", "1.0": "ValueError: mine"}
    assert all(e.end_ns is not None for e in trace.events())
    assert trace.failure() == calls(trace)[-1]


def test_forward_called_directly_makes_no_module_event() -> None:
    trace = programs_trace("direct_forward")
    direct = nn.Linear(3, 3)
    with tg.record() as own:
        direct.forward(X)
    assert calls(own) == []
    assert [e.name for e in own.events()] == ["F.linear"]
    assert len(list(trace.events(kind="function"))) > 0


def test_modules_made_and_dropped_inside_are_distinguished_and_freed() -> None:
    with tg.record() as trace:
        for width in (1, 2, 3):
            layer = nn.Linear(3, width)
            gone = weakref.ref(layer)
            layer(X)
            del layer
            gc.collect()
            assert gone() is None
    assert [e.root for e in calls(trace)] == ["Linear", "Linear#2", "Linear#3"]
    assert [m.parameters[0].shape for m in trace.modules()] == [(1, 3), (2, 3), (3, 3)]


def test_a_model_that_changes_while_it_runs() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with tg.record() as trace:
        model(X)
        model[0] = nn.Linear(3, 2)
        model.append(nn.ReLU())
        model(X)
    events = calls(trace)
    assert [(e.name, e.module) for e in events[2:]] == [("Sequential", ""), ("Linear", "0"), ("ReLU", "1")]
    assert len({e.key for e in trace.events()}) == len(trace)


def test_a_module_that_calls_itself() -> None:
    class Counts(nn.Module):
        def forward(self, x: Tensor, n: int) -> Tensor:
            return self(x + 1, n - 1) if n else x

    events = calls(tg.trace(Counts(), X, 2))
    assert [(e.module, e.call, e.parent) for e in events] == [("", 0, None), ("", 1, 0), ("", 2, 2)]


def test_what_a_scripted_module_holds_is_found_in_it() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    with tg.record() as trace:
        scripted(X)
        scripted[0](X)
    assert trace.notes == ()
    assert [each.name for each in calls(trace)][-1] == "Linear"
