"""Scripts run under `torchglass run` print and exit as they do under python, and the trace is theirs alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import torchglass as tg
from torchglass.cli import main
from torchglass.cli.run import split

SCRIPTS = Path(__file__).parent / "scripts"
ROOT = Path(__file__).parents[2]
LONGEST = 300
"""Seconds that a program may take on a busy machine."""


@dataclass(frozen=True)
class Ran:
    """What there is to see of a program from outside."""

    status: int
    out: str
    err: str


def start(folder: Path, command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str], given: str = "") -> Ran:
    out, err = process.communicate(given, timeout=LONGEST)
    return Ran(process.returncode, out, err)


def recorded(folder: Path, *command: str, flags: tuple[str, ...] = (), to: str = "kept.trace", **more: str) -> Ran:
    """The program under `torchglass run`."""
    return end(start(folder, [*flags, "-m", "torchglass", "run", "--to", to, *command], **more))


def both(folder: Path, *command: str, flags: tuple[str, ...] = (), given: str = "") -> tuple[Ran, Ran]:
    """The program under python and under `torchglass run`, at the same time, without the story of a failure."""
    plain = start(folder, [*flags, *command])
    ours = start(folder, [*flags, "-m", "torchglass", "run", "--quiet", "--to", "kept.trace", *command])
    return end(plain, given), end(ours, given)


def names(path: Path) -> list[str]:
    return [event.name for event in tg.load(path).events()]


def speaks_of_us(text: str) -> bool:
    """Whether our name or a file of ours is in it; the folder that all this was cloned into may bear that name too."""
    return "torchglass" in text.replace(str(ROOT), "").replace(sys.prefix, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a data file; paths in it have no links, as python shows them."""
    (tmp_path / "data.txt").write_text("beside me", encoding="utf-8")
    return tmp_path.resolve()


# The same as under python


@pytest.mark.parametrize("flags", [(), ("-O", "-X", "utf8", "-W", "error::UserWarning"), ("-P",)], ids=" ".join)
def test_a_script_knows_the_same_of_itself(folder: Path, flags: tuple[str, ...]) -> None:
    arguments = ["--to", "x.trace", "--n", "4", "--show", "a", "-", "--", "--ops"]
    plain, ours = both(folder, str(SCRIPTS / "knows_itself.py"), *arguments, flags=flags, given="typed in")
    assert ours == plain
    assert "Namespace(to='x.trace', n=4, show=True, rest=['a', '-', '--ops'])" in plain.out
    assert "beside me typed in" in plain.out
    assert "DeprecationWarning: shown" in plain.err
    assert len(tg.load(folder / "kept.trace")) == 0
    assert not (folder / "x.trace").exists()


def test_a_warning_that_is_an_error_is_the_programs_own(folder: Path) -> None:
    """Nothing that recording needs (torch itself, among others) fails where warnings are errors."""
    plain, ours = both(folder, str(SCRIPTS / "knows_itself.py"), "a", flags=("-W", "error"))
    assert ours == plain
    assert plain.status == 1
    assert plain.err.endswith("DeprecationWarning: shown, because this is the main program\n")


def test_a_link_to_a_script_in_another_folder(folder: Path) -> None:
    (folder / "real").mkdir()
    for name in ("model.py", "beside.py"):
        shutil.copy(SCRIPTS / name, folder / "real")
    (folder / "link.py").symlink_to(folder / "real" / "model.py")
    plain, ours = both(folder, "link.py")
    assert ours == plain == Ran(0, "torch.Size([4, 2])\n", "")
    assert {event.location.file for event in tg.load(folder / "kept.trace").events() if event.location} >= {
        str(folder / "link.py"),
        str(folder / "real" / "beside.py"),
    }


def test_what_comes_after_the_last_line(folder: Path) -> None:
    plain, ours = both(folder, str(SCRIPTS / "at_exit.py"))
    assert ours == plain
    assert plain.status == 1
    assert plain.err == "stopped by itself\n"
    assert plain.out.splitlines() == ["the last line", "the thread: tensor(1.)", "__main__ Point(x=3) tensor(6.)"]
    trace = tg.load(folder / "kept.trace")
    assert {"ones", "Tensor.mul", "Tensor.mean"} <= {event.name for event in trace.events()}
    assert {event.thread for event in trace.events()} == {"MainThread", "late"}
    assert trace._tables.complete


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes(folder: Path, method: str) -> None:
    plain, ours = both(folder, str(SCRIPTS / "processes.py"), method)
    assert ours == plain
    assert plain.status == 0
    assert plain.out.startswith("[0, 2, 4]\n")
    trace = tg.load(folder / "kept.trace")
    assert (folder / "kept.trace" / f"rank00000-pid{trace._tables.process}" / "done").exists()


@pytest.mark.parametrize("how", ["in_forward", "in_torch", "in_a_group", "hooked", "badly_hooked", "in_a_thread"])
def test_an_uncaught_exception(folder: Path, how: str) -> None:
    plain, ours = both(folder, str(SCRIPTS / "fails.py"), how)
    assert ours == plain
    assert plain.status == (0 if how == "in_a_thread" else 1)
    assert "_wrapped_call_impl" in plain.err + plain.out or how == "in_torch"
    trace = tg.load(folder / "kept.trace")
    failure = trace.failure()
    assert (failure is None) == (how == "in_a_thread")
    assert failure is None or failure.error is not None


def test_the_story_of_a_failure_is_below_the_traceback(folder: Path) -> None:
    """On stderr, whoever reads it; what the program printed is untouched."""
    program = [str(SCRIPTS / "fails.py"), "in_forward"]
    plain, quiet = both(folder, *program)
    ours = recorded(folder, *program, to="told.trace", COLUMNS="100")
    assert quiet == plain
    assert (ours.status, ours.out) == (plain.status, plain.out)
    assert ours.err.startswith(plain.err + "\n✗ ")
    story = ours.err[len(plain.err) + 1 :].splitlines()
    assert story[:-1] == tg.render(tg.load(folder / "told.trace"), width=100).splitlines()
    assert story[-1].endswith("to see them: torchglass show told.trace")


def test_a_failure_in_a_thread_or_outside_torch_has_no_story(folder: Path) -> None:
    ours = recorded(folder, str(SCRIPTS / "fails.py"), "in_a_thread")
    assert "✗" not in ours.err
    (folder / "plain.py").write_text("import torch\ntorch.ones(2)\nraise ValueError('its own')\n")
    ours = recorded(folder, "plain.py", to="other.trace")
    assert ours.err.endswith("ValueError: its own\n")


def test_recursion_without_end(folder: Path) -> None:
    """The same but for how deep it went: our own frames take some of the room."""
    plain, ours = both(folder, str(SCRIPTS / "fails.py"), "without_end")
    counted = r"repeated (\d+) more times"
    depths = [int(re.findall(counted, ran.err)[0]) for ran in (plain, ours)]
    assert re.sub(counted, "", ours.err) == re.sub(counted, "", plain.err)
    assert depths[0] - 20 < depths[1] <= depths[0]


@pytest.mark.parametrize(
    ("how", "status"), [("status", 3), ("nothing", 0), ("closed", 0), ("at once", 5), ("forked", 0)]
)
def test_the_exit_status(folder: Path, how: str, status: int) -> None:
    plain, ours = both(folder, str(SCRIPTS / "ends.py"), how)
    assert ours == plain
    assert plain.status == status
    assert tg.load(folder / "kept.trace")._tables.complete == (how != "at once")


@pytest.mark.parametrize("module", ["package", "package.inner"])
def test_a_module(folder: Path, module: str) -> None:
    shutil.copytree(SCRIPTS / "package", folder / "package", ignore=shutil.ignore_patterns("__pycache__"))
    plain, ours = both(folder, "-m", module, "--to", "3")
    assert ours == plain
    assert plain.status == (1 if module == "package" else 0)
    assert str([str(folder / "package"), "--to"])[2:20] in plain.out
    assert names(folder / "kept.trace")[:2] == ["ones", "Tensor.sum"], "a package computes when it is imported"


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_folder_and_an_archive(folder: Path, kind: str) -> None:
    if kind == "folder":
        shutil.copytree(SCRIPTS / "folder", folder / "folder", ignore=shutil.ignore_patterns("__pycache__"))
    else:
        with (folder / "archive").open("wb") as file:
            file.write(b"#!/usr/bin/env python\n")
            with zipfile.ZipFile(file, "w") as archive:
                for each in ("__main__.py", "near.py"):
                    archive.write(SCRIPTS / "folder" / each, each)
    plain, ours = both(folder, kind, "a")
    assert ours == plain
    assert plain.out.endswith(f"['{kind}', 'a'] {folder / kind} near\n")
    assert plain.err.endswith("ValueError: of the folder\n")


# What cannot be run


@pytest.fixture
def awkward(folder: Path) -> Path:
    """A folder of things that are no programs."""
    shutil.copy(SCRIPTS / "broken.txt", folder / "broken.py")
    (folder / "binary.py").write_bytes(b"print(1)\n\0\n")
    (folder / "latin.py").write_bytes(b"print('\xe9')\n")
    (folder / "empty").mkdir()
    (folder / "raising").mkdir()
    (folder / "raising" / "__init__.py").write_text("import nowhere\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("missing.py", 2),
        ("empty", 1),
        ("broken.py", 1),
        ("-m missing", 1),
        ("-m empty", 1),
        ("-m broken", 1),
        ("-m broken.py", 1),
        ("-m missing.inner", 1),
        ("-m json.missing", 1),
        ("-m json", 1),
        ("-m math", 1),
        ("-m .relative", 1),
        ("-m raising", 1),
        ("-m raising.inner", 1),
    ],
)
def test_what_cannot_be_run_fails_as_under_python(awkward: Path, command: str, status: int) -> None:
    plain, ours = both(awkward, *command.split())
    assert ours == plain
    assert plain.status == status
    assert plain.err


@pytest.mark.parametrize("script", ["binary.py", "latin.py"])
def test_what_is_no_text_fails_in_other_words_than_under_python(awkward: Path, script: str) -> None:
    """Python reads a script line by line as it parses it, which nobody else can do."""
    plain, ours = both(awkward, script)
    assert (ours.status, ours.out) == (plain.status, plain.out) == (1, "")
    for ran in (plain, ours):
        assert ran.err.splitlines()[-1].startswith("SyntaxError: ")
        assert "Traceback" not in ran.err


def test_what_is_not_there_leaves_no_bundle(awkward: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["missing.py"], ["broken.py"], ["-m", "missing"], ["-m", "json"]):
        recorded(awkward, *command)
        assert not (awkward / "kept.trace").exists()
    assert main(["run"]) == 2
    assert capfd.readouterr().err == "torchglass run: no program given: give a script, or -m and a module\n"


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("data.txt", "exists already"),
        ("nowhere/x.trace", "its parent folder is not there"),
        ("data.txt/x.trace", "its parent is no folder"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_program_starts(folder: Path, to: str, said: str) -> None:
    ours = recorded(folder, str(SCRIPTS / "ends.py"), "status", to=to)
    assert (ours.status, ours.out) == (1, "")
    assert ours.err.startswith("torchglass: ")
    assert said in ours.err
    assert ours.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"), [(["--max-events", "0"], "from 1 on"), (["--show", "tre"], "did you mean 'tree'?")]
)
def test_wrong_options_are_refused_before_the_program_starts(folder: Path, options: list[str], said: str) -> None:
    ours = end(start(folder, ["-m", "torchglass", "run", *options, str(SCRIPTS / "ends.py"), "status"]))
    assert ours.out == ""
    assert said in ours.err
    assert list(folder.glob("*.trace")) == []


# Stopped from outside


def waiting(folder: Path) -> subprocess.Popen[str]:
    process = start(folder, ["-m", "torchglass", "run", "--to", "kept.trace", str(SCRIPTS / "waits.py")])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while len(tg.load(folder / "kept.trace")) < 10:
        assert process.poll() is None
    return process


def test_ctrl_c_keeps_the_trace(answers_to_ctrl_c: None, folder: Path) -> None:
    process = waiting(folder)
    process.send_signal(signal.SIGINT)
    ours = end(process)
    assert ours.status == -signal.SIGINT, "as under python: by the signal, so that a shell script stops too"
    assert ours.err.endswith("\nKeyboardInterrupt\n")
    assert not speaks_of_us(ours.err)
    trace = tg.load(folder / "kept.trace")
    assert trace._tables.complete
    assert trace._tables.left_by == ("KeyboardInterrupt",)
    assert len(trace) >= 10


def test_kill_leaves_a_readable_trace(folder: Path) -> None:
    process = waiting(folder)
    process.kill()
    assert end(process).status == -signal.SIGKILL
    trace = tg.load(folder / "kept.trace")
    assert not trace._tables.complete
    assert [event.name for event in trace.events()][:3] == ["ones", "Tensor.mul", "Tensor.add"]
    assert any("torchglass repair" in note for note in trace.notes)


# What is recorded, and where it goes


def test_the_trace_begins_at_the_script(folder: Path) -> None:
    ours = recorded(folder, str(SCRIPTS / "model.py"))
    assert ours == Ran(0, "torch.Size([4, 2])\n", "")
    trace = tg.load(folder / "kept.trace")
    assert trace.notes == ()
    called = next(event for event in trace.events(kind="module"))
    assert [(Path(each.file).name, each.function) for each in called.stack] == [
        ("model.py", "<module>"),
        ("model.py", "main"),
    ]
    inner = next(event for event in trace.events(function="mul"))
    assert [each.function for each in inner.stack] == ["<module>", "main", "doubled"]
    assert (inner.code, inner.operator) == ("x * 2", "*")
    for event in trace.events():
        assert event.stack[0].function == "<module>"
        assert not any(speaks_of_us(each.file) for each in event.stack)
        assert not any("runpy" in each.file for each in event.stack)
    assert str(SCRIPTS / "beside.py") in trace.sources


def test_options_choose_what_is_recorded(folder: Path) -> None:
    script = str(SCRIPTS / "model.py")
    options = ["--ops", "--no-modules", "--no-functions", "--no-sources", "--name", "mine", "--to=a.trace"]
    assert end(start(folder, ["-m", "torchglass", "run", *options, "--", script])).status == 0
    trace = tg.load(folder / "a.trace")
    assert {event.kind for event in trace.events()} == {"op"}
    assert trace.sources == {}
    assert trace.name == "mine"


def test_the_bundle_is_called_after_the_program(folder: Path) -> None:
    shutil.copytree(SCRIPTS / "package", folder / "package", ignore=shutil.ignore_patterns("__pycache__"))
    for command in ([str(SCRIPTS / "ends.py"), "nothing"], ["-mpackage"]):
        end(start(folder, ["-m", "torchglass", "run", *command]))
    assert {path.name for path in folder.glob("*.trace")} == {"ends.trace", "package.trace"}


ENDS_BY_CTRL_C = """
import atexit, os, signal, sys, torch
from torch import nn

class Finalised:
    def __del__(self):
        print("finalised", flush=True)

kept = Finalised()
atexit.register(lambda: print("at exit:", sys.last_type, sys.excepthook is sys.__excepthook__))

class Model(nn.Module):
    def forward(self, x):
        x = x + 1
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

print("not flushed")
Model()(torch.ones(2))
"""
"""How python ends by Ctrl-C: the traceback, exit handlers, finalisers, what was printed, and then the signal."""


@pytest.mark.parametrize("way", ["console", "module"])
def test_ctrl_c_ends_the_process_as_under_python(answers_to_ctrl_c: None, folder: Path, way: str) -> None:
    (folder / "ends.py").write_text(ENDS_BY_CTRL_C)
    ours = ["-m", "torchglass"] if way == "module" else [str(Path(sys.executable).with_name("torchglass"))]
    plain = end(start(folder, ["ends.py"]))
    done = end(start(folder, [*ours, "run", "--to", "kept.trace", "ends.py"]))
    assert plain.status == -signal.SIGINT
    assert plain.out.endswith("finalised\n")
    assert (done.status, done.out) == (plain.status, plain.out)
    assert unplaced(done.err) == unplaced(plain.err)
    assert tg.load(folder / "kept.trace")._tables.left_by == ("KeyboardInterrupt",)


def unplaced(text: str) -> str:
    """Without the last place of a traceback: in that loop Ctrl-C comes somewhere."""
    return re.sub(r"ends\.py\", line \d+, in forward\n(?:    .*\n)+", "", text)


def test_showing_instead_of_keeping(folder: Path) -> None:
    ours = end(start(folder, ["-m", "torchglass", "run", "--show", "tree", str(SCRIPTS / "model.py")]))
    first, *rest = ours.out.splitlines()
    assert first == "torch.Size([4, 2])"
    assert any("Linear(3, 2)" in line for line in rest)
    assert (ours.status, ours.err) == (0, "")
    assert list(folder.glob("*.trace")) == []


def test_switched_off(folder: Path) -> None:
    ours = recorded(folder, str(SCRIPTS / "model.py"), TORCHGLASS="0")
    assert ours == Ran(0, "torch.Size([4, 2])\n", "")
    assert not (folder / "kept.trace").exists()


def test_the_command_itself(folder: Path) -> None:
    """`torchglass run`, as it is installed, and with nobody to read what it shows."""
    command = Path(sys.executable).with_name("torchglass")
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": LONGEST}
    done = subprocess.run([command, "run", "--show", "tree", SCRIPTS / "model.py"], **options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("torch.Size([4, 2])\n")


@pytest.mark.parametrize(
    ("given", "own", "program"),
    [
        (["a.py", "--to", "x"], [], ["a.py", "--to", "x"]),
        (["--to", "x", "a.py", "-m"], ["--to", "x"], ["a.py", "-m"]),
        (["--to=x", "--ops", "-m", "p", "--ops"], ["--to=x", "--ops"], ["-m", "p", "--ops"]),
        (["-mp.q", "a"], [], ["-m", "p.q", "a"]),
        (["--", "--odd.py", "--"], [], ["--odd.py", "--"]),
        (["-h"], ["-h"], []),
        (["--to"], ["--to"], []),
        ([], [], []),
    ],
)
def test_options_of_the_program_are_its_own(given: list[str], own: list[str], program: list[str]) -> None:
    assert split(given) == (own, program)
