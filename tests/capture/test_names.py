"""Names from end to end: the line, the columns and the words of recorded steps are those of the source."""

from __future__ import annotations

import asyncio
import linecache
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests.modules import module_of

X = torch.ones(2, 3)
HEAD = "import torch\nimport torch.nn.functional as F\n"


def load(folder: Path, body: str, name: str = "sample") -> ModuleType:
    """A module made of a source file, as a user has them."""
    return module_of(folder, HEAD + body, name)


def steps(function: Callable[..., Any], *args: Any) -> list[tg.Event]:
    return [event for event in tg.trace(function, *args).events() if event.direct]


def indent(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.split("\n"))


def run(folder: Path, body: str) -> list[tg.Event]:
    return steps(load(folder, f"def main(x, y):\n{indent(body)}").main, X.clone(), X.clone())


Named = tuple[str, tuple[str, ...], tuple[str, ...]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("z = x + y; w = x - y", [("x + y", ("z",), ("x", "y")), ("x - y", ("w",), ("x", "y"))]),
        (
            "z = x.relu().exp().sum(0)",
            [
                ("x.relu()", (), ("x",)),
                ("x.relu().exp()", (), ("x.relu()",)),
                ("x.relu().exp().sum(0)", ("z",), ("x.relu().exp()",)),
            ],
        ),
        ("a, b = x.unbind(0)", [("x.unbind(0)", ("a", "b"), ("x",))]),
        ("a, *rest = x.unbind(1)", [("x.unbind(1)", ("a", "*rest"), ("x",))]),
        ("a = b = x * 2", [("x * 2", ("a", "b"), ("x",))]),
        ("x += y", [("x += y", ("x",), ("x", "y"))]),
        ("z = x[0, 1:]", [("x[0, 1:]", ("z",), ("x",))]),
        ("d = {}\nd['k'] = x @ y.T", [("y.T", (), ("y",)), ("x @ y.T", ("d['k']",), ("x", "y.T"))]),
        ("if (z := x.sum()) is not None: pass", [("x.sum()", ("z",), ("x",))]),
        ("z = [t.exp() for t in (x, y)]", [("t.exp()", (), ("t",)), ("t.exp()", (), ("t",))]),
        ("f = lambda t: t.tanh()\nz = f(x)", [("t.tanh()", (), ("t",))]),
        ("z = torch.cat([x, y], dim=0)", [("torch.cat([x, y], dim=0)", ("z",), ("x", "y"))]),
        ("z = torch.add(input=x, other=y)", [("torch.add(input=x, other=y)", ("z",), ("x", "y"))]),
        (
            "z = F.linear(\n    x,\n    weight=y,\n)",
            [("F.linear(\n        x,\n        weight=y,\n    )", ("z",), ("x", "y"))],
        ),
        ("z = -x", [("-x", ("z",), ("x",))]),
        ("z = 1 - x", [("1 - x", ("z",), ("x",))]),
        (
            "return x.mean() / y",
            [("x.mean()", (), ("x",)), ("x.mean() / y", (), ("x.mean()", "y"))],
        ),
        ("for i in range(2):\n    x = x * i", [("x * i", ("x",), ("x",)), ("x * i", ("x",), ("x",))]),
        (
            "try:\n    x @ x\nexcept RuntimeError:\n    z = x.abs()",
            [("x @ x", (), ("x", "x")), ("x.abs()", ("z",), ("x",))],
        ),
        ("args = (x, y)\nz = torch.add(*args)", [("torch.add(*args)", ("z",), ("*args", "*args"))]),
        ("größe = x.abs(); z = größe + y", [("x.abs()", ("größe",), ("x",)), ("größe + y", ("z",), ("größe", "y"))]),
    ],
)  # fmt: skip
def test_expression_target_and_operands(tmp_path: Path, body: str, expected: list[Named]) -> None:
    assert [(e.code, e.target, e.operands) for e in run(tmp_path, body)] == expected


def test_a_recorded_line_and_its_columns_cut_out_the_expression(tmp_path: Path) -> None:
    body = "größe = x.abs(); z = (größe + y).sum(0); w = torch.stack([x, y])[0]"
    events = run(tmp_path, body)
    line = "    " + body
    assert [line[e.col : e.end_col] for e in events] == [e.code for e in events]
    assert {e.line for e in events} == {4}
    assert {e.source for e in events} == {body}
    assert {e.function for e in events} == {"main"}


def test_attributes_and_decorators(tmp_path: Path) -> None:
    module = load(
        tmp_path,
        "import functools\n"
        "def doubled(f):\n"
        "    @functools.wraps(f)\n"
        "    def inner(self, x):\n"
        "        return f(self, x) * 2\n"
        "    return inner\n"
        "class Net(torch.nn.Module):\n"
        "    @doubled\n"
        "    def forward(self, x):\n"
        "        self.hidden = x.relu()\n"
        "        return self.hidden.exp()\n",
    )
    found = [(e.code, e.target, e.owner) for e in steps(module.Net(), X) if e.kind == "function"]
    assert found == [
        ("x.relu()", ("self.hidden",), "Net.forward"),
        ("self.hidden.exp()", (), "Net.forward"),
        ("f(self, x) * 2", (), "Net.forward"),
    ]


RAISING = [
    "x @ x",
    "z = x.relu() + torch.ones(7)",
    "z = torch.cat([x, torch.ones(1)])",
    "z = [t.view(7) for t in (x,)]",
    "z = F.linear(\n    x,\n    torch.ones(5, 5),\n)",
    "größe = 1; z = (x.abs() @\n     x.abs())",
    "(lambda t: t.expand(9, 9))(x)",
    "x[0, 5]",
    "x[9] = 1",
    "x += torch.ones(9)",
    "-torch.ones(2).reshape(3)",
    "x.T.T.T @ x.T",
    "with torch.no_grad():\n    torch.stack([x, x[0]])",
    "if x.view(4, 4) is x: pass",
]


def characters(line: str, byte: int) -> int:
    """Python counts columns in bytes, we in characters."""
    return len(line.encode()[:byte].decode())


@pytest.mark.parametrize("body", RAISING)
def test_the_place_is_the_one_of_the_traceback(tmp_path: Path, body: str) -> None:
    """Against Python's own word: where an exception was raised."""
    main = load(tmp_path, f"def main(x, y):\n{indent(body)}").main
    with pytest.raises((RuntimeError, IndexError)) as caught, tg.record() as trace:
        main(X.clone(), X)
    summary = traceback.TracebackException.from_exception(caught.value).stack
    theirs = [frame for frame in summary if frame.filename == main.__code__.co_filename][-1]
    ours = trace.failure()
    assert ours is not None
    assert (ours.file, ours.line, ours.end_line) == (theirs.filename, theirs.lineno, theirs.end_lineno)
    lines = linecache.getlines(theirs.filename)
    assert ours.col == characters(lines[ours.line - 1], theirs.colno)
    assert ours.end_col == characters(lines[ours.end_line - 1], theirs.end_colno)
    assert ours.source == (theirs.line or "").strip()
    mine = [at for at in ours.stack if at.file == theirs.filename]
    others = [frame for frame in summary if frame.filename == main.__code__.co_filename]
    assert [at.line for at in mine] == [frame.lineno for frame in others]


def test_the_stack_is_the_one_of_the_traceback() -> None:
    """Every frame but ours, from the first to the last."""

    def fail(depth: int) -> Tensor:
        return fail(depth - 1) if depth else X @ X

    def program() -> list[traceback.FrameSummary]:
        try:
            nn.Sequential(nn.Identity())(fail(3))
        except RuntimeError:
            return traceback.extract_stack()[:-1] + traceback.extract_tb(sys.exc_info()[2])
        raise AssertionError("it did not fail")

    with tg.record() as trace:
        theirs = program()
    (ours,) = [event for event in trace.events() if event.error]
    our_folder = str(Path(tg.__file__).parent) + os.sep
    kept = [(f.filename, f.name) for f in theirs if not f.filename.startswith(our_folder)]
    assert [(at.file, at.function.rpartition(".")[2]) for at in ours.stack] == kept


def test_source_given_to_exec() -> None:
    text = "def twice(x):\n    double = x * 2\n    return double\ntwice(X)\n"
    with tg.record() as trace:
        exec(text, {"X": X})
    event = next(trace.events())
    assert (event.line, event.function, event.code) in [(2, "twice", "x * 2"), (2, "twice", "")]


def test_source_of_exec_that_runs_at_once() -> None:
    with tg.record() as trace:
        exec("import torch\ndouble = torch.ones(2) * 2\n", {})
    event = list(trace.events())[-1]
    assert (event.code, event.target, event.line, event.source) == (
        "torch.ones(2) * 2", ("double",), 2, "double = torch.ones(2) * 2",
    )  # fmt: skip


def test_a_notebook_cell() -> None:
    """As IPython does it: the text is registered with linecache under a name that is no file."""
    text, name = "y = x.relu()\nz = y + 1\n", "/tmp/ipykernel_77/1234.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    try:
        with tg.record() as trace:
            exec(compile(text, name, "exec"), {"x": X})
        found = [(e.line, e.code, e.target, e.source) for e in trace.events()]
    finally:
        del linecache.cache[name]
    assert found == [(1, "x.relu()", ("y",), "y = x.relu()"), (2, "y + 1", ("z",), "z = y + 1")]


def test_a_file_that_is_missing_says_so(tmp_path: Path) -> None:
    module = load(tmp_path, "def main(x):\n    return x.relu()\n", "gone")
    (tmp_path / "gone.py").unlink()
    trace = tg.trace(module.main, X)
    event = next(trace.events())
    assert (event.line, event.code, event.source, event.name) == (4, "", "", "Tensor.relu")
    assert any("gone.py: source not available" in note for note in trace.notes)


def test_a_file_that_changed_says_so_and_shows_no_wrong_line(tmp_path: Path) -> None:
    module = load(tmp_path, "def main(x):\n    return x.relu()\n", "changed")
    (tmp_path / "changed.py").write_text("# another\n" + HEAD + "def main(x):\n    return x.exp()\n")
    trace = tg.trace(module.main, X)
    event = next(trace.events())
    assert (event.line, event.code, event.source, event.target, event.operands) == (4, "", "", (), ())
    assert any("changed.py: source changed since it ran" in note for note in trace.notes)


def test_a_file_that_changes_after_the_block_is_shown_as_it_ran(tmp_path: Path) -> None:
    module = load(tmp_path, "def main(x):\n    return x.relu()\n", "later")
    trace = tg.trace(module.main, X)
    (tmp_path / "later.py").write_text("nothing = 0\n")
    event = next(trace.events())
    assert (event.code, event.source) == ("x.relu()", "return x.relu()")


def test_without_sources_no_text_is_kept() -> None:
    with tg.record(sources=False) as trace:
        torch.relu(X)
    assert trace.sources == {}


def test_a_recursion_of_900_frames() -> None:
    def down(x: Tensor, depth: int) -> Tensor:
        return down(x, depth - 1) if depth else x.relu()

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        with tg.record() as trace:
            down(X, 900)
    finally:
        sys.setrecursionlimit(limit)
    event = next(trace.events())
    assert event.code == "x.relu()"
    assert sum(at.function.endswith("down") for at in event.stack) == 901


def test_generators_driven_from_different_places() -> None:
    def produces() -> Iterator[Tensor]:
        yield X.relu()
        yield X.exp()

    def first(each: Iterator[Tensor]) -> Tensor:
        return next(each)

    def second(each: Iterator[Tensor]) -> Tensor:
        return next(each)

    with tg.record() as trace:
        each = produces()
        first(each)
        second(each)
    relu, exp = trace.events()
    assert [at.function.rpartition(".")[2] for at in relu.stack][-2:] == ["first", "produces"]
    assert [at.function.rpartition(".")[2] for at in exp.stack][-2:] == ["second", "produces"]


def test_coroutines_that_take_turns() -> None:
    async def work(x: Tensor, name: str) -> Tensor:
        y = x.relu()
        await asyncio.sleep(0)
        return y + 1

    async def main() -> None:
        await asyncio.gather(work(X, "a"), work(X, "b"))

    with tg.record() as trace:
        asyncio.run(main())
    events = list(trace.events())
    assert [(e.code, e.target) for e in events] == [("x.relu()", ("y",))] * 2 + [("y + 1", ())] * 2
    assert all(e.stack[-1].function.endswith("work") for e in events)


def test_names_inside_torch_are_those_of_the_users_line() -> None:
    with tg.record() as trace:
        y = torch.nn.functional.gumbel_softmax(X)
    assert y is not None
    inner = [e for e in trace.events() if e.parent == 0]
    assert inner
    assert all((e.target, e.operands, e.operator, e.direct) == ((), (), None, False) for e in inner)
    assert all(e.code == "torch.nn.functional.gumbel_softmax(X)" for e in inner)
    assert all(e.stack[-1].origin == "torch" for e in inner)


def test_steps_that_the_expression_did_not_write_itself() -> None:
    with tg.record() as trace:
        total = sum([X, X])
        found = X in [X]
    assert total is not None
    assert found
    assert all((e.target, e.operands, e.direct) == ((), (), False) for e in trace.events())


def test_a_file_that_is_edited_inside_a_block_is_shown_as_it_was_when_its_code_was_met(tmp_path: Path) -> None:
    """The text that was read in an earlier block is that of the code which ran; the new one is not."""
    (tmp_path / "helper.py").write_text("import torch\n\n\ndef f(x):\n    return x.relu()\n")
    (tmp_path / "program.py").write_text(
        "import pathlib, torch, torchglass as tg, helper\n"
        "for edits in (False, True):\n"
        "    with tg.record() as trace:\n"
        "        helper.f(torch.ones(2))\n"
        "        if edits:\n"
        "            pathlib.Path(helper.__file__).write_text('# nothing here\\n' * 9)\n"
        "print(list(trace.events(function='Tensor.relu'))[0].code)\n"
        "print([note for note in trace.notes if 'changed' in note])\n"
    )
    time.sleep(0.2)  # a file that is as old as the process may have been written since
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["x.relu()", "[]"]
