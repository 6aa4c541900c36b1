"""The trace: what can be asked of it, and what its parts have to do with each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests import programs
from tests.zoo import FAMILIES
from torchglass._trace import summary
from torchglass.events.schema import PUBLIC_NAMES
from torchglass.events.tables import Tables
from torchglass.views import VIEWS

X = torch.ones(2, 3)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).relu())


@pytest.fixture
def trace() -> tg.Trace:
    return tg.trace(Twice(), X)


class TestAsking:
    def test_events_all_and_chosen(self, trace: tg.Trace) -> None:
        assert [e.name for e in trace.events()] == ["Twice", "Linear", "F.linear", "Tensor.relu", "Linear", "F.linear"]
        assert [e.id for e in trace.events(module="layer", kind="module")] == [1, 4]
        assert [e.id for e in trace.events(tg.select(function="relu"))] == [3]
        assert [e.id for e in trace.events(where=lambda e: e.parent is None)] == [0]

    def test_events_of_something_else(self, trace: tg.Trace) -> None:
        with pytest.raises(tg.WrongType, match="select"):
            trace.events("layer")  # type: ignore[arg-type]
        with pytest.raises(tg.UsageError, match="not both"):
            trace.events(tg.select(), module="layer")
        with pytest.raises(tg.UnknownOption, match="did you mean 'module'"):
            trace.events(modul="layer")

    def test_event_by_id(self, trace: tg.Trace) -> None:
        assert trace.event(3).name == "Tensor.relu"
        for wrong in (-1, 6, "3", 1.0, True):
            with pytest.raises(tg.NotRecorded, match="6 events, numbered from 0"):
                trace.event(wrong)  # type: ignore[arg-type]

    def test_outputs_of_a_call(self, trace: tg.Trace) -> None:
        first, second = trace.outputs("layer"), trace.outputs("layer", call=1)
        assert first == trace.event(1).outputs
        assert second == trace.event(4).outputs == trace.outputs("layer", -1)
        assert trace.outputs("") == trace.event(0).outputs
        assert trace.outputs("Twice:layer") == first
        with pytest.raises(tg.NotRecorded, match="did you mean 'layer'"):
            trace.outputs("laier")
        with pytest.raises(tg.NotRecorded, match=r"no module 'zz' was called; choose from: '' \(the root\), layer$"):
            trace.outputs("zz")
        with pytest.raises(tg.NotRecorded, match="2 time"):
            trace.outputs("layer", 2)

    def test_outputs_where_two_roots_have_the_path(self) -> None:
        one, two = Twice(), Twice()
        with tg.record() as trace:
            one(X)
            two(X[:1])
        assert trace.outputs("Twice:layer")[0].shape == (2, 3)
        assert trace.outputs("Twice#2:layer")[0].shape == (1, 3)

    def test_values_once_each(self, trace: tg.Trace) -> None:
        values = list(trace.values())
        assert len({v.id for v in values}) == len(values)
        mentioned = {v.id for e in trace.events() for v in (*e.inputs, *e.outputs)}
        assert {v.id for v in values} == mentioned
        assert values[0].role == "x"

    def test_modules(self, trace: tg.Trace) -> None:
        root, layer = trace.modules()
        assert (root.path, root.name, root.parameters) == ("", "Twice", ())
        assert [(v.role, v.shape, v.type) for v in layer.parameters] == [
            ("weight", (3, 3), "Parameter"),
            ("bias", (3,), "Parameter"),
        ]

    def test_columns(self, trace: tg.Trace) -> None:
        columns = trace.columns()
        assert columns["name"] == [e.name for e in trace.events()]
        assert columns["parent"] == [e.parent for e in trace.events()]
        assert {len(column) for column in columns.values()} == {6}
        for table in PUBLIC_NAMES:
            trace.columns(table)
        with pytest.raises(tg.NotRecorded, match="did you mean 'events'"):
            trace.columns("event")

    def test_bare_at_a_prompt_it_shows_the_summary_and_the_first_rows(self, trace: tg.Trace) -> None:
        assert repr(trace) == f"{trace}\n{tg.render(trace)}"
        with tg.record() as long:
            x = torch.ones(4)
            for _ in range(3):
                x.add(1), x.mul(2), x.exp(), x.sin(), x.cos(), x.tan(), x.abs()
                x.neg(), x.relu(), x.sqrt(), x.floor(), x.ceil(), x.round(), x.sign()
        lines = repr(long).splitlines()
        assert lines[0].startswith("Trace: 43 events")
        assert "show(trace) shows all" in lines[-1]
        assert len(lines) < 18
        with tg.record() as running:
            torch.ones(1)
            assert "still recording" in repr(running)

    def test_an_event_is_one_line(self, trace: tg.Trace) -> None:
        for event in trace.events():
            text = repr(event)
            assert text.startswith(f"<Event {event.id}: {event.kind} {event.name}")
            assert text.isprintable()
            assert len(text) < 200
        product = next(event for event in trace.events() if event.kind == "function")
        assert f":{product.line}>" in repr(product)
        assert str(product.result) in repr(product)

    def test_in_a_few_lines(self, trace: tg.Trace) -> None:
        first, second, third, *engine = str(trace).split("\n")
        assert len(engine) <= 1
        assert all(each.startswith("  engine: ") for each in engine)
        assert first.startswith("Trace: 6 events in ")
        assert second == "  3 module, 3 function"
        assert third == "  roots: Twice; 2 modules"
        with tg.record(name="mine") as named:
            pass
        assert str(named).startswith("Trace of mine: 0 events")
        assert "nothing was recorded" in str(named)
        assert len(named) == 0
        assert named


class TestSql:
    def test_reading(self, trace: tg.Trace) -> None:
        assert trace.sql("SELECT count(*) FROM events") == [(6,)]
        assert trace.sql("SELECT name FROM events WHERE parent = ?", (0,)) == [
            ("Linear",),
            ("Tensor.relu",),
            ("Linear",),
        ]
        deep = "WITH RECURSIVE up(id) AS (SELECT 2 UNION SELECT parent FROM events JOIN up USING (id)) SELECT * FROM up"
        assert [row[0] for row in trace.sql(deep)] == [2, 1, 0, None]

    def test_the_rows_say_what_the_events_say(self, trace: tg.Trace) -> None:
        rows = trace.sql("SELECT id, kind, name, parent, args, result, code, line, key FROM events ORDER BY id")
        assert rows == [
            (e.id, e.kind, e.name, e.parent, e.args, e.result, e.code, e.line, e.key) for e in trace.events()
        ]
        taken = trace.sql("SELECT event, role, value FROM event_values WHERE direction = 'in' ORDER BY event, position")
        assert taken == [(e.id, v.role, v.id) for e in trace.events() for v in e.inputs]

    @pytest.mark.parametrize(
        "query",
        [
            "INSERT INTO notes VALUES (1, 'x')",
            "UPDATE events SET name = ''",
            "DELETE FROM events",
            "DROP TABLE events",
            "CREATE TABLE mine (a)",
            "CREATE TEMP TABLE mine (a)",
            "ATTACH 'file:{path}' AS other",
            "VACUUM INTO '{path}'",
            "PRAGMA query_only = OFF",
            "PRAGMA writable_schema = ON",
            "BEGIN",
        ],
    )
    def test_nothing_else(self, trace: tg.Trace, query: str, tmp_path: Path) -> None:
        path = tmp_path / "stolen.db"
        with pytest.raises(tg.UsageError, match="only reads") as caught:
            trace.sql(query.format(path=path))
        assert query.split()[0] in str(caught.value)
        assert not path.exists()
        assert trace.sql("SELECT count(*) FROM events") == [(6,)]

    @pytest.mark.parametrize("query", ["SELEC 1", "SELECT x FROM events", "SELECT 1; SELECT 2", "SELECT ?"])
    def test_a_query_with_a_mistake_names_the_tables(self, trace: tg.Trace, query: str) -> None:
        with pytest.raises(tg.UsageError, match="the tables are: events, event_values"):
            trace.sql(query)

    def test_something_else(self, trace: tg.Trace) -> None:
        with pytest.raises(tg.WrongType, match="text of a query"):
            trace.sql(3)  # type: ignore[arg-type]


class TestKeys:
    PROGRAMS = (
        "attention",
        "training_step",
        "recursion",
        "expressions",
        "generators",
        "root_in_root",
        "executed_source",
    )

    @pytest.mark.parametrize("name", programs.names())
    def test_unique_in_a_trace(self, name: str) -> None:
        keys = Counter(event.key for event in programs.recorded(name).events())
        repeated = [key for key, count in keys.items() if count > 1]
        assert repeated == []

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_the_same_in_two_runs(self, name: str) -> None:
        main = programs.load(name).main
        one, two = tg.trace(main), tg.trace(main)
        assert [e.key for e in one.events()] == [e.key for e in two.events()]

    def test_the_same_in_two_processes(self) -> None:
        text = (
            "import torchglass as tg\nfrom tests import programs\n"
            f"for name in {self.PROGRAMS!r}:\n"
            "    print(*[e.key for e in tg.trace(programs.load(name).main).events()], sep='\\n')\n"
        )
        root = Path(__file__).parents[1]
        runs = {
            subprocess.run([sys.executable, "-c", text], cwd=root, capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        }
        assert len(runs) == 1
        assert len(runs.pop()) > 1000

    def test_code_that_python_compiles_twice(self) -> None:
        """The condition of a loop, and what stands in ``finally``."""

        def work(fail: bool) -> None:
            x = torch.ones(1) * 3
            try:
                while bool(x > 0):
                    x = x - 1
                if fail:
                    torch.ones(2) @ torch.ones(3)
            finally:
                torch.relu(x)

        with tg.record() as trace:
            work(False)
            with pytest.raises(RuntimeError):
                work(True)
        assert max(Counter(e.key for e in trace.events()).values()) == 1

    @pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
    def test_of_a_transformer(self, name: str) -> None:
        def keys() -> list[str]:
            model, inputs = FAMILIES[name]()
            with tg.record() as trace:
                model(**inputs)
            return [e.key for e in trace.events()]

        assert keys() == keys()
        assert len(set(keys())) == len(keys())


class TestValues:
    def steps(self, function: Any) -> list[tg.Event]:
        return list(tg.trace(function, X.clone()).events())

    def test_the_producer_is_the_innermost_event_that_made_it(self, trace: tg.Trace) -> None:
        made = {v.id: v.producer for e in trace.events() for v in e.outputs}
        assert list(made.values()) == [5, 2, 3]
        assert trace.event(0).inputs[0].producer is None
        assert trace.event(4).inputs[0].producer == 3

    def test_a_module_that_gives_what_it_took_made_nothing(self) -> None:
        (event,) = self.steps(nn.Identity())
        assert event.outputs[0].id == event.inputs[0].id
        assert event.outputs[0].producer is None

    def test_views_share_and_fresh_results_do_not(self) -> None:
        view, turned, fresh, same = self.steps(lambda x: (x.view(6), x.T, x + 0, x.contiguous()))
        assert view.outputs[0].storage == view.inputs[0].storage == turned.outputs[0].storage
        assert fresh.outputs[0].storage != fresh.inputs[0].storage
        assert same.outputs[0].id == same.inputs[0].id

    def test_in_place_makes_a_new_value_of_the_next_version(self) -> None:
        first, second = self.steps(lambda x: (x.add_(1), x.mul_(2)))
        before, middle, after = first.inputs[0], first.outputs[0], second.outputs[0]
        assert [v.version for v in (before, middle, after)] == [0, 1, 2]
        assert len({v.id for v in (before, middle, after)}) == 3
        assert len({v.storage for v in (before, middle, after)}) == 1
        assert (middle.producer, after.producer) == (first.id, second.id)
        assert second.inputs[0].id == middle.id

    def test_memory_that_is_used_again_is_not_taken_for_the_same(self) -> None:
        def work(x: Tensor) -> None:
            for _ in range(50):
                y = x + 1
                del y

        outputs = [e.outputs[0] for e in self.steps(work)]
        assert len({v.id for v in outputs}) == len({v.storage for v in outputs}) == 50

    def test_what_changes_without_a_version(self) -> None:
        def work(x: Tensor) -> None:
            x.relu()
            x.requires_grad = True
            x.relu()
            x.data = torch.ones(5)
            x.exp()

        relu, again, *_, exp = self.steps(work)
        assert [e.inputs[0].requires_grad for e in (relu, again, exp)] == [False, True, True]
        assert exp.inputs[0].shape == (5,)

    def test_metadata(self) -> None:
        (event,) = self.steps(lambda x: x.T)
        (value,) = event.outputs
        assert (value.kind, value.dtype, value.device, value.layout) == ("tensor", "float32", "cpu", "strided")
        assert (value.shape, value.stride, value.requires_grad, value.type) == ((3, 2), (1, 3), False, "Tensor")

    def test_inference_tensors_have_no_version(self) -> None:
        with torch.inference_mode():
            x = torch.ones(2)
            first, second = tg.trace(lambda: (x.add_(1), x.relu())).events()
        assert first.outputs[0].version is None
        assert first.inputs[0].id != first.outputs[0].id == second.inputs[0].id


def test_only_keeps_what_is_chosen_below_its_nearest_kept_ancestor() -> None:
    with tg.record(only=tg.select(where=lambda e: e.name in ("Twice", "F.linear"))) as trace:
        Twice()(X)
    assert [(e.id, e.name, e.parent) for e in trace.events()] == [
        (0, "Twice", None),
        (1, "F.linear", 0),
        (2, "F.linear", 0),
    ]
    assert [v.producer for v in trace.event(2).outputs] == [2]


def test_what_a_program_says_cannot_steer_the_terminal() -> None:
    """Names and errors come from the program; printing a trace must not pass on what a terminal obeys."""
    evil = "\x1b]0;owned\x07\x1b[31m\r\nnote: all is well"
    recording = tg.record(name=evil)
    with recording as trace, pytest.raises(RuntimeError):
        torch.ones(3) @ torch.ones(4)
    printed = str(trace)
    assert all(line.isprintable() for line in printed.split("\n"))
    assert not any(line.startswith("note: all is well") for line in printed.split("\n"))


class TestUnfinished:
    """What was not seen to its end says so, and claims nothing about it."""

    def test_nothing_was_written(self) -> None:
        text = summary(Tables(complete=False))
        assert text.splitlines()[0] == "Trace: 0 events (incomplete)"
        assert "nothing was written before the recording stopped" in text
        assert "no module or torch function ran" not in text

    def test_nothing_so_far(self) -> None:
        text = summary(Tables(complete=False), running=True)
        assert text.splitlines() == ["Trace: 0 events (still recording)", "  nothing was recorded so far"]

    def test_nothing_ran(self) -> None:
        text = summary(Tables(complete=True))
        assert text.splitlines()[0] == "Trace: 0 events in 0.0 ms"
        assert "no module or torch function ran" in text

    def test_a_time_that_is_known_is_shown(self) -> None:
        assert "in 2.5 ms (incomplete)" in summary(Tables(complete=False, duration_ns=2_500_000))


class TestMethods:
    """What a trace does by itself; the functions of the same names call it."""

    def test_show_render_and_the_functions_print_the_same(self, capsys: pytest.CaptureFixture[str]) -> None:
        trace = tg.trace(nn.Linear(3, 2), torch.ones(1, 3))
        trace.show("table", width=90)
        printed = capsys.readouterr().out
        tg.show(trace, "table", width=90)
        assert capsys.readouterr().out == printed == trace.render("table", width=90) + "\n"

    def test_save_and_export_write_what_the_functions_write(self, tmp_path: Path) -> None:
        trace = tg.trace(nn.Linear(3, 2), torch.ones(1, 3))
        trace.save(tmp_path / "run.trace")
        assert tg.load(tmp_path / "run.trace").render("tree") == trace.render("tree")
        trace.export(tmp_path / "one.mmd")
        tg.export(trace, tmp_path / "two.mmd")
        assert (tmp_path / "one.mmd").read_text() == (tmp_path / "two.mmd").read_text()

    def test_first_bad_is_an_answer_as_text_and_as_data(self) -> None:
        with tg.record(values="stats") as trace:
            torch.zeros(3).log()
        found = trace.first_bad()
        assert found is not None
        assert str(found) == str(tg.first_bad(trace))
        told = json.loads(json.dumps(found.to_dict()))
        assert told["text"] == str(found).split("\n", maxsplit=1)[0]
        assert (told["kind"], told["event"], told["came_in"]) == ("first_bad", found.event.id, False)
        assert told["values"] == [value.id for value in found.values]
        assert trace.first_bad(allow="log") is None

    def test_a_trace_that_ended_well_has_no_failure_story(self) -> None:
        assert tg.trace(nn.ReLU(), torch.ones(1)).failure_story() is None

    @pytest.mark.parametrize("view", VIEWS)
    def test_every_view_is_plain_data_with_an_event_that_exists(self, view: str) -> None:
        with tg.record(values="stats", variables=True) as trace:
            x = torch.ones(2, 3, requires_grad=True)
            nn.Linear(3, 2)(x).sum().backward()
        told = json.loads(json.dumps(trace.to_dict(view)))
        assert set(told) == {"view", "error", "rows", "below", "notes"}
        assert told["view"] == view
        for row in told["rows"]:
            assert set(row) == {"kind", "depth", "event", "times", "cells", "below"}
            assert row["event"] is None or trace.event(row["event"])
            for cell in row["cells"]:
                assert cell["kind"]
                assert "\x1b" not in cell["text"]
        if view == "tree":
            gives = [cell["text"] for row in told["rows"] for cell in row["cells"] if cell["kind"] == "gives"]
            assert any(text.startswith("f32[2, 2]") for text in gives)

    def test_what_users_do_not_need_is_not_offered(self) -> None:
        offered = {name for name in dir(tg.Trace) if not name.startswith("_")}
        assert offered.isdisjoint(
            {"tables", "alike", "stored", "left_process", "in_notebook", "at_prompt", "describes"}
        )
        assert {"show", "render", "save", "export", "first_bad", "failure_story", "to_dict"} <= offered
