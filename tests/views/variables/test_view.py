"""The life of variables: every change in exactly one row, calls told apart, values traced to what made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchglass as tg
from tests import programs
from tests.handmade import HandmadeTrace, Maker, tensor
from tests.work import work_of
from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import select
from torchglass.events.types import Location
from torchglass.views.options import VariablesOptions
from torchglass.views.row import CALL, EXPRESSION, FOLD, LOOP, TIMES
from torchglass.views.variables.blocks import Block, Variables, variables_of
from torchglass.views.variables.rows import Changes

PROGRAMS = (
    "attention",
    "generation",
    "generators",
    "inplace_and_views",
    "numpy_round_trips",
    "recursion",
    "threads",
)


def recorded(program: Callable[[], object], variables: Any = True, **options: Any) -> tg.Trace:
    with tg.record(variables=variables, **options) as trace:
        program()
    return trace


def view_of(trace: Any, **options: Any) -> Variables:
    return variables_of(trace, VariablesOptions(**options))


def block_of(view: Variables, name: str, scope: str) -> Block:
    found = [
        block
        for block in view.blocks
        if block.variable.name == name and block.variable.scope.rpartition("<locals>.")[2] == scope
    ]
    assert len(found) == 1, [(block.variable.name, block.variable.scope) for block in view.blocks]
    return found[0]


def rows_in(view: Variables) -> list[Changes]:
    blocks = [row for block in view.blocks for group in block.groups for row in group.rows]
    return [row for row in (*blocks, *view.rows) if isinstance(row, Changes)]


def news(block: Block) -> list[list[str]]:
    return [[change.new.text for change in life.changes] for life in block.variable.lives]


@pytest.mark.parametrize("order", ["variable", "time"])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_change_is_in_exactly_one_row(name: str, order: str, fold: bool) -> None:
    trace = programs.recorded(name, variables=True)
    view = view_of(trace, order=order, fold=fold)
    told = sorted(change.id for row in rows_in(view) for change in row.changes)
    ids = [event.id for event in trace.events() if event.kind == "variable"]
    owners = [
        event.id
        for event in trace.events(kind="variable")
        if event.name in ("self", "cls") and not event.args and not event.code
    ]
    assert told == sorted(set(ids) - set(owners))
    assert len(set(told)) == len(told) == view.shown > 0
    assert view.recorded == len(ids) == view.shown + view.owners
    if not fold:
        assert all(len(row.changes) == 1 for row in rows_in(view))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_life_goes_on_with_what_it_was(name: str) -> None:
    for block in view_of(programs.recorded(name, variables=True)).blocks:
        for life in block.variable.lives:
            for before, after in zip(life.changes, life.changes[1:], strict=False):
                assert before.id < after.id
                assert after.old.form == before.new.form or before.new.text == after.old.text


# ---------------------------------------------------------------- calls


def test_recursion_and_calls_one_after_the_other() -> None:
    def fact(n: int) -> int:
        total = n
        if n > 1:
            total = n * fact(n - 1)
        return total

    view = view_of(recorded(lambda: [fact(3) for _ in range(2)]))
    lives = news(block_of(view, "n", "fact"))
    assert lives == [["3"], ["2"], ["1"]] * 2
    totals = news(block_of(view, "total", "fact"))
    assert totals == [["3", "6"], ["2"], ["1"]] * 2


def test_equal_calls_are_one_group_and_values_are_kept_in_order() -> None:
    def double(k: int) -> torch.Tensor:
        value = torch.ones(k + 1)[:1]
        return value * 2

    def loop() -> None:
        for k in range(5):
            double(k)

    view = view_of(recorded(loop))
    block = block_of(view, "value", "double")
    assert [(len(group.lives), group.are_alike, len(group.rows)) for group in block.groups] == [(5, True, 1)]
    (group,) = block_of(view, "k", "double").groups
    (row,) = group.rows
    assert isinstance(row, Changes)
    assert [change.new.text for change in row.changes] == ["0", "1", "2", "3", "4"]
    (row,) = block_of(view, "k", "loop").groups[0].rows
    assert isinstance(row, Changes)
    assert row.text(FOLD) == "× 5"


def test_a_shape_change_is_never_folded_away() -> None:
    def shrink() -> None:
        x = torch.ones(9)
        for _ in range(3):
            x = x + 1
        x = x[:4]
        for _ in range(3):
            x = x + 1

    (group,) = block_of(view_of(recorded(shrink)), "x", "shrink").groups
    rows = [row for row in group.rows if isinstance(row, Changes)]
    assert [(row.text(FOLD), row.first.new.text) for row in rows] == [
        ("", "f32[9]"),
        ("× 3", "f32[9]"),
        ("", "f32[4]"),
        ("× 3", "f32[4]"),
    ]


def test_generators_closures_and_comprehensions() -> None:
    def counter() -> list[int]:
        seen = 0

        def bump(by: int) -> int:
            nonlocal seen
            seen += by
            return seen

        return [bump(each) for each in (1, 2, 3)]

    def numbers() -> Any:
        for k in range(3):
            yield k * 2

    def program() -> None:
        counter()
        together = numbers()
        next(together)
        next(together)
        list(together)

    view = view_of(recorded(program))
    assert news(block_of(view, "seen", "counter")) == [["0", "1", "3", "6"]]
    assert news(block_of(view, "k", "numbers")) == [["0", "1", "2"]]
    scopes = {block.variable.scope for block in view.blocks if block.variable.name == "each"}
    assert len(scopes) == 1
    assert news(block_of(view, "by", "bump")) == [["1"], ["2"], ["3"]]


def test_deleted_and_bound_again_is_one_life() -> None:
    def program() -> None:
        names = ["a"]
        del names
        names = ["b"]
        names.append("c")

    (life,) = block_of(view_of(recorded(program)), "names", "program").variable.lives
    assert [change.new.text for change in life.changes] == ["['a']", "", "['b']", "['b', 'c']"]
    assert life.changes[1].how == "deleted"


# ---------------------------------------------------------------- attributes and modules


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.cache: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc(x)
        self.cache = h
        return h.relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_an_attribute_lives_longer_than_a_call_one_life_an_object() -> None:
    def program() -> None:
        net = Net()
        for _ in range(2):
            net(torch.ones(2, 4))

    block = block_of(view_of(recorded(program, ["self.cache"])), "self.cache", "Layer")
    assert news(block) == [["None", "f32[2, 4]", "f32[2, 4]"]] * 3
    assert [(len(group.lives), group.module) for group in block.groups] == [(3, "layers.0–2")]


@pytest.mark.parametrize("ops", [False, True])
def test_what_made_a_value(ops: bool) -> None:
    net = Net()

    def program() -> torch.Tensor:
        out = net(torch.ones(2, 4))
        alias = out
        return alias + 1

    view = view_of(recorded(program, ops=ops))
    (row,) = block_of(view, "h", "Layer.forward").groups[0].rows
    assert isinstance(row, Changes)
    origins = [story.origin for story in row.stories]
    assert [origin and (origin.event.kind, origin.event.module, origin.here) for origin in origins] == [
        ("module", f"layers.{number}.fc", True) for number in range(3)
    ]
    assert {origin and origin.op for origin in origins} == ({"aten::addmm"} if ops else {""})
    (row,) = block_of(view, "out", "program").groups[0].rows
    assert isinstance(row, Changes)
    assert row.stories[0].origin is not None
    assert row.stories[0].origin.event.name == "Net"
    (row,) = block_of(view, "alias", "program").groups[0].rows
    assert isinstance(row, Changes)
    story = row.stories[0]
    assert story.same_as is not None
    assert (story.same_as.name, story.same_as.scope) == ("out", "")
    assert story.origin is not None
    assert not story.origin.here


def test_memory_that_names_share() -> None:
    def program() -> None:
        h = torch.ones(4, 3)
        a, b = h.split(2)
        c = h + 1
        del a, b, c

    view = view_of(recorded(program))
    shares = {}
    for name in "abc":
        row = block_of(view, name, "program").groups[0].rows[0]
        assert isinstance(row, Changes)
        shares[name] = row.stories[0].shares and row.stories[0].shares.name
    assert shares == {"a": "h", "b": "h", "c": None}


def test_an_argument_is_the_callers_tensor() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x

    def outer() -> None:
        given = torch.ones(2)
        for _ in range(3):
            inner(given)

    (group,) = block_of(view_of(recorded(outer)), "x", "inner").groups
    assert len(group.lives) == 3
    (row,) = group.rows
    assert isinstance(row, Changes)
    assert {story.same_as and story.same_as.name for story in row.stories} == {"given"}


def test_programs_without_torch_functions() -> None:
    def program() -> None:
        frames = np.zeros((6, 4), dtype=np.uint8)
        frames[2] = 7
        frames = frames.astype(np.float32).T
        total = float(frames.sum())
        del total

    view = view_of(recorded(program))
    (life,) = block_of(view, "frames", "program").variable.lives
    assert [change.new.text for change in life.changes] == ["u8[6, 4] numpy", "u8[6, 4] numpy", "f32[4, 6] numpy"]
    assert all(change.new.value is not None and change.new.value.kind == "array" for change in life.changes)


def test_threads_have_calls_of_their_own() -> None:
    view = view_of(recorded(programs.load("threads").main), order="time")
    inside = {id(change.call) for row in rows_in(view) for change in row.changes}
    assert len(inside) <= sum(row.times for row in view.rows if row.kind == CALL)
    threads: dict[int, set[str]] = {}
    for change in (change for row in rows_in(view) for change in row.changes):
        threads.setdefault(id(change.call), set()).add(change.event.thread)
    assert all(len(own) == 1 for own in threads.values())
    assert len(set.union(*threads.values())) > 1


# ---------------------------------------------------------------- the tree of calls


def test_rows_by_time_follow_the_calls() -> None:
    def inner(k: int) -> int:
        square = k * k
        return square + 1

    def outer() -> None:
        for k in range(4):
            got = inner(k)
        del got

    view = view_of(recorded(outer), order="time", fold=False)
    above: list[str] = []
    for row in view.rows:
        del above[row.depth :]
        above.append(row.text(EXPRESSION))
        if isinstance(row, Changes):
            function = row.first.at.function.rpartition(".")[2]
            assert above[row.depth - 1].endswith(f"{function}:"), (row, above)
    assert [row.text(EXPRESSION).rpartition(".")[2] for row in view.rows if row.kind == CALL].count("inner:") == 4
    assert [change.id for row in rows_in(view) for change in row.changes] == sorted(
        change.id for row in rows_in(view) for change in row.changes
    )
    folded = view_of(recorded(outer), order="time")
    loop = next(row for row in folded.rows if row.kind == LOOP)
    assert loop.text(TIMES) == "× ≥ 4"  # a change is seen only where the value is another


# ---------------------------------------------------------------- choosing


def test_names_and_selections() -> None:
    trace = recorded(programs.load("attention").main)
    everything = view_of(trace)
    some = view_of(trace, names="q*")
    assert (
        {block.variable.name for block in some.blocks}
        == {name for name in everything.known if name.startswith("q")}
        != set()
    )
    assert view_of(trace, names=("nothing_like_it", "x")).missing == ("nothing_like_it",)
    picked = view_of(trace, only=select(variable="x"))
    assert {block.variable.name for block in picked.blocks} == {"x"}
    assert picked.shown < everything.shown
    one = view_of(trace, only=select(where=lambda event: event.id == picked.blocks[0].variable.lives[0].changes[0].id))
    assert one.shown == 1


@pytest.mark.parametrize("order", ["variable", "time"])
def test_a_trace_without_variables(order: str) -> None:
    view = view_of(recorded(lambda: torch.ones(2) + 1, ()), order=order)
    assert view.recorded == view.shown == 0
    assert not view.blocks
    assert not view.rows


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"order": "name"}, UsageError, "variable"),
        ({"order": 3}, WrongType, "not int"),
        ({"names": 3}, WrongType, "names="),
        ({"names": ("a", 3)}, WrongType, "names="),
        ({"fold": 1}, WrongType, "fold="),
        ({"times": "yes"}, WrongType, "times="),
        ({"only": "x"}, WrongType, "select"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        VariablesOptions(**options)


# ---------------------------------------------------------------- many


def long_life(turns: int) -> HandmadeTrace:
    """A loop: a counter, a tensor that is made anew and a number."""
    make = Maker()
    outer = Location("/project/train.py", 3, 3, 0, 9, "<module>", "", "user")
    places = [Location("/project/train.py", line, line, 0, 9, "train", "", "user") for line in (10, 11, 12)]
    stacks = [(outer, place) for place in places]
    for turn in range(turns):
        made = make.add("function", "Tensor.add", location=places[1], stack=stacks[1], outputs=[tensor((3,), id=turn)])
        told = [("i", str(turn), ()), ("h", "", (tensor((3,), id=turn, producer=made),)), ("n", str(turn % 7), ())]
        for (name, text, values), place, stack in zip(told, places, stacks, strict=True):
            old = f"{turn - 1}" if turn and text else "f32[3]" if turn else ""
            make.add("variable", name, None, f"{name} = …", detail="assigned", args=old, result=text or "f32[3]",
                     inputs=[tensor((3,), id=turn - 1)] if turn and not text else [],
                     outputs=values, location=place, stack=stack)  # fmt: skip
    return HandmadeTrace(make.made)


def test_long_lives_fold_and_take_time_that_grows_with_them() -> None:
    small, large = long_life(500), long_life(2_000)
    for order in ("variable", "time"):
        view = view_of(large, order=order)
        assert len(rows_in(view)) <= 6
        assert sum(len(row.changes) for row in rows_in(view)) == 6_000
        more, less = (work_of(lambda trace=trace, order=order: view_of(trace, order=order)) for trace in (large, small))
        assert more < 6 * less


# ---------------------------------------------------------------- for nothing


def test_any_trace_has_the_life_of_its_tensor_variables() -> None:
    """What calls were assigned to agrees with what following the variables tells of the same tensors."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2)
        left = left * 2
        return left + right

    def program() -> None:
        for size in range(1, 5):
            y = halves(torch.ones(2 * size))
            y = y.relu()

    guessed, followed = view_of(recorded(program, ())), view_of(recorded(program, ["left", "right"]))
    assert guessed.is_guessed
    assert not followed.is_guessed
    for name in ("left", "right"):
        lives = [
            [[change.new.value.shape for change in life.changes if change.new.value] for life in block.variable.lives]
            for block in (block_of(guessed, name, "halves"), block_of(followed, name, "halves"))
        ]
        assert lives[0] == lives[1]
    assert {block.variable.name for block in guessed.blocks} == {"left", "right", "y"}


def test_results_that_are_tuples_themselves_are_distinguished() -> None:
    rnn = torch.nn.LSTM(3, 4)

    def program() -> None:
        out, hidden = rnn(torch.ones(5, 1, 3))
        out, (h, c) = rnn(torch.ones(2, 1, 3), hidden)
        del out, h, c

    found = {
        block.variable.name: [change.new.text or change.new.value.shape for change in block.variable.lives[0].changes]
        for block in view_of(recorded(program, ())).blocks
    }
    assert found == {
        "out": [(5, 1, 4), (2, 1, 4)],
        "hidden": ["(f32[1, 1, 4], f32[1, 1, 4])"],
        "h": [(1, 1, 4)],
        "c": [(1, 1, 4)],
    }
