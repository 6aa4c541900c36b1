"""Golden traces and stories of failures, as pytest itself shows them: each test runs pytest in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg
from torchglass.answers.golden import MOST_LINES, differences, snapshot_lines

IS_INSTALLED = any(each.name == "torchglass" for each in entry_points(group="pytest11"))
"""An environment that was made before there was the plugin does not know its entry point."""
MODEL = """
    import torch, pytest
    from torch import nn

    class Net(nn.Module):
        def __init__(self, wide=8):
            super().__init__()
            torch.manual_seed(0)
            self.h = nn.ModuleList(nn.Sequential(nn.Linear(wide, wide), nn.GELU()) for _ in range(3))

        def forward(self, x):
            for each in self.h:
                x = each(x)
            return x
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugin = [] if IS_INSTALLED else ["-p", "torchglass.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


def write(folder: Path, test: str) -> None:
    (folder / "test_net.py").write_text(textwrap.dedent(MODEL) + textwrap.dedent(test), encoding="utf-8")


def test_a_snapshot_is_written_kept_and_reported_where_it_differs(tmp_path: Path) -> None:
    body = """
        @pytest.mark.parametrize("level", ["shapes", "ops", "stats", "values"])
        def test_forward(trace_snapshot, level):
            x = {x}
            with trace_snapshot(level=level):
                Net()(x)
    """
    write(tmp_path, body.format(x="torch.ones(2, 8)"))
    missing = run(tmp_path)
    assert missing.returncode == 1
    assert "there is no snapshot __snapshots__/test_net/test_forward[shapes].txt yet" in missing.stdout
    assert run(tmp_path, "--snapshot-update").returncode == 0
    text = (tmp_path / "__snapshots__/test_net/test_forward[shapes].txt").read_text(encoding="utf-8")
    assert text.splitlines()[0].startswith("# torchglass snapshot · shapes · torch 2.")
    assert "  0–2: Sequential f32[2, 8] → f32[2, 8] × 3" in text
    assert str(tmp_path) not in text
    assert run(tmp_path).returncode == 0
    assert run(tmp_path, "-n", "2").returncode == 0
    write(tmp_path, body.format(x="torch.ones(3, 8)"))
    other_shape = run(tmp_path, "-k", "shapes")
    assert other_shape.returncode == 1
    assert "the trace differs from the snapshot" in other_shape.stdout
    assert "-Net f32[2, 8] → f32[2, 8]" in other_shape.stdout
    assert "+Net f32[3, 8] → f32[3, 8]" in other_shape.stdout
    write(tmp_path, body.format(x="torch.ones(2, 8) * 1.001"))
    others = run(tmp_path)
    assert "2 failed, 2 passed" in others.stdout
    assert "(allowed: ±" in others.stdout


def test_what_no_test_uses_is_shown_and_removed(tmp_path: Path) -> None:
    body = """
        def test_one(trace_snapshot):
            with trace_snapshot():
                Net()(torch.ones(2, 8))
    """
    write(tmp_path, body)
    run(tmp_path, "--snapshot-update")
    write(tmp_path, body.replace("test_one", "test_two"))
    assert run(tmp_path, "--snapshot-update").returncode == 0
    kept = tmp_path / "__snapshots__/test_net"
    assert [each.name for each in kept.iterdir()] == ["test_two.txt"]
    (kept / "test_gone.txt").write_text("")
    for options in ([], ["-n", "2"]):
        told = run(tmp_path, *options).stdout
        assert "1 snapshot(s) that no test used" in told
        assert "__snapshots__/test_net/test_gone.txt" in told
    assert "no test used" not in run(tmp_path, "test_net.py::test_two").stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_the_snapshots_of_tests_that_do_not_run_are_kept(tmp_path: Path, options: tuple[str, ...]) -> None:
    body = """
        def test_one(trace_snapshot):
            with trace_snapshot():
                Net()(torch.ones(2, 8))

        @pytest.mark.parametrize("wide", [1, 2])
        @pytest.mark.skipif(False, reason="as on a machine without a GPU")
        def test_two(trace_snapshot, wide):
            with trace_snapshot(name="here"):
                Net()(torch.ones(wide, 8))
    """
    write(tmp_path, body)
    run(tmp_path, "--snapshot-update")
    kept = tmp_path / "__snapshots__/test_net"
    names = {"test_one.txt", "test_two[1]-here.txt", "test_two[2]-here.txt"}
    assert {each.name for each in kept.iterdir()} == names
    assert "unused" not in run(tmp_path, "--snapshot-update", "-k", "test_one", *options).stdout
    assert {each.name for each in kept.iterdir()} == names
    write(tmp_path, body.replace("skipif(False", "skipif(True"))
    assert "unused" not in run(tmp_path, "--snapshot-update", *options).stdout
    assert {each.name for each in kept.iterdir()} == names
    assert "no test used" not in run(tmp_path, *options).stdout


def test_a_note_when_versions_differ(tmp_path: Path) -> None:
    body = """
        def test_one(trace_snapshot):
            with trace_snapshot():
                Net()(torch.ones({n}, 8))
    """
    write(tmp_path, body.format(n=2))
    run(tmp_path, "--snapshot-update")
    path = tmp_path / "__snapshots__/test_net/test_one.txt"
    head, _, rest = path.read_text(encoding="utf-8").partition("\n")
    path.write_text(head.replace("torch 2", "torch 1", 1) + "\n" + rest, encoding="utf-8")
    assert run(tmp_path).returncode == 0
    write(tmp_path, body.format(n=3))
    assert "note: torch 1." in run(tmp_path).stdout


def test_the_story_of_a_failure_is_below_the_traceback(tmp_path: Path) -> None:
    write(tmp_path, """
        def test_shapes():
            Net()(torch.ones(2, 7))

        def test_without_torch():
            assert 1 == 2

        def test_fine():
            Net()(torch.ones(2, 8))
    """)  # fmt: skip
    told = run(tmp_path, "--torchglass").stdout
    assert "torchglass call" in told
    assert "f32[2, 7]" in told
    assert told.index("RuntimeError") < told.index("torchglass call")
    # Lines of pytest that raise again what the test raised are left out.
    assert "_execution.py" not in told.partition("torchglass call")[2]
    assert "_callers.py" not in told.partition("torchglass call")[2]
    assert "2 failed, 1 passed" in told
    assert "torchglass call" not in run(tmp_path).stdout


def test_findings_stand_below_the_story_of_a_failure(tmp_path: Path) -> None:
    write(tmp_path, """
        def test_loss():
            output = nn.Linear(8, 1)(torch.ones(5, 8))
            loss = torch.nn.functional.mse_loss(output, torch.ones(5))
            assert loss < 0
    """)  # fmt: skip
    told = run(tmp_path, "--torchglass").stdout
    assert told.index("torchglass call") < told.index("bug: mse_loss compares [5, 1] with [5]")
    assert "fix: " in told
    assert "compares [5, 1]" not in run(tmp_path).stdout


def test_pytest_starts_without_torch(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n")
    for options in ([], ["--torchglass"], ["--snapshot-update"]):
        assert run(tmp_path, *options).returncode == 0


def test_a_model_of_twelve_layers_fits_on_a_hundred_lines() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_head=2, n_embd=16, vocab_size=50, n_positions=16)).eval()
    for level, values in (("shapes", None), ("ops", None), ("values", "stats+sketch")):
        with tg.record(ops=level == "ops", values=values) as trace:
            model(torch.ones(1, 5, dtype=torch.long))
        lines = snapshot_lines(trace, level)
        assert 10 < len(lines) <= MOST_LINES
        assert any("0–11: GPT2Block" in line for line in lines)
        assert not any("/" in line.replace("//", "") and ".py" in line for line in lines)


def test_what_repeats_is_written_once() -> None:
    """A model that is built inside the block, layer by layer, and a loop of training steps."""
    with tg.record() as trace:
        layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True, dropout=0.0)
        model = nn.TransformerEncoder(layer, 12)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(2, 3, 16)).sum().backward()
            optimizer.step()
    lines = snapshot_lines(trace, "shapes")
    assert len(lines) <= MOST_LINES
    assert "12 times the same 24 calls" in lines  # the layer is copied
    assert "4 times the same 101 calls" in lines  # the first step finds no gradients yet


@pytest.mark.parametrize("level", ["stats", "values"])
def test_an_update_whose_gradient_is_only_rounding_is_not_compared(level: str) -> None:
    """A bias before a batch norm has a gradient of zero and roundings, of which Adam makes whole steps."""

    def lines_with(threads: int) -> list[str]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        try:
            with tg.record(values="stats+sketch") as trace:
                net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
                optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
                F.cross_entropy(net(torch.randn(16, 3, 8, 8)), torch.arange(16) % 10).backward()
                optimizer.step()
        finally:
            torch.set_num_threads(before)
        biases.append(net.get_parameter("0.bias").detach())
        return snapshot_lines(trace, level)

    biases: list[Tensor] = []
    assert differences(lines_with(1), lines_with(2)) == []
    assert not torch.allclose(biases[0], biases[1])  # else this test shows nothing


def test_numbers_may_differ_by_roundings_only() -> None:
    line = "Net f32[2, 8] → f32[2, 8]  | norm=10.0 s0=1.5 s1=-0.25"
    assert not differences([line], [line.replace("1.5", "1.50001")])
    assert differences([line], [line.replace("1.5", "1.51")])[0] == "  line 1: Net f32[2, 8] → f32[2, 8]"
    assert differences([line], [line.replace(" s1=-0.25", "")])
    assert differences([line], [line.replace("10.0", "nan")])


def test_an_unknown_level() -> None:
    with pytest.raises(tg.UsageError, match="no level 'shape': did you mean 'shapes'"):
        snapshot_lines(tg.trace(len, "abc"), "shape")
