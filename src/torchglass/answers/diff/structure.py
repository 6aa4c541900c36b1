"""Compares what two runs called, as a tree of modules, calls, shapes, dtypes and settings. It needs
no numbers.

Equal subtrees are recognised by a hash and skipped. The rest is aligned level by level: equal calls
that occur once in both runs are anchors, and calls between anchors are paired by name. For n calls
this takes about n log n steps.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torchglass.answers.diff.names import TELLS
from torchglass.events.tables import NONE, Tables, form_sizes
from torchglass.events.types import Location
from torchglass.views.text.words import path_word, plural

MOST_LINES = 60
"""How many rows are printed, so that a report stays readable. The JSON form has all of them."""
ADDED, REMOVED, CHANGED, SAME = "+", "-", "~", " "
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class OutlineNode:
    """One event with the events that ran inside it."""

    event: int
    label: str
    """By what nodes are paired: the kind and the name. For a module, its class and the last part of
    its path.
    """
    detail: str
    """What may differ between paired nodes: the shapes of arguments and results, and settings."""
    children: list[OutlineNode] = field(default_factory=list["OutlineNode"])
    key: int = 0
    """Hash of the subtree, the same for equal subtrees."""
    size: int = 1
    """How many nodes the subtree has."""


@dataclass(slots=True)
class OutlineChange:
    """One row of the tree of changes."""

    sign: str
    """``+``: only in B. ``-``: only in A. ``~``: changed. A space: unchanged, but with a change
    inside.
    """
    depth: int
    text: str
    was: str = ""
    """For a change: the items that differ, as they are in A."""
    now: str = ""
    """The same in B."""
    event_a: int | None = None
    event_b: int | None = None
    location: Location | None = None
    times: int = 1
    """How many consecutive layers have this change."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "sign": self.sign, "depth": self.depth, "text": self.text, "was": self.was, "now": self.now,
            "event_a": self.event_a, "event_b": self.event_b, "times": self.times,
        }  # fmt: skip

    def line(self) -> str:
        """Return the row as text."""
        indent = "  " * self.depth
        times = ""
        if self.times > 1:
            times = f" (× {self.times})"
        at = ""
        if self.location is not None:
            at = f"  {path_word(self.location.file)}:{self.location.line}"
        change = ""
        if self.was or self.now:
            change = f"  {self.was} → {self.now}"
        return f"{self.sign} {indent}{self.text}{change}{times}{at}"


@dataclass(slots=True)
class StructureDiff:
    """What ran in one run and not in the other."""

    rows: list[OutlineChange]
    compared: int
    """How many calls A has."""

    @property
    def changes(self) -> list[OutlineChange]:
        """The rows of calls that changed or that only one run has."""
        return [each for each in self.rows if each.sign != SAME]

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines of text."""
        if not self.changes:
            calls = plural(self.compared, "call")
            yield f"= the same calls with the same shapes ({calls}); their numbers are not known"
            return
        counted = Counter(each.sign for each in self.changes for _ in range(each.times))
        words = {ADDED: "only in B", REMOVED: "only in A", CHANGED: "changed"}
        parts = ", ".join(
            f"{counted[sign]:,} {word}" for sign, word in words.items() if counted[sign]
        )
        yield f"≠ what ran differs: {parts} (of {plural(self.compared, 'call')})"
        for row in self.rows[:MOST_LINES]:
            yield f"  {row.line()}"
        if len(self.rows) > MOST_LINES:
            yield f"  … and {plural(len(self.rows) - MOST_LINES, 'more row')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"compared": self.compared, "rows": [each.to_dict() for each in self.rows]}


def compare_structure(a: Tables, b: Tables) -> StructureDiff:
    """Return what ran in only one of two runs. Kinds of events that only one run recorded are not
    compared.
    """
    kinds = _kinds(a) & _kinds(b)
    if not kinds:
        kinds = _kinds(a) | _kinds(b)
    one = tree_of(a, kinds)
    other = tree_of(b, kinds)
    rows: list[OutlineChange] = []
    _compare(one, other, 0, rows, a, b)
    return StructureDiff(_folded(rows), one.size - 1)


def _kinds(tables: Tables) -> set[str]:
    return {tables.callees[each].kind for each in set(tables.callee)} - set(TELLS)


def tree_of(tables: Tables, kinds: set[str]) -> OutlineNode:
    """Return the events of these kinds as a tree below one root."""
    sizes = form_sizes(tables)
    root = OutlineNode(NONE, "", "")
    nodes: dict[int, OutlineNode] = {NONE: root}
    around: dict[int, int] = {}
    for event, what in enumerate(tables.callee):
        kind = tables.callees[what].kind
        parent = tables.parent[event]
        parent = around.get(parent, parent)
        if kind not in kinds:
            around[event] = parent
            continue
        node = OutlineNode(event, _label(tables, event), _detail(tables, event, sizes))
        nodes[event] = node
        nodes[parent].children.append(node)
    for node in reversed(list(nodes.values())):
        node.key = hash((node.label, node.detail, tuple(each.key for each in node.children)))
        node.size = 1 + sum(each.size for each in node.children)
    root.key = hash(tuple(each.key for each in root.children))
    root.size = 1 + sum(each.size for each in root.children)
    return root


def _label(tables: Tables, event: int) -> str:
    what = tables.callees[tables.callee[event]]
    if what.kind != "module":
        return f"{what.kind} {what.name}"
    row = tables.modules[tables.module[event]]
    name = row.path.rpartition(".")[2]
    return f"{row.name} {name}".strip()


def _detail(tables: Tables, event: int, sizes: list[int]) -> str:
    first = tables.first_io[event]
    args = tables.args[event]
    result = tables.result[event]
    text = tables.text_of(args, first)
    given = tables.text_of(result, first + sizes[args])
    what = tables.callees[tables.callee[event]]
    if what.kind == "module":
        row = tables.modules[tables.module[event]]
        settings = ""
        if row.detail:
            settings = f"({row.detail}) "
        return f"{settings}{text} → {given}"
    return f"({text}) → {given}"


def _compare(
    one: OutlineNode,
    other: OutlineNode,
    depth: int,
    rows: list[OutlineChange],
    a: Tables,
    b: Tables,
) -> None:
    """Add the changes between the children of two nodes."""
    pending: list[tuple[OutlineNode | None, OutlineNode | None]] = _aligned(
        one.children, other.children
    )
    for mine, theirs in pending:
        if mine is not None and theirs is not None:
            if mine.key == theirs.key:
                continue
            mark = len(rows)
            is_changed = mine.detail != theirs.detail
            row = OutlineChange(
                CHANGED if is_changed else SAME,
                depth,
                _title(a, mine),
                event_a=mine.event,
                event_b=theirs.event,
            )
            row.location = _location(a, mine.event)
            if is_changed:
                row.was, row.now = _shortest(mine.detail, theirs.detail)
            rows.append(row)
            _compare(mine, theirs, depth + 1, rows, a, b)
            if len(rows) == mark + 1 and not is_changed:
                rows.pop()
        elif mine is not None:
            rows.append(_lone(REMOVED, depth, a, mine))
        elif theirs is not None:
            rows.append(_lone(ADDED, depth, b, theirs))


def _lone(sign: str, depth: int, tables: Tables, node: OutlineNode) -> OutlineChange:
    more = ""
    if node.size > 1:
        more = f" with {plural(node.size - 1, 'call')} in it"
    row = OutlineChange(sign, depth, f"{_title(tables, node)}{more}  {node.detail}")
    if sign == REMOVED:
        row.event_a = node.event
    else:
        row.event_b = node.event
    row.location = _location(tables, node.event)
    return row


def _title(tables: Tables, node: OutlineNode) -> str:
    what = tables.callees[tables.callee[node.event]]
    if what.kind != "module":
        return what.name
    row = tables.modules[tables.module[node.event]]
    if row.path:
        return f"{row.path}: {row.name}"
    return row.name


def _location(tables: Tables, event: int) -> Location | None:
    stack = tables.stack[event]
    user = NONE
    if stack != NONE:
        user = tables.stack_user[stack]
    if user != NONE:
        return tables.sites[user].location
    return None


_ITEM = re.compile(r"""(?:"[^"]*"|'[^']*'|\[[^\]]*\]|[^\s,()\[\]"'→])+""")
"""Matches one setting, argument or shape, such as ``bias=True``, ``-1`` or ``f32[4, 8]``."""


def _shortest(one: str, other: str) -> tuple[str, str]:
    """Return of two texts only the settings, arguments and shapes that differ."""
    mine = _ITEM.findall(one)
    theirs = _ITEM.findall(other)
    if len(mine) == len(theirs):
        differing = [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]]
        mine = [item for item, _ in differing]
        theirs = [item for _, item in differing]
    else:
        while mine and theirs and mine[0] == theirs[0]:
            del mine[0], theirs[0]
        while mine and theirs and mine[-1] == theirs[-1]:
            del mine[-1], theirs[-1]
    if not mine and not theirs:
        return one, other
    return ", ".join(mine) or "–", ", ".join(theirs) or "–"


def _aligned(
    one: list[OutlineNode], other: list[OutlineNode]
) -> list[tuple[OutlineNode | None, OutlineNode | None]]:
    """Pair the children of two nodes in order: first equal ones, then those between them by name."""
    start = 0
    while start < min(len(one), len(other)) and one[start].key == other[start].key:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end].key == other[-1 - end].key:
        end += 1
    pairs: list[tuple[OutlineNode | None, OutlineNode | None]] = list(
        zip(one[:start], other[:start], strict=True)
    )
    rest_a = one[start : len(one) - end]
    rest_b = other[start : len(other) - end]
    at_a = at_b = 0
    for mine, theirs in _anchors(
        rest_a, rest_b, [each.key for each in rest_a], [each.key for each in rest_b]
    ):
        pairs += _between(rest_a[at_a:mine], rest_b[at_b:theirs])
        pairs.append((rest_a[mine], rest_b[theirs]))
        at_a = mine + 1
        at_b = theirs + 1
    pairs += _between(rest_a[at_a:], rest_b[at_b:])
    pairs += zip(one[len(one) - end :], other[len(other) - end :], strict=True)
    return pairs


def _between(
    one: list[OutlineNode], other: list[OutlineNode]
) -> list[tuple[OutlineNode | None, OutlineNode | None]]:
    """Pair nodes that have no equal by name, the k-th of a name with the k-th, as far as the order
    allows.
    """
    labels_a = _numbered([each.label for each in one])
    labels_b = _numbered([each.label for each in other])
    pairs: list[tuple[OutlineNode | None, OutlineNode | None]] = []
    at_a = at_b = 0
    for mine, theirs in _anchors(one, other, labels_a, labels_b):
        pairs += [(each, None) for each in one[at_a:mine]]
        pairs += [(None, each) for each in other[at_b:theirs]]
        pairs.append((one[mine], other[theirs]))
        at_a = mine + 1
        at_b = theirs + 1
    pairs += [(each, None) for each in one[at_a:]]
    pairs += [(None, each) for each in other[at_b:]]
    return pairs


def _numbered(labels: list[str]) -> list[object]:
    """Return each label with how often it occurred before, which makes it unique."""
    seen: Counter[str] = Counter()
    found: list[object] = []
    for label in labels:
        found.append((label, seen[label]))
        seen[label] += 1
    return found


def _anchors(
    one: list[OutlineNode], other: list[OutlineNode], keys_a: list[Any], keys_b: list[Any]
) -> list[tuple[int, int]]:
    """Return the longest sequence of keys that occur once in each list and in the same order in
    both.

    Each is given by its indices in the two lists. This is the longest increasing subsequence, found
    by patience sorting.
    """
    count_a = Counter(keys_a)
    count_b = Counter(keys_b)
    place_b = {key: place for place, key in enumerate(keys_b) if count_b[key] == 1}
    both = [
        (place, place_b[key])
        for place, key in enumerate(keys_a)
        if count_a[key] == 1 and key in place_b
    ]
    ends: list[int] = []
    chains: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(both):
        at = bisect_left(ends, place)
        before.append(chains[at - 1] if at else -1)
        if at == len(ends):
            ends.append(place)
            chains.append(number)
        else:
            ends[at] = place
            chains[at] = number
    found: list[tuple[int, int]] = []
    number = -1
    if chains:
        number = chains[-1]
    while number != -1:
        found.append(both[number])
        number = before[number]
    return found[::-1]


def _folded(rows: list[OutlineChange]) -> list[OutlineChange]:
    """Fold the equal changes of consecutive equal layers into one row with a count."""
    groups: list[list[OutlineChange]] = []
    for row in rows:
        if groups and row.depth > groups[-1][0].depth:
            groups[-1].append(row)
        else:
            groups.append([row])
    found: list[OutlineChange] = []
    last: tuple[Any, ...] = ()
    for group in groups:
        look = tuple(
            (each.sign, each.depth, _DIGITS.sub("#", each.text), each.was, each.now)
            for each in group
        )
        if look == last:
            found[-len(group)].times += 1
            continue
        last = look
        head, *inside = group
        found.append(head)
        if inside:
            found += _folded(inside)
            last = ()
            if len(found) >= len(group) and found[-len(group) :] == group:
                last = look
    return found
