"""`torchglass show` prints a kept trace with every view and option, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs
from torchglass.api import VIEWS
from torchglass.cli import main, views
from torchglass.cli._main import COMMANDS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kept trace with modules, functions and ops."""
    path = tmp_path_factory.mktemp("show") / "run.trace"
    with tg.record(to=path, ops=True, name="attention"):
        programs.load("attention").main()
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("torchglass: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_what_show_gives(bundle: Path, view: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tg.load(bundle)
    assert printed(capsys, str(bundle), "--view", view, "--width", "100") == tg.render(trace, view, width=100) + "\n"
    colored = printed(capsys, str(bundle), "--view", view, "--width", "100", "--color")
    assert colored == tg.render(trace, view, width=100, color=True) + "\n"
    only = printed(capsys, str(bundle), "--view", view, "--only", "kind=op", "--only", "op=*mm*", "--width", "100")
    assert only == tg.render(trace, view, width=100, only=tg.select(kind="op", op="*mm*")) + "\n"
    either = printed(
        capsys, str(bundle), "--view", view, "--only", "kind=op", "--only", "kind=module", "--width", "100"
    )
    assert either == tg.render(trace, view, width=100, only=tg.select(kind=("op", "module"))) + "\n"


@pytest.mark.parametrize("view", VIEWS)
def test_every_option_of_a_view_can_be_given(bundle: Path, view: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is known under its own name, and those of type bool can be switched both ways."""
    trace = tg.load(bundle)
    for name, by_view in views.view_options().items():
        if view not in by_view:
            continue
        option, flag = by_view[view], "--" + name.replace("_", "-")
        tries: list[tuple[Any, list[str]]] = [(each, [flag, each]) for each in option.choices]
        if option.kind == "switch":
            tries = [(True, [flag]), (False, [flag.replace("--", "--no-", 1)])]
        elif option.kind == "number":
            tries = [(2, [flag, "2"])]
        for value, given in tries:
            text = printed(capsys, str(bundle), "--view", view, *given, "--width", "100")
            assert text == tg.render(trace, view, width=100, **{name: value}) + "\n"


def test_help_says_what_every_option_means_and_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for by_view in views.view_options().values():
        for view, option in by_view.items():
            assert option.meaning in text, (view, option)
            assert all(choice in text for choice in option.choices)


def test_help_spells_views_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", "--help"])
    text = capsys.readouterr().out
    assert "first-bad: what counts as bad" in text
    assert "first_bad" not in text


def test_only_what_is_shown_is_imported(bundle: Path) -> None:
    """How soon the first line comes is half a matter of what is imported before it."""
    code = (
        "import sys; from torchglass.cli import main\n"
        "main(['show', sys.argv[1]])\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    imported = set(done.stderr.split())
    assert "torchglass.views.tree" in imported
    others = {f"torchglass.views.{view}" for view in VIEWS if view != "tree"}
    others |= {f"torchglass.cli.{name}" for name in COMMANDS if name != "show"}
    assert not imported & (others | {"torch", "numpy", "socket", "subprocess", "torchglass.compat"})


def test_an_option_of_one_name_is_of_one_kind_in_every_view() -> None:
    for name, by_view in views.view_options().items():
        assert len({option.kind for option in by_view.values()}) == 1, name


def test_a_mistyped_view_is_one_line_with_the_nearest_name(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["tre"], ["--view", "tre"]):
        assert main(["show", str(bundle), *given]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert said.err.startswith("torchglass: no view 'tre'; did you mean 'tree'? choose from: calls, code")
    assert main(["show", str(bundle), "first-bat"]) == 2
    assert "did you mean 'first-bad'?" in capsys.readouterr().err


def test_json_is_one_object_with_what_to_dict_gives(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, str(bundle), "code", "--json", "--depth", "1")
    assert text.count("\n") == 1
    told = json.loads(text)
    assert (told.pop("schema"), told.pop("command")) == (1, "show")
    assert told == tg.load(bundle).to_dict("code", depth=1)


def test_the_first_bad_value_of_a_kept_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tg.record(values="stats", to=tmp_path / "bad.trace") as trace:
        torch.zeros(3).log().exp().log()
    path = str(tmp_path / "bad.trace")
    assert printed(capsys, path, "first-bad", "--width", "300") == f"{trace.first_bad()}\n"
    assert "unless it was meant" in printed(capsys, path, "first-bad", "--allow", "log")
    assert "Tensor.exp" in printed(capsys, path, "first-bad", "--when", "max<=0", "--only", "function=exp")
    assert "Tensor.exp" not in printed(capsys, path, "first-bad", "--only", "function=exp")


def test_the_listing_of_one_file(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = printed(capsys, str(bundle), "--view", "listing", "--path", "attention.py", "--width", "100")
    tg.show(tg.load(bundle), "listing", path="attention.py", width=100)
    assert one == capsys.readouterr().out
    assert one.startswith("── tests/programs/attention.py ──")
    assert "choose from: " in refused(capsys, str(bundle), "--view", "listing", "--path", "nowhere.py")
    assert "softmax" in printed(capsys, str(bundle), "--path", "attention.py", "--width", "100")


def test_the_default_is_the_tree(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, str(bundle)) == printed(capsys, str(bundle), "--view", "tree")
    shallow = printed(capsys, str(bundle), "--depth", "0")
    assert len(shallow) < len(printed(capsys, str(bundle)))


def test_wrong_use_is_one_line_with_the_cure(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "KEY=PATTERN" in refused(capsys, str(bundle), "--only", "encoder")
    assert "did you mean 'module'?" in refused(capsys, str(bundle), "--only", "modul=x")
    assert "choose from: " in refused(capsys, str(bundle), "--only", "kind=ops")
    assert "does not exist" in refused(capsys, str(tmp_path / "none"))
    assert "not a bundle" in refused(capsys, str(tmp_path))
    assert "has no option 'inner'" in refused(capsys, str(bundle), "--view", "table", "--inner")


@pytest.mark.parametrize("arguments", [["x", "--nothing"], ["x", "--width", "wide"], []])
def test_what_argparse_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["show", *arguments])
    assert caught.value.code == 2
    assert "usage: torchglass" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["run", "--out", "a.trace", "a.py"],
            "run: error: no option --out; did you mean --to? `torchglass ",
        ),
        (["show", "x", "--dpth=1"], "show: error: no option --dpth=1; did you mean --depth? `torchglass show --help` "),
        (["show", "x", "--quux"], "show: error: no option --quux; `torchglass show --help` lists them"),
        (["show", "x", "tree", "\x1b[2J"], "show: error: unexpected argument: \\x1b[2J"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert f"torchglass {said}" in capsys.readouterr().err


def test_a_reader_that_goes_away(bundle: Path) -> None:
    """`torchglass show … | head -1` ends quietly."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "torchglass", "show", str(bundle)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_torch(bundle: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchglass.cli import main\n"
        "sys.exit(main(['show', sys.argv[1], '--width', '100']))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == tg.render(tg.load(bundle), width=100) + "\n"


# --help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_can_be_parsed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from torchglass.cli import run
    from torchglass.cli._main import build_parser

    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:\n" in text
    examples = re.findall(r"^  torchglass (.*?)(?:  .*)?$", text.partition("examples:\n")[2].partition("\n\n")[0], re.M)
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" | ")[0])
        own = ["run", *run.split(words[1:])[0]] if words[0] == "run" else words
        try:
            options = build_parser().parse_args(own)
        except SystemExit:
            pytest.fail(f"{example}: {capsys.readouterr().err}")
        assert callable(options.run)


def test_a_view_may_follow_the_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, str(bundle), "table") == printed(capsys, str(bundle), "--view", "table")
    assert printed(capsys, str(bundle), "table", "--view", "table") == printed(capsys, str(bundle), "table")
    assert "two views were given" in refused(capsys, str(bundle), "table", "--view", "code")
