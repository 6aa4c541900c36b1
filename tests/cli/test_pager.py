"""Long output of the command goes through a pager on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import select
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

import torchglass as tg
from tests import programs
from torchglass.cli import main
from torchglass.cli.show import pager

ROWS, COLUMNS = 24, 100
LONGEST = 120


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paged") / "run.trace"
    with tg.record(to=path):
        programs.load("attention").main()
    return path


def on_a_terminal(arguments: list[str], keys: str = "", **environment: str) -> tuple[int, str]:
    """Exit status and screen of the command in a real terminal; ``keys`` are pressed once something is shown."""
    process, terminal = pty.fork()
    if process == 0:
        kept = {name: text for name, text in os.environ.items() if name not in ("PAGER", "LESS", "COLUMNS")}
        kept.update({"TERM": "xterm", "NO_COLOR": "1", **environment})
        ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        # with that and nothing else: readline, which pytest imports, sets COLUMNS where os.environ does not see it
        os.execve(sys.executable, [sys.executable, "-m", "torchglass", "show", *arguments], kept)
    shown, until = b"", time.monotonic() + LONGEST
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            got = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        shown += got
        if keys and shown.count(b"\n") >= ROWS - 2:
            os.write(terminal, keys.encode())
            keys = ""
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    return status, shown.decode().replace("\r\n", "\n")


def test_the_pager_gets_what_is_shown_and_a_last_line(bundle: Path) -> None:
    status, screen = on_a_terminal([str(bundle)], PAGER="sed s/^/paged:/")
    shown = tg.render(tg.load(bundle), width=COLUMNS).splitlines()
    lines = [line for line in screen.splitlines() if line.startswith("paged:")]
    assert status == 0
    assert shown[-1].endswith("(inner=True)")
    shown[-1] = shown[-1].replace("inner=True", "--inner")  # as the command is told it
    assert [line.removeprefix("paged:") for line in lines[:-1]] == shown
    assert lines[-1].startswith("paged:less: --depth 1 · more: --no-fold")
    assert lines[-1].endswith("torchglass show RUN listing")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--no-pager"], {"PAGER": "sed s/^/paged:/"}), ([], {"PAGER": ""}), ([], {"PAGER": "cat"}),
     ([], {"PAGER": "no-such-pager"}), ([], {"PAGER": "sed s/^/paged:/", "TERM": "dumb"})],
)  # fmt: skip
def test_without_one(bundle: Path, arguments: list[str], environment: dict[str, str]) -> None:
    status, screen = on_a_terminal([str(bundle), *arguments], **environment)
    assert status == 0
    assert "paged:" not in screen
    assert "attention" in screen.lower()


@pytest.mark.skipif(not pager(), reason="there is no less here")
def test_less_ends_by_itself_when_it_fits_and_is_left_with_q(bundle: Path) -> None:
    status, screen = on_a_terminal([str(bundle), "--depth", "0"])
    assert status == 0
    assert "torchglass show RUN listing" in screen
    status, screen = on_a_terminal([str(bundle), "code", "--no-fold"], keys="q")
    assert status == 0
    assert "Traceback" not in screen


def test_an_error_is_printed_without_a_pager(bundle: Path) -> None:
    status, screen = on_a_terminal([str(bundle), "--path", "nowhere.py"], PAGER="sed s/^/paged:/")
    assert status == 1
    assert "paged:" not in screen
    assert "nothing in the trace fits" in screen


def test_no_progress_in_a_pipe_or_in_python(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", "false")
    assert main(["show", str(bundle)]) == 0
    assert capsys.readouterr().out == tg.render(tg.load(bundle)) + "\n"
