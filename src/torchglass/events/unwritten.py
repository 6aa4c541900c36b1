"""Memory that nobody has written to yet: what gives it, what fills it, and which values of a trace are such memory.

What stands there is what somebody else left, NaN as well as anything; so nothing is told of the numbers of such values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from torchglass.events.schema import MEASURED_FIELDS, NONE, NOT_MEASURED
from torchglass.events.tables import Tables, form_sizes

UNFILLED = re.compile(r"(new_)?empty|resize_")
FILLS = frozenset(
    "uniform_ normal_ zero_ fill_ copy_ trunc_normal_ random_ exponential_ bernoulli_ cauchy_ geometric_ log_normal_ "
    "ones_ zeros_ constant_ eye_".split()
)
"""What overwrites whatever was there: memory that nobody had filled may hold anything."""


def plain_name(name: str) -> str:
    """``softmax`` of ``F.softmax``, ``aten::_softmax.int``."""
    bare = name.partition("::")[2] or name
    return bare.partition(".")[0] if "::" in name else bare.rpartition(".")[2]


def gives_unwritten(name: str) -> bool:
    """Whether what is called so gives memory as it is: ``torch.empty`` and its like."""
    return UNFILLED.match(plain_name(name)) is not None


def overwrites(name: str) -> bool:
    """Whether what is called so fills its first argument, whatever was there."""
    return plain_name(name) in FILLS or name.startswith("nn.init.")


def forget_unwritten(tables: Tables, addresses: Sequence[int], before: Sequence[int]) -> None:
    """Drop what was measured of values that are memory as somebody else left it.

    ``addresses`` are those of the storages, ``before`` has what the same tensor was before, both by value.
    """
    calls = [each.name if each.kind in ("function", "op") else "" for each in tables.whats]
    makers = {number for number, name in enumerate(calls) if gives_unwritten(name)}
    if not tables.value_measured or not makers:
        return
    found = _made(tables, before, makers)
    fillers = {number for number, name in enumerate(calls) if overwrites(name)}
    for value in found | _before_they_are_filled(tables, addresses, found, fillers):
        if not tables.value_count[value]:
            continue  # no numbers, and so none that nobody has written
        tables.sketches.pop(value, None)
        for name, nothing in zip(MEASURED_FIELDS, NOT_MEASURED, strict=True):
            getattr(tables, name)[value] = nothing


def _made(tables: Tables, before: Sequence[int], makers: set[int]) -> set[int]:
    """What such events gave, and views of it: of the same storage at the same version, so nobody wrote in between."""
    found, versions, storages = set[int](), tables.value_version, tables.value_storage
    counts = form_sizes(tables)
    for value, event in enumerate(tables.value_producer):
        if event == NONE:
            continue
        earlier = before[value]
        if tables.what[event] in makers:
            if earlier < 0 or earlier in found or _size(tables, value) > _size(tables, earlier):
                found.add(value)
        elif found and earlier == NONE and versions[value] >= 0:  # else it is a tensor that an op has just changed
            first, place = tables.first_io[event], (storages[value], versions[value])
            taken = tables.io[first : first + counts[tables.args[event]]]
            if any(each in found and (storages[each], versions[each]) == place for each in taken):
                found.add(value)
    return found


def _before_they_are_filled(
    tables: Tables, addresses: Sequence[int], unwritten: set[int], fillers: set[int]
) -> set[int]:
    """Parameters over such memory, whose making is not seen, where the first that takes one fills it.

    Without that it might be another tensor: an address is used again as soon as it is free.
    """
    metas, found, seen = tables.metas, set[int](), set[int]()
    places = {(addresses[each], metas[tables.value_meta[each]].word) for each in unwritten}
    counts = form_sizes(tables)
    for what, form, first in zip(tables.what, tables.args, tables.first_io, strict=True):
        taken = tables.io[first : first + counts[form]]
        if what in fillers and taken and taken[0] not in seen:
            value = taken[0]
            is_fresh = tables.value_producer[value] == NONE and not tables.value_version[value]
            if is_fresh and (addresses[value], metas[tables.value_meta[value]].word) in places:
                found.add(value)
        seen.update(taken)
    return found


def _size(tables: Tables, value: int) -> int:
    return prod(tables.metas[tables.value_meta[value]].shape or ())
