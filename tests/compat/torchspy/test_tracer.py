"""CallTracer notes the modules in the order in which they return, and takes its hooks off again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.zoo import FAMILIES
from torchglass.compat.torchspy import CallTracer
from torchglass.compat.torchspy.trace_graph import parse_trace


@pytest.fixture
def tracer(tmp_path):
    return CallTracer(tmp_path / "traces")


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_the_order_is_that_in_which_a_recording_saw_the_calls_end(tracer, family):
    network, inputs = FAMILIES[family]()
    tracer.register_hooks(network)
    with tg.record() as trace, torch.no_grad():
        network(**inputs)
    ended = sorted(trace.events(kind="module"), key=lambda event: event.end_ns)
    # A module shared by two parents is noted under its first path, a recording knows the caller's.
    first = {path: tracer.get_module_path(module) for path, module in network.named_modules(remove_duplicate=False)}
    assert tracer.call_trace == [first[event.module] for event in ended]
    assert len(tracer.call_trace) > 20


def test_a_module_is_noted_when_its_forward_returns(tracer, model):
    tracer.register_hooks(model)
    model(torch.ones(2))
    assert tracer.get_trace() == ["0", "1.0", "1.1", "1", "root"]
    tracer.get_trace().append("mine")
    assert len(tracer.call_trace) == 5
    tracer.reset_trace()
    assert tracer.call_trace == []


def test_filters_are_those_of_the_saver(tracer, model):
    tracer.register_hooks(model, target_classes=(nn.Linear,), target_names=["1"], exclude_names=["0"])
    model(torch.ones(2))
    assert (tracer.call_trace, len(tracer.hooks), list(tracer.module_paths.values())) == (["1.1"], 1, ["1.1"])


def test_removed_hooks_leave_the_model_as_it_was(tracer, model):
    before = [list(module._forward_hooks) for module in model.modules()]
    tracer.register_hooks(model)
    assert len(tracer.hooks) == 5
    tracer.remove_hooks()
    assert tracer.hooks == []
    assert [list(module._forward_hooks) for module in model.modules()] == before
    model(torch.ones(2))
    assert tracer.call_trace == []
    tracer.register_hooks(model)
    model(torch.ones(2))
    assert len(tracer.call_trace) == 5


def test_modules_added_later_are_hooked_by_registering_again_and_none_twice(tracer, model):
    tracer.register_hooks(model)
    model.append(nn.Tanh())
    model(torch.ones(2))
    assert "2" not in tracer.call_trace
    tracer.register_hooks(model)
    tracer.reset_trace()
    model(torch.ones(2))
    assert tracer.call_trace == ["0", "1.0", "1.1", "1", "2", "root"]
    assert len(tracer.hooks) == 6


def test_a_module_under_two_paths_is_noted_once_a_call_under_the_first(tracer):
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    tracer.register_hooks(model)
    model(torch.ones(2))
    assert tracer.call_trace == ["0", "1", "0", "root"]


def test_a_forward_that_raises_is_not_noted_and_the_error_goes_on(tracer):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    tracer.register_hooks(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.ones(1, 2))
    assert tracer.call_trace == ["0"]


def test_as_a_context_manager_it_begins_anew_and_is_as_before_afterwards(tmp_path, model):
    tracer = CallTracer(tmp_path, enabled=False)
    tracer.register_hooks(model)
    model(torch.ones(2))
    assert tracer.call_trace == []
    with tracer as same:
        assert same is tracer
        model(torch.ones(2))
    model(torch.ones(2))
    assert (len(tracer.call_trace), tracer.enabled) == (5, False)
    with tracer:
        assert tracer.call_trace == []


def test_outputs_are_the_same_with_hooks(tracer, model):
    plain = model(torch.ones(2))
    tracer.register_hooks(model)
    assert torch.equal(model(torch.ones(2)), plain)


def test_the_file_has_one_line_for_each_call_whatever_the_names(tracer):
    model = nn.Sequential()
    for name in ("two\nlines", "nul\0", "\ud800", "../up", "x" * 300):
        model.add_module(name.replace(".", "·"), nn.Identity())
    tracer.register_hooks(model)
    model(torch.ones(1))
    assert tracer.save_trace().name == "call_trace.txt"
    paths = parse_trace(tracer.output_dir / "call_trace.txt")
    assert len(paths) == 6
    assert paths[0] == "two\\nlines"
    assert paths[-1] == "root"


@pytest.mark.parametrize("filename", ["nul\0.txt", "line\nline.txt", "\ud800.txt", "x" * 300 + ".txt"])
def test_a_file_name_that_no_file_can_have_is_spelt_otherwise(tracer, filename):
    path = tracer.save_trace(filename)
    assert list(tracer.output_dir.iterdir()) == [path]
    assert path.suffix == ".txt"


def test_a_path_is_seen_from_the_output_folder(tracer, tmp_path, model):
    """As in torchspy: also one that is absolute, leads elsewhere, or is no string."""
    tracer.register_hooks(model)
    model(torch.ones(2))
    folder = tracer.output_dir
    given = {
        Path("p.txt"): folder / "p.txt",
        "sub/deep/b.txt": folder / "sub" / "deep" / "b.txt",
        str(tmp_path / "absolute.txt"): tmp_path / "absolute.txt",
        "../up~1%.txt": folder / ".." / "up~1%.txt",
        ".hidden": folder / ".hidden",
    }
    for filename, expected in given.items():
        assert tracer.save_trace(filename) == expected
        assert parse_trace(expected) == tracer.call_trace
