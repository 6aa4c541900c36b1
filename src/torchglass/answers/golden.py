"""Writes what a run did as lines of text that can be kept beside a test, and compares two such
texts.

A line stands for a module or a call, and equal layers share lines. No line has a path of this
machine, an address or a line number. Numbers follow a bar and are compared with a tolerance.
Everything else must be equal.
"""

# Answers may use what a trace keeps private from users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

from torchglass.answers.diff.structure import OutlineNode, tree_of
from torchglass.errors import UsageError, closest
from torchglass.events.tables import NONE, Tables, form_sizes
from torchglass.events.types import Sketch
from torchglass.program.recorded import HasTables

LEVELS = ("shapes", "ops", "stats", "values")
"""The levels of a snapshot. Each adds to the one before: modules, functions and shapes, ops,
statistics, fingerprints.
"""
MOST_LINES = 100
"""A longer text is cut at the depth at which it fits into this many lines, so that people can read
it.
"""
LONGEST_REPETITION = 200
"""How many consecutive calls a repetition may have, such as those of a layer's constructor or a
training step.
"""
BAR = "  | "
TOLERANCES = {
    "f64": (1e-7, 1e-7), "f32": (1.3e-6, 1e-5), "f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "c64": (1.3e-6, 1e-5),
    "c128": (1e-7, 1e-7),
}  # fmt: skip
"""Relative and absolute tolerance by dtype, as in ``torch.testing.assert_close``."""
ROUNDING = 1e-5
"""Gradients below this share of the largest one are taken for rounding errors."""
OF_FINGERPRINTS = {"f64": 1e-9, "f32": 1e-5, "f16": 8e-3, "bf16": 5e-2, "c64": 1e-5, "c128": 1e-9}
"""How much sums may differ between runs and numbers of threads, relative to the norm, by dtype."""
SUMS = 4
"""How many sums of a fingerprint are written."""
_DIGITS = re.compile(r"\d+")
_LAYER = re.compile(r"\b(\w*(?:idx|index|layer_id|layer_number))=\d+")
"""Matches settings that are the number of a layer."""
_NUMBER = re.compile(r"(\w+)=(\S+)")
_DTYPE = re.compile(r"→ .*?\b(bf16|f16|f32|f64|c64|c128)\[")


@dataclass(slots=True)
class _Line:
    """A line and the events for which it stands."""

    depth: int
    text: str
    events: list[int]


def snapshot_lines(trace: HasTables, level: str) -> list[str]:
    """Return what a run did as lines of text."""
    check_level(level)
    tables = trace._tables
    kinds = {"module", "function", "step", "unseen"}
    if level == "ops":
        kinds.add("op")
    root = tree_of(tables, kinds)
    looks = _looks_of(root)
    lines = list(_lines_of(tables, [root], looks, 0))
    depth = max((line.depth for line in lines), default=0)
    while len(lines) > MOST_LINES and depth > 0:
        lines = [line for line in lines if line.depth < depth]
        depth -= 1
    sizes = form_sizes(tables)
    return [_whole(tables, line, level, sizes) for line in lines]


def check_level(level: str) -> None:
    """Reject an unknown level."""
    if level not in LEVELS:
        raise UsageError(f"a snapshot has no level {level!r}: {closest(level, LEVELS)}")


# ---------------------------------------------------------------- lines


@dataclass(slots=True)
class _Run:
    """Consecutive children that look the same."""

    children: list[tuple[OutlineNode, ...]]
    """Of each child one node for every subtree that is laid over the others."""
    key: tuple[object, ...]
    """Equal for runs that are the same to the digit."""


def _lines_of(
    tables: Tables, nodes: Sequence[OutlineNode], looks: dict[int, int], depth: int
) -> Iterator[_Line]:
    """Yield the children of nodes that look the same, overlaid; repetitions are written once."""
    yield from _lines_of_runs(tables, [[run] for run in _runs(nodes, looks)], looks, depth)


def _lines_of_runs(
    tables: Tables, rows: list[list[_Run]], looks: dict[int, int], depth: int
) -> Iterator[_Line]:
    """Yield the lines; each entry of ``rows`` holds the equal runs that one line stands for."""
    keys = [same[0].key for same in rows]
    place = 0
    while place < len(rows):
        length, times = _repetition(keys, place)
        if times == 1:
            yield from _lines_of_run(tables, rows[place], looks, depth)
            place += 1
            continue
        repeated = rows[place : place + length * times]
        pattern = [
            [run for same in repeated[offset::length] for run in same] for offset in range(length)
        ]
        yield _Line(depth, f"{times} times the same {length} calls", [])
        yield from _lines_of_runs(tables, pattern, looks, depth + 1)
        place += length * times


def _runs(nodes: Sequence[OutlineNode], looks: dict[int, int]) -> list[_Run]:
    children = list(zip(*(node.children for node in nodes), strict=True))
    runs: list[_Run] = []
    place = 0
    while place < len(children):
        look = looks[children[place][0].event]
        last = place + 1
        while last < len(children) and looks[children[last][0].event] == look:
            last += 1
        run = children[place:last]
        runs.append(_Run(run, tuple(node.key for child in run for node in child)))
        place = last
    return runs


def _repetition(keys: list[tuple[object, ...]], place: int) -> tuple[int, int]:
    """Return how many runs from here on repeat right afterwards, and how often: (1, 1) if none do."""
    for length in range(2, min(LONGEST_REPETITION, (len(keys) - place) // 2) + 1):
        pattern = keys[place : place + length]
        times = 1
        while keys[place + length * times : place + length * (times + 1)] == pattern:
            times += 1
        if times > 1:
            return length, times
    return 1, 1


def _lines_of_run(
    tables: Tables, runs: list[_Run], looks: dict[int, int], depth: int
) -> Iterator[_Line]:
    """Yield one line for equal runs, and what is in them."""
    first = runs[0].children
    members = [node for run in runs for child in run.children for node in child]
    text = _text(tables, first[0][0], first[-1][0])
    if len(first) > 1:
        text = _LAYER.sub(r"\1=#", text) + f" × {len(first)}"
    yield _Line(depth, text, [each.event for each in members])
    yield from _lines_of(tables, members, looks, depth + 1)


def _looks_of(root: OutlineNode) -> dict[int, int]:
    """Return for each event a number that is equal for subtrees that differ only in the numbers of layers."""
    numbers: dict[tuple[object, ...], int] = {}
    words: dict[tuple[str, str], int] = {}
    looks: dict[int, int] = {}
    # Children come after their parents, so from the back all are known before what they are in.
    for node in reversed(list(_nodes(root))):
        word = words.get((node.label, node.detail))
        if word is None:
            if node.label[:1].isupper():
                label = _DIGITS.sub("#", node.label)
            else:
                label = node.label
            word = numbers.setdefault((label, _LAYER.sub(r"\1=#", node.detail)), len(numbers))
            words[node.label, node.detail] = word
        inside = tuple(looks[each.event] for each in node.children)
        looks[node.event] = numbers.setdefault((word, *inside), len(numbers))
    return looks


def _nodes(node: OutlineNode) -> Iterator[OutlineNode]:
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        pending += each.children


def _text(tables: Tables, first: OutlineNode, last: OutlineNode) -> str:
    what = tables.callees[tables.callee[first.event]]
    if what.kind != "module":
        return f"{what.name}{first.detail}"
    row = tables.modules[tables.module[first.event]]
    end = tables.modules[tables.module[last.event]]
    name = row.path.rpartition(".")[2]
    if end.path != row.path:
        name = f"{name}–{end.path.rpartition('.')[2]}"
    if name:
        return f"{name}: {row.name} {first.detail}"
    return f"{row.name} {first.detail}"


def _whole(tables: Tables, line: _Line, level: str, sizes: list[int]) -> str:
    text = "  " * line.depth + line.text
    numbers = ""
    if level in ("stats", "values") and not (line.events and _is_in_step(tables, line.events[0])):
        numbers = _numbers(tables, line.events, level, sizes)
    if numbers:
        return f"{text}{BAR}{numbers}"
    return text


def _numbers(tables: Tables, events: Sequence[int], level: str, sizes: list[int]) -> str:
    values: list[int] = []
    for event in events:
        first = tables.first_io[event] + sizes[tables.args[event]]
        given = tables.io[first : first + sizes[tables.result[event]]]
        if tables.callees[tables.callee[event]].kind == "step":
            values += _updated(tables, event, given)
        else:
            values += given
    if level == "values":
        return _fingerprint(tables, values)
    known = [
        stats for value in values if (stats := tables.stats(value)) is not None and stats.finite
    ]
    if not known:
        return ""
    parts: list[str] = []
    for name in ("mean", "std", "min", "max"):
        numbers = [float(getattr(each, name)) for each in known]
        low = min(numbers)
        high = max(numbers)
        parts.append(f"{name}={low:.7g}" if len(known) == 1 else f"{name}={low:.7g}..{high:.7g}")
    odd = sum(each.count - each.finite for each in known)
    return " ".join([*parts, f"nonfinite={odd}"] if odd else parts)


def _is_in_step(tables: Tables, event: int) -> bool:
    """Return whether an optimizer's step made this call, whose numbers are mostly rounding."""
    parent = tables.parent[event]
    while parent != NONE:
        if tables.callees[tables.callee[parent]].kind == "step":
            return True
        parent = tables.parent[parent]
    return False


def _updated(tables: Tables, event: int, given: Sequence[int]) -> list[int]:
    """Return the parameters after an optimizer step whose gradient was more than rounding.

    A bias before a batch norm has a gradient of zero and some roundings; Adam makes whole steps of them, whose
    direction changes with the number of threads.
    """
    form = tables.args[event]
    roles = ()
    if form != NONE:
        roles = tables.forms[form].roles
    first = tables.first_io[event]
    sizes = [0.0] * len(given)
    taken = -1
    for place, role in enumerate(roles):
        if not role.endswith(".grad"):
            taken += 1
            continue
        stats = tables.stats(tables.io[first + place])
        if stats is not None and stats.finite and taken < len(sizes):
            sizes[taken] = max(abs(stats.min), abs(stats.max))
    largest = max(sizes, default=0.0)
    return [value for value, size in zip(given, sizes, strict=True) if size > ROUNDING * largest]


def _fingerprint(tables: Tables, values: Sequence[int]) -> str:
    """Return the norm and some sums of all values of a line, summed over the layers that it stands for."""
    sketches = [Sketch.of(tables.sketches[value]) for value in values if value in tables.sketches]
    if not sketches:
        return ""
    norm = sqrt(sum(each.orders[1] for each in sketches))
    # Each layer with a weight of its own: two that are exchanged are not the same.
    sums = [
        sum(each.flat[at] * (1 + 0.1 * n) for n, each in enumerate(sketches)) for at in range(SUMS)
    ]
    odd = sum(each.odd for each in sketches)
    text = " ".join(
        [f"norm={norm:.8g}", *(f"s{at}={number:.8g}" for at, number in enumerate(sums))]
    )
    if odd:
        return f"{text} nonfinite={odd}"
    return text


# ---------------------------------------------------------------- comparing


def differences(expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return what differs between two snapshots, as lines to print; none where they agree."""
    before = [line.partition(BAR)[0] for line in expected]
    now = [line.partition(BAR)[0] for line in found]
    if before != now:
        return _changed(before, now)
    told: list[str] = []
    for number, (old, new) in enumerate(zip(expected, found, strict=True)):
        apart = _apart(old, new)
        if apart:
            told.append(f"  line {number + 1}: {now[number].strip()}")
            told += [f"    {each}" for each in apart]
    return told


def _changed(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return a diff of lines with two lines around each change."""
    told: list[str] = []
    for line in list(difflib.unified_diff(before, now, n=2, lineterm=""))[2:]:
        if line.startswith("@@"):
            place = re.search(r"-(\d+)", line)
            told.append(f"  at line {place[1]}:" if place else "")
        else:
            told.append(f"    {line}")
    return told


def _apart(old: str, new: str) -> list[str]:
    """Return the numbers of one line that are further apart than rounding explains."""
    known = dict(_NUMBER.findall(old.partition(BAR)[2]))
    found = dict(_NUMBER.findall(new.partition(BAR)[2]))
    if known.keys() != found.keys():
        return [f"{' '.join(known) or 'no numbers'} → {' '.join(found) or 'no numbers'}"]
    dtype = _DTYPE.search(new)
    kind = "f32"
    if dtype:
        kind = dtype[1]
    scale = _scale(known)
    told: list[str] = []
    for name, text in known.items():
        if "norm" in known:
            allowed = OF_FINGERPRINTS[kind] * scale
        else:
            relative, absolute = TOLERANCES[kind]
            allowed = absolute + 10 * relative * scale
        pairs = zip(text.split(".."), found[name].split(".."), strict=False)
        if any(not abs(float(a) - float(b)) <= allowed for a, b in pairs if a != b):
            told.append(f"{name}: {text} → {found[name]}   (allowed: ± {allowed:.1g})")
    return told


def _scale(numbers: dict[str, str]) -> float:
    """Return how large the numbers of a line are."""
    sizes = [abs(float(each)) for text in numbers.values() for each in text.split("..")]
    return max((each for each in sizes if isfinite(each)), default=0.0)
