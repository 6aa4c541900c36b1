"""What `make versions` writes is what was counted, one row for each combination."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.versions import COMBINATIONS, Combination, Counts, Result, read_report, write_page
from torchglass.cli import doctor

REPORT = """
<testsuites><testsuite name="pytest">
  <testcase classname="tests.a" name="test_good"/>
  <testcase classname="tests.a" name="test_skipped"><skipped message="no browser"/></testcase>
  <testcase classname="tests.a" name="test_bad[x]"><failure message="no"/></testcase>
  <testcase classname="tests.b" name="test_never_began"><error message="no"/></testcase>
</testsuite></testsuites>
"""


def test_skipped_tests_count_as_none() -> None:
    counts = read_report(ElementTree.fromstring(REPORT))
    assert counts == Counts(3, ("tests.a::test_bad[x]", "tests.b::test_never_began"))
    assert counts.cell == "1 of 3"


def result(combination: str, failed: int = 0, off: tuple[str, ...] = ()) -> Result:
    parts = (Counts(10, ("a",) * failed), Counts(2, ()), Counts(3, ()), Counts(4, ()))
    return Result(Combination.parse(combination), parts, off)


def test_a_row_is_written_anew_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "versions.md"
    for each in (result("3.13:2.15.0", failed=1), result("3.11:2.8.0", off=("private lacks x",)), result("3.9:2.8.0")):
        write_page(page, each)
    write_page(page, result("3.13:2.15.0"))
    rows = [line for line in page.read_text().splitlines() if line.startswith("| 2.")]
    assert rows == [
        "| 2.8.0 | 3.9 | 10 of 10 | 2 of 2 | 3 of 3 | 4 of 4 | none |",
        "| 2.8.0 | 3.11 | 10 of 10 | 2 of 2 | 3 of 3 | 4 of 4 | private lacks x |",
        "| 2.15.0 | 3.13 | 10 of 10 | 2 of 2 | 3 of 3 | 4 of 4 | none |",
    ]


@pytest.mark.parametrize("text", ["2.15.0", "3.13-2.15.0", "3.13:", "python3.13:2.15.0"])
def test_what_is_no_combination_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="write Python:PyTorch"):
        Combination.parse(text)


def test_the_oldest_and_the_newest_that_are_promised_are_tried() -> None:
    tried = [Combination.parse(each) for each in COMBINATIONS]
    pythons = {tuple(map(int, each.python.split("."))) for each in tried}
    torches = {doctor.release(each.torch) for each in tried}
    assert (min(pythons), max(pythons)) == (doctor.OLDEST_PYTHON, doctor.NEWEST_PYTHON)
    assert (min(torches), max(torches)) == (doctor.OLDEST_TORCH, doctor.NEWEST_TORCH)
