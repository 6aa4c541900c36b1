"""`torchglass graph` and torchspy's script draw the same, and say in one line what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.compat.torchspy.drawing import path_with_dot
from torchglass.cli import main
from torchglass.compat.torchspy import trace_to_graph

CALLS = ["embed", *(f"blocks.{n}.{part}" for n in range(3) for part in ("attn.q", "mlp.up")), "head"]


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """A call trace in the working folder, with a program `dot` to draw it."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", path_with_dot(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forward.txt").write_text("\n".join(CALLS))
    return tmp_path / "forward.txt"


def test_the_picture_is_next_to_the_call_trace_by_default(trace, capsys):
    assert main(["graph", "forward.txt"]) == 0
    assert capsys.readouterr().out == "wrote forward.png\n"
    assert (trace.parent / "forward.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in trace.parent.iterdir()) == ["bin", "forward.png", "forward.txt"]


@pytest.mark.parametrize(
    ("out", "written", "beginning"),
    [
        ("net", "net.png", b"\x89PNG"),
        ("net.svg", "net.svg", b"<?xml"),
        ("net.PDF", "net.PDF", b"%PDF"),
        ("net.dot", "net.dot", b"digraph {"),
    ],
)
def test_the_suffix_chooses_the_format(trace, out, written, beginning):
    assert main(["graph", "forward.txt", "--out", out]) == 0
    assert (trace.parent / written).read_bytes().startswith(beginning)


def labels(path):
    return re.findall(r'\[label="?(.*?)"?\]', path.read_text())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["embed", "blocks x 3", "attn", "mlp", "head"]),
        (["--show-repetition", "--prune-leaves"], ["embed", "blocks x 3", "attn", "mlp", "head"]),
        (["--no-show-repetition"], ["embed", "blocks", "attn", "mlp", "head"]),
        (["--no-prune-leaves"], ["embed", "blocks x 3", "attn", "q", "mlp", "up", "head"]),
        (["--squash-name"], ["embed", "blocks x 3", "attn", "mlp", "head"]),
    ],
)
def test_both_entry_points_take_the_same_options(trace, options, expected):
    assert main(["graph", str(trace), "--out", "one.dot", *options]) == 0
    assert trace_to_graph.main(["--trace-file", str(trace), "--out", "two.dot", *options]) == 0
    one, two = trace.parent / "one.dot", trace.parent / "two.dot"
    assert one.read_text() == two.read_text()
    assert labels(one) == expected


def test_sizes_json_and_verbose(trace, capsys):
    sizes = ["--dpi", "72", "--figwidth", "5", "--figheight", "4"]
    assert main(["graph", "forward.txt", "--out", "a.dot", "--save-json", "a.json", "--verbose", *sizes]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["read forward.txt: 8 calls of 8 modules", "wrote a.dot", "wrote a.json"]
    text = (trace.parent / "a.dot").read_text()
    assert "dpi=72" in text
    assert 'size="5.0,4.0!"' in text
    assert json.loads((trace.parent / "a.json").read_text())["children"][1]["count"] == 3


def test_the_script_runs_as_a_module(trace):
    command = [sys.executable, "-m", "torchglass.compat.torchspy.trace_to_graph"]
    done = subprocess.run([*command, "--trace-file", "forward.txt", "--out", "net.png"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "wrote net.png\n", "")


def fails(capsys, *arguments):
    """The one line that a command which fails says."""
    assert main(["graph", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("torchglass: ")
    assert said.err.count("\n") == 1
    return said.err


def test_a_bad_call_trace_is_one_line_with_the_cure(trace, capsys):
    (trace.parent / "empty.txt").write_text("")
    (trace.parent / "saved.pt").write_bytes(b"PK\x03\x04\xff")
    assert "no such file" in fails(capsys, "no-such\x1b.txt").lower()
    assert "trace file is empty; CallTracer.save_trace()" in fails(capsys, "empty.txt")
    assert "binary" in fails(capsys, "saved.pt")
    assert "trace" in fails(capsys, ".", "--out", "x.dot")  # a folder is a bundle, or none


def test_an_output_that_cannot_be_written_is_one_line_with_the_cure(trace, capsys):
    assert ".pdf .png .svg" in fails(capsys, "forward.txt", "--out", "net.pgn")
    assert "nowhere/net.dot" in fails(capsys, "forward.txt", "--out", "nowhere/net.dot")
    assert "dpi" in fails(capsys, "forward.txt", "--dpi", "0")


def test_without_the_program_dot_the_line_says_how_to_get_it(trace, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(trace.parent))
    said = fails(capsys, "forward.txt")
    assert "apt-get install graphviz" in said
    assert "--out FILE.dot" in said
    assert main(["graph", "forward.txt", "--out", "net.dot"]) == 0


def test_without_the_python_package_the_line_says_how_to_get_it(trace, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert "pip install 'torchglass[graph]'" in fails(capsys, "forward.txt")


def test_a_dot_that_fails_is_one_line_with_its_own_words(trace, capsys, monkeypatch):
    program = trace.parent / "dot"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho 'out of ink\x1b[2J' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{trace.parent}{os.pathsep}{os.environ['PATH']}")
    said = fails(capsys, "forward.txt")
    assert "out of ink" in said
    assert "\x1b" not in said
    assert not (trace.parent / "forward.png").exists()


@pytest.mark.parametrize("arguments", [[], ["a.txt", "--trace-file", "b.txt"], ["a.txt", "--dpi", "much"]])
def test_wrong_use_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["graph", *arguments])
    assert caught.value.code == 2
    assert "usage: torchglass graph" in capsys.readouterr().err
