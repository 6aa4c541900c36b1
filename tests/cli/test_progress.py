"""The bar is seen on a terminal while something takes long, nowhere else, and is gone when that is done."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

import torchglass as tg
from tests.store.samples import recorded
from torchglass.cli import main, progress
from torchglass.cli.progress import ERASE, Bar
from torchglass.store import load, save

Terminal = tuple[int, TextIO]
"""The end at which one sees what is written, and the other."""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    seen, end = pty.openpty()
    with os.fdopen(end, "w") as stream:
        yield seen, stream
    os.close(seen)


def look(seen: int) -> str:
    os.set_blocking(seen, False)
    try:
        return os.read(seen, 100_000).decode()
    except BlockingIOError:
        return ""


def shown(text: str) -> str:
    """What remains on the line."""
    return text.rpartition(ERASE)[2]


def test_long_work(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "PAUSE", 0.01)
    seen, stream = terminal
    with Bar("reading \x1b[31mx", stream) as bar:
        bar(0.5)
        bar(0.25)
        time.sleep(0.2)
        during = look(seen)
        assert shown(during) == "reading \\x1b[31mx [" + "#" * 15 + "." * 15 + "]  50%"
    assert shown(look(seen)) == ""


def test_it_is_gone_also_after_an_error(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "PAUSE", 0.01)
    seen, stream = terminal
    during: list[str] = []

    def work() -> None:
        with Bar("writing x", stream):
            time.sleep(0.2)
            during.append(shown(look(seen)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert re.fullmatch(r"writing x \d s", during[0])
    assert shown(look(seen)) == ""


def test_quick_work_shows_nothing(terminal: Terminal) -> None:
    seen, stream = terminal
    with Bar("reading x", stream) as bar:
        bar(0.5)
    assert look(seen) == ""


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_where_there_is_no_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "PAUSE", 0.01)
    stream = terminal[1] if term == "dumb" else io.StringIO()
    with Bar("reading x", stream):
        time.sleep(0.1)
    assert (look(terminal[0]) if term == "dumb" else stream.getvalue()) == ""  # type: ignore[attr-defined]


def test_a_line_fits_the_terminal() -> None:
    bar = Bar("reading " + "x" * 100)
    bar(1)
    assert len(bar.line(60)) == 59
    assert bar.line(60).endswith("] 100%")


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    tables = recorded("expressions")
    save(tables, tmp_path / "x")
    told: list[float] = []
    load(tmp_path / "x", told.append)
    assert told == sorted(told)
    assert (told[0] > 0, told[-1]) == (True, 1.0)
    load(tmp_path / "x")
    assert told[-1] == 1.0
    assert len(told) < 5


SLOW = """
import sys, time
import torchglass.store.loading as loading
from torchglass.cli import main, progress
progress.PATIENCE = progress.PAUSE = 0.05
read = loading.read_part
def slow(*given):
    contents = read(*given)
    time.sleep(0.5)
    return contents
loading.read_part = slow
sys.exit(main(sys.argv[1:]))
"""


def test_a_command(tmp_path: Path) -> None:
    """``show`` on a terminal: the bar while it loads, then the trace alone."""
    save(recorded("mlp"), tmp_path / "x")
    seen, end = pty.openpty()
    command = [sys.executable, "-c", SLOW, "show", str(tmp_path / "x"), "--no-color", "--width", "80"]
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=end, env=environment, timeout=120)
    os.close(end)
    text = look(seen)
    os.close(seen)
    assert done.returncode == 0
    assert done.stdout.decode() == tg.render(tg.load(tmp_path / "x"), width=80, color=False) + "\n"
    assert f"reading {tmp_path / 'x'} "[-20:] in text
    assert "%" in text
    assert shown(text) == ""
    piped = subprocess.run(command, capture_output=True, env=environment, timeout=120)
    assert (piped.stdout, piped.stderr) == (done.stdout, b"")


def test_the_commands_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(recorded("mlp"), tmp_path / "x")
    for command in ("show", "values", "repair"):
        assert main([command, str(tmp_path / "x")]) == 0
    assert capsys.readouterr().err == ""
