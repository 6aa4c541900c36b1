"""The tree as text: exact lines for small traces, and what must hold for all of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests import programs
from tests.handmade import HandmadeTrace, Maker, attention, blocks, tensor
from tests.views import shown
from tests.views.tree.test_view import training
from tests.work import work_of
from torchglass.events.selection import select
from torchglass.program.recorded import Recorded
from torchglass.views.text.style import Page
from torchglass.views.text.words import width_of

ESCAPES = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;;[^\x1b]*\x1b\\")


def lines_of(trace: object, width: int = 80, page: Page | None = None, **options: object) -> list[str]:
    return shown.lines_of(trace, "tree", page or Page(width), **options)


def test_attention_at_80_columns() -> None:
    assert (
        "\n".join(lines_of(attention()))
        == """\
out = mha(x)                  MHA     f32[10, 20, 6] → f32[10, 20, 6]  demo.py:8
│ queries = query_weights(x)  Linear         … → f32[10, 20, 6]  attention.py:33
│ keys = key_weights(x)       Linear(6, 6)  f32[10, 20, 6] → f32[10, 20, 6]  :34
│ values = value_weights(x)   Linear(6, 6)  f32[10, 20, 6] → f32[10, 20, 6]  :35
│ k.transpose(2, 3)                  f32[10, 3, 20, 2] → f32[10, 3, 2, 20]   :61
│ scores = q @ k.transpose(…)    f32[10, 3, 20, 2] @ … → f32[10, 3, 20, 20]  :61
│ weights = F.softmax(scores, dim…  f32[10, 3, 20, 20] → f32[10, 3, 20, 20]  :64
│ dropout(weights)  Dropout(p=0.1)  f32[10, 3, 20, 20] → f32[10, 3, 20, 20]  :65
11 events · 3 inside torch calls (inner=True)"""
    )


def test_attention_at_120_columns() -> None:
    assert (
        "\n".join(lines_of(attention(), 120))
        == """\
out = mha(x)                  MHA                        f32[10, 20, 6] → f32[10, 20, 6]  demo.py:8
│ queries = query_weights(x)  Linear(6, 6)               f32[10, 20, 6] → f32[10, 20, 6]  attention.py:33
│ keys = key_weights(x)       Linear(6, 6)               f32[10, 20, 6] → f32[10, 20, 6]      :34
│ values = value_weights(x)   Linear(6, 6)               f32[10, 20, 6] → f32[10, 20, 6]      :35
│ k.transpose(2, 3)                                   f32[10, 3, 20, 2] → f32[10, 3, 2, 20]   :61
│ scores = q @ k.transpose(2, 3)  f32[10, 3, 20, 2] @ f32[10, 3, 2, 20] → f32[10, 3, 20, 20]  :61
│ weights = F.softmax(scores, dim=-1)                f32[10, 3, 20, 20] → f32[10, 3, 20, 20]  :64
│ dropout(weights)            Dropout(p=0.1)         f32[10, 3, 20, 20] → f32[10, 3, 20, 20]  :65
11 events · 3 inside torch calls (inner=True)"""
    )


def test_repeated_layers_and_what_differs() -> None:
    assert (
        "\n".join(lines_of(blocks(6, odd=5)))
        == """\
model(x)                        Net           f32[4, 8] → f32[4, 8]   train.py:1
│ blocks.0–4 × 5: x = block(x)  Block         f32[4, 8] → f32[4, 8]  model.py:12
│ │ fc(x)                       Linear(6, 6)  f32[4, 8] → f32[4, 8]           :5
│ │ F.relu(x)                                 f32[4, 8] → f32[4, 8]           :6
│ blocks.5: x = block(x)        Block         f32[4, 8] → f32[4, 9]          :12
│ │ ≠ blocks.4: output shapes differ
│ │ fc(x)                       Linear(6, 6)  f32[4, 8] → f32[4, 8]           :5
│ │ F.relu(x)                                 f32[4, 8] → f32[4, 8]           :6
19 events · 12 folded"""
    )


def test_a_training_loop() -> None:
    assert (
        "\n".join(lines_of(training(3), depth=0))
        == """\
× 3, 4 steps each:
│ net(x)           Net  3 events inside  f32[4, 8] → f32[4, 8]  model.py:1
│ y.sum()                                f32[4, 8] → f32[]      :2
│ opt.step()       5–9 events inside                            :3
│ opt.zero_grad()  4 torch functions inside                     :4
49 events · 8 folded · 28 inside torch calls (inner=True) · 9 deeper than
  depth=0"""
    )


def failing() -> HandmadeTrace:
    make = Maker()
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 6x6)"
    root = make.layer("Net", None, "", "model(x)", (4, 8), outputs=[], error=error, file="/project/train.py", line=3)
    for line in range(20, 32):
        make.add("function", "F.relu", root, f"F.relu(x{line})", inputs=[(4, 8)], outputs=[(4, 8)], line=line)
    layer = make.layer("Linear", root, "fc", "self.fc(x)", (4, 8), outputs=[], error=error, line=33, detail="6, 6")
    make.add("function", "F.linear", layer, "self.fc(x)", direct=False, error=error, line=33, module="fc",
             inputs=[tensor((4, 8), role="input"), tensor((6, 6), role="weight")])  # fmt: skip
    return HandmadeTrace(make.made, failed=len(make.made) - 1)


def test_a_failure_comes_first() -> None:
    lines = lines_of(failing(), 100)
    assert lines[:3] == [
        "✗ RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 6x6)",
        "how it came about: the view 'failure'",
        "",
    ]
    told = [line for line in lines[3:] if "✗" in line]
    assert ["mat1 and mat2" in line for line in told] == [False, True]


@pytest.mark.parametrize("view", ["calls", "code", "gradients", "table"])
def test_a_failure_comes_first_in_other_views_too(view: str) -> None:
    assert shown.lines_of(failing(), view, Page(100))[:3] == lines_of(failing(), 100)[:3]


def test_an_empty_trace_says_what_to_do() -> None:
    text = " ".join(lines_of(HandmadeTrace([], notes=("recording is switched off",))))
    assert "Nothing was recorded" in text
    assert "with record() as trace" in text
    assert "note: recording is switched off" in text


def test_notes_and_what_was_not_seen() -> None:
    make = Maker()
    make.add("unseen", "compiled region", None, "compiled(x)", inputs=[(3,)], outputs=[(3,)],
             note="compiled by torch.compile; torch.compiler.set_stance('force_eager') shows its inside")  # fmt: skip
    lines = lines_of(HandmadeTrace(make.made))
    assert "not seen inside" in lines[0]
    assert lines[1].startswith("1 event")
    assert lines[2].startswith("note (")
    assert "): compiled by torch.compile;" in lines[2]


def test_a_chain_of_targets_is_as_written() -> None:
    make = Maker()
    for source, target in (("a = c = x.clone()", ("a", "c")), ("a, c = x.clone()", ("a", "c")),
                           ("self.a = b, c = x.clone()", ("self.a", "b", "c"))):  # fmt: skip
        number = make.add("function", "Tensor.clone", code="x.clone()", target=target, outputs=[(2,)])
        event = make.made[number]
        assert event.location is not None
        at = replace(event.location, source=source)
        make.made[number] = event._replace(location=at, stack=(at,))
    texts = [line.partition(" → ")[0].rstrip() for line in lines_of(HandmadeTrace(make.made), fold=False)]
    assert texts[:3] == ["a = c = x.clone()", "a, c = x.clone()", "a = b, c = x.clone()"]


def test_devices_are_shown_where_they_change() -> None:
    make = Maker()
    make.add("function", "Tensor.to", None, "x.cuda()", inputs=[(3,)], outputs=[tensor((3,), device="cuda:0")])
    assert "f32[3] @ cpu → f32[3] @ cuda:0" in lines_of(HandmadeTrace(make.made))[0]


HOSTILE = "\x1b[31m\x1b]0;owned\x07\r\n\t\u202e\x9b\ud800"


def hostile() -> HandmadeTrace:
    make = Maker(file=f"/project/{HOSTILE}.py", root=HOSTILE)
    root = make.layer(HOSTILE, None, "", f"f('{HOSTILE}')", (3,), target=(HOSTILE,), detail=HOSTILE, note=HOSTILE)
    make.layer(HOSTILE, root, HOSTILE, f"f('{HOSTILE}')", (3,), thread=HOSTILE, error=f"E: {HOSTILE}")
    bad = tensor((3,), HOSTILE, role=HOSTILE, device=HOSTILE, layout=HOSTILE)
    make.add("function", HOSTILE, root, "", inputs=[bad], outputs=[], result=HOSTILE, operator=HOSTILE)
    make.add("mark", HOSTILE, root, direct=False)
    return HandmadeTrace(make.made, notes=(HOSTILE,), failed=1, name=HOSTILE)


def nothing_known() -> HandmadeTrace:
    make = Maker(root=None)
    for kind in ("module", "function", "op", "call", "variable", "mark", "step", "unseen"):
        make.add(kind, "", None, location=None, stack=(), end_ns=None, inputs=[tensor(None, "")], direct=False)
        make.add(kind, "", 0, location=None, stack=(), end_ns=None, outputs=[tensor(None, "")])
    return HandmadeTrace(make.made, duration_ns=0)


def wide_and_deep() -> HandmadeTrace:
    make = Maker()
    for level in range(1000):
        shape = (1,) * 1_000_000 if level == 3 else (10**9,) * 12
        make.layer("Deep" * 9, level - 1 if level else None, ".".join(["deep"] * level), "self.deep(重み)" * 9, shape,
                   file=f"/a/{'long' * 30}{level}.py", line=level * 1000)  # fmt: skip
    return HandmadeTrace(make.made)


TRACES = {
    "attention": attention(), "blocks": blocks(4, odd=3), "training": training(3), "failing": failing(),
    "hostile": hostile(), "nothing known": nothing_known(), "wide and deep": wide_and_deep(),
}  # fmt: skip
OPTIONS = [{}, {"inner": True, "fold": False, "times": True}, {"depth": 1}, {"only": select(kind="function")}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("width", [40, 80, 100, 157])
@pytest.mark.parametrize("name", TRACES)
def test_no_line_is_wider_than_the_page_and_nothing_escapes(name: str, width: int, options: dict[str, object]) -> None:
    plain = lines_of(TRACES[name], width, **options)
    for line in plain:
        assert line.isprintable(), line
        assert width_of(line) <= width, line
        assert line == line.rstrip()
    colored = lines_of(TRACES[name], page=Page(width, color=True, links=True), **options)
    assert [ESCAPES.sub("", line).rstrip() for line in colored] == plain


@pytest.mark.parametrize("name", programs.names())
def test_every_program_can_be_shown(name: str) -> None:
    trace = programs.recorded(name)
    for options in ({}, {"inner": True, "fold": False}):
        lines = lines_of(trace, 80, **options)
        assert all(width_of(line) <= 80 and line.isprintable() for line in lines)


def test_time_grows_with_the_lines_and_no_faster() -> None:
    def lines(trace: Recorded) -> int:
        return len(lines_of(trace, 100, fold=False))

    small, large = blocks(1_000), blocks(4_000)
    assert lines(large) == len(large) + 2  # and how many, and how to see less
    assert work_of(lambda: lines(large)) < 6 * work_of(lambda: lines(small))


def test_a_mark_without_tensors_says_its_value() -> None:
    maker = Maker()
    for step in range(3):
        maker.add("function", "relu", code="torch.relu(x)", inputs=[(2,)], outputs=[(2,)])
        maker.add("mark", "loss", args=f"{step}.5", line=2, direct=False)
    maker.add("mark", "text", args="'a\x1b[31m" + "b" * 100 + "'", line=3, direct=False)
    maker.add("mark", "x", args="f32[2]", inputs=[(2,)], line=4, direct=False)
    trace = HandmadeTrace(maker.made)
    marks = [line.split() for line in lines_of(trace, fold=False) if "▸" in line]
    assert [(each[1], each[2]) for each in marks[:3]] == [("loss", "0.5"), ("loss", "1.5"), ("loss", "2.5")]
    assert marks[3][2].startswith("'a\\x1b[31mb")
    assert marks[3][2].endswith("…")
    assert marks[4][2] == "f32[2]"
    assert ["│", "▸", "loss", "0.5", "…"] in [line.split()[:5] for line in lines_of(trace)]


def test_marks_in_a_row_keep_their_name() -> None:
    maker = Maker()
    for step in range(3):
        maker.add("mark", "loss", args=str(step), direct=False)
    first, _ = lines_of(HandmadeTrace(maker.made))
    assert first.split()[:5] == ["×", "3:", "▸", "loss", "0"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_few_long_rows_do_not_push_the_rest(width: int) -> None:
    """Arrows and places of the others are where they would be without them, and what has room is not cut."""
    make, short = Maker(), Maker()
    for number in range(20):
        code = f"F.relu(h{number})" if number not in (7, 13) else f"F.relu({' + '.join(['hidden'] * 16)})"
        for each in (make, short):
            if each is make or number not in (7, 13):
                each.add("function", "F.relu", code=code, line=number + 1, inputs=[(8, 32)], outputs=[(8, number + 1)])
    long_lines = lines_of(HandmadeTrace(make.made), width, fold=False)[:-1]
    lines = [line for at, line in enumerate(long_lines) if at not in (7, 13)]
    assert lines == lines_of(HandmadeTrace(short.made), width, fold=False)[:-1]
    assert len({line.index("→") for line in lines}) == 1
    assert len({len(line) for line in lines[1:]}) == 1  # the first names the file
    assert not any("…" in line for line in lines)
    assert all("f32[8, 32] → f32[8," in line for line in lines)


def test_a_wide_page_is_used() -> None:
    make = Maker()
    code = "self.out((weights @ values).transpose(1, 2).reshape(batch, tokens, width))"
    make.add("function", "F.linear", code=code, inputs=[(4, 10, 8)], outputs=[(4, 10, 8)])
    assert "…" in lines_of(HandmadeTrace(make.made), 80)[0]
    assert "…" not in lines_of(HandmadeTrace(make.made), 120)[0]
