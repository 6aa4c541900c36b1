"""Merge the parts of a bundle into one trace: the events of one process follow those of another, with new numbers."""

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
"""The list or column to which the numbers of a column refer. They are shifted by what is there already."""
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
    keys: list[tuple[int, float]] = []
    for part, path in zip(contents, parts, strict=True):
        keys.append((rank_of(path.name), part.tables.started_at or inf))
    order = sorted(range(len(parts)), key=keys.__getitem__)
    return [contents[number] for number in order], [parts[number] for number in order]


def merged(
    parts: Sequence[PartContents], paths: Sequence[Path]
) -> tuple[Tables, tuple[SavedTensor, ...]]:
    """Merge all parts into one trace with their saved tensors. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0].tables, tuple(parts[0].tensors)
    whole = Tables(complete=False, notes=["nothing was written to this bundle"])
    tensors: list[SavedTensor] = []
    if parts:
        first = parts[0].tables
        whole = Tables(process=first.process, name=first.name, started_at=first.started_at)
    for number, (part, path) in enumerate(zip(parts, paths, strict=True)):
        first_value = len(whole.value_meta)
        first_event = len(whole)
        for saved in part.tensors:
            value = _shifted(saved.value, first_value)
            event = _shifted(saved.event, first_event)
            tensors.append(replace(saved, id=len(tensors), value=value, event=event, part=number))
        _append(whole, part.tables)
        _append_description(whole, part.tables, path.name)
    part_tables = [part.tables for part in parts]
    called = [whole.callees[callee] for callee in set(whole.callee)]
    variables = {callee.name for callee in called if callee.kind == "variable"}
    whole.notes = notes_of(whole.notes, variables)
    whole.threads = threads_of(part_tables, [path.name for path in paths])
    merge_failures(whole, part_tables)
    return whole, tuple(tensors)


def _shifted(number: int, shift: int) -> int:
    if number == NONE:
        return NONE
    return number + shift


def _append(whole: Tables, part: Tables) -> None:
    """Add the tables of one part, with its numbers shifted by the rows that are there already."""
    first_value = len(whole.value_meta)
    first_site = len(whole.sites)
    shifts = {column: len(getattr(whole, target)) for column, target in REFERENCES.items()}
    for column in RENUMBERED:
        shifts[column] = max(getattr(whole, column), default=NONE) + 1
    for column, shift in shifts.items():
        numbers = getattr(part, column)
        if shift:
            numbers = array("q", [_shifted(number, shift) for number in numbers])
        getattr(whole, column).extend(numbers)
    _append_measured(whole, part, first_value)
    for value, sketch in part.sketches.items():
        whole.sketches[value + first_value] = sketch
    for column in UNCHANGED:
        getattr(whole, column).extend(getattr(part, column))
    for sites in part.stack_sites:
        whole.stack_sites.append(tuple(site + first_site for site in sites))
    for module in part.modules:
        parameters = tuple((role, value + first_value) for role, value in module.parameters)
        whole.modules.append(replace(module, parameters=parameters))
    for thread in range(len(part.threads)):
        whole.thread_processes.append(part.process_of(thread))
    for field in CONCATENATED:
        getattr(whole, field).extend(getattr(part, field))


def _append_measured(whole: Tables, part: Tables, values_before: int) -> None:
    """Add statistics. Values of parts that did not measure have none."""
    if not whole.value_measured and not part.value_measured:
        return
    without_statistics = 0
    if not whole.value_measured:
        without_statistics = values_before
    for column, nothing in zip(schema.MEASURED_FIELDS, schema.NOT_MEASURED, strict=True):
        merged_column = getattr(whole, column)
        merged_column.extend([nothing] * without_statistics)
        merged_column.extend(getattr(part, column) or [nothing] * len(part.value_meta))


def _append_description(whole: Tables, part: Tables, name: str) -> None:
    """Add how long one part ran, its notes and its sources. ``name`` is that of its folder."""
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
                f"{name}: {file} was another text there than in the processes before"
            )
