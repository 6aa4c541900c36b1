"""The parts of a bundle as one trace: the events of one process after those of the other, numbers counted on."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from torchglass.events import schema
from torchglass.events.schema import NONE, SavedTensor
from torchglass.events.tables import Tables
from torchglass.store.reader import PartContents

LISTS = ("whats", "forms", "metas", "texts", "operand_texts", "sites", "threads")
"""Lists that are laid one behind the other."""
POINTERS = {
    **{each.field: schema.BY_NAME[each.to].rows for each in schema.pointers()}, "first_io": "io", "io": "value_meta",
}  # fmt: skip
"""By column: the list or column that its numbers count in."""
_NEVER = re.compile(r"the variable (['\"])(?P<name>.+)\1 never appeared in the block")
"""What the recorder says of a name that it was asked to follow."""
PLAIN = tuple(
    each.field for each in schema.plain_numbers() if not each.counts_on and each.field not in schema.MEASURED_FIELDS
)
COUNTING = tuple(each.field for each in schema.plain_numbers() if each.counts_on)
"""Columns whose numbers each part begins from 0."""


def merged(parts: Sequence[PartContents], paths: Sequence[Path]) -> tuple[Tables, tuple[SavedTensor, ...]]:
    """One trace of all parts, and their saved tensors; a bundle of one part stays as it is."""
    if len(parts) == 1:
        return parts[0].tables, tuple(parts[0].tensors)
    whole = Tables(complete=False, notes=["nothing was written to this bundle"])
    tensors: list[SavedTensor] = []
    if parts:
        first = parts[0].tables
        whole = Tables(process=first.process, name=first.name, started_at=first.started_at)
    for number, (part, path) in enumerate(zip(parts, paths, strict=True)):
        values, events = len(whole.value_meta), len(whole)
        for saved in part.tensors:
            value = saved.value + values if saved.value != NONE else NONE
            event = saved.event + events if saved.event != NONE else NONE
            tensors.append(replace(saved, id=len(tensors), value=value, event=event, part=number))
        _append(whole, part.tables, path.name)
    seen = {whole.whats[what].name for what in set(whole.what) if whole.whats[what].kind == "variable"}
    whole.notes = [note for note in whole.notes if not _is_denied(note, seen)]
    return whole, tuple(tensors)


def _is_denied(note: str, seen: set[str]) -> bool:
    """Whether a process misses a variable that another one has seen: what was asked for is there."""
    found = _NEVER.search(note)
    if found is None:
        return False
    name = found["name"]
    return name in seen or any(fnmatchcase(each, name) for each in seen)


def _append(whole: Tables, part: Tables, name: str) -> None:
    """Add one part; what its numbers count in has grown by what is there already."""
    values = len(whole.value_meta)
    base = {target: len(getattr(whole, target)) for target in POINTERS.values()}
    shifts = {column: base[target] for column, target in POINTERS.items()}
    shifts |= {column: max(getattr(whole, column), default=NONE) + 1 for column in COUNTING}
    for column, shift in shifts.items():
        numbers = getattr(part, column)
        getattr(whole, column).extend(
            numbers if not shift else array("q", [each if each == NONE else each + shift for each in numbers])
        )
    _append_measured(whole, part, values)
    whole.sketches |= {value + values: sketch for value, sketch in part.sketches.items()}
    for column in PLAIN:
        getattr(whole, column).extend(getattr(part, column))
    whole.stack_sites += [tuple(site + base["sites"] for site in sites) for sites in part.stack_sites]
    whole.modules += [
        replace(row, parameters=tuple((role, value + values) for role, value in row.parameters)) for row in part.modules
    ]
    whole.thread_processes += [part.process_of(thread) for thread in range(len(part.threads))]
    for field in LISTS:
        getattr(whole, field).extend(getattr(part, field))
    _append_rest(whole, part, name)


def _append_measured(whole: Tables, part: Tables, values: int) -> None:
    """What was in the values: of parts that did not measure nothing is known."""
    if not whole.value_measured and not part.value_measured:
        return
    missing = 0 if whole.value_measured else values
    for column, nothing in zip(schema.MEASURED_FIELDS, schema.NOT_MEASURED, strict=True):
        getattr(whole, column).extend([nothing] * missing)
        getattr(whole, column).extend(getattr(part, column) or [nothing] * len(part.value_meta))


def _append_rest(whole: Tables, part: Tables, name: str) -> None:
    whole.complete &= part.complete
    whole.duration_ns = max(whole.duration_ns, part.duration_ns)
    whole.left_by += part.left_by
    whole.notes += [note if name in note else f"{name}: {note}" for note in part.notes]
    for file, text in part.sources.items():
        # What was given to exec or to -c is no file: each process has its own.
        if whole.sources.setdefault(file, text) != text and not file.startswith("<"):
            whole.notes.append(f"{name}: {file} was another text there than in the processes before")
