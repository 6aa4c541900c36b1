"""The listing's view of calls: how often a line made them, and what it got from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.modules import module_of
from torchglass.program.by_line.notes import LineNote
from torchglass.views.listing.files import FileListing, files_of
from torchglass.views.listing.view import pieces_of
from torchglass.views.options import ListingOptions


def listing_of(trace: tg.Trace, path: str, **options: Any) -> FileListing:
    (listing,) = files_of(trace, ListingOptions(path=path, **options)).shown
    return listing


def of_program(name: str) -> FileListing:
    return listing_of(programs.recorded(name), f"{name}.py")


def of_text(folder: Path, text: str) -> FileListing:
    module = module_of(folder, text)
    with tg.record() as trace:
        module.main()
    return listing_of(trace, "sample.py")


def note(listing: FileListing, text: str) -> LineNote:
    (line,) = [at for at, each in enumerate(listing.text, 1) if text in each]
    return listing.lines.notes[line]


def said(listing: FileListing, text: str) -> list[str]:
    return pieces_of(note(listing, text), by_module=False)


# ---------------------------------------------------------------- one expression, several callables


@pytest.fixture(scope="module")
def one_name() -> FileListing:
    return of_program("one_name_many_callables")


@pytest.mark.parametrize(
    ("text", "runs", "shapes"),
    [
        ("x = layer(x)", 5, ["f32[1, 8, 2] | f32[1, {2, 16}]"]),
        ("a = act(out)", 3, ["f32[1, 2]"]),
        ("b = act(out)", 3, ["f32[1, 2] | f32[2]"]),
        ("c = act(out)", 2, []),
        ("total += loss", 3, ["total: f32[]"]),
        ("scale *= loss", 3, ["scale: f32[]"]),
        ("d = z - loss", 3, ["f32[]"]),
        ("e = z < loss", 3, ["b8[]"]),
        ("f = z**loss", 3, ["f32[]"]),
        ("g = 0 < loss < 9", None, ["b8[]"]),
        ("h = 0 < loss > -1", None, ["b8[]"]),
    ],
)
def test_every_callable_of_one_expression_counts(
    one_name: FileListing, text: str, runs: int | None, shapes: list[str]
) -> None:
    assert note(one_name, text).runs == runs
    assert said(one_name, text) == shapes


def test_both_comparisons_of_a_chain_count_once(one_name: FileListing) -> None:
    (told,) = note(one_name, "g = 0 < loss < 9").notes
    assert told.outcome.times == 1


# ---------------------------------------------------------------- what a call gave


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a = skipping(x)", ["f32[3]"]),
        ("b = skipping(x, skip)", []),
        ("c = pair_or_sum(x)", ["f32[3]"]),
        ("d = first_long(", ["(f32[5])"]),
        ("e = grown(", ["(f32[1])"]),
        ("f = cut(", ["f32[] | f32[2]"]),
        ("g = kept(", ["(f32[2–5])"]),
        ("h = shortened(", ["(f32[2–5])"]),
    ],
)
def test_a_name_that_is_returned_early_claims_nothing(text: str, shapes: list[str]) -> None:
    assert said(of_program("early_returns"), text) == shapes


# ---------------------------------------------------------------- how often a call was made


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("a = checked(x)", None),
        ("b = guarded(x)", None),
        ("c, k = halved(", 1),
        ("k = 3", None),
        ("e = c + 1", 1),
        ("f = mask(size)", None),
    ],
)
def test_a_call_is_counted_only_by_what_runs_once_in_each(text: str, runs: int | None) -> None:
    assert note(of_program("uncounted_calls"), text).runs == runs


MIXED = """
import torch

def scale(v):
    return v * 2

def block(x, by):
    y = torch.relu(x)
    z = by * 3
    return y + z

def either(x, when):
    if when:
        return x.exp()
    return x

def main():
    x = torch.ones(2)
    for by in (1.0, x, 2.0, x, 3.0):
        y = block(x, by)
        out = scale(by)
        n = out * 1
    total = 0
    for k in range(4):
        total += k
        x = x + 1
        total = total + (x.sum() if k > 2 else 1)
    either(x, x.sum() > 0)
    z = either(x, False)
    w = z + 1
    return total
"""


@pytest.mark.parametrize(
    ("text", "runs", "words"),
    [
        ("return v * 2", 5, ["→ f32[2] ×2"]),
        ("z = by * 3", 5, ["f32[2] ×2"]),
        ("if when:", 2, ["(True ×1)"]),
        ("out = scale(by)", 5, ["f32[2] ×2"]),
        ("n = out * 1", 5, ["f32[2] ×2"]),
        ("total += k", 4, []),
        ("total = total +", 4, ["f32[] ×1"]),
        ("z = either(x, False)", 1, []),
    ],
)
def test_a_line_that_computed_with_plain_numbers_at_times_is_counted_by_calls_and_loops(
    tmp_path: Path, text: str, runs: int, words: list[str]
) -> None:
    """Steps alone would say 2× of a line that ran five times, with tensors in two of them."""
    listing = of_text(tmp_path, MIXED)
    assert note(listing, text).runs == runs
    assert said(listing, text) == words


UNTOLD = """
import torch

def main():
    for by in (1.0, torch.ones(2), 2.0, torch.ones(2), 3.0, 4.0):
        x = torch.ones(3)
        y = by * 3
"""


def test_a_count_that_cannot_be_right_is_not_shown(tmp_path: Path) -> None:
    """The loop went round six times, and nothing says that it was not left in the last of them before this line."""
    listing = of_text(tmp_path, UNTOLD)
    assert note(listing, "x = torch").runs == 6
    assert note(listing, "y = by").runs is None
    assert note(listing, "y = by").state == "ran"


ONE_LINE = """
import torch

def main():
    x = torch.ones(4)
    for i in range(6):
        if i == 2: x = x[:1]
    for _ in range(3): x = x + 1
    return x
"""


def test_an_if_with_its_body_on_one_line_is_not_counted_by_the_body(tmp_path: Path) -> None:
    listing = of_text(tmp_path, ONE_LINE)
    assert note(listing, "if i == 2").runs is None
    assert note(listing, "if i == 2").state == "ran"
    assert said(listing, "if i == 2") == ["f32[1]"]
    assert note(listing, "for _ in").runs == 3


# ---------------------------------------------------------------- what is changed in place


IN_PLACE = """
import torch
from torch import nn
import torch.nn.functional as F

class Box:
    def fill_(self, x):
        return x * 2

def main():
    w, box = torch.ones(2, 3), Box()
    nn.init.normal_(w)
    torch.relu_(w[0])
    F.relu_(w)
    torch.clamp_(input=w, min=0)
    w.add_(1)
    box.fill_(w)
"""


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("nn.init.normal_(w)", ["w: f32[2, 3]"]),
        ("torch.relu_(w[0])", ["w[0]: f32[3]"]),
        ("F.relu_(w)", ["w: f32[2, 3]"]),
        ("torch.clamp_(", ["(f32[2, 3])"]),
        ("w.add_(1)", ["w: f32[2, 3]"]),
        ("box.fill_(w)", ["(f32[2, 3])"]),
    ],
)
def test_a_function_changes_what_it_is_given_and_not_the_module_it_is_in(
    tmp_path: Path, text: str, changed: list[str]
) -> None:
    assert said(of_text(tmp_path, IN_PLACE), text) == changed


# ---------------------------------------------------------------- code whose text is not known


def test_all_callers_of_code_without_text_count() -> None:
    names: dict[str, Any] = {}
    exec(compile("def added(x):\n    return x + 5\n", "<added>", "exec"), names)
    with tg.record() as trace:
        names["added"](torch.ones(2))
        names["added"](torch.ones(3))
    (line,) = listing_of(trace, "<added>").lines.without_source
    assert line.runs == 2
    assert pieces_of(line, by_module=False) == ["(f32[2–3])"]


def test_without_its_text_a_line_counts_what_came_last_and_every_callable(tmp_path: Path) -> None:
    lines = ["def main(x):", "    x[0] += 1", "    for act in (torch.relu, torch.tanh):", "        y = act(x)"]
    names: dict[str, Any] = {"torch": torch}
    exec(compile("\n".join(lines), str(tmp_path / "gone.py"), "exec"), names)
    with tg.record() as trace:
        names["main"](torch.ones(2))
        names["main"](torch.ones(3))
    stored, called = listing_of(trace, "gone.py").lines.without_source
    assert (stored.line, stored.runs) == (2, 2)
    assert (called.line, called.runs) == (4, 4)


SUM = """
import torch

def main():
    total = 0
    for _ in range(3):
        total += torch.ones(2).mean()
    return total
"""


@pytest.mark.parametrize("ops", [False, True])
def test_changes_of_variables_are_no_steps(tmp_path: Path, ops: bool) -> None:
    module = module_of(tmp_path, SUM)
    with tg.record(ops=ops, variables=["total"]) as trace:
        module.main()
    listing = listing_of(trace, "sample.py")
    assert note(listing, "total +=").runs == 3
    assert said(listing, "total +=") == ["total: f32[]"]


def test_what_is_yielded_is_shown_whole(tmp_path: Path) -> None:
    listing = of_text(
        tmp_path,
        """
import torch


def pairs(x):
    for i in range(3):
        yield x[:i], x.t() @ x
    yield x.relu()


def main():
    for each in pairs(torch.ones(4, 2)):
        pass
""",
    )
    assert said(listing, "yield x[:i], x.t() @ x") == ["→ (f32[0–2, 2], f32[2, 2])"]
    assert note(listing, "yield x[:i], x.t() @ x").runs == 3
    assert said(listing, "yield x.relu()") == ["→ f32[4, 2]"]


def test_the_time_of_a_line_is_that_of_all_its_calls() -> None:
    x = torch.randn(200, 200)
    with tg.record() as trace:
        y = x @ x.T @ x / 1000
    spent = sum(event.duration_ns or 0 for event in trace.events())
    line = next(line for line in tg.render(trace, "listing", times=True).splitlines() if "y = x @ x.T" in line)
    shown = re.search(r"([\d.]+) (µs|ms)", line)
    assert shown
    assert float(shown[1]) * {"µs": 1e3, "ms": 1e6}[shown[2]] == pytest.approx(spent, rel=0.01)
    assert y.shape == (200, 200)
