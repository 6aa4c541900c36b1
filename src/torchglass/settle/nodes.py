"""Which forward event an event of backward belongs to: by the numbers of the autograd nodes that each one made.

A thread numbers its autograd nodes as it makes them. The nodes made while an event was open are its own, those of the
innermost event first; an event of backward says which node was being run. Nothing of autograd is kept alive for that.
"""

from __future__ import annotations

from torchglass.events.tables import NONE, Tables
from torchglass.journal.layout import CALL, MOST_NODES, NODE_BITS, NODE_MASK, NODES, RECORD_WORDS


class Nodes:
    """The nodes of one recording, thread by thread."""

    def __init__(self) -> None:
        self._made: dict[int, list[tuple[int, int, int]]] = {}
        """By thread: the first node of an event, the one behind its last, and the event; in order of opening."""
        self._ran: list[tuple[int, int, int]] = []
        """Thread, node and event."""

    def take(self, thread: int, words: list[int], events: list[int]) -> None:
        """What records say of nodes; NONE for those that are no events."""
        made, before = self._made.setdefault(thread, []), (0, 0)
        for call, nodes, event in zip(words[CALL::RECORD_WORDS], words[NODES::RECORD_WORDS], events, strict=True):
            if call >= NONE or nodes < 0 or event == NONE:
                continue
            first = -2 - call
            count = ((nodes & NODE_MASK) - first) & NODE_MASK
            if count:
                made.append((first, first + count, event))
            node = (nodes >> NODE_BITS) - 1
            if 0 <= node < MOST_NODES:
                self._ran.append((thread, node, event))
                # Double backward: the node of an op is made before the op itself opens.
                since = before[1] if before[1] <= first else before[0]
                if since < first and before != (0, 0):
                    made.append((since, first, event))
            before = (first, first + count)

    def link(self, tables: Tables, callers: dict[int, int]) -> None:
        """Fill the column ``forward``; what the engine ran in a thread of its own has the nodes of its caller's."""
        if not self._ran:
            return
        wanted = {node for _, node, _ in self._ran}
        owners = {thread: _owners(made, wanted) for thread, made in self._made.items()}
        for thread, node, event in self._ran:
            caller = callers.get(thread, NONE)
            owner = owners.get(caller if caller != NONE else thread, {}).get(node, NONE)
            # An event is not its own reason; nor is one that came later, where numbers began anew.
            tables.forward[event] = owner if owner < event else NONE


def _owners(made: list[tuple[int, int, int]], wanted: set[int]) -> dict[int, int]:
    """By node: the innermost event that made it. Events come in order of opening, so the inner ones come last."""
    owners: dict[int, int] = {}
    for first, last, event in made:
        if last - first > len(wanted):
            owners.update((node, event) for node in wanted if first <= node < last)
        else:
            owners.update((node, event) for node in range(first, last) if node in wanted)
    return owners
