"""How values hang together: which event made each, and which share memory."""

from __future__ import annotations

from torchglass.events.tables import NONE, Tables


def link_values(tables: Tables) -> None:
    """The producer of a value is the innermost event that gave it without having taken it."""
    producer, forms, io = tables.value_producer, tables.forms, tables.io
    for number, result in enumerate(tables.result):
        if result == NONE or not forms[result].roles:
            continue
        first = tables.first_io[number]
        middle = first + len(forms[tables.args[number]].roles)
        taken = io[first:middle]
        for value in io[middle : middle + len(forms[result].roles)]:
            if value in taken:
                continue
            earlier = producer[value]
            # Events come in order of opening: one that began before the earlier one ended is inside of it.
            if earlier == NONE or tables.start_ns[number] < tables.end_ns[earlier]:
                producer[value] = number


def link_storages(tables: Tables, addresses: list[int], before: list[int]) -> None:
    """A result shares memory with an argument at the same address: both were alive, so addresses do not lie.

    So does a tensor with what it was before a change. Between values that nothing joins nothing is claimed,
    because addresses are reused at once.
    """
    storage, io = tables.value_storage, tables.io
    for value, event in enumerate(tables.value_producer):
        address = addresses[value]
        storage[value] = value if address else NONE
        if address and before[value] != NONE and addresses[before[value]] == address:
            storage[value] = storage[before[value]]
            continue
        if event == NONE or not address:
            continue
        first = tables.first_io[event]
        for taken in io[first : first + len(tables.forms[tables.args[event]].roles)]:
            if addresses[taken] == address and taken < value:
                storage[value] = storage[taken]
                break
