"""Every command answers in JSON, with the fields that docs/json.md names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.answers.finding import Evidence, Finding
from torchglass.cli import main
from torchglass.cli._main import COMMANDS, build_parser
from torchglass.cli.output import SCHEMA
from torchglass.events.types import Location, location_dict

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


def documented(heading: str) -> set[str]:
    """The fields that stand below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/json.md has nothing on {heading}"
    found: set[str] = set()
    for line in section[1].splitlines():
        if line.startswith("- "):
            names = re.match(r"- (`\w+`(?:, `\w+`)*)", line)
            assert names is not None, line
            found.update(re.findall(r"`(\w+)`", names[1]))
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("json") / "run.trace"
    with tg.record(to=path, values="stats"):
        tg.mark("x", nn.Linear(3, 2)(torch.zeros(1, 3)))
        torch.zeros(2).log()
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json"])
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    return json.loads(said.out)


def test_every_command_takes_it() -> None:
    for name in COMMANDS:
        parser = build_parser([name])
        commands = next(each for each in parser._actions if each.dest == "==SUPPRESS==" and each.choices)
        assert "--json" in commands.choices[name]._option_string_actions, name


@pytest.mark.parametrize(
    "name", ["check", "explain", "show", "info", "values", "sql", "repair", "export", "doctor", "open"]
)
def test_the_fields_are_those_of_the_page(
    name: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {
        "explain": ["broadcast"],
        "doctor": [],
        "diff": [str(bundle), str(bundle)],
        "sql": [str(bundle), "SELECT 1 AS one"],
        "export": [str(bundle), str(tmp_path / "x.mmd")],
        "open": [str(bundle), "--no-browser", "--out", str(tmp_path / "x.html")],
    }
    answer = told(capsys, name, *more.get(name, [str(bundle)]))
    assert (answer.pop("schema"), answer.pop("command")) == (SCHEMA, name)
    assert set(answer) == documented(name)


def test_the_fields_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint('own')\nx = torch.zeros(2).log()\nx @ torch.ones(3)\n")
    command = [sys.executable, "-m", "torchglass", "run", "--json", "--first-bad", "--show", "table", "--to", "k.trace"]
    done = subprocess.run(
        [*command, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ}
    )
    assert done.returncode == 1
    assert done.stdout == "own\n"
    answer = json.loads(done.stderr.splitlines()[-1])
    assert (answer.pop("schema"), answer.pop("command")) == (SCHEMA, "run")
    assert set(answer) == documented("run")
    assert Path(answer["bundle"]) == tmp_path / "k.trace"
    assert answer["failure"]["location"]["line"] == 4
    assert answer["first_bad"]["location"]["line"] == 3
    assert answer["view"]["view"] == "table"


def test_the_fields_of_what_all_share(bundle: Path) -> None:
    at = Location("model.py", 3, 3, 0, 5, "f", "x + y", "user")
    finding = Finding(kind="a", severity="hint", text="b", location=at, evidence=(Evidence("c"),)).to_dict()
    assert set(finding) == documented("A finding")
    assert set(finding["evidence"][0]) == {"kind", "text", "event", "location"}
    assert set(location_dict(at) or {}) == documented("A place")
    assert set(tg.load(bundle).to_dict("tree")) == documented("A view")


def test_a_number_that_json_does_not_have_is_a_text(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "sql", str(bundle), "SELECT -1e999 AS x")["rows"] == [["-inf"]]
