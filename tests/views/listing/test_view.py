"""The listing's view: what it says of a line is what a line tracer saw there, and no more."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from types import FrameType, ModuleType
from typing import Any

import numpy
import pytest
import torch

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, attention
from tests.modules import module_of
from tests.work import work_of
from tests.zoo import FAMILIES
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.program.by_line.notes import LineNote, LineState
from torchglass.views.listing.files import FileListing, Files, Gap, files_of
from torchglass.views.listing.view import pieces_of
from torchglass.views.options import ListingOptions

TRANSFORMERS = str(Path(torch.__file__).parents[1] / "transformers")
PROGRAMS = str(Path(programs.__file__).parent)


# ---------------------------------------------------------------- held against a line tracer


@dataclass
class LineTracer:
    """Sees every line of a folder's functions and, after it, the tensors in the names that it assigned."""

    folder: str
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)
    values: dict[tuple[str, int, str], set[Any]] = field(default_factory=lambda: defaultdict(set))
    returned: dict[tuple[str, int], set[Any]] = field(default_factory=lambda: defaultdict(set))
    lambdas: set[tuple[str, int]] = field(default_factory=set)
    _names: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        file = frame.f_code.co_filename
        if frame.f_code.co_name == "<lambda>":
            self.lambdas.add((file, frame.f_lineno))
        if not file.startswith(self.folder) or frame.f_code.co_name.startswith("<"):
            return None
        last, raised, returning = 0, False, 0

        def local(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal last, raised, returning
            if last and not raised and event in ("line", "return"):
                for name in self.names(file, last):
                    self.values[file, last, name].add(described(frame.f_locals.get(name)))
            if event == "return":
                self.returned[file, returning].add(described(arg))
            raised = event == "exception"
            if event == "line":
                last = frame.f_lineno
                self.lines[file, last] += 1
                # A ``with`` that is left by a ``return`` has the last word.
                returning = last if self.is_return(file, last) else returning
            return local

        return local

    def names(self, file: str, line: int) -> list[str]:
        """The plain names that a statement on one line assigns."""
        if file not in self._names:
            found = self._names[file] = defaultdict(list)
            for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Assign | ast.AugAssign) or node.lineno != node.end_lineno:
                    continue
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    each = target.elts if isinstance(target, ast.Tuple) else [target]
                    found[node.lineno] += [one.id for one in each if isinstance(one, ast.Name)]
        return self._names[file].get(line, [])

    def is_return(self, file: str, line: int) -> bool:
        """A frame is also left, with what it gives, where it yields."""
        return linecache.getline(file, line).lstrip().startswith(("return", "yield"))

    def run(self, function: Any, **options: Any) -> tg.Trace:
        """Record a call while every line is traced, in threads too."""
        import threading

        with suppress(Exception), tg.record(**options) as trace:
            threading.settrace(self)
            sys.settrace(self)
            try:
                function()
            finally:
                sys.settrace(None)
                threading.settrace(None)  # type: ignore[arg-type]
        return trace


def described(value: object) -> object:
    if isinstance(value, numpy.ndarray):
        return (str(value.dtype), value.shape)
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    sizes = tuple(size if type(size) is int else -1 for size in value.shape) if not odd(value) else None
    return (str(value.dtype).removeprefix("torch."), sizes)


def odd(value: torch.Tensor) -> bool:
    return value.is_nested and value.layout == torch.strided


def compared(traced: LineTracer, view: Files) -> Counter[str]:
    """Every claim of a view, checked; how many there were of each kind."""
    checked: Counter[str] = Counter()
    for listing in view.shown:
        if not listing.file.startswith(traced.folder):
            continue
        nodes = {
            node.lineno: node for node in ast.walk(ast.parse("\n".join(listing.text))) if isinstance(node, ast.stmt)
        }
        shared = Counter(
            node.lineno for node in ast.walk(ast.parse("\n".join(listing.text))) if isinstance(node, ast.stmt)
        )
        for line, note in listing.lines.notes.items():
            where, seen = f"{listing.file}:{line}", traced.lines[listing.file, line]
            one_line = nodes[line].lineno == nodes[line].end_lineno and shared[line] == 1
            if note.state == LineState.RAN:
                checked["ran"] += 1
                assert seen or (listing.file, line) in traced.lambdas, f"{where} did not run"
            # From 3.12 on the line of a comprehension is told anew for each of its rounds.
            rounds = sys.version_info >= (3, 12) and any(
                isinstance(e, ast.comprehension) for e in ast.walk(nodes[line])
            )
            again = rounds or isinstance(nodes[line], ast.For | ast.While | ast.With)
            if note.runs is not None and one_line and not again:
                checked["runs"] += 1
                assert note.runs == seen, where
            for each in note.notes:
                told = {
                    (result.tensors[0].dtype, result.tensors[0].shape)
                    for result, _ in each.outcome.counts
                    if len(result.tensors) == 1 and result.tensors[0].role == ""
                }
                truth = traced.values.get((listing.file, line, each.label))
                if told and truth is not None and shared[line] == 1 and each.kind in ("assigned", "changed"):
                    checked["values"] += 1
                    assert told == truth, f"{where}: {each.label}"
                whole = each.kind == "returned" and len(note.notes) == 1 and len(told) == len(each.outcome.counts)
                if told and whole and one_line:
                    checked["returned"] += 1
                    assert told <= traced.returned[listing.file, line], where
    return checked


def test_a_tensor_that_is_unpacked_counts_once(tmp_path: Path) -> None:
    text = """
import torch
def main():
    for _ in range(4):
        q, k, v = torch.ones(6).view(3, 2).mul(2)
"""
    module = loaded(tmp_path, text)
    with tg.record() as trace:
        module.main()
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    assert note(listing, "q, k, v").runs == 4
    assert "×" not in " ".join(words(listing, "q, k, v"))


@pytest.mark.parametrize("name", [name for name in programs.names() if name not in (*programs.SLOW, "ctrl_c")])
def test_what_is_said_of_a_program_is_what_a_line_tracer_saw(name: str) -> None:
    traced = LineTracer(PROGRAMS)
    trace = traced.run(programs.load(name).main)
    checked = compared(traced, files_of(trace, ListingOptions(whole=True)))
    assert checked["ran"] > 0


@pytest.mark.parametrize("seed", range(40))
def test_what_is_said_of_a_program_made_at_random_is_what_a_line_tracer_saw(seed: int, tmp_path: Path) -> None:
    module = loaded(tmp_path, made_up(Random(seed)))
    for options in ({}, {"ops": True}, {"ops": True, "functions": False}):
        traced = LineTracer(str(tmp_path))
        trace = traced.run(module.main, **options)
        checked = compared(traced, files_of(trace, ListingOptions(path="sample.py", whole=True)))
        assert checked["ran"] > 5


HEAD = """\
import torch
from torch import nn

class Quiet:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, RuntimeError)

def boom(when):
    if when:
        raise ValueError(when)

def helper(x, when):
    y = x * 2
    boom(when)
    n = 1
    return y

class Inner(nn.Module):
    def forward(self, x, when):
        for _ in range(2):
            x = x + 1
        boom(when)
        return x

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

"""
MAIN = """
def main():
    net = Outer()
    x = torch.ones(2, 3)
    for number in range(6):
        f = [bool(number >> bit & 1) for bit in range(3)]
        try:
            y = net(x, f)
            n = 1
        except (ValueError, RuntimeError):
            n = 2
"""


def made_up(random: Random) -> str:
    """A program whose ``forward`` may be left at many places, in many ways."""
    body = [*suite_of(random, 2, False), "return x"]
    return HEAD + "    def forward(self, x, f):\n" + "".join(f"        {line}\n" for line in body) + MAIN


def suite_of(random: Random, depth: int, in_loop: bool) -> list[str]:
    lines: list[str] = []
    for _ in range(random.randint(1, 4)):
        lines += statement_of(random, depth, in_loop)
    return lines


def statement_of(random: Random, depth: int, in_loop: bool) -> list[str]:
    flag = f"f[{random.randrange(3)}]"
    plain = ["x = x * 1", "a = x.sum()", "n = 1", "n = 2", f"x = helper(x, {flag})", f"x = self.inner(x, {flag})"]
    plain += [f"boom({flag})", "a = x @ x.T", f"a = x @ (x if {flag} else x.T)", "x[0] = 1"]
    leaving = ["return x * 2", "return x", "break", "continue"]
    if depth == 0 or random.random() < 0.5:
        return [random.choice(plain)]
    if random.random() < 0.2:
        return [f"if {flag}:", "    " + random.choice(leaving if in_loop else leaving[:2])]
    heads = ["if", "else", "for", "try", "with", "quiet"]
    kind = random.choice(heads)
    inner = ["    " + line for line in suite_of(random, depth - 1, in_loop or kind == "for")]
    other = ["    " + line for line in suite_of(random, depth - 1, in_loop)]
    if kind in ("if", "else"):
        return [f"if {flag}:", *inner, *(["else:", *other] if kind == "else" else [])]
    if kind == "for":
        return ["for i in range(2):", *inner]
    if kind == "try":
        return ["try:", *inner, f"except {random.choice(['ValueError', 'RuntimeError'])}:", *other]
    return ["with torch.no_grad():" if kind == "with" else "with Quiet():", *inner]


@pytest.mark.parametrize("name", ["gpt2", "llama", "whisper"])
def test_what_is_said_of_a_transformer_is_what_a_line_tracer_saw(name: str) -> None:
    model, inputs = FAMILIES[name]()
    traced = LineTracer(TRANSFORMERS)
    trace = traced.run(lambda: model(**inputs))
    checked = compared(traced, files_of(trace, ListingOptions(whole=True, path="transformers")))
    assert checked["ran"] > 80
    assert checked["runs"] > 40
    assert checked["values"] > 20


# ---------------------------------------------------------------- single lines


def loaded(folder: Path, text: str, name: str = "sample") -> ModuleType:
    """A module of that text, imported from a file."""
    return module_of(folder, text, name)


def listing_of(folder: Path, text: str, **options: Any) -> FileListing:
    """The listing of a module whose ``main`` was recorded."""
    module = loaded(folder, text)
    with suppress(RuntimeError), tg.record() as trace:
        module.main()
    view = files_of(trace, ListingOptions(path="sample.py", **options))
    return view.shown[0]


def words(listing: FileListing, text: str, **options: Any) -> list[str]:
    """What is said of the line that holds this text."""
    return pieces_of(note(listing, text), **{"by_module": False, **options})


def note(listing: FileListing, text: str) -> LineNote:
    (line,) = [at for at, each in enumerate(listing.text, 1) if text in each]
    return listing.lines.notes[line]


LINES = """\
import torch

def twice(x):
    return x * 2

def pair(x):
    a = x.view(-1)
    b = x.sum()
    return a, b

def early(x):
    if x.dim() == 1:
        return None
    return x + 1

def grown(x):
    out = x + 1
    out.unsqueeze_(0)
    return out

def main():
    x = torch.ones(2, 6)
    a, *rest = x.split(2, dim=1)
    q, k = x.relu(), x.sum(0)
    big, where = x.max(dim=1)
    row, other = x
    u = v = x @ x.T
    x += 1
    x[0] = 3
    x.mul_(2)
    n = x.sum().item()
    called = twice(x)
    first, second = pair(x)
    for each in (x, x[0]):
        maybe = early(each)
    mapped = list(map(twice, [x]))
    several = [twice(each) for each in (x, x)]
    unsure = grown(x)
    chosen = x.exp() if n else x
    shape = x.shape
    print(end="") if x.any() else None
    x.tanh()
    for size in (1, 2, 3, 7):
        part = x[:, :size]
    for kind in (torch.float32, torch.float64):
        other = x.to(kind)
    for each in (x, x[0]):
        ranks = each * 1
    return x.relu(), shape
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> FileListing:
    return listing_of(tmp_path_factory.mktemp("lines"), LINES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a, *rest =", ["a: f32[2, 2]", "*rest: 2 of f32[2, 2]"]),
        ("q, k =", ["q: f32[2, 6]", "k: f32[6]"]),
        ("big, where =", ["big: f32[2]", "where: i64[2]"]),
        ("row, other =", ["row, other: f32[6]"]),
        ("u = v =", ["u, v: f32[2, 2]"]),
        ("x += 1", ["x: f32[2, 6]"]),
        ("x[0] = 3", ["x: f32[2, 6]"]),
        ("x.mul_(2)", ["x: f32[2, 6]"]),
        ("n = x.sum", ["60.0"]),
        ("called =", ["f32[2, 6]"]),
        ("first, second =", ["first: f32[12]", "second: f32[]"]),
        ("mapped =", []),
        ("unsure =", []),
        ("maybe =", []),
        ("chosen =", ["f32[2, 6]"]),
        ("shape = x.shape", []),
        ("x.tanh()", ["(f32[2, 6])"]),
        ("part =", ["f32[2, {1–3, 6}]"]),
        ("other = x.to", ["f32|f64[2, 6]"]),
        ("ranks =", ["f32[2, 6] | f32[6]"]),
        ("return x.relu()", ["→ (f32[2, 6], …)"]),
        ("return a, b", ["→ (f32[12], f32[])"]),
        ("return x * 2", ["→ f32[2, 6]"]),
    ],
)
def test_what_is_said_of_a_line(lines: FileListing, text: str, said: list[str]) -> None:
    assert words(lines, text) == said


def test_how_often(lines: FileListing) -> None:
    assert note(lines, "part =").runs == 4
    assert note(lines, "return x * 2").runs == 4
    assert note(lines, "called =").runs == 1
    assert note(lines, "maybe =").runs is None
    assert note(lines, "several =").runs == 1  # as its neighbours, not as the calls in it


def test_a_line_without_a_step_is_not_said_to_have_run_or_not(tmp_path: Path) -> None:
    text = "    x = torch.ones(2)\n    if len(x) > 5:\n        y = 1\n    z = 2\n    return z\n"
    listing = listing_of(tmp_path, f"import torch\n\ndef main():\n{text}")
    states = {listing.text[line - 1].strip(): each.state for line, each in listing.lines.notes.items()}
    assert states["x = torch.ones(2)"] == LineState.RAN
    assert {states["if len(x) > 5:"], states["y = 1"], states["z = 2"], states["return z"]} == {LineState.UNSEEN}


def test_a_selection_counts_its_own_steps_and_hides_none_of_what_ran() -> None:
    with tg.record() as trace:
        programs.load("generation").main()
    view = files_of(trace, ListingOptions(path="generation.py", only=select(function="cat")))
    (listing,) = view.shown
    assert note(listing, "torch.cat").runs == 12
    assert note(listing, "best =").state == LineState.RAN
    assert not note(listing, "best =").notes


def test_modules_are_distinguished(tmp_path: Path) -> None:
    text = """\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(4, size)

    def forward(self, x):
        return self.fc(x).relu()

def main():
    blocks = nn.Sequential(Block(4), Block(4), Block(5))
    return blocks(torch.ones(2, 4))
"""
    said = words(listing_of(tmp_path, text, by="module"), "relu()", by_module=True)
    assert said == ["→ f32[2, 4] ×2 in 0–1", "→ f32[2, 5] ×1 in 2"]


STORED = """\
import torch

def main():
    x, table, box = torch.ones(2, 3), {"k": torch.ones(2, 3)}, [None]
    x[0] += 1
    x[1] = x[0] * 2
    table["k"][0] = 3
    table["k"] += 4
    table["k"] = x.T
    table["k"][1] += 5
    x[0][1] = 6
    box[0], x[1] = x.sum(), x[0] * 7
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("+= 1", ["x: f32[2, 3]"]),
        ("* 2", ["x: f32[2, 3]"]),
        ("= 3", ['table["k"]: f32[2, 3]']),
        ("+= 4", ['table["k"]: f32[2, 3]']),
        ("= x.T", ["f32[3, 2]"]),
        ("+= 5", ['table["k"]: f32[3, 2]']),
        ("= 6", ["x[0]: f32[3]"]),
        ("* 7", ["box[0]: f32[]", "x: f32[2, 3]"]),
    ],
)
def test_a_part_that_is_set_goes_by_the_name_of_the_tensor(tmp_path: Path, text: str, said: list[str]) -> None:
    assert words(listing_of(tmp_path, STORED), text) == said


RETURNS = """\
import torch
from torch import nn

class Loop(nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = x + 1
        return x  # after a loop

class Choice(nn.Module):
    def forward(self, x):
        y = x * 2
        if y.dim() > 9:
            y = y + 1
        return y  # after a choice

class Pair(nn.Module):
    def forward(self, x):
        n = 1
        return x, x * 2, n

class Two(nn.Module):
    def forward(self, x):
        x = x.T
        if x.dim() > 9:
            return None
        return x  # one of two

def pair(x):
    return x, x * 3

def main():
    x = torch.ones(2, 3)
    for net in (Loop(), Choice(), Pair(), Two()):
        net(x)
    pair(x), pair(x)
"""


def test_what_the_only_return_of_a_forward_gave_is_what_the_module_gave(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, RETURNS)
    for text, said in (
        ("after a loop", "→ f32[2, 3]"),
        ("after a choice", "→ f32[2, 3]"),
        ("return x, x * 2, n", "→ (f32[2, 3], f32[2, 3], …)"),
    ):
        assert words(listing, text) == [said]
        assert (note(listing, text).state, note(listing, text).runs) == (LineState.RAN, 1)
    assert note(listing, "n = 1").runs == 1
    assert note(listing, "for _ in").runs == 1


def test_of_two_returns_neither_is_guessed(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, RETURNS)
    assert note(listing, "one of two").state == LineState.UNSEEN
    assert not words(listing, "one of two")


def test_a_return_with_one_known_part_counts_as_run(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, RETURNS)
    assert note(listing, "return x, x * 3").runs == 2
    assert words(listing, "return x, x * 3") == ["→ (…, f32[2, 3])"]


def test_what_is_selected_decides_of_returns_too(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, RETURNS, only=select(function="add"))
    assert words(listing, "x = x + 1") == ["f32[2, 3]"]
    assert not words(listing, "after a loop")
    assert note(listing, "after a loop").state == LineState.RAN


FAILING = """\
import torch
from torch import nn

def other(x):
    try:
        x @ x
        n = 1  # not reached
    except RuntimeError:
        n = 2

class Net(nn.Module):
    def forward(self, x):
        h = x * 2
        n = h.shape[0]  # in a call that ends
        return h

class Bad(nn.Module):
    def forward(self, x):
        h = x * 3
        n = int("no number")
        m = 4  # in a call that fails
        return h

class Kept(nn.Module):
    def forward(self, x):
        h = x * 5
        try:
            n = int("no number")
            m = 6  # in a suite that is left
        except ValueError:
            n = 7
        return h

def main():
    x = torch.ones(2, 3)
    other(x)
    Net()(x)
    Kept()(x)
    try:
        Bad()(x)
    except ValueError:
        pass
"""


def test_an_error_that_is_caught_elsewhere_says_nothing_of_a_line(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, FAILING)
    assert (note(listing, "in a call that ends").state, note(listing, "in a call that ends").runs) == (LineState.RAN, 1)
    for text in ("not reached", "in a call that fails", "in a suite that is left"):
        assert note(listing, text).state == LineState.UNSEEN


# ---------------------------------------------------------------- which lines and files


def test_functions_that_did_not_run_are_counted_and_named() -> None:
    with tg.record() as trace:
        programs.load("generation").main()
    (listing,) = files_of(trace, ListingOptions(path="generation.py")).shown
    gaps = [each for each in listing.shown if isinstance(each, Gap)]
    assert [name for gap in gaps for name in gap.functions if "__init__" not in name] == ["Decoder.unused"]
    shown = [each for each in listing.shown if isinstance(each, int)]
    hidden = sum(gap.lines for gap in gaps)
    blank = [line for line, text in enumerate(listing.text, 1) if not text and line not in shown]
    assert len(shown) + hidden <= len(listing.text) <= len(shown) + hidden + len(blank)
    (whole,) = files_of(trace, ListingOptions(path="generation.py", whole=True)).shown
    assert whole.shown == list(range(1, len(whole.text) + 1))


def test_the_file_of_the_model_is_shown_and_utilities_are_named() -> None:
    model, inputs = FAMILIES["gpt2"]()
    with tg.record() as trace:
        model(**inputs)
    view = files_of(trace, ListingOptions())
    shown = [Path(each.file).name for each in view.shown]
    assert [name for name in shown if name != "<string>"] == [Path(__file__).name, "modeling_gpt2.py"]  # xdist's own
    assert "pytorch_utils.py" in {Path(each.file).name for each in view.named}
    (only,) = files_of(trace, ListingOptions(path="pytorch_utils.py")).shown
    assert note(only, "x = torch.addmm").runs == 8


def test_an_unknown_file_is_an_error_that_names_those_there_are() -> None:
    with tg.record() as trace:
        programs.load("mlp").main()
    with pytest.raises(UsageError, match=r"mlp\.py"):
        files_of(trace, ListingOptions(path="nowhere.py"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"path": 3}, WrongType),
        ({"path": ""}, WrongType),
        ({"path": ("a", 2)}, WrongType),
        ({"whole": "all"}, WrongType),
        ({"whole": None}, WrongType),
        ({"by": "line"}, UsageError),
        ({"style": "html"}, UsageError),
        ({"times": 1}, WrongType),
        ({"only": "softmax"}, WrongType),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        ListingOptions(**options)


# ---------------------------------------------------------------- texts that are not known


def test_a_file_that_changed_while_it_ran_is_not_annotated(tmp_path: Path) -> None:
    module = loaded(tmp_path, "import torch\n\ndef main():\n    y = torch.ones(2)\n    return y + 1\n")
    with tg.record() as trace:
        module.main()
        (tmp_path / "sample.py").write_text("import torch\n\n\n\ndef other():\n    y = torch.ones(3)\n    return y\n")
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    assert "changed" in listing.problem
    assert not listing.text
    assert [(each.line, each.function) for each in listing.lines.without_source] == [(4, "main"), (5, "main")]


def test_code_without_a_file_is_listed_by_line(tmp_path: Path) -> None:
    with tg.record(sources=False) as trace:
        programs.load("executed_source").main()
    view = files_of(trace, ListingOptions())
    assert all(each.problem for each in view.shown)
    assert any(each.lines.without_source for each in view.shown)


def test_a_trace_written_by_hand_needs_no_sources() -> None:
    view = files_of(attention(), ListingOptions())
    assert {Path(each.file).name for each in view.shown} == {"demo.py", "attention.py"}
    assert all(each.lines.without_source and each.problem for each in view.shown)


def test_a_source_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_bytes(
        "# -*- coding: latin-1 -*-\nimport torch\n\ndef main():\n    é = torch.ones(2)\n    return é + 1\n".encode(
            "latin-1"
        )
    )
    spec = importlib.util.spec_from_file_location("sample", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tg.record() as trace:
        module.main()
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    assert words(listing, "é = torch") == ["f32[2]"]


def test_another_text_at_the_same_place_is_another_line(tmp_path: Path) -> None:
    """What ran before a module was loaded again is not counted where now something else is written."""
    first, second = (f"def main(x):\n    y = x.{name}()\n    return y\n" for name in ("exp", "sum"))
    module = loaded(tmp_path, first)
    x = torch.ones(2, 3)
    with tg.record() as trace:
        for text in (first, second):
            (tmp_path / "sample.py").write_text(text)
            exec(compile(text, module.__file__, "exec"), vars(module))
            module.main(x)
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    assert note(listing, "y = x.sum()").runs == 1
    assert words(listing, "y = x.sum()") == ["f32[]"]
    (before,) = listing.lines.without_source
    assert (before.line, before.runs, before.source in ("", "y = x.exp()")) == (2, 1, True)
    assert pieces_of(before, by_module=False) in (["(f32[2, 3])"], ["f32[2, 3]"])


def test_what_is_given_to_exec_again_is_listed_by_its_text() -> None:
    x = torch.ones(2, 3)
    names = {"x": x}
    with tg.record() as trace:
        exec("y = x * 3\nz = y.sum()", names)
        exec("y = x.T\nz = y @ x", names)
    (listing,) = files_of(trace, ListingOptions(path="<string>")).shown
    told = {each.source: (each.runs, pieces_of(each, by_module=False)) for each in listing.lines.without_source}
    assert {text: told[text] for text in ("y = x * 3", "z = y.sum()", "y = x.T", "z = y @ x")} == {
        "y = x * 3": (1, ["f32[2, 3]"]),
        "z = y.sum()": (1, ["f32[]"]),
        "y = x.T": (1, ["f32[3, 2]"]),
        "z = y @ x": (1, ["f32[3, 3]"]),
    }


# ---------------------------------------------------------------- code that torch writes


class Small(torch.nn.Module):
    """Something to transform."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.linear(x) * 2).relu().sum()


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


@pytest.mark.parametrize("how", ["fx", "export"])
def test_code_that_torch_writes_is_listed_by_line(how: str) -> None:
    x = torch.ones(2, 3)
    graph = torch.fx.symbolic_trace(Small()) if how == "fx" else torch.export.export(Small(), (x,)).module()
    with tg.record() as trace:
        result, line = graph(x), here()
    view = files_of(trace, ListingOptions())
    (own,) = [each for each in view.shown if each.file == __file__]
    assert pieces_of(own.lines.notes[line], by_module=False) == ["result: f32[]"]
    (made,) = files_of(trace, ListingOptions(path="eval_with_key")).shown
    assert made.file in [each.file for each in view.shown]
    assert made.problem
    told = {
        each.source.partition(" = ")[0]: (each.runs, *each.notes[0].outcome.counts)
        for each in made.lines.without_source
    }
    shapes = {name: key[0].tensors[0].shape for name, (_, key) in told.items() if key[0].tensors}
    assert [shapes[name] for name in ("mul", "relu", "sum_1")] == [(2, 3), (2, 3), ()]
    assert result.shape == shapes["sum_1"]
    assert all(runs == 1 for runs, _ in told.values())


# ---------------------------------------------------------------- op events, size, depth


def test_ops_that_no_function_tells_of_are_steps(tmp_path: Path) -> None:
    text = """
import torch

def main():
    x = torch.ones(2, 3)
    for _ in range(3):
        y = (x @ x.T).relu()
    loss = torch.nn.Linear(3, 1)(x).sum()
    loss.backward()
"""
    module = loaded(tmp_path, text)
    with tg.record(ops=True, functions=False) as trace:
        module.main()
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    line = note(listing, "y = (x @ x.T)")
    assert (line.state, line.runs) == (LineState.RAN, None)  # an expression may run one op several times
    assert words(listing, "y = (x @ x.T)") == ["(f32[2, 2])"]
    assert not words(listing, "loss.backward()")
    ops = [event for event in trace.events() if event.kind == "op" and event.parent is None]
    assert listing.steps == len([event for event in ops if event.file == listing.file]) + 1  # the call of Linear
    assert note(listing, "y = (x @ x.T)").spent_ns > 0


def test_ops_in_code_that_autograd_calls_are_steps(tmp_path: Path) -> None:
    text = """
import torch
from torch.utils.checkpoint import checkpoint

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        doubled = 2 * x * gradient
        return doubled

def main():
    x = torch.ones(2, 3, requires_grad=True)
    y = checkpoint(Square.apply, x, use_reentrant=True)
    y.sum().backward()
"""
    module = loaded(tmp_path, text)
    with tg.record(ops=True) as trace:
        module.main()
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    assert note(listing, "doubled =").state == LineState.RAN
    assert "f32[2, 3]" in " ".join(words(listing, "doubled ="))


def test_an_op_selects_the_line_it_ran_on(tmp_path: Path) -> None:
    text = """
import torch

def main():
    x = torch.ones(2, 3)
    linear = torch.nn.Linear(3, 4)
    for _ in range(2):
        y = linear(x)
    z = y.relu()
    w = z * 2
"""
    module = loaded(tmp_path, text)
    with tg.record(ops=True) as trace:
        module.main()
    listings = {
        name: files_of(trace, ListingOptions(path="sample.py", only=only)).shown[0]
        for name, only in {
            "op": select(op="relu"),
            "several": select(op=("addmm", "t")),
            "where": select(where=lambda event: event.kind == "op" and event.name == "aten::relu"),
        }.items()
    }
    for name in ("op", "where"):
        assert words(listings[name], "z = y.relu()") == ["f32[2, 4]"]
        assert note(listings[name], "z = y.relu()").runs == listings[name].steps == 1
        assert not words(listings[name], "w = z * 2")
        assert not words(listings[name], "y = linear(x)")
    assert words(listings["several"], "y = linear(x)") == ["f32[2, 4]"]
    assert note(listings["several"], "y = linear(x)").runs == 2
    assert not words(listings["several"], "z = y.relu()")


def test_op_events_change_nothing() -> None:
    with tg.record() as trace:
        programs.load("generation").main()
    made = list(trace.events())
    ops = [
        each._replace(id=len(made) + at, kind="op", name="aten::mm", parent=each.id, outputs=each.inputs, result="")
        for at, each in enumerate(event for event in made if event.kind == "function")
    ]
    plain = HandmadeTrace(made, measured=False)
    plain.sources = trace.sources  # type: ignore[attr-defined]
    with_ops = HandmadeTrace([*made, *ops], measured=False)
    with_ops.sources = trace.sources  # type: ignore[attr-defined]
    assert files_of(with_ops, ListingOptions()) == files_of(plain, ListingOptions())


def test_the_same_with_and_without_the_short_way() -> None:
    """A trace that tells alike events apart without making them gives what single events give."""
    with tg.record() as trace:
        programs.load("generation").main()
    plain = HandmadeTrace(list(trace.events()))
    plain.sources = trace.sources  # type: ignore[attr-defined]
    one, other = files_of(trace, ListingOptions()), files_of(plain, ListingOptions())
    for left, right in zip(one.shown, other.shown, strict=True):
        assert {line: pieces_of(each, True, True) for line, each in left.lines.notes.items()} == {
            line: pieces_of(each, True, True) for line, each in right.lines.notes.items()
        }


def test_a_hundred_thousand_events_and_a_thousand_frames_are_quick(tmp_path: Path) -> None:
    text = """\
import torch

def down(x, n):
    if n == 0:
        return x * 2
    y = down(x + 1, n - 1)
    return y + 1

def main():
    x = torch.ones(2)
    for _ in range(50_000):
        x = x * 1
        y = x.view(-1)
    return down(x, 800)
"""
    module = loaded(tmp_path, text)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        with tg.record() as trace:
            module.main()
    finally:
        sys.setrecursionlimit(limit)
    assert len(trace) > 100_000
    (listing,) = files_of(trace, ListingOptions(path="sample.py")).shown
    assert note(listing, "y = x.view").runs == 50_000
    assert note(listing, "y = down").runs == 800
    assert words(listing, "y = down") == ["f32[2]"]


STATEMENTS: dict[str, Callable[[list[str]], str]] = {
    "list": lambda each: f"b = [{', '.join(each)}]",
    "lines": lambda each: "b = [\n        " + ",\n        ".join(each) + "\n    ]",
    "targets": lambda each: f"{', '.join(f'b{n}' for n in range(len(each)))} = {', '.join(each)}",
    "choices": lambda each: f"b = [{', '.join(f'(n or {one})' for one in each)}]",
    "calls": lambda each: f"b = [{', '.join(f'g({one})' for one in each)}]",
    "lambdas": lambda each: f"b = [{', '.join(f'(lambda: {one})()' for one in each)}]",
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_the_work_grows_with_the_steps_of_a_statement_and_no_faster(tmp_path: Path, kind: str) -> None:
    work: list[int] = []
    for number in (20, 80, 320):
        statement = STATEMENTS[kind]([f"a * {n}" for n in range(number)])
        text = f"def g(a):\n    return a + 1\n\ndef f(a, n=0):\n    {statement}\n"
        module = loaded(tmp_path, text, f"sample{number}")
        with tg.record() as trace:
            module.f(torch.ones(2))
        assert len(trace) >= number
        work.append(work_of(lambda trace=trace: files_of(trace, ListingOptions(path="sample"))))
    less, more = (after - before for before, after in pairwise(work))  # the test runner's own files are parsed too
    assert more < 6 * less


FOLLOWED = """\
import numpy as np
import torch

def noise(n):
    return (torch.ones(i + 1) for i in range(n))

def main():
    data = np.zeros((4, 3))
    count = 0
    seen = []
    for i in range(1, 6):
        count += i
        data = np.concatenate([data, np.ones((1, 3))])
        x = torch.from_numpy(data)
        seen.append(x.sum())
    parts = (each * 2 for each in seen)
    total = sum(parts)
    table = {"a": x}
    longest = list(noise(3))
    return total
"""


def notes_by_line(folder: Path, program: str, **options: Any) -> dict[str, str]:
    module = module_of(folder, program)
    with tg.record(**options) as trace:
        module.main()
    (listing,) = [each for each in files_of(trace, ListingOptions()).shown if each.file.endswith("sample.py")]
    assert not listing.lines.without_source
    return {
        listing.text[line - 1].strip(): "; ".join(pieces_of(note, False)) for line, note in listing.lines.notes.items()
    }


def test_followed_variables_stand_at_their_lines_with_shape_and_count(tmp_path: Path) -> None:
    """Of what no step tells: arrays, numbers, containers, arguments."""
    told = notes_by_line(tmp_path, FOLLOWED, variables=True)
    assert told["def noise(n):"] == "n: 3"
    assert told["data = np.zeros((4, 3))"] == "f64[4, 3] numpy"
    assert told["data = np.concatenate([data, np.ones((1, 3))])"] == "f64[5–9, 3] numpy"
    assert told["count += i"] == "1 … 15"
    assert told["for i in range(1, 6):"] == "i: 1 … 5 ×5"
    assert told["x = torch.from_numpy(data)"] == "f64[5–9, 3]"
    assert told["seen.append(x.sum())"].startswith("(f64[]); seen: [f64[]] … ")
    assert told['table = {"a": x}'] == "{'a': f64[9, 3]}"
    assert told["total = sum(parts)"] == "(f64[] ×5); total: f64[]"


RETURNS_A_NUMBER = """
import torch

def pair(x):
    return (n := len(x)), x.exp()

def main():
    for f in [3, 4]:
        pair(torch.ones(f))
"""


def test_a_followed_variable_hides_no_result_that_is_unknown(tmp_path: Path) -> None:
    told = notes_by_line(tmp_path, RETURNS_A_NUMBER, variables=True)
    assert told["return (n := len(x)), x.exp()"] == "→ (…, f32[3–4]); n: 3|4"


def test_a_loop_that_begins_with_the_letter_of_its_variable_names_it(tmp_path: Path) -> None:
    told = notes_by_line(tmp_path, RETURNS_A_NUMBER, variables=True)
    assert told["for f in [3, 4]:"] == "f: 3|4 ×2"


def test_a_generator_expression_is_shown_where_it_is_consumed(tmp_path: Path) -> None:
    told = notes_by_line(tmp_path, FOLLOWED)
    assert told["total = sum(parts)"] == "(f64[] ×5)"
    assert told["longest = list(noise(3))"] == "(f32[1–3] ×3)"
    assert told["parts = (each * 2 for each in seen)"] == told["return (torch.ones(i + 1) for i in range(n))"] == ""
    assert told["data = np.zeros((4, 3))"] == ""


def test_optimizer_steps_are_counted(tmp_path: Path) -> None:
    text = """\
import torch
def main():
    layer = torch.nn.Linear(2, 2)
    opt = torch.optim.Adam(layer.parameters())
    for _ in range(7):
        layer(torch.ones(2)).sum().backward()
        opt.step()
"""
    module = module_of(tmp_path, text)
    with tg.record() as trace:
        module.main()
    (listing,) = [each for each in files_of(trace, ListingOptions()).shown if each.file.endswith("sample.py")]
    assert listing.lines.notes[7].runs == 7
