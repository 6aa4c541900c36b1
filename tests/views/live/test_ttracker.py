"""Tensor Tracker's lines have the document's words and form, and hold nothing that a terminal obeys."""

import dataclasses

import pytest

from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import CHINESE, ENGLISH, GUIDE
from torchglass.views.text.style import Page

VIDEO = lines.tensor(lines.torch_shape((73, 3, 720, 720)), "torch.uint8")


def test_the_lines_of_the_document():
    callers = [("getitem", "/data/t2v_dataset.py", 283), ("run", "/lib/thread.py", 57), ("boot", "/lib/thread.py", 80)]
    function = (lines.place("/somewhere/ttracker.py", 176), "T2VDataset.get_merge_data")
    assert lines.head(CHINESE, 0, function, callers) == (
        "┌── [ttracker.py:176] 函数 [T2VDataset.get_merge_data] 被调用于 getitem:283 "
        "(t2v_dataset.py:283 <- thread.py:57 <- thread.py:80)"
    )
    assert lines.named("", CHINESE.input, "examples", 0, lines.length(4)) == "├─ 输入 [Var] examples@0 len(value): 4"
    assert lines.change(3, "video", 575, VIDEO) == (
        "│   │   │   ├─ [Tensor] video@575 → shape=torch.Size([73, 3, 720, 720]) | dtype=torch.uint8"
    )
    array = lines.tensor(lines.numpy_shape((73, 640, 960, 3)), "uint8")
    assert lines.change(3, "video", 572, array).endswith("video@572 → shape=(73, 640, 960, 3) | dtype=uint8")
    assert lines.output(CHINESE, 2, VIDEO) == "│   │   └─ 输出 shape=torch.Size([73, 3, 720, 720])"


def test_english_says_the_same_in_other_words():
    function = ("a.py:1", "f")
    assert lines.head(ENGLISH, 1, function, [("main", "b.py", 2)]) == (
        "│   ┌── [a.py:1] function [f] called at main:2 (b.py:2)"
    )
    assert lines.head(ENGLISH, 0, function, []) == "┌── [a.py:1] function [f]"
    assert lines.ending(ENGLISH, 0, "Data.load", 0.00123) == "└─ time Data.load 0.0012 s"
    assert lines.ending(CHINESE, 0, "Data.load", 0.00123) == "└─ 耗时 Data.load 0.0012 s"


def test_each_language_has_all_the_words_and_they_differ():
    for field in dataclasses.fields(lines.Words):
        english, chinese = getattr(ENGLISH, field.name), getattr(CHINESE, field.name)
        assert english.isascii()
        assert english
        assert chinese
        assert not chinese.isascii()


@pytest.mark.parametrize(("language", "words"), [("zh", CHINESE), ("zh_CN", CHINESE), ("en", ENGLISH), ("", ENGLISH)])
def test_the_language_is_chosen_by_its_code(language, words):
    assert lines.words_for(language) is words


def test_what_else_is_said_of_a_variable():
    array = lines.tensor("(2,)", "uint8")
    assert lines.changed_in_place(ENGLISH, array).text == "→ shape=(2,) | dtype=uint8 | changed in place"
    assert lines.change(1, "x", 3, lines.deleted(ENGLISH)) == "│   ├─ [Var] x@3 deleted"
    assert lines.missing(ENGLISH, 0, "vdeo", ["video"]) == (
        "├─ no variable of this name has appeared: 'vdeo' (did you mean 'video'?)"
    )
    assert lines.missing(CHINESE, 0, "q", []).endswith("'q'")


def test_values_by_kind():
    assert lines.string("113") != lines.literal("113")
    assert lines.length(4).text == "len(value): 4"
    assert lines.type_only("Dataset").text == "type: Dataset"
    assert lines.tensor("(2,)", "uint8", "cuda:0").text == "→ shape=(2,) | dtype=uint8 | device=cuda:0"
    assert lines.tensor("(2,)", "uint8", "cuda:0").brief == "shape=(2,) | device=cuda:0"
    assert lines.torch_shape((2, -1)) == "torch.Size([2, ?])"
    assert lines.torch_shape(None) == "?"


def test_a_long_string_is_cut_and_its_length_shown():
    text = lines.string("ab" * 1000).text
    assert text.endswith("… (2,000 characters)")
    assert len(text) < 130


def test_a_tuple_is_shown_item_by_item_and_a_long_one_ends_in_a_count():
    items = [lines.literal(str(number)) for number in range(3)]
    assert list(lines.outputs(ENGLISH, 1, items, 3)) == [
        "│   ├─ output[0] value: 0",
        "│   ├─ output[1] value: 1",
        "│   └─ output[2] value: 2",
    ]
    assert list(lines.outputs(ENGLISH, 0, items, 1003))[-1] == "├─ … 1,000 more"


def test_statistics_after_a_value():
    shown = lines.with_statistics(VIDEO, [("sum", 6), ("mean", 1 / 3), ("min", None), ("max", True)])
    assert shown.text == VIDEO.text + " | sum=6 | mean=0.333333 | min=— | max=True"


EVIL = "a\x1b[2J\r\n\u202e"


@pytest.mark.parametrize(
    "line",
    [
        lines.head(ENGLISH, 0, (lines.place(EVIL, 1), "f"), [(EVIL, EVIL, 2)]),
        lines.named(EVIL, EVIL, EVIL, 0, lines.string(EVIL)),
        lines.change(0, EVIL, None, lines.type_only(EVIL)),
        lines.output(ENGLISH, 0, lines.tensor("?", EVIL, EVIL)),
        lines.error(ENGLISH, 0, EVIL, EVIL * 100),
        "".join(lines.message(EVIL)),
        lines.literal(EVIL).text,
    ],
)
def test_nothing_that_a_terminal_obeys_comes_through(line):
    assert line.isprintable()


def test_a_message_keeps_its_lines():
    assert lines.message("one\ttwo\nthree\x1b") == ["one     two", "three\\x1b"]


def test_the_highlight_leaves_the_guides_alone():
    line = lines.change(2, "video", 575, VIDEO)
    painted = lines.painted(line, "note", Page(color=True))
    assert painted.startswith(GUIDE * 2 + "\x1b[")
    assert painted.replace("\x1b[33m", "").replace("\x1b[0m", "") == line
    assert lines.painted(line, "note", Page()) == line
