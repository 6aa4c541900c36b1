"""Where two runs first really differ: ports with one mistake, equal ports, and traces that cannot be compared."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg
from torchglass.answers.diff.regions import Reach
from torchglass.answers.diff.side import EXACT, RunSide
from torchglass.cli import main


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.fc, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(self.norm(x))
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        return x + self.down(h)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.h = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 7)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.h:
            x = block(x)
        return self.head(x)


X = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))


def port(
    approximate: str = "tanh", eps: float = 1e-5, change: Callable[[dict[str, Tensor]], None] | None = None
) -> Any:
    w = {name: value.detach().clone() for name, value in Net().state_dict().items()}
    if change is not None:
        change(w)

    def run(y: Tensor) -> Tensor:
        for i in range(3):
            at = f"h.{i}."
            z = F.layer_norm(y, (16,), w[at + "norm.weight"], w[at + "norm.bias"], eps)
            z = F.gelu(z @ w[at + "fc.weight"].T + w[at + "fc.bias"], approximate=approximate)
            y = F.linear(z, w[at + "down.weight"], w[at + "down.bias"]) + y
        return F.linear(y, w["head.weight"], w["head.bias"])

    return run


def recorded(function: Callable[..., Any], *args: Any, ops: bool = True, values: Any = "stats+sketch") -> tg.Trace:
    with tg.record(ops=ops, values=values) as trace:
        function(*args)
    return trace


def line_of(text: str) -> int:
    return next(
        at for at, line in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1) if text in line
    )


def test_a_program_and_itself_hold_equal_bits() -> None:
    found = recorded(Net(), X).diff(recorded(Net(), X))
    assert found.verdict == "bits"
    assert found.equal
    assert str(found).startswith("= equal bits (")


@pytest.mark.parametrize("ops", [True, False])
def test_a_port_that_shares_only_its_numbers_is_equal_up_to_rounding(ops: bool) -> None:
    found = recorded(Net(), X, ops=ops).diff(recorded(port(), X, ops=ops))
    assert found.verdict == "rounding"
    assert found.first is None
    assert 0 < found.largest < 2e-6
    assert str(found).startswith("≈ equal up to rounding: at most ")


@pytest.mark.parametrize("ops", [True, False])
def test_another_gelu_is_found_at_its_line_on_both_sides(ops: bool) -> None:
    found = recorded(Net(), X, ops=ops).diff(recorded(port("none"), X, ops=ops))
    assert found.verdict == "different"
    assert found.first is not None
    assert line_of("h = 0.5 * h *") in [each.location.line for each in found.first.a if each.location]
    location = found.first.b[0].location
    assert location is not None
    assert location.line == line_of("z = F.gelu(")
    assert found.first.a[0].module == "h.0"
    assert str(found).splitlines()[0] == "≠ they first differ in the activation of layer 0"


def test_settings_that_differ_are_named() -> None:
    found = recorded(port(eps=1e-5), X).diff(recorded(port(eps=1e-3), X))
    assert found.first is not None
    assert [(each.kind, each.name, each.a, each.b) for each in found.first.suspects] == [
        ("setting", "eps", "1e-05", "0.001")
    ]


def test_a_parameter_that_differs_is_named() -> None:
    def change(w: dict[str, Tensor]) -> None:
        w["h.1.down.weight"][3, 4] += 0.2

    found = recorded(Net(), X).diff(recorded(port(change=change), X))
    assert found.first is not None
    assert found.first.title == "the parameter h.1.down.weight"
    kinds = [(each.kind, each.name) for each in found.first.suspects]
    assert ("parameter", "h.1.down.weight") in kinds


def test_a_transposed_weight_is_found() -> None:
    square = nn.Linear(16, 16, bias=False)
    weight = square.weight.detach().clone()
    found = recorded(square, X).diff(recorded(lambda x: x @ weight, X))
    assert found.verdict == "different"
    assert found.first is not None
    assert any(each.kind == "moved" for each in found.first.suspects)


def test_two_dtypes_agree_within_the_coarser_one() -> None:
    half = Net().to(torch.bfloat16)
    found = recorded(Net(), X).diff(recorded(half, X.to(torch.bfloat16)))
    assert found.verdict == "rounding"
    assert found.largest > 1e-4


def test_training_differs_at_the_step_where_the_gradients_add_up() -> None:
    def train(zero: bool) -> None:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            if zero:
                optimizer.zero_grad()
            net(X).square().mean().backward()
            optimizer.step()

    found = recorded(train, True).diff(recorded(train, False))
    assert found.verdict == "different"
    assert found.first is not None
    assert found.first.title.endswith("at step 2")


def test_noise_of_a_second_run_raises_no_alarm() -> None:
    def noisy(scale: float) -> Callable[[Tensor], Tensor]:
        net = Net()

        def run(x: Tensor) -> Tensor:
            return net.head(net.h[0](x) * (1 + scale))

        return run

    a, again, b = (recorded(noisy(scale), X) for scale in (1e-5, 2e-5, 2.2e-5))
    assert a.diff(b).verdict == "different"
    assert a.diff(b, again=again).verdict == "rounding"
    assert b.diff(a, other_again=again).verdict == "rounding"
    assert b.diff(a, other_again=[a, again]).verdict == "rounding"


def test_two_runs_that_have_nothing_in_common() -> None:
    torch.manual_seed(5)
    found = recorded(Net(), X).diff(recorded(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)))
    assert found.verdict == "unrelated"
    assert not found.equal
    assert str(found).startswith("? these two runs share no values: none of ")
    assert "fingerprints" in str(found)


def test_without_fingerprints_what_ran_is_compared() -> None:
    plain, other = recorded(Net(), X, values=None), recorded(Net(), X[:3], values=None)
    same = plain.diff(recorded(Net(), X, values=None))
    assert same.verdict == "structure"
    assert same.equal
    assert str(same).startswith("= the same calls with the same shapes (")
    changed = plain.diff(other)
    assert not changed.equal
    assert "f32[5, 16]" in str(changed)
    assert "f32[3, 16]" in str(changed)
    assert "record(values='stats+sketch')" in " ".join(str(changed).split())


def test_a_run_that_failed_is_compared_as_far_as_it_goes() -> None:
    def fails(x: Tensor) -> Tensor:
        net = Net()
        return net.head(net.h[1](net.h[0](x)).reshape(-1, 20))

    with pytest.raises(RuntimeError), tg.record(ops=True, values="stats+sketch") as failed:
        fails(X)
    found = recorded(Net(), X).diff(failed)
    assert found.equal
    assert "B was left by RuntimeError: it is compared up to there" in str(found)


def test_an_empty_trace_is_no_equal_run() -> None:
    found = recorded(Net(), X).diff(recorded(lambda: None))
    assert not found.equal


def test_two_callables_in_one_go() -> None:
    assert tg.compare(Net(), port(), X).verdict == "rounding"
    found = tg.compare(nn.Dropout(0.5), nn.Dropout(0.5), X)
    assert found.verdict == "bits"
    with pytest.raises(tg.WrongType, match=r"compare\(\) takes two models"):
        tg.compare(Net(), 3, X)  # type: ignore[arg-type]


def test_as_data() -> None:
    found = recorded(Net(), X).diff(recorded(port("none"), X))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["verdict"] == "different"
    assert data["first"]["b"][0]["location"]["line"] == line_of("z = F.gelu(")
    assert data["finding"]["kind"] == "diff"
    assert len(data["rows"]) == len(found.rows)


def test_something_else_is_refused() -> None:
    with pytest.raises(tg.WrongType, match=r"diff\(\) takes another trace"):
        recorded(Net(), X).diff("run.trace")  # type: ignore[arg-type]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, function in (("a", Net()), ("b", port("none")), ("c", port())):
        tg.save(recorded(function, X), tmp_path / f"{name}.trace")
    a, b, c = (str(tmp_path / f"{name}.trace") for name in "abc")
    assert main(["diff", a, c]) == 0
    assert capsys.readouterr().out.startswith("≈ equal up to rounding")
    assert main(["diff", a, b]) == 1
    assert "setting" in (out := capsys.readouterr().out) or "constant" in out
    assert main(["diff", a, b, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "different"


NOISY = """
import sys, pathlib, torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
counter = pathlib.Path("runs")
runs = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(runs + 1))
scale = 1 + [2.2e-4, 1e-4, 2e-4, 1e-4][runs]
with torch.no_grad():
    print(net[2](net[1](net[0](torch.ones(4, 8))) * scale).sum())
"""


def test_run_again_to_measure_the_noise(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "torchglass", "run", *options, "noisy.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    reference = run("--ops", "--values", "stats+sketch", "--to", "reference.trace")
    assert reference.returncode == 0, reference.stderr
    found = run("--against", "reference.trace", "--repeat", "2", "--to", "noisy.trace")
    assert found.returncode == 0, found.stderr
    assert "≈ equal up to rounding" in found.stdout
    assert found.stdout.count("tensor(") == 1  # the second run is silent
    alone = run("--against", "reference.trace", "--to", "alone.trace")
    assert "≠ they first differ" in alone.stdout
    assert "only with --against" in run("--repeat", "2").stderr


def test_a_printed_sum_of_the_result_counts_as_an_end() -> None:
    """The module's output goes into a sum that only leaves torch as text: both runs end there, and differ."""
    exact = recorded(lambda: str(port()(X).sum()))
    other = recorded(lambda: str(port("none")(X).sum()))
    found = exact.diff(other)
    assert found.verdict == "different"
    assert found.first is not None
    assert "F.gelu" in found.first.a[0].code


def test_a_printed_sum_of_a_modules_result_counts_as_an_end() -> None:
    class Gelu(Net):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(super().forward(x), approximate="tanh")

    class Other(Net):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(super().forward(x))

    found = recorded(lambda: str(Gelu()(X).sum())).diff(recorded(lambda: str(Other()(X).sum())))
    assert found.verdict == "different"


def test_of_what_ran_with_other_settings_only_what_differs_is_said() -> None:
    found = list[tg.Trace]()
    for width, dim in ((8, -1), (16, -2)):
        layer = nn.Linear(6, width)
        with tg.record() as trace:
            layer(torch.ones(4, 6)).softmax(dim)
        found.append(trace)
    text = str(found[0].diff(found[1]))
    assert "out_features=8, f32[4, 8] → out_features=16, f32[4, 16]" in text
    assert re.search(r"softmax +f32\[4, 8\], -1, f32\[4, 8\] → f32\[4, 16\], -2, f32\[4, 16\]", text)


def test_weights_that_were_cast_before_recording_are_the_same_weights() -> None:
    """A port in bfloat16 loads a rounded checkpoint: each weight is up to half a step of bfloat16 away."""

    def rounded(w: dict[str, Tensor]) -> None:
        w.update({name: value.bfloat16() for name, value in w.items()})

    exact = recorded(port(), X)
    assert exact.diff(recorded(port(change=rounded), X.bfloat16())).verdict == "rounding"


def test_a_result_with_its_numbers_at_other_places_is_different() -> None:
    """An image is put together from patches, once with rows and columns exchanged."""

    def joined(order: tuple[int, ...]) -> Any:
        return lambda: port()(X[:4])[:, :4].sin().view(2, 2, 2, 2).permute(order).reshape(4, 4)

    found = recorded(joined((0, 2, 1, 3))).diff(recorded(joined((2, 0, 3, 1))))
    assert found.verdict == "different"
    assert found.first is not None
    assert found.first.suspects[0].kind == "moved"
    assert recorded(joined((0, 2, 1, 3))).diff(recorded(joined((0, 2, 1, 3)))).equal


def test_padded_positions_with_other_numbers_hide_no_later_mistake() -> None:
    """A row that may look at nothing gets a mean from one kernel and zeros from another; nobody uses it."""
    mask = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    mask[..., 0] = False
    out = nn.Linear(16, 16)

    def eager(y: Tensor) -> Tensor:
        weights = (y @ y.mT / 4).masked_fill(~mask, -1e9).softmax(-1)
        return out((weights @ y)[:, 1:])

    def other(scale: float) -> Any:
        def run(y: Tensor) -> Tensor:
            seen = F.scaled_dot_product_attention(y[:, None], y[:, None], y[:, None], attn_mask=mask[:, None])
            return out(seen[:, 0, 1:] * scale)

        return run

    assert recorded(eager, X[None]).diff(recorded(other(1.0), X[None])).equal
    assert recorded(eager, X[None]).diff(recorded(other(1.1), X[None])).verdict == "different"


def test_a_line_of_a_helper_names_the_line_that_called_it() -> None:
    def act(y: Tensor, approximate: str) -> Tensor:
        return F.gelu(y, approximate=approximate)

    def run(second: str) -> Any:
        def inside(y: Tensor) -> Tensor:
            y = act(y, "tanh")
            return act(y, second)

        return inside

    found = recorded(run("tanh"), X).diff(recorded(run("none"), X))
    assert found.first is not None
    place = found.first.b[0]
    assert place.caller is not None
    assert place.caller.line == run("none").__code__.co_firstlineno + 2
    assert f"← {place.caller.line}" in str(found)


def test_the_line_of_a_setting_that_differs_comes_first() -> None:
    """The region has other lines, too, that are only another way to compute the same."""

    def multiplied(slope: float, y: Tensor, w: Tensor) -> Tensor:
        left = 1 + y[:, :8].exp()
        right = F.leaky_relu(y[:, :8], negative_slope=slope)
        return F.linear(left * right, w)

    def added(slope: float, y: Tensor, w: Tensor) -> Tensor:
        left = y.exp()
        right = F.leaky_relu(y, negative_slope=slope)
        return F.linear((right + left * right)[:, :8], w)

    w = torch.randn(5, 8)
    assert recorded(multiplied, 0.2, X, w).diff(recorded(added, 0.2, X, w)).equal
    found = recorded(multiplied, 0.2, X, w).diff(recorded(added, 0.01, X, w))
    assert found.first is not None
    assert [each.name for each in found.first.suspects] == ["negative_slope"]
    location = found.first.a[0].location
    assert location is not None
    assert location.line == line_of("right = F.leaky_relu(")


def test_a_line_that_only_moves_numbers_is_shown() -> None:
    """An image is cut into patches, once with rows and columns exchanged."""
    image, kernel = torch.randn(1, 1, 8, 8), torch.randn(5, 1, 4, 4)

    def convolved() -> Tensor:
        return F.conv2d(image, kernel, stride=4).flatten(2).mT.tanh()

    def cut(order: tuple[int, ...]) -> Tensor:
        patches = image.view(2, 4, 2, 4).permute(order).reshape(1, 4, 16)
        return torch.tanh(patches @ kernel.view(5, 16).T)

    assert recorded(convolved).diff(recorded(cut, (0, 2, 1, 3))).equal
    found = recorded(convolved).diff(recorded(cut, (0, 2, 3, 1)))
    assert found.first is not None
    assert line_of("patches = image.view(") in [each.location.line for each in found.first.b if each.location]


def test_sizes_and_indices_are_no_settings() -> None:
    def halves(cut: int, y: Tensor) -> Tensor:
        return torch.cat([y[:, :cut].sin(), y[:, cut:].cos()], 1)

    found = recorded(halves, 4, X).diff(recorded(halves, 6, X))
    assert found.first is not None
    assert [each for each in found.first.suspects if each.kind == "setting"] == []


def test_a_counter_of_steps_is_no_first_difference() -> None:
    """The library counts the batches that it has seen. A port does not, which matters only if nothing else differs."""
    layer, x = nn.BatchNorm1d(6), torch.randn(8, 6)
    side = RunSide(recorded(lambda: layer(x).tanh() * 2)._tables)
    (counter,) = [each.number for each in side.ends() if each.bits == EXACT]
    result = side.things[-1].number
    others = {each.number for each in side.things} - {counter, result}
    assert Reach(side, others, set(), set()).frontier() == [result]
    assert Reach(side, others | {result}, set(), set()).frontier() == [counter]
