"""Calls, loops and rounds as stacks tell of them, against programs that count their own rounds."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import torchglass as tg
from tests.modules import module_of
from tests.program.looping import Writer
from torchglass.program import Program, program_of
from torchglass.program.tree import EVENT, LOOP, Count, ScopeSite


def program_in(folder: Path, text: str, **options: Any) -> tuple[Program, dict[str, int]]:
    """The program of a module's ``main``, and the iterations that it counted itself."""
    module = module_of(folder, text)
    with tg.record(**options) as trace:
        module.main()
    return program_of(trace), getattr(module, "TRUE", {})


def name_of(site: ScopeSite, text: str) -> str | None:
    """The name under which a loop counts its iterations: in its body, before anything else."""
    assert site.loop is not None
    found = re.search(r'turn\("([^"]+)"\)', ast.get_source_segment(text, site.loop.node) or "")
    return found[1] if found else None


@pytest.mark.parametrize(
    "options", [{}, {"calls": "user"}, {"variables": True}, {"variables": True, "calls": "user"}], ids=str
)
@pytest.mark.parametrize("seed", range(60))
def test_iterations_are_those_that_a_program_counts_itself(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    text = Writer(seed).program()
    program, true = program_in(tmp_path, text, **options)
    tree = program.tree
    claimed: dict[str, list[Count]] = {}
    for loop in (node for node in range(len(tree)) if tree.kind(node) == LOOP):
        site = tree.site(loop)
        here = site.at is not None and Path(site.at.file).name == "sample.py"
        if here and (name := name_of(site, text)) is not None:
            claimed.setdefault(name, []).append(tree.count(loop))
    for name, counts in claimed.items():
        total = sum(count.number for count in counts)
        assert total <= true.get(name, 0), (name, counts)
        if all(count.exact for count in counts):
            assert total == true.get(name, 0), (name, counts)


@pytest.mark.parametrize("seed", range(20))
def test_every_node_holds_what_is_in_it(seed: int, tmp_path: Path) -> None:
    """Parents, children, first and last events and counts agree with each other."""
    program, _ = program_in(tmp_path, Writer(seed).program())
    tree = program.tree
    assert [node for node in range(len(tree)) if tree.parent[node] < 0] == list(tree.threads.values())
    for node in range(len(tree)):
        inside = program.inside(node)
        within = inside if tree.kind(node) != EVENT else [node, *inside]
        assert within == sorted(set(within))
        assert (tree.first(node), tree.last(node)) == (within[0], within[-1])
        for child in tree.children(node):
            assert tree.parent[child] == node
        if tree.kind(node) == LOOP:
            iterations = tree.children(node)
            assert [tree.number(each) for each in iterations] == list(range(len(iterations)))
            assert tree.count(node).number <= len(iterations)
    (thread,) = tree.threads.values()
    assert program.inside(thread) == list(range(tree.events))


QUESTIONS = """
import torch

def scaled(x, by):
    return x * by

def main():
    for i in range(3):
        x = torch.ones(2)
        for j in range(2):
            y = scaled(x, j)
    return y
"""


def test_the_place_of_an_event(tmp_path: Path) -> None:
    program, _ = program_in(tmp_path, QUESTIONS)
    tree = program.tree
    times = [event for event in range(len(program)) if program.event(event).code == "x * by"]
    assert [[tree.number(each) for each in tree.iterations(event)][-2:] for event in times] == [
        [i, j] for i in range(3) for j in range(2)
    ]
    call = tree.call(times[0])
    assert (tree.kind(call), tree.site(call).function) == ("call", "scaled")
    assert [at.function for at in program.frames(times[0])][-2:] == ["main", "scaled"]
    statement = program.statement(times[0])
    assert statement is not None
    assert ast.unparse(statement.node) == "return x * by"
    loops = dict.fromkeys(tree.parent[each] for event in times for each in tree.iterations(event)[-2:])
    assert all(tree.count(loop).exact for loop in loops)
    assert [tree.count(loop).number for loop in loops] == [3, 2, 2, 2]


PACKAGE = """
def centred(x):
    return shifted(x, x.mean())

def shifted(x, by):
    return x - by
"""
USER = """
import tglevels, torch

def main():
    y = tglevels.centred(torch.ones(2))
    return y * 2
"""


def test_a_call_of_an_installed_package_is_at_the_program_s_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "tglevels" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    module = module_of(tmp_path, USER)
    with tg.record() as trace:
        module.main()
    shown = tg.render(trace, width=120).splitlines()
    assert [line.split("  ")[0] for line in shown] == [
        "torch.ones(2)",
        "y = tglevels.centred(torch.ones(2))",
        "│ x.mean()",
        "│ x - by",  # what a package calls inside of itself has no level
        "y * 2",
        "4 events",
    ]
    assert "tglevels/__init__.py:3" in shown[2]


def test_what_an_import_runs_is_below_its_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tgimported.py").write_text("import torch\nx = torch.ones(2) + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = module_of(tmp_path, "def main():\n    from tgimported import x\n    return x * 2\n")
    with tg.record() as trace:
        module.main()
    shown = [line.split("  ")[0] for line in tg.render(trace, width=100).splitlines()]
    assert shown == ["from tgimported import x", "│ torch.ones(2)", "│ x = torch.ones(2) + 1", "x * 2", "3 events"]


TRUTHS = """
import torch

def checked(t):
    t = t.clone()
    if t.isnan().any() or t.sum() > 9 and not t.any():
        raise ValueError
    return t.abs() if t.isinf().any() else t.neg()

def main():
    t = torch.zeros(3)
    for i in range(5):
        u = t.clone()
        if t.any():
            raise ValueError
        elif u.isnan().any():
            break
        v = u.abs()
    for i in range(4):
        y = checked(t)
    while (t < 3).all() and not t.isnan().any():
        t = t + 1
"""


def test_to_ask_whether_a_tensor_is_true_begins_no_round(tmp_path: Path) -> None:
    """Python 3.11 gives that the range of the whole ``if``, of which no expression is."""
    module = module_of(tmp_path, TRUTHS)
    with tg.record() as trace:
        module.main()
    shown = tg.render(trace, width=120)
    assert re.findall(r"(\w+) .*:  (× .*?)  ", shown) == [("for", "× 5"), ("for", "× 4"), ("while", "× 3")]
    written = [line.strip("│ ").split("  ")[0] for line in shown.splitlines()]
    assert [written.count(each) for each in ("u = t.clone()", "v = u.abs()", "y = checked(t)", "t.neg()")] == [1] * 4


CHAINED = """
import torch

def main():
    low, high = torch.tensor(0.0), torch.tensor(3.0)
    for _ in range(4):
        if low < low + 1 < high:
            low.exp()
    n = torch.tensor(0)
    while 0 <= n < 3:
        n = n + 1
    [k for k in range(5) if 0 < torch.tensor(k) < torch.tensor(k).exp()]
    for i in range(6):
        match i:
            case 0 if low > 5:
                low.exp()
            case 1 if low > 6:
                low.sin()
            case _ if low > 7:
                low.cos()
            case _:
                low.tan()
"""


def test_comparisons_of_a_chain_and_guards_begin_no_round(tmp_path: Path) -> None:
    module = module_of(tmp_path, CHAINED)
    with tg.record() as trace:
        module.main()
    shown = tg.render(trace, width=120, findings=False)
    assert re.findall(r"(for|while) .*  (× .*?)  ", shown) == [
        ("for", "× 4"),
        ("while", "× 3"),
        ("for", "× 5"),
        ("for", "× ≥ 6"),
    ]


NUMBERED = """
import torch

def either(x, late):
    if not late:
        early = x + 1
    if late:
        later = x + 2

def main():
    x = torch.ones(2)
    for late in (False, True, False, True):
        either(x, late)
"""


@pytest.mark.parametrize("names", [["early", "later"], ["early", "later", "late"]], ids=str)
def test_calls_are_distinguished_by_the_variables_that_change_in_them(names: list[str], tmp_path: Path) -> None:
    """What happens late in one call may follow what happens early in another: their numbers differ."""
    program, _ = program_in(tmp_path, NUMBERED, variables=names, functions=False)
    tree = program.tree
    loops = [node for node in range(len(tree)) if tree.kind(node) == LOOP]
    (loop,) = [node for node in loops if (at := tree.site(node).at) is not None and at.file.endswith("sample.py")]
    assert tree.count(loop).number == 4
    calls = [tree.call(event) for event in range(len(program)) if program.event(event).name in ("early", "later")]
    assert len(set(calls)) == 4
