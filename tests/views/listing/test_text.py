"""The listing as text: exact lines for small programs, and what must hold for all of them."""

from __future__ import annotations

import ast
import importlib.util
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace
from tests.views import shown
from tests.views.listing.test_view import loaded
from tests.views.tree.test_text import ESCAPES, TRACES
from tests.zoo import FAMILIES
from torchglass.errors import NotRecorded
from torchglass.events.selection import select
from torchglass.views.listing.text import free_lines
from torchglass.views.text.style import Page
from torchglass.views.text.words import width_of

RECORDED = [name for name in programs.names() if name not in (*programs.SLOW, "ctrl_c")]


def lines_of(trace: object, width: int = 100, page: Page | None = None, **options: object) -> list[str]:
    return shown.lines_of(trace, "listing", page or Page(width), **options)


def recorded(name: str) -> tg.Trace:
    return programs.recorded(name)


def run(folder: Path, text: str) -> tg.Trace:
    module = loaded(folder, text)
    with suppress(RuntimeError), tg.record() as trace:
        module.main()
    return trace


def test_a_program_that_generates() -> None:
    assert (
        "\n".join(lines_of(recorded("generation"), path="generation.py")[1:])
        == """\
   ⋮ 6 lines
 7      class Decoder(nn.Module):
 8          def __init__(self, vocabulary=20, width=8, heads=2):
 9   ✓          super().__init__()
10   ✓          self.heads = heads
11   ✓          self.embed = nn.Embedding(vocabulary, width)
12   ✓          self.qkv = nn.Linear(width, 3 * width)
13   ✓          self.out = nn.Linear(width, vocabulary)
14
15          def split(self, x):
16 36×          batch, time, width = x.shape
17 36×          return x.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
                                                                       → f32[2, 2, 1–12, 4]
18
19          def forward(self, ids, masked=True):
20 12×          q, k, v = self.qkv(self.embed(ids)).chunk(3, dim=-1)   q, k, v: f32[2, 1–12, 8]
21 12×          q, k, v = self.split(q), self.split(k), self.split(v)  q, k, v: f32[2, 2, 1–12, 4]
22 12×          scores = q @ k.transpose(-2, -1)                       f32[2, 2, 1–12, 1–12]
23 12×          if masked:
24 12×              time = ids.shape[1]
25 12×              scores += torch.full((time, time), -1e9).triu(1)   scores: f32[2, 2, 1–12, 1–12]
26              else:
27   ·              scores = scores.abs()
28 12×          mixed = scores.softmax(-1) @ v                         f32[2, 2, 1–12, 4]
29 12×          mixed = mixed.transpose(1, 2).flatten(2)               f32[2, 1–12, 8]
30 12×          logits = self.out(mixed)                               f32[2, 1–12, 20]
31 12×          return logits                                          → f32[2, 1–12, 20]
   ⋮ 5 lines: no step seen in Decoder.unused
37      def generate(model, ids, steps):
38   ✓      for _ in range(steps):
39 12×          best = model(ids)[:, -1].argmax(-1, keepdim=True)      i64[2, 1]
40 12×          ids = torch.cat([ids, best], dim=1)                    i64[2, 2–13]
41   ·      return ids
43
44      def main():
45   ✓      torch.manual_seed(0)
46   ✓      model = Decoder()
47   ✓      with torch.no_grad():
48  1×          return generate(model, torch.zeros(2, 1, dtype=torch.long), 12)  (i64[2, 1])

12×: how often it ran; ✓: ran, steps do not tell how often; ·: no step seen, may not have run; →:
  returned; (…): computed on the line; 1–12 {1, 7} f32|bf16: differed between calls"""
    )


def test_the_failing_line_is_marked_with_its_error() -> None:
    lines = lines_of(recorded("shape_error"), 120, path="shape_error.py")
    assert lines[0].startswith("✗ RuntimeError")
    (failing,) = [line for line in lines if line.lstrip().startswith("17")]
    assert failing.split()[:4] == ["17", "✗", "return", "self.third(h)"]
    assert "✗ RuntimeError: mat1 and mat2 shapes cannot be multiplied" in failing
    (outer,) = [line for line in lines if "Broken()(torch.randn(5, 8))" in line and line.lstrip()[0].isdigit()]
    assert outer.endswith("✗ RuntimeError")


@pytest.mark.parametrize("options", [{}, {"whole": True, "times": True}, {"by": "module"}], ids=str)
@pytest.mark.parametrize("width", [40, 80, 157])
@pytest.mark.parametrize("name", ["generation", "shape_error", "expressions", "threads", "structured_outputs"])
def test_no_line_is_wider_than_the_page_and_nothing_escapes(name: str, width: int, options: dict[str, object]) -> None:
    trace = recorded(name)
    plain = lines_of(trace, width, **options)
    for line in plain:
        assert line.isprintable(), line
        assert width_of(line) <= width, line
    colored = lines_of(trace, page=Page(width, color=True, links=True), **options)
    assert [ESCAPES.sub("", line).rstrip() for line in colored] == plain


@pytest.mark.parametrize("name", [*TRACES])
def test_traces_without_sources_name_their_lines(name: str) -> None:
    for width in (40, 100):
        for line in lines_of(TRACES[name], width):
            assert line.isprintable(), line
            assert width_of(line) <= width, line


def test_every_line_of_a_shown_file_is_there_or_counted() -> None:
    trace = recorded("generation")
    (file,) = [file for file in trace.sources if file.endswith("generation.py")]
    text = trace.sources[file].rstrip("\n").split("\n")
    shown = lines_of(trace, 120, path="generation.py", whole=True)[1:]
    numbered = [line for line in shown if line.lstrip()[:1].isdigit() and line[:2].strip()]
    assert [int(line.split()[0]) for line in numbered[: len(text)]] == list(range(1, len(text) + 1))
    for line, source in zip(numbered, text, strict=False):
        assert source in line


def test_nothing_recorded_and_nothing_selected() -> None:
    assert "Nothing was recorded" in lines_of(HandmadeTrace([]))[0]
    assert "No step is selected" in lines_of(recorded("mlp"), only=select(kind="op"))[0]
    (copy,) = lines_of(recorded("mlp"), only=select(kind="op"), style="comments")
    assert copy == "# torchglass: no step is selected"
    with pytest.raises(NotRecorded, match="choose from"):
        lines_of(recorded("mlp"), path="nowhere")


@pytest.mark.parametrize("name", ["generation", "training_step", "expressions"])
def test_recorded_ops_change_nothing(name: str) -> None:
    trace = programs.recorded(name, ops=True)
    assert any(event.kind == "op" for event in trace.events())
    options = {"path": f"programs/{name}.py", "whole": True}
    assert lines_of(trace, **options) == lines_of(recorded(name), **options)


def test_notes_stand_at_the_end() -> None:
    trace = HandmadeTrace(list(recorded("mlp").events()), notes=("something was lost",))
    assert lines_of(trace)[-1] == "note: something was lost"


# ---------------------------------------------------------------- odd texts


ODD = r'''
import torch


def double(x): return x * 2


def main():
»x = torch.ones(2, 3); y = x + 1»# tabs»everywhere
»text = """
    y = x + 1
    """ + str(tuple((x @ y.T).shape)) + """
    # not a comment
    """
»z = x + \
        y
»last = \
        z.sum()
»chained = (
        x.relu()  # first
        .view(3, 2)

        .sum(0)
    )
»数 = double(x)  # 幅の広い文字
»if text: 数 = 数 - 1
»parts = [
        each.exp()
        for each in (x, y)
    ]
»f"""{x.mean()
    }"""
»q = f"""
    {x.std()}
    """; w = x.clone()
»for t in (x, y): w = w + t
»match w.shape:
»    case (2, 3) if (w > 0).any():
»        w = w.T
»long = x + LONG
»raw = "ESC" + str(x.sum())
»return z
'''.replace("»", "\t").replace("LONG", "sum([" + "1, " * 5000 + "])").replace("ESC", "\x1b[31m")  # fmt: skip


def test_odd_layout(tmp_path: Path) -> None:
    lines = lines_of(run(tmp_path, ODD), 90, path="sample.py")
    for line in lines:
        assert line.isprintable()
        assert width_of(line) <= 90
    (chained,) = [line for line in lines if "chained = (" in line]
    assert chained.split()[-1] == "f32[2]"  # a note stands on the first line of its statement
    (formatted,) = [line for line in lines if "q = f" in line]
    assert formatted.endswith("('0.0')")  # what is formatted in a string is not the string
    (wide,) = [line for line in lines if "数 = double(x)" in line]
    (usual,) = [line for line in lines if "z = x +" in line]
    assert width_of(wide.rpartition("f32")[0]) == width_of(usual.rpartition("f32")[0])
    assert any("\\x1b[31m" in line for line in lines)
    assert any(line.endswith("…") for line in lines)


def test_a_source_that_is_gone_is_still_listed(tmp_path: Path) -> None:
    trace = run(tmp_path, "import torch\n\ndef main():\n    y = torch.ones(2)\n    return y + 1\n")
    before = lines_of(trace, path="sample.py")
    (tmp_path / "sample.py").unlink()
    assert lines_of(trace, path="sample.py") == before
    assert any("y = torch.ones(2)" in line and line.endswith("f32[2]") for line in before)


def test_a_changed_source_is_said(tmp_path: Path) -> None:
    module = loaded(tmp_path, "import torch\n\ndef main():\n    y = torch.ones(2)\n    return y + 1\n")
    with tg.record() as trace:
        module.main()
        (tmp_path / "sample.py").write_text("import torch\n\n\n\ndef other():\n    return 1\n")
    lines = lines_of(trace, path="sample.py")
    assert "changed after it ran" in lines[1]
    assert not any("other" in line for line in lines)
    assert [line.split()[:2] for line in lines[2:4]] == [["4", "1×"], ["5", "1×"]]


def test_a_zipped_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as file:
        file.writestr("zipped_sample.py", "import torch\n\ndef main():\n    return torch.ones(2) + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    module = importlib.import_module("zipped_sample")
    with tg.record() as trace:
        module.main()
    lines = lines_of(trace, path="zipped_sample.py")
    assert any("return torch.ones(2) + 1" in line and "→ f32[2]" in line for line in lines)
    del sys.modules["zipped_sample"]


# ---------------------------------------------------------------- a copy with comments


def test_comments_say_what_each_line_gave() -> None:
    copy = lines_of(recorded("generation"), path="generation.py", style="comments")
    assert "        logits = self.out(mixed)  # logits: f32[2, 1–12, 20] ×12" in copy
    assert "        return logits  # → f32[2, 1–12, 20] ×12" in copy


@pytest.mark.parametrize("name", RECORDED)
def test_a_copy_with_comments_is_the_same_program(name: str) -> None:
    trace = recorded(name)
    files = [file for file in trace.sources if file.endswith(f"programs/{name}.py")]
    for file in files:
        before = Path(file).read_text(encoding="utf-8")
        copy = "\n".join(lines_of(trace, path=file, style="comments"))
        assert ast.dump(ast.parse(copy)) == ast.dump(ast.parse(before))
        assert copy != before.rstrip("\n")
        assert Path(file).read_text(encoding="utf-8") == before
    assert files


def test_a_copy_of_a_real_model_is_the_same_program() -> None:
    model, inputs = FAMILIES["llama"]()
    with tg.record() as trace:
        model(**inputs)
    for file, text in trace.sources.items():
        copy = lines_of(trace, path=file, style="comments")
        assert ast.dump(ast.parse("\n".join(copy))) == ast.dump(ast.parse(text))
        if file.endswith("modeling_llama.py"):
            assert sum("  # " in line and "f32[" in line for line in copy) > 30


def test_a_copy_of_an_odd_layout_is_the_same_program(tmp_path: Path) -> None:
    trace = run(tmp_path, ODD)
    copy = "\n".join(lines_of(trace, path="sample.py", style="comments"))
    assert ast.dump(ast.parse(copy)) == ast.dump(ast.parse(ODD))
    assert "\x1b" not in copy
    assert "        y  # z: f32[2, 3]" in copy  # behind a backslash nothing may stand
    assert '    """  # text: ' not in copy


def test_form_feeds_are_kept(tmp_path: Path) -> None:
    text = (
        "import torch\n\x0c\ndef double(x):\n    return x * 2\n\x0c\n\x0cdef main():\n    y = double(torch.ones(2))\n"
    )
    copy = "\n".join(lines_of(run(tmp_path, text), path="sample.py", style="comments"))
    assert ast.dump(ast.parse(copy)) == ast.dump(ast.parse(text))
    assert copy.count("\x0c") == 3
    assert "return x * 2  # → f32[2]" in copy


def test_how_often_and_how_many_are_distinguished(tmp_path: Path) -> None:
    text = """\
import torch

def main():
    x = torch.ones(2, 6)
    for _ in range(3):
        a, *rest = x.split(2, dim=1)
        parts = x.chunk(2)
    x[0] += 1
    table = {"k": x}
    table["k"][0] = 3
"""
    trace = run(tmp_path, text)
    copy = lines_of(trace, path="sample.py", style="comments")
    assert "        a, *rest = x.split(2, dim=1)  # a: f32[2, 2], *rest: 2 of f32[2, 2] ×3" in copy
    assert "        parts = x.chunk(2)  # parts: 2 of f32[1, 6] ×3" in copy
    assert "    x[0] += 1  # x: f32[2, 6]" in copy
    assert '    table["k"][0] = 3  # table["k"]: f32[2, 6]' in copy
    (legend,) = [line for line in copy if line.startswith("# torchglass: ")]
    assert "×12" in legend
    (line,) = [line for line in lines_of(trace, path="sample.py") if "parts =" in line]
    assert line.split()[-3:] == ["of", "f32[1,", "6]"]


def test_code_that_torch_writes_is_not_copied_but_named() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))
    with tg.record() as trace:
        graph(torch.ones(2, 3))
    assert any("<eval_with_key>" in line for line in lines_of(trace))
    copy = lines_of(trace, style="comments")
    assert "graph(torch.ones(2, 3))  # (f32[2, 3])" in "\n".join(copy)
    assert "<eval_with_key>" in copy[-1]


def test_where_a_comment_may_stand() -> None:
    text = 'a = """\nb\n"""\nc = (1,\n2)\nd = 1 + \\\n  2\n'
    assert free_lines(text) == {3, 4, 5, 7}


def test_a_copy_names_the_other_files_and_notes_in_comments() -> None:
    model, inputs = FAMILIES["gpt2"]()
    with tg.record() as trace:
        model(**inputs)
    copy = lines_of(trace, style="comments")
    assert copy[-1].startswith("# torchglass: also ran: ")
    assert "modeling_gpt2.py" in copy[-1]
