"""Both Tracy NN documents work with the import changed, and print what the document shows."""

import sys

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.programs.attention import MHA
from torchglass.capture.live import LiveFeed
from torchglass.compat.tracy_nn import Tracer, trace_model

SAMPLE_HEAD = """\
  ● TRACING MHA STARTED
  │
  ● query_weights (Linear) (in_features: 6, out_features: 6)
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 6] @ cpu
  │
  ● key_weights (Linear) (in_features: 6, out_features: 6)
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 6] @ cpu
  │
  ● value_weights (Linear) (in_features: 6, out_features: 6)
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 6] @ cpu
  │
  ● Tensor.view(10, 20, 3, 2) @ [MHA.split_heads]
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 3, 2] @ cpu
  │
"""
SAMPLE_TAIL = """\
  │
  ● Tensor.@ @ [MHA.calculate_attention]
  ├─ Left: Tensor [10, 3, 20, 20] @ cpu
  ├─ Right: Tensor [10, 3, 20, 2] @ cpu
  └─ Output: Tensor [10, 3, 20, 2] @ cpu
  │
  ● Tensor.transpose(1, 2) @ [MHA.combine_heads]
  ├─ Input: Tensor [10, 3, 20, 2] @ cpu
  └─ Output: Tensor [10, 20, 3, 2] @ cpu
  │
  ● Tensor.view(10, 20, 6) @ [MHA.combine_heads]
  ├─ Input: Tensor [10, 20, 3, 2] @ cpu
  └─ Output: Tensor [10, 20, 6] @ cpu
  │
  ● out_projection (Linear) (in_features: 6, out_features: 6)
  ├─ Input: Tensor [10, 20, 6] @ cpu
  └─ Output: Tensor [10, 20, 6] @ cpu
  │
  ● TRACING MHA COMPLETE
"""
RULE = "  " + "─" * 80 + "\n"


@pytest.fixture
def mha():
    torch.manual_seed(0)
    return MHA(6, 6, 20, 3, 32, 0.0)


@pytest.fixture
def x():
    return torch.rand(10, 20, 6)


def test_the_sample_of_the_document_comes_out_exactly(mha, x, capsys):
    tracer = Tracer("MHA")
    tracer.start(mha)
    mha(x)
    tracer.stop()
    printed = capsys.readouterr().out
    assert printed.startswith(RULE + SAMPLE_HEAD)
    assert printed.endswith(SAMPLE_TAIL + RULE)
    blocks = [line for line in printed.splitlines() if line.startswith("  ● ")]
    assert len(blocks) - 2 == printed.count("└─ Output")  # the invariant: every block has one end


def test_all_ways_in_print_the_same(mha, x, capsys):
    tracer = Tracer("MHA")
    with tracer.trace(mha) as given:
        mha(x)
    assert given is tracer
    first = capsys.readouterr().out
    quick = trace_model(mha, "MHA")
    assert not quick.active
    with quick.trace(mha):
        mha(x)
    assert capsys.readouterr().out == first
    with Tracer("MHA") as block:
        block.start(mha)
        mha(x)
    assert capsys.readouterr().out == first


def test_starting_twice_says_so_and_stopping_an_idle_one_does_nothing(mha, x, capsys):
    tracer = Tracer("MHA")
    tracer.stop()
    assert capsys.readouterr().out == ""
    tracer.start(mha)
    capsys.readouterr()
    tracer.start(mha)
    assert "traced already" in capsys.readouterr().out
    mha(x)
    tracer.stop()
    tracer.stop()
    assert capsys.readouterr().out.count("COMPLETE") == 1


def test_only_the_model_is_printed_but_all_is_recorded(mha, x, capsys):
    tracer = Tracer("MHA")
    with tracer.trace(mha):
        other = nn.Linear(6, 2)(x)
        torch.cat([other, other])
    assert "Linear" not in capsys.readouterr().out
    assert {event.name for event in tracer.recorded.events()} >= {"Linear", "cat"}


def test_what_the_original_missed_is_printed(capsys):
    class Joins(nn.Module):
        def forward(self, x):
            x = torch.cat([x, x], dim=-1)
            x += 1
            return torch.einsum("ij,kj->ik", x, x)[0]

    model = Joins()
    with Tracer("Joins").trace(model):
        model(torch.ones(2, 3))
    printed = capsys.readouterr().out
    assert "● torch.cat(" in printed
    assert "● Tensor.add_" in printed
    assert "● torch.einsum(" in printed
    assert "Tensor.__getitem__(0)" in printed


def test_a_container_prints_its_input_at_entry_and_its_children_further_in(capsys):
    model = nn.ModuleDict({"body": nn.Sequential(nn.Linear(4, 4), nn.ReLU())})
    model.forward = lambda x: model["body"](x)
    with Tracer("net").trace(model):
        model(torch.ones(2, 4))
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("  ● body (Sequential)"))
    assert lines[head + 1] == "  ├─ Input: Tensor [2, 4] @ cpu"
    assert any(line.startswith("    ● ") and "(Linear)" in line for line in lines[head:])
    assert "F.linear" not in "\n".join(lines)


def test_an_exception_prints_the_failing_step_and_stops_the_tracer(capsys):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 2))
    tracer = Tracer("net")
    tracer.start(model)
    with pytest.raises(RuntimeError) as caught:
        model(torch.ones(1, 4))
    printed = capsys.readouterr().out
    assert f"└─ Error: RuntimeError: {caught.value}" in printed
    assert printed.count("COMPLETE") == 1
    assert not tracer.active
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl
    assert tracer.recorded.failure().name == "F.linear"


def test_two_tracers_leave_nothing_behind(mha, x, capsys):
    one, other = Tracer("one"), Tracer("other")
    one.start(mha)
    other.start(mha)
    one.stop()
    other.stop()
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl
    capsys.readouterr()
    mha(x)
    assert capsys.readouterr().out == ""


def test_colour_only_on_a_terminal(mha, x, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with Tracer("MHA").trace(mha):
        mha(x)
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with Tracer("MHA").trace(mha):
        mha(x)
    assert "\x1b[" in capsys.readouterr().out


@pytest.mark.parametrize("start", [lambda: Tracer().start(None), lambda: trace_model("no model")])
def test_something_that_is_no_model(start):
    with pytest.raises(tg.WrongType, match="takes a model"):
        start()


def test_the_names_are_at_the_top():
    assert tg.Tracer is Tracer
    assert tg.trace_model is trace_model
    assert "Tracer" not in tg.__all__


class Changing(nn.Module):
    """Passes the same places again and again, and never in quite the same way."""

    def __init__(self):
        super().__init__()
        self.lazy = nn.LazyLinear(4)
        self.branch = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)))
        self.attention = nn.MultiheadAttention(4, 2)
        self.calls = 0

    def step(self, y, times):
        print(f"step {times}")
        return (self.branch(y) * times).sum(dim=times % 2, keepdim=True) + y

    def forward(self, x, fail=False):
        self.calls += 1
        y = self.lazy(x)
        for times in range(3):
            y = self.step(y, times)
            y = torch.cat([y, y[:1]])
        y, _ = self.attention(y, y, y)
        if fail:
            y = y @ y
        return {"y": y.contiguous(), "parts": [y.chunk(self.calls), None, self.calls]}


def printed_by(model, capsys):
    """What two calls, one of another shape and one that fails print."""
    torch.manual_seed(0)
    with Tracer("changing").trace(model):
        for rows, fail in ((3, False), (3, False), (5, False), (5, True)):
            try:
                model(torch.ones(rows, 3), fail)
            except RuntimeError:
                print("failed")
    return capsys.readouterr().out


def test_calls_that_are_reported_as_a_whole_print_what_they_print_edge_by_edge(capsys, monkeypatch):
    at_once = printed_by(Changing(), capsys)
    edge_by_edge = lambda *given, brief, **options: LiveFeed(*given, **options)  # noqa: E731 (as long as its name)
    monkeypatch.setattr("torchglass.compat.tracy_nn.LiveFeed", edge_by_edge)
    assert at_once == printed_by(Changing(), capsys)
    assert at_once.count("●") > 90


def test_what_changes_between_calls_from_one_place_is_printed_as_it_is(capsys):
    printed = printed_by(Changing(), capsys)
    assert [f"Tensor.sum(dim={dim}, keepdim=True)" in printed for dim in (0, 1)] == [True, True]
    cats = [block.split("Output: ")[1].split("\n")[0] for block in printed.split("torch.cat(")[1:]]
    grown = [[f"Tensor [{rows + more}, 4] @ cpu" for more in (1, 2, 3)] for rows in (3, 3, 5, 5)]
    assert cats == [each for call in grown for each in call]
    first_step = printed.split("step 0\n")[1].split("step 1\n")[0]
    assert first_step.index("branch (Sequential)") < first_step.index("Tensor.mul") < first_step.index("Tensor.sum")


def test_layers_of_one_class_print_their_own_names(capsys):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    with Tracer("layers").trace(model):
        for _ in range(2):
            model(torch.ones(2, 4))
    heads = [line.strip() for line in capsys.readouterr().out.splitlines() if "Linear" in line]
    assert heads == [f"● {number} (Linear) (in_features: 4, out_features: 4)" for number in (0, 1, 2)] * 2


def test_one_module_under_two_others_goes_by_each_ones_name_for_it(capsys):
    shared = nn.Linear(2, 2)
    model = nn.Sequential(nn.Sequential(shared), nn.ModuleDict({"inner": nn.Sequential(shared)})["inner"], shared)
    with Tracer("shared").trace(model):
        for _ in range(2):
            model(torch.ones(1, 2))
    heads = [line for line in capsys.readouterr().out.splitlines() if "Linear" in line]
    assert heads[:3] == heads[3:]
    assert heads[0].startswith("    ●")
    assert heads[2].startswith("  ●")
