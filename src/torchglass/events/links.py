"""How values hang together: which event made each, and which share memory."""

from __future__ import annotations

from collections.abc import Sequence

from torchglass.events.tables import NONE, Tables


def link_values(tables: Tables) -> None:
    """The producer of a value is the innermost event that gave it without having taken it.

    A variable's change and a mark tell of values, and make none.
    """
    producer, forms, io = tables.value_producer, tables.forms, tables.io
    tells = {number for number, what in enumerate(tables.whats) if what.kind in ("variable", "mark")}
    for number, result in enumerate(tables.result):
        if result == NONE or not forms[result].roles or tables.what[number] in tells:
            continue
        first = tables.first_io[number]
        args = tables.args[number]
        middle = first + (len(forms[args].roles) if args != NONE else 0)
        taken = io[first:middle]
        for value in io[middle : middle + len(forms[result].roles)]:
            if value in taken:
                continue
            earlier = producer[value]
            # Events come in order of opening: one that began before the earlier one ended is inside of it.
            if earlier == NONE or tables.start_ns[number] < tables.end_ns[earlier]:
                producer[value] = number


def inside(before: int) -> int:
    """The array in whose memory a tensor lies, where ``before`` says so (as -2 - number); else NONE."""
    return -2 - before if before < NONE else NONE


def link_storages(tables: Tables, addresses: Sequence[int], before: Sequence[int]) -> None:
    """A result shares memory with an argument at the same address: both were alive, so addresses do not lie.

    So does a tensor with what it was before a change. Between values that nothing joins nothing is claimed,
    because addresses are reused at once.
    """
    storage, io = tables.value_storage, tables.io
    for value, event in enumerate(tables.value_producer):
        address = addresses[value]
        storage[value] = value if address else NONE
        if inside(before[value]) in range(value):
            storage[value] = storage[inside(before[value])]  # a tensor over the memory of an array
            continue
        if address and before[value] >= 0 and addresses[before[value]] == address:
            storage[value] = storage[before[value]]
            continue
        if event == NONE or not address:
            continue
        first = tables.first_io[event]
        args = tables.args[event]
        for taken in io[first : first + (len(tables.forms[args].roles) if args != NONE else 0)]:
            if addresses[taken] == address and taken < value:
                storage[value] = storage[taken]
                break
