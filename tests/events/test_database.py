"""The rows and views say what the events say; the examples in docs/format.md run in plain SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import torchglass as tg
from tests import programs
from tests.store.samples import recorded, tables
from tests.zoo import FAMILIES
from torchglass.events import schema
from torchglass.events.database import fill_database
from torchglass.events.schema import FORMAT, NONE
from torchglass.events.tables import Tables
from torchglass.events.types import Event, Stats
from torchglass.store import save
from torchglass.store.layout import EVENTS, part_paths

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "format.md"
SHORT = [name for name in programs.names() if name not in programs.SLOW]


def event_row(event: Event, module: int, stack: int) -> tuple[Any, ...]:
    """An event as its row in the view, made from the event itself."""
    return (
        event.id, event.kind, event.name, event.parent, event.thread, event.phase, event.start_ns, event.end_ns,
        None if module == NONE else module, event.call, event.args, event.result, None if stack == NONE else stack,
        event.owner, event.operator, event.code, int(event.direct), ", ".join(event.target),
        " | ".join(event.operands), event.file, event.line, event.key, event.error, event.note,
        event.python_call, event.forward_event, event.detail,
    )  # fmt: skip


def known(stats: Stats | None) -> list[Any]:
    """Statistics as the view has them: NULL for what is not known."""
    return [None] * len(Stats._fields) if stats is None else [None if each != each else each for each in stats]


def compare(made: Tables) -> None:
    """Each view against the events and values."""
    asked = fill_database(made).execute
    events = [made.event(number) for number in range(len(made))]
    assert asked("SELECT * FROM events").fetchall() == [
        event_row(event, made.module[event.id], made.stack[event.id]) for event in events
    ]
    assert asked("SELECT * FROM event_values").fetchall() == [
        (event.id, direction, position, value.role, value.id)
        for event in events
        for direction, values in (("in", event.inputs), ("out", event.outputs))
        for position, value in enumerate(values)
    ]
    sizes = lambda each: None if each is None else json.dumps(each)  # noqa: E731
    assert asked("SELECT * FROM tensor_values").fetchall() == [
        (v.id, v.kind, sizes(v.shape), v.dtype, v.device, sizes(v.stride), v.layout, v.requires_grad, v.type,
         v.storage, v.version, v.producer, *known(v.stats))
        for v in (made.value(number, "") for number in range(len(made.value_meta)))
    ]  # fmt: skip
    assert asked("SELECT * FROM frames").fetchall() == [
        (stack, position, at.file, at.line, at.end_line, at.col, at.end_col, at.function, at.source, at.origin)
        for stack, sites in enumerate(made.stack_sites)
        for position, at in enumerate(made.sites[site].location for site in sites)
    ]
    assert asked("SELECT file, text FROM sources").fetchall() == list(made.sources.items())
    assert asked("SELECT text FROM notes").fetchall() == [(note,) for note in made.notes]


@pytest.mark.parametrize("name", SHORT)
def test_the_views_of_a_program(name: str) -> None:
    compare(recorded(name))


def test_the_views_of_a_transformer() -> None:
    model, inputs = FAMILIES["gpt2"]()
    compare(tg.trace(model, **inputs)._tables)


def without_what_sql_cuts(made: Tables) -> Tables:
    """SQL functions end texts at NUL, and their JSON knows no lone surrogates."""
    plain = lambda text: "".join(c for c in text if c != "\0" and not "\ud800" <= c <= "\udfff")  # noqa: E731

    def cleaned(thing: Any) -> Any:
        if isinstance(thing, str):
            return plain(thing)
        if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
            return type(thing)(cleaned(each) for each in thing)
        if hasattr(thing, "__dataclass_fields__"):
            return type(thing)(*(cleaned(getattr(thing, name)) for name in thing.__dataclass_fields__))
        return thing

    for name in ("callees", "forms", "metas", "modules", "threads", "texts", "operand_texts", "sites", "notes"):
        setattr(made, name, cleaned(getattr(made, name)))
    made.sources = {plain(file): plain(text) for file, text in made.sources.items()}
    return made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables().map(without_what_sql_cuts))
def test_the_views_of_anything(made: Tables) -> None:
    compare(made)


def test_text_that_is_no_utf8_does_not_stop_a_question() -> None:
    made = recorded("mlp")
    made.callees = [type(callee)(callee.kind, "a\udc80\0b") for callee in made.callees]
    asked = fill_database(made).execute
    assert {name for (name,) in asked("SELECT name FROM whats")} == {b"a\xed\xb2\x80\0b"}
    assert len(asked("SELECT * FROM events").fetchall()) == len(made)


def test_every_table_and_column_is_explained() -> None:
    connection = fill_database(Tables())
    page = PAGE.read_text(encoding="utf-8")
    for table in {*schema.PUBLIC_NAMES, *schema.BY_NAME}:
        section = page.split(f"### {table}\n")[1].split("\n### ")[0]
        described = re.findall(r"^\| `(\w+)` \|(?:.*\|)? (.+) \|$", section, re.MULTILINE)
        columns = [row[0] for row in connection.execute(f"SELECT * FROM {table}").description]
        assert [name for name, _ in described] == columns
        assert all(words.strip() for _, words in described)
    assert f"Format {FORMAT}." in page


def test_the_page_is_what_the_schema_says() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "format_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def examples() -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events of a small GPT-2 that is trained one step, as any SQLite tool finds them."""
    model, inputs = FAMILIES["gpt2"]()
    with tg.record() as trace:
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
        model(**inputs)
    path = tmp_path_factory.mktemp("page") / "run.trace"
    save(trace._tables, path)
    (part,) = part_paths(path)
    return part / EVENTS


def test_there_are_examples() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize("query", examples(), ids=lambda query: query.splitlines()[0].removeprefix("-- "))
def test_an_example_answers_something(query: str, file: Path) -> None:
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    rows = connection.execute(query).fetchall()
    connection.close()
    assert rows
    assert any(any(cell not in (None, "", 0) for cell in row) for row in rows)


def test_the_reference_is_what_the_docstrings_say() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "api_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
