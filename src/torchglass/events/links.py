"""How values hang together: which event made each, and which share memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from torchglass.events.schema import NONE
from torchglass.events.tables import Tables


def link_values(tables: Tables) -> None:
    """The producer of a value is the innermost event that gave it without having taken it.

    A variable's change and a mark tell of values, and make none.
    """
    producer, io, start_ns, end_ns = tables.value_producer, tables.io.tolist(), tables.start_ns, tables.end_ns
    counts = form_sizes(tables)
    tells = {number for number, what in enumerate(tables.whats) if what.kind in ("variable", "mark")}
    for number, (what, args, result, first) in enumerate(
        zip(tables.what, tables.args, tables.result, tables.first_io, strict=True)
    ):
        given = counts[result]
        if not given or what in tells:
            continue
        middle = first + counts[args]
        for value in io[middle : middle + given]:
            if value in io[first:middle]:
                continue
            earlier = producer[value]
            # Events come in order of opening: one that began before the earlier one ended is inside of it.
            if earlier == NONE or start_ns[number] < end_ns[earlier]:
                producer[value] = number


def form_sizes(tables: Tables) -> list[int]:
    """How many values each form has a place for; the last entry is for NONE, which is -1."""
    return [*(len(form.roles) for form in tables.forms), 0]


def inside(before: int) -> int:
    """The array in whose memory a tensor lies, where ``before`` says so (as -2 - number); else NONE."""
    return -2 - before if before < NONE else NONE


def link_storages(tables: Tables, addresses: Sequence[int], before: Sequence[int]) -> None:
    """A result shares memory with an argument at the same address: both were alive, so addresses do not lie.

    So does a tensor with what it was before a change. Between values that nothing joins nothing is claimed,
    because addresses are reused at once.
    """
    io, args, first_io, counts = tables.io, tables.args, tables.first_io, form_sizes(tables)
    address_of, storage = list(addresses), list[int]()
    for value, (event, address, earlier) in enumerate(zip(tables.value_producer, address_of, before, strict=True)):
        found = value if address else NONE
        if earlier < NONE and inside(earlier) < value:
            found = storage[inside(earlier)]  # a tensor over the memory of an array
        elif address and 0 <= earlier < value and address_of[earlier] == address:
            found = storage[earlier]
        elif address and event != NONE:
            first = first_io[event]
            for taken in io[first : first + counts[args[event]]]:
                if address_of[taken] == address and taken < value:
                    found = storage[taken]
                    break
        storage.append(found)
    tables.value_storage = array("q", storage)
