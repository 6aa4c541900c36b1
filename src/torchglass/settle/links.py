"""Link values and events: who made each value, which values share memory, which forward event a backward one is for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from torchglass.events.schema import NONE
from torchglass.events.tables import Tables, form_sizes
from torchglass.journal import layout
from torchglass.settle.value_columns import array_of


def link_values(tables: Tables) -> None:
    """Set the producer of each value: the innermost event that returned it without having taken it.

    Variable changes and marks show values without making them.
    """
    producer = tables.value_producer
    io = tables.io.tolist()
    start_ns = tables.start_ns
    end_ns = tables.end_ns
    counts = form_sizes(tables)
    only_show = {
        number
        for number, callee in enumerate(tables.callees)
        if callee.kind in ("variable", "mark")
    }
    for event, (callee, args, result, first_input) in enumerate(
        zip(tables.callee, tables.args, tables.result, tables.first_io, strict=True)
    ):
        output_count = counts[result]
        if not output_count or callee in only_show:
            continue
        first_output = first_input + counts[args]
        for value in io[first_output : first_output + output_count]:
            if value in io[first_input:first_output]:
                continue
            earlier = producer[value]
            # Events are in the order of their start, so one that starts before the earlier one ended is inside it.
            if earlier == NONE or start_ns[event] < end_ns[earlier]:
                producer[value] = event


def link_storages(tables: Tables, addresses: Sequence[int], before: Sequence[int]) -> None:
    """Find which values share a storage. A storage is named by its first value.

    A result has the storage of an argument at the same address, because both exist at the same time. A tensor keeps its
    storage in a change in place, and a tensor over the memory of an array has the storage of the array. Equal addresses
    of other values prove nothing, because memory is reused at once.
    """
    io = tables.io
    args = tables.args
    first_io = tables.first_io
    counts = form_sizes(tables)
    address_of = list(addresses)
    storage = list[int]()
    for value, (event, address, earlier) in enumerate(
        zip(tables.value_producer, address_of, before, strict=True)
    ):
        owner = NONE
        if address:
            owner = value
        array_number = array_of(earlier)
        if array_number is not None and array_number < value:
            owner = storage[array_number]
        elif address and 0 <= earlier < value and address_of[earlier] == address:
            owner = storage[earlier]
        elif address and event != NONE:
            first = first_io[event]
            for taken in io[first : first + counts[args[event]]]:
                if address_of[taken] == address and taken < value:
                    owner = storage[taken]
                    break
        storage.append(owner)
    tables.value_storage = array("q", storage)


class MadeNodes(NamedTuple):
    """The autograd nodes that an event created."""

    first: int
    end: int
    """The number after the last one."""
    event: int


class Nodes:
    """Finds the forward event of each backward event, by the sequence numbers of autograd nodes.

    Each thread numbers the nodes that its forward calls create. An event that starts at number 7 and ends at number 9
    has created the nodes 7 and 8. A backward event that runs node 8 then belongs to it, or to the innermost event in it
    that has created node 8.
    """

    def __init__(self) -> None:
        self._made: dict[int, list[MadeNodes]] = {}
        """The nodes that the events of each thread created, in the order in which the events started."""
        self._run: list[tuple[int, int, int]] = []
        """Thread, node and event of each backward event."""

    def read(self, thread: int, words: list[int], events: list[int]) -> None:
        """Read the nodes that records created or ran. ``events`` has NONE for records that are not events."""
        made = self._made.setdefault(thread, [])
        previous_first = 0
        previous_end = 0
        for call, nodes, event in zip(
            words[layout.CALL :: layout.RECORD_WORDS],
            words[layout.NODES :: layout.RECORD_WORDS],
            events,
            strict=True,
        ):
            if call >= NONE or nodes < 0 or event == NONE:
                continue
            first = -2 - call
            count = ((nodes & layout.NODE_MASK) - first) & layout.NODE_MASK
            if count:
                made.append(MadeNodes(first, first + count, event))
            node = (nodes >> layout.NODE_BITS) - 1
            if 0 <= node < layout.MOST_NODES:
                self._run.append((thread, node, event))
                # In double backward, the node of an op is created before the event of the op starts.
                since = previous_first
                if previous_end <= first:
                    since = previous_end
                is_first_record = previous_first == previous_end == 0
                if since < first and not is_first_record:
                    made.append(MadeNodes(since, first, event))
            previous_first = first
            previous_end = first + count

    def link(self, tables: Tables, callers: dict[int, int]) -> None:
        """Fill the column ``forward``.

        ``callers`` has the thread that called backward for each thread of the autograd engine, which runs the nodes of
        that thread.
        """
        if not self._run:
            return
        nodes_run = {node for _, node, _ in self._run}
        makers = {thread: _makers(made, nodes_run) for thread, made in self._made.items()}
        for thread, node, event in self._run:
            caller = callers.get(thread, NONE)
            if caller == NONE:
                caller = thread
            maker = makers.get(caller, {}).get(node, NONE)
            # The forward event must come before. A later one means that the sequence numbers were reset.
            if maker < event:
                tables.forward[event] = maker
            else:
                tables.forward[event] = NONE


def _makers(made: list[MadeNodes], nodes: set[int]) -> dict[int, int]:
    """Return the innermost event that created each of these nodes. Inner events start last, so they come last."""
    makers: dict[int, int] = {}
    for first, end, event in made:
        if end - first > len(nodes):
            makers.update((node, event) for node in nodes if first <= node < end)
        else:
            makers.update((node, event) for node in range(first, end) if node in nodes)
    return makers
