"""What the commands print never fails for want of an encoding, of room or of anybody who reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.cli import main


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a name that not every encoding has."""
    path = tmp_path_factory.mktemp("printing") / "größe.trace"
    with tg.record(to=path, name="größe → ½"):
        tg.mark("größe → ½", torch.ones(3) + 1)
    return path


def run(command: str, bundle: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command line of the shell, in which T is torchglass and B the bundle."""
    arguments = {**os.environ, "T": f"{sys.executable} -m torchglass", "B": str(bundle), **environment}
    return subprocess.run(["bash", "-c", command], capture_output=True, env=arguments, timeout=120)


COMMANDS = ["--help", "show --help", "values $B", "info $B", "show $B", "doctor", "repair $B"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_encoding_that_lacks_letters(bundle: Path, command: str) -> None:
    done = run(f"$T {command}", bundle, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    if command in ("values $B", "info $B"):
        assert b"gr??e ? ?" in done.stdout


@pytest.mark.parametrize("command", ["values $B", "info $B", "show $B", "doctor"])
def test_no_room_for_what_is_printed(bundle: Path, command: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    done = run(f"$T {command} > /dev/full", bundle)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("torchglass: No space left on device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_closed_output(bundle: Path, command: str, closed: str) -> None:
    done = run(f"$T {command} {closed}", bundle)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_reader_that_goes_away(bundle: Path) -> None:
    done = run("$T --help | true; exit ${PIPESTATUS[0]}", bundle)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_program_prints_as_it_would(bundle: Path, tmp_path: Path) -> None:
    """Only our own commands may replace letters: under ``run`` the program's error is python's."""
    (tmp_path / "a.py").write_text("print('½')\n", encoding="utf-8")
    done = run(f"cd {tmp_path} && $T run --to x.trace a.py", bundle, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 1
    assert b"UnicodeEncodeError" in done.stderr


def test_a_key_without_a_pattern(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(bundle), "--only", "module"]) == 1
    said = capsys.readouterr().err
    assert "did you mean" not in said
    assert "--only 'module=*'" in said
    assert main(["show", str(bundle), "--only", "modul=x"]) == 1
    assert "did you mean 'module'?" in capsys.readouterr().err
