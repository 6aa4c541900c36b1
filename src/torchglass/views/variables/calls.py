"""All changes of variables in program order, each under the call that it happened in."""

from __future__ import annotations

from collections.abc import Sequence

from torchglass.views.fold import Item
from torchglass.views.variables.changes import Call, Change
from torchglass.views.variables.forest import ChangeForest
from torchglass.views.variables.items import Around, ForestRows
from torchglass.views.variables.patterns import AnyRow, OtherThread


def time_rows(changes: Sequence[Change], forest: ChangeForest, fold: bool) -> list[AnyRow]:
    """Rows in order, by thread; calls around everything that nothing happened in are left out."""
    threads: dict[str, list[int]] = {}
    several = len({change.event.process for change in changes}) > 1
    for change in changes:
        event = change.event
        thread = f"{event.thread} of process {event.process}" if several else event.thread
        forest.add_change(change, threads.setdefault(thread, []))
    made = ForestRows(forest, fold)
    rows: list[AnyRow] = []
    for number, (thread, tops) in enumerate(threads.items()):
        if number:
            rows.append(OtherThread(thread))
        rows += made.of(_without_bare_callers(made.items(tops), forest), Around())
    return rows


def _without_bare_callers(items: list[Item], forest: ChangeForest) -> list[Item]:
    """The test runner, and whatever else called the program."""
    while len(items) == 1 and len(items[0].nodes) == 1 and forest.kind(items[0]) is Call:
        inside = items[0].children
        if len(inside) != 1 or forest.kind(inside[0]) is not Call:
            break
        items = inside
    return items
