"""`torchglass sql` asks a kept trace, as a table or as JSON, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.cli import main


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "run.trace"
    with tg.record(to=path):
        nn.Linear(3, 2)(torch.ones(1, 3))
    return path


QUERY = "SELECT kind, count(*) AS often FROM events GROUP BY kind ORDER BY kind"


def test_a_table_under_the_names_of_its_columns(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(bundle), QUERY]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["kind", "often"]
    assert [(kind, int(often)) for kind, often in rows] == tg.load(bundle).sql(QUERY)


def test_as_json(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(bundle), QUERY, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["columns"] == ["kind", "often"]
    assert [tuple(row) for row in told["rows"]] == tg.load(bundle).sql(QUERY)
    assert main(["sql", str(bundle), "SELECT 1e999, x'00ff', NULL", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [["inf", "00ff", None]]


@pytest.mark.parametrize("query", ["DROP TABLE events", "SELECT nothing FROM events", "ATTACH 'x' AS y", "SELEC"])
def test_what_is_no_reading_is_refused_in_one_line(
    bundle: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(bundle), query]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("torchglass: ")
    assert said.err.count("\n") == 1


def test_nothing_that_a_terminal_obeys_gets_through(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(bundle), "SELECT char(27) || '[31m' AS red"]) == 0
    assert "\x1b" not in capsys.readouterr().out
