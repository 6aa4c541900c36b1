"""The variables view as text: exact lines for small traces, and what must hold for all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.views import shown
from tests.views.tree.test_text import ESCAPES, HOSTILE, TRACES
from tests.views.variables.test_view import long_life, recorded
from torchglass.events.types import Location, Value
from torchglass.views.text.style import Page
from torchglass.views.text.words import width_of
from torchglass.views.variables.view import GUESSED, NOTHING


def lines_of(trace: Any, width: int = 80, page: Page | None = None, **options: Any) -> list[str]:
    return shown.lines_of(trace, "variables", page or Page(width), **options)


MAIN, LOAD = "main", "load"


class Story:
    """Writes changes of variables as a recorder would."""

    def __init__(self) -> None:
        self.make = Maker("/project/demo.py", None)
        self.held: dict[tuple[str, str, int], tuple[str, list[Value]]] = {}
        self.turn = 0

    def change(self, name: str, line: int, code: str, new: Value | str, how: str = "assigned", **fields: Any) -> int:
        """One change in ``load``, or in ``main`` around it."""
        scope = fields.pop("scope", LOAD)
        key = (scope, name, self.turn if scope == LOAD else 0)
        text, values = self.held.get(key, ("", []))
        gives = [new] if isinstance(new, Value) else []
        result = word(new) if isinstance(new, Value) else new
        self.held[key] = (result, gives)
        return self.make.add(
            "variable", name, None, code, detail=how, args=text, result=result, inputs=values, outputs=gives,
            python_call=self.turn + 1 if scope == LOAD else 0, **placed(scope, line), **fields,
        )  # fmt: skip

    def function(self, name: str, line: int, code: str, gives: Value, scope: str = LOAD) -> int:
        return self.make.add("function", name, None, code, outputs=[gives], **placed(scope, line))

    def trace(self, **fields: Any) -> HandmadeTrace:
        return HandmadeTrace(self.make.made, **fields)


def word(value: Value) -> str:
    short = {"uint8": "u8", "float32": "f32"}[value.dtype]
    return f"{short}[{', '.join(map(str, value.shape or ()))}]" + (" numpy" if value.kind == "array" else "")


def placed(scope: str, line: int) -> dict[str, Any]:
    def at(line: int, function: str) -> Location:
        return Location("/project/demo.py", line, line, 0, 9, function, "", "user")

    outer = (at(9, "<module>"), at(line if scope == MAIN else 20, MAIN))
    stack = outer if scope == MAIN else (*outer, at(line, LOAD))
    return {"stack": stack, "location": stack[-1]}


def video(turns: int = 1) -> HandmadeTrace:
    """A clip is read as an array, becomes a tensor over the same memory, is turned and handed over."""
    story = Story()
    for turn in range(turns):
        story.turn = turn
        first = 10 * turn
        channels_last, channels_first = (73, 640, 960, 3), (73, 3, 640, 960)
        array = {"dtype": "uint8", "kind": "array", "storage": first}
        over = {"dtype": "uint8", "storage": first}
        story.change("index", 571, "", str(turn), "argument")
        story.change("video", 572, "video = read(index)", tensor(channels_last, id=first, **array))
        story.change("video", 573, "video[0] = 0", tensor(channels_last, id=first + 1, **array), "changed")
        story.change("video", 574, "video = torch.from_numpy(video)", tensor(channels_last, id=first + 2, **over))
        turned = tensor(channels_first, id=first + 3, **over)
        made = story.function("Tensor.permute", 575, "video.permute(0, 3, 1, 2)", turned)
        turned = turned._replace(producer=made)
        story.change("video", 575, "video = video.permute(0, 3, 1, 2)", turned)
        story.change("clip", 20, "clip = load(index)", turned, scope=MAIN)
    story.change("clip", 21, "del clip", "", "deleted", scope=MAIN)
    return story.trace(notes=("the variable 'vidoe' never appeared in the block",))


def test_the_life_of_a_clip() -> None:
    assert (
        "\n".join(lines_of(video(), 110))
        == """\
index in load  argument → 0  demo.py:571

video in load
  video = read(index)                                             → u8[73, 640, 960, 3] numpy  demo.py:572
  video[0] = 0                          u8[73, 640, 960, 3] numpy → same shape, changed in place  :573
  video = torch.from_numpy(video)       u8[73, 640, 960, 3] numpy → u8[73, 640, 960, 3] torch     :574
    ↳ shares memory with the array before
  video = video.permute(0, 3, 1, 2)  permute  u8[73, 640, 960, 3] → u8[73, 3, 640, 960]           :575

clip in main
  clip = load(index)            → u8[73, 3, 640, 960]  demo.py:20
    ↳ same tensor as video in load, made by permute at :575
  del clip  u8[73, 3, 640, 960] → deleted                     :21

3 variables · 7 changes
note: the variable 'vidoe' never appeared in the block"""
    )


def test_equal_calls_are_shown_once() -> None:
    once, often = lines_of(video(), 110, names="video"), lines_of(video(5), 110, names="video")
    assert often[0] == "video in load · 5 calls alike"
    assert often[1:-2] == once[1:-2]
    assert "20 changes" in often[-2]
    assert "→ 0 … 4" in lines_of(video(5), 110, names="index")[0]


def test_in_program_order() -> None:
    assert (
        "\n".join(lines_of(video(3), 90, order="time", names=("index", "clip")))
        == """\
main:                                             demo.py:9
│ × 3, 2 steps each:
│ │ load:                                               :20
│ │ │ index: argument           → 0, 1, 2              :571
│ │ clip = load(index)          → u8[73, 3, 640, 960]   :20
│ │   ↳ same tensor as video in load, made by permute at :575
│ del clip  u8[73, 3, 640, 960] → deleted               :21
2 variables · 7 changes · 12 other changes not selected
note: the variable 'vidoe' never appeared in the block"""
    )


def test_devices_containers_and_long_texts() -> None:
    story = Story()
    story.change("x", 1, "x = torch.ones(3)", tensor((3,)))
    story.change("x", 2, "x = x.cuda()", tensor((3,), device="cuda:0", id=1))
    items = [f"'{number}': f32[{number}, 4]" for number in range(9)]
    story.change("d", 3, "d = read()", "{" + ", ".join(items[:-1]) + "}")
    story.change("d", 4, "d['8'] = y", "{" + ", ".join(items) + "}", "changed")
    story.change("s", 5, "s = text", repr("long " * 100))
    story.change("s", 6, "s = None", "None")
    lines = lines_of(story.trace(), 100)
    assert any("f32[3] @ cpu → f32[3] @ cuda:0" in line for line in lines)
    assert any("8 items → + '8': f32[8, 4]" in line for line in lines)
    assert all(width_of(line) <= 100 for line in lines)


def test_numbers_that_go_up_and_down() -> None:
    story = Story()
    for number in (3, 9, 1, 7, 5, 2):
        story.change("n", 4, "n = next(values)", str(number))
    assert (
        lines_of(story.trace())[0].split()[-5:] == ["→", "from", "1", "to", "9"]
        or "from 1 to 9" in lines_of(story.trace())[0]
    )


def test_a_long_life_at_one_place_is_one_row_and_unfolded_both_ends_are_no_less() -> None:
    story = Story()
    sizes = [number * number % 1009 + 1 for number in range(300)]
    for number, size in enumerate(sizes):
        story.change("x", 4, "x = step(x)", tensor((size,), id=number))
    short, whole = lines_of(story.trace()), lines_of(story.trace(), fold=False)
    assert len(whole) > 300
    assert len(short) < 6
    assert "× 300: x = step(x)" in short[1] or "× 300: x = step(x)" in short[0]
    assert str(max(sizes)) in "".join(short)


def test_a_long_life_at_many_places_shows_both_ends() -> None:
    story = Story()
    for number in range(300):
        story.change("x", number + 1, f"x = step{number}(x)", tensor((number + 1,), id=number))
    short, whole = lines_of(story.trace()), lines_of(story.trace(), fold=False)
    assert len(short) < 60
    assert any("260 changes more: fold=False" in line for line in short)
    assert whole.pop().startswith("less: ")
    assert [line.split() for line in short[-9:]] == [line.split() for line in whole[-9:]]


def test_a_trace_without_variables_says_how_to_record_them() -> None:
    assert lines_of(HandmadeTrace([]), 200) == [NOTHING]
    told = lines_of(TRACES["attention"], 200)
    assert told[-1] == GUESSED
    assert any("queries = self.query_weights(x)" in line for line in told)
    assert "record(variables=True)" in NOTHING
    assert "record(variables=True)" in GUESSED


def test_names_that_fit_nothing_are_said_with_near_ones() -> None:
    text = " ".join(lines_of(video(), 100, names=("vidoe",)))
    assert "no variable fits names='vidoe'; did you mean 'video'?" in text
    assert "0 changes" in text


def test_a_failure_comes_first() -> None:
    story = Story()
    story.change("x", 1, "x = f()", tensor((3,)))
    story.make.add("function", "F.linear", None, "F.linear(x, w)", error="RuntimeError: shapes", inputs=[(3,)])
    lines = lines_of(story.trace(failed=1))
    assert lines[0] == "✗ RuntimeError: shapes"
    assert any("x = f()" in line for line in lines)


def test_times_are_since_the_beginning() -> None:
    story = Story()
    story.make.clock = 5_000_000_000
    story.change("x", 1, "x = f()", tensor((3,)))
    story.make.clock += 2_000_000
    story.change("x", 2, "x = g()", tensor((4,), id=1))
    lines = lines_of(story.trace(), times=True)
    assert " 0 ns  demo.py:1" in lines[1]
    assert " 2.00 ms  :2" in lines[2]


def hostile() -> HandmadeTrace:
    make = Maker(f"/project/{HOSTILE}.py", HOSTILE)
    bad = tensor((3,), HOSTILE, role=HOSTILE, device=HOSTILE, layout=HOSTILE)
    at = Location(f"/project/{HOSTILE}.py", 1, 1, 0, 1, HOSTILE, HOSTILE, "user")
    made = make.layer(HOSTILE, None, HOSTILE, HOSTILE, (3,), outputs=[bad._replace(id=7)], location=at)
    for turn, name in enumerate((HOSTILE, f"self.{HOSTILE}", HOSTILE, "x")):
        make.add("variable", name, None, HOSTILE, detail="assigned", args=HOSTILE, result=HOSTILE, location=at,
                 stack=(at,) * (turn + 1), module=HOSTILE, thread=HOSTILE)  # fmt: skip
        make.add("variable", name, None, f"x = '{HOSTILE}'", detail=HOSTILE, inputs=[bad], location=at, stack=(at,),
                 outputs=[bad._replace(id=7, producer=made)], module=HOSTILE)  # fmt: skip
    return HandmadeTrace(make.made, notes=(HOSTILE,))


def deep() -> HandmadeTrace:
    """Recursion deeper than Python's own limit, with names wider than the page."""
    make = Maker()
    at = Location(f"/a/{'long' * 30}.py", 10**6, 10**6, 0, 1, "重み" * 30, "", "user")
    for level in range(1100):
        make.add("variable", "名前" * 20, None, "名前 = 重み" * 9, detail="argument", result=str(level), location=at,
                 stack=(at,) * (level + 1))  # fmt: skip
    return HandmadeTrace(make.made)


SHOWN = {**TRACES, "video": video(3), "hostile variables": hostile(), "long": long_life(50)}
OPTIONS = [{}, {"order": "time"}, {"fold": False, "times": True}, {"order": "time", "fold": False, "times": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize("name", SHOWN)
def test_no_line_is_wider_than_the_page_and_nothing_escapes(name: str, width: int, options: dict[str, Any]) -> None:
    plain = lines_of(SHOWN[name], width, **options)
    for line in plain:
        assert line.isprintable(), line
        assert width_of(line) <= width, line
        assert line == line.rstrip()
    colored = lines_of(SHOWN[name], page=Page(width, color=True, links=True), **options)
    assert [ESCAPES.sub("", line).rstrip() for line in colored] == plain


@pytest.mark.parametrize("order", ["variable", "time"])
def test_recursion_deeper_than_pythons_own_limit(order: str) -> None:
    lines = lines_of(deep(), 40, order=order, fold=False)
    assert len(lines) > 1100
    assert all(width_of(line) <= 40 for line in lines)


@pytest.mark.parametrize("name", programs.names())
def test_every_program_can_be_shown(name: str) -> None:
    trace = programs.recorded(name, variables=True)
    for options in ({}, {"order": "time"}):
        lines = lines_of(trace, 80, **options)
        assert all(width_of(line) <= 80 and line.isprintable() for line in lines)


def test_a_real_pipeline() -> None:
    lines = lines_of(recorded(programs.load("inplace_and_views").main), 100)
    assert any("→" in line for line in lines)
    assert any(line.endswith("changes") or "changes ·" in line for line in lines)


@pytest.mark.parametrize("variables", [False, True], ids=["guessed", "followed"])
def test_what_is_assigned_to_an_index_changes_the_tensor(variables: bool) -> None:
    with tg.record(variables=variables) as trace:
        x = torch.arange(6.0)
        x[x > 2] = 0
        mask = x == 0
        x[mask] += 1
        x[mask] = torch.ones(4)
    lines = tg.render(trace, "variables", width=100).splitlines()
    in_place = [line.split("  ")[1] for line in lines if "changed in place" in line]
    assert in_place == ["x[x > 2] = 0", "x[mask] += 1", "x[mask] = torch.ones(4)"]
    assert not [line for line in lines if line.startswith("x[")]
