"""Planted bugs are found by name and line, and nothing is said of their fixed twins and of correct programs."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torchglass as tg
from scripts.findings_page import PAGE, page
from tests.findings import corpus
from torchglass.answers.findings import clipped_logits
from torchglass.answers.findings.arguments import TensorAt, arguments_of
from torchglass.answers.findings.check import check
from torchglass.answers.findings.facts import Facts
from torchglass.answers.findings.registry import DETECTORS, explanation, name_of
from torchglass.cli import main
from torchglass.events.schema import Form

PLANTED, CORRECT = corpus.planted(), corpus.correct()


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.name)
def test_planted(program: corpus.Program) -> None:
    assert corpus.places(corpus.loud(corpus.findings_of(program))) == program.expected


@pytest.mark.parametrize("program", CORRECT, ids=lambda program: program.name)
def test_correct(program: corpus.Program) -> None:
    assert corpus.places(corpus.loud(corpus.findings_of(program))) == frozenset()


def test_each_detector_has_a_planted_bug_and_explains_itself() -> None:
    planted = {name for program in PLANTED for name, _ in program.expected}
    only_hints = {"grows-by-cat"}
    for detector in DETECTORS:
        assert name_of(detector) in planted | only_hints
        assert len(explanation(detector)) > 100


def wrong_loss() -> Any:
    model = nn.Linear(4, 1)
    x, y = torch.randn(8, 4), torch.randn(8)
    with tg.record() as trace:
        F.mse_loss(model(x), y).backward()
    return trace


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_finding_says_where_why_and_what_to_do() -> None:
    (finding,) = wrong_loss().findings()
    assert (finding.kind, finding.severity) == ("broadcast", "bug")
    assert "[8, 1]" in finding.text
    assert "[8, 8]" in finding.text
    assert finding.location is not None
    assert finding.location.file == __file__
    assert "unsqueeze" in finding.fix
    assert finding.to_dict()["kind"] == "broadcast"


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_finding_can_be_ignored_by_name_and_by_a_comment() -> None:
    assert wrong_loss().findings(ignore=["broadcast"]) == []
    model, x, y = nn.Linear(4, 1), torch.randn(8, 4), torch.randn(8)
    with tg.record() as trace:
        F.mse_loss(model(x), y)  # torchglass: ignore[broadcast]
        F.mse_loss(model(x), y)  # torchglass: ignore[softmax-twice]
    report = check(trace)
    assert [each.kind for each in report.findings] == ["broadcast"]
    assert [each.kind for each in report.silenced] == ["broadcast"]


def test_nothing_is_said_of_what_a_failed_program_never_did() -> None:
    model, extra = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *extra.parameters()], lr=0.1)

    def train() -> None:
        kept = extra(torch.randn(2, 4)).detach()
        (model(torch.randn(2, 4)) + kept).sum().backward()
        optimizer.step()
        model(torch.randn(2, 3))

    with tg.record() as whole, contextlib.suppress(RuntimeError):
        train()
    assert [each.kind for each in whole.findings()] == ["no-gradient"]
    with pytest.raises(RuntimeError), tg.record() as trace:
        train()
    report = check(trace)
    assert report.findings == []
    assert "failed" in report.missing[0]


def long_run(clears: bool = True, is_forgotten: bool = False, steps: int = 300) -> Any:
    body, head = nn.Linear(4, 4), nn.Linear(4, 1)
    parameters = [*body.parameters()] if is_forgotten else [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.001)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    with tg.record(max_events=2000) as trace:
        for _ in range(steps):
            if clears:
                optimizer.zero_grad(set_to_none=False)
            F.mse_loss(head(body(x)), y).backward()
            optimizer.step()
    return trace


def test_a_long_run_is_judged_by_its_first_and_last_steps() -> None:
    trace = long_run()
    assert any("not kept" in note for note in trace.notes)
    report = check(trace)
    assert (report.findings, report.missing) == ([], ())
    assert [each.kind for each in long_run(clears=False).findings()] == ["gradients-pile-up"]
    assert [each.kind for each in long_run(is_forgotten=True).findings()] == ["not-in-optimizer"]


def test_a_damaged_trace_is_not_called_right() -> None:
    trace = long_run(is_forgotten=True, steps=25)
    trace._tables.notes.append("794 events are not there: the journal is damaged, or its disk was full")
    report = check(trace)
    assert report.findings == []
    assert "damaged" in report.missing[0]


def test_arguments_are_read_as_data() -> None:
    form = Form(("x", "y"), ("", ", dim=(1, ", "), reduction='a, b', slice=(:, -1), p=0.5, None"))
    found = arguments_of(form)
    assert found.positional == [TensorAt(0), None]
    assert found.get("dim") == (1, TensorAt(1))
    assert found.get("reduction") == "a, b"
    assert found.get("slice") == (":", -1)
    assert found.get("p") == 0.5
    assert found.get("missing", 0) == TensorAt(0)


def test_what_was_cleared_before_a_step_was_added_before_it() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.record() as trace:
        for _ in range(2):
            optimizer.zero_grad()
            optimizer.step()
            model(torch.randn(8, 4)).mean().backward()
    (finding,) = trace.findings()
    (evidence,) = finding.evidence
    assert finding.kind == "step-without-gradient"
    assert None not in (evidence.event, finding.event)
    assert evidence.event < finding.event


def test_a_form_feed_does_not_move_the_comments(tmp_path: Path) -> None:
    text = "import torch\n\f\nx = torch.rand(2)\nx.clamp(0, 1)\nx.abs()  # torchglass: ignore\n"
    (tmp_path / "program.py").write_text(text)
    with tg.record() as trace:
        runpy.run_path(str(tmp_path / "program.py"))
    report = check(trace)
    assert [each.location.line for each in report.findings if each.location] == [4]
    assert [each.location.line for each in report.silenced if each.location] == [5]


def test_padding_up_to_a_total_length_is_padding_in_all_sequences() -> None:
    with tg.record() as trace:
        packed = pack_padded_sequence(torch.randn(3, 6, 4), torch.tensor([6, 6, 6]), batch_first=True)
        out, _ = pad_packed_sequence(packed, batch_first=True, total_length=9)
        print(out[:, -1].sum())
    (finding,) = trace.findings()
    assert "the last of 9 steps, which is padding in all sequences (18 steps of 27" in finding.text


def test_the_first_step_is_that_of_the_weights_without_a_gradient() -> None:
    learns, clipped = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (learns, clipped)]
    with tg.record(values="stats") as trace:
        for _ in range(3):
            learns(torch.randn(8, 4)).pow(2).mean().backward()
            optimizers[0].step()
            clipped(torch.randn(8, 4)).clamp(50, 100).pow(2).mean().backward()
            optimizers[1].step()
            for each in optimizers:
                each.zero_grad()
    (finding,) = [each for each in trace.findings() if each.kind == "zero-gradient"]
    steps = [event.id for event in trace.events() if event.kind == "step"]
    assert [each.event for each in finding.evidence] == [steps[1]]


def test_a_loss_of_numbers_without_a_source_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    with tg.record() as trace:
        F.binary_cross_entropy(torch.rand(3), torch.ones(3))
    monkeypatch.setattr(Facts, "sources", lambda *_: iter(()))
    monkeypatch.setattr("torchglass.answers.findings.check.DETECTORS", (clipped_logits,))
    report = check(trace)
    assert (report.findings, report.missing) == ([], ())


def test_noise_that_is_multiplied_with_itself_is_judged() -> None:
    with tg.record() as trace:
        noise = torch.rand(3)
        print((noise * noise).sum())
    report = check(trace)
    assert (report.findings, report.missing) == ([], ())


def test_weights_left_out_of_a_result_are_only_a_hint() -> None:
    body, first, second = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*body.parameters(), *first.parameters(), *second.parameters()], lr=0.1)
    with tg.record(values="stats") as trace:
        for _ in range(3):
            h = body(torch.randn(8, 4))
            loss = torch.stack([first(h), second(h)], 1)[:, 0].pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert [(each.kind, each.severity) for each in trace.findings()] == [("zero-gradient", "hint")]


SCRIPT = """
    import torch
    from torch import nn
    import torch.nn.functional as F

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 4), torch.randn(16)
    for step in range(3):
        loss = F.l1_loss(model(x), y){fix}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def ran(folder: Path, fix: str = "") -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(SCRIPT.replace("{fix}", "")).replace("y)", "y[:, None])" if fix else "y)")
    (folder / "train.py").write_text(text)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "torchglass", "run", "train.py"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_run_ends_with_what_looks_wrong_and_check_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = ran(tmp_path)
    assert done.returncode == 0
    assert "torchglass: 1 bug (torchglass check train.trace)" in done.stderr
    assert "✗ l1_loss compares [16, 1] with [16]" in done.stderr
    assert "train.py:10" in done.stderr
    trace = str(tmp_path / "train.trace")
    assert main(["check", trace]) == 1
    assert "torchglass explain broadcast" in capsys.readouterr().out
    assert main(["check", "--json", trace]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["location"]["line"] == 10
    assert main(["check", "--ignore", "broadcast", trace]) == 0
    assert capsys.readouterr().out == "nothing looks wrong\n"


def test_run_says_nothing_of_a_program_in_which_nothing_looks_wrong(tmp_path: Path) -> None:
    assert ran(tmp_path, "fixed").stderr == ""


def test_a_project_can_ignore_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.torchglass]\nignore = ["broadcast"]\n')
    assert ran(tmp_path).stderr == ""
    monkeypatch.chdir(tmp_path)
    assert main(["check", "train.trace"]) == 0


def test_explain_knows_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "softmax_twice"]) == 0
    assert "cross_entropy" in capsys.readouterr().out
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(DETECTORS)
    assert main(["explain", "softmax-twise"]) == 1
    assert "softmax-twice" in capsys.readouterr().err


def test_the_page_of_findings_is_the_newest() -> None:
    """``python scripts/findings_page.py`` writes it."""
    assert page() == PAGE.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_kept_trace_has_the_same_findings(tmp_path: Path) -> None:
    trace = wrong_loss()
    trace.save(tmp_path / "run.trace")
    kept = tg.load(tmp_path / "run.trace")
    assert [each.to_dict() for each in kept.findings()] == [each.to_dict() for each in trace.findings()]


KILLED = """
    import os, signal
    import torch
    from torch import nn

    a, b = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.SGD(a.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    for step in range(3):
        nn.functional.cross_entropy((a(x) + b(x)).softmax(1), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_killed_program_only_what_happened_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(KILLED))
    subprocess.run([sys.executable, "-m", "torchglass", "run", "train.py"], cwd=tmp_path, check=False)
    assert main(["check", str(tmp_path / "train.trace")]) == 1
    out = capsys.readouterr().out
    assert "softmax" in out
    assert "no optimizer" not in out
    assert "not judged: the recording has no end" in out
