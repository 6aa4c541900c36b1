"""Merge the parts of a bundle into one trace: the events of one process follow those of another, with new numbers.

Each process writes a part with numbers from 0. When a part is appended, its numbers are shifted by the number of rows
that are there already. The tables below say how to treat each column.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from torchglass.events import schema
from torchglass.events.schema import NONE, SavedTensor
from torchglass.events.tables import Tables
from torchglass.store.processes import merge_failures, notes_of, rank_of, threads_of
from torchglass.store.reader import PartContents

CONCATENATED = ("callees", "forms", "metas", "texts", "operand_texts", "sites", "threads")
"""Lists that are concatenated."""
REFERENCES = {
    **{column.field: schema.BY_NAME[column.to].rows for column in schema.NUMBERS if column.to},
    "first_io": "io",
    "io": "value_meta",
}
"""The list or column that the numbers of a column refer to. They are shifted by its length."""
UNCHANGED = tuple(
    column.field
    for column in schema.NUMBERS
    if not column.to and not column.counts_on and column not in schema.MEASURED
)
"""Columns that are copied as they are."""
RENUMBERED = tuple(column.field for column in schema.NUMBERS if column.counts_on)
"""Columns whose numbers begin from 0 in each part."""


def in_order(
    contents: list[PartContents], parts: list[Path]
) -> tuple[list[PartContents], list[Path]]:
    """Sort parts by rank, and then by when their processes started. Process ids wrap around, so they give no order."""
    starts = [part.tables.started_at or inf for part in contents]
    order = sorted(
        range(len(parts)), key=lambda number: (rank_of(parts[number].name), starts[number])
    )
    return [contents[number] for number in order], [parts[number] for number in order]


def merged(
    parts: Sequence[PartContents], paths: Sequence[Path]
) -> tuple[Tables, tuple[SavedTensor, ...]]:
    """Merge all parts into one trace with their saved tensors. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0].tables, tuple(parts[0].tensors)
    whole = Tables(complete=False, notes=["nothing was written to this bundle"])
    if parts:
        first = parts[0].tables
        whole = Tables(
            process=first.process, name=first.name, started_at=first.started_at, python=first.python,
            torch=first.torch,
        )  # fmt: skip
    tensors: list[SavedTensor] = []
    for number, (part, path) in enumerate(zip(parts, paths, strict=True)):
        values = len(whole.value_meta)
        events = len(whole)
        for saved in part.tensors:
            moved = replace(
                saved,
                id=len(tensors),
                value=_shifted(saved.value, values),
                event=_shifted(saved.event, events),
                part=number,
            )
            tensors.append(moved)
        _append(whole, part.tables, path.name)
    whole.notes = notes_of(whole.notes, _variables(whole))
    whole.threads = threads_of([part.tables for part in parts], [path.name for path in paths])
    merge_failures(whole, [part.tables for part in parts])
    return whole, tuple(tensors)


def _variables(tables: Tables) -> set[str]:
    """Return the names of the variables that have events."""
    found: set[str] = set()
    for number in set(tables.callee):
        callee = tables.callees[number]
        if callee.kind == "variable":
            found.add(callee.name)
    return found


def _shifted(number: int, shift: int) -> int:
    if number == NONE:
        return NONE
    return number + shift


def _append(whole: Tables, part: Tables, name: str) -> None:
    """Append the tables of one part."""
    values = len(whole.value_meta)
    events = len(whole)
    sites = len(whole.sites)
    lengths = {target: len(getattr(whole, target)) for target in REFERENCES.values()}
    shifts = {column: lengths[target] for column, target in REFERENCES.items()}
    for column in RENUMBERED:
        shifts[column] = max(getattr(whole, column), default=NONE) + 1
    for column, shift in shifts.items():
        numbers = getattr(part, column)
        if shift:
            numbers = array("q", [_shifted(number, shift) for number in numbers])
        getattr(whole, column).extend(numbers)
    for event, rounds in part.rounds.items():
        whole.rounds[event + events] = [
            each._replace(before=each.before + events) for each in rounds
        ]
    for column in UNCHANGED:
        getattr(whole, column).extend(getattr(part, column))
    _append_measured(whole, part, values)
    for value, sketch in part.sketches.items():
        whole.sketches[value + values] = sketch
    for stack in part.stack_sites:
        whole.stack_sites.append(tuple([site + sites for site in stack]))
    for module in part.modules:
        parameters = tuple([(role, value + values) for role, value in module.parameters])
        whole.modules.append(replace(module, parameters=parameters))
    for thread in range(len(part.threads)):
        whole.thread_processes.append(part.process_of(thread))
    for field in CONCATENATED:
        getattr(whole, field).extend(getattr(part, field))
    _append_rest(whole, part, name)


def _append_measured(whole: Tables, part: Tables, values: int) -> None:
    """Add statistics. Values of parts that did not measure have none."""
    if not whole.value_measured and not part.value_measured:
        return
    missing = values
    if whole.value_measured:
        missing = 0
    for column, nothing in zip(schema.MEASURED_FIELDS, schema.NOT_MEASURED, strict=True):
        getattr(whole, column).extend([nothing] * missing)
        getattr(whole, column).extend(getattr(part, column) or [nothing] * len(part.value_meta))


def _append_rest(whole: Tables, part: Tables, name: str) -> None:
    whole.complete &= part.complete
    whole.duration_ns = max(whole.duration_ns, part.duration_ns)
    for note in part.notes:
        if name not in note:
            note = f"{name}: {note}"
        whole.notes.append(note)
    for file, text in part.sources.items():
        # A name such as <string> stands for other text in each process.
        if whole.sources.setdefault(file, text) != text and not file.startswith("<"):
            whole.notes.append(
                f"{name}: {file} had other text in this process than in the ones before"
            )
