"""Writes what a run did as lines of text that can be kept beside a test, and compares two such
texts.

A line stands for a module or a call, and equal layers share lines. No line has a path of this
machine, an address or a line number. Numbers follow a bar and are compared with a tolerance.
Everything else must be equal::

    h.0–1: Block  × 2  | mean=0.1..0.2 std=1 min=-3 max=3

Lines come from a tree of nodes (``answers/diff/structure.py``), in which equal layers are laid over
each other: a function here that takes ``nodes`` takes one node of each layer, and all of them have
the same children.
"""

# Answers may use what a trace keeps private from users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, sqrt
from typing import NamedTuple

from torchglass.answers.diff.structure import OutlineNode, tree_of
from torchglass.errors import UsageError, closest
from torchglass.events.tables import NONE, Tables, form_sizes
from torchglass.events.types import Sketch, Stats
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
    "f64": (1e-7, 1e-7),
    "f32": (1.3e-6, 1e-5),
    "f16": (1e-3, 1e-5),
    "bf16": (1.6e-2, 1e-5),
    "c64": (1.3e-6, 1e-5),
    "c128": (1e-7, 1e-7),
}
"""Relative and absolute tolerance by dtype, as in ``torch.testing.assert_close``."""
ROUNDING = 1e-5
"""Gradients below this share of the largest one are taken for rounding errors."""
FINGERPRINT_TOLERANCES = {
    "f64": 1e-9,
    "f32": 1e-5,
    "f16": 8e-3,
    "bf16": 5e-2,
    "c64": 1e-5,
    "c128": 1e-9,
}
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
    """A line, and the events that it shows."""

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
    lines = list(_lines_of(tables, [root], _patterns_of(root), 0))
    depth = max((line.depth for line in lines), default=0)
    while len(lines) > MOST_LINES and depth > 0:
        lines = [line for line in lines if line.depth < depth]
        depth -= 1
    sizes = form_sizes(tables)
    return [_with_numbers(tables, line, level, sizes) for line in lines]


def check_level(level: str) -> None:
    """Reject an unknown level."""
    if level not in LEVELS:
        raise UsageError(f"a snapshot has no level {level!r}: {closest(level, LEVELS)}")


# ---------------------------------------------------------------- lines


_Patterns = dict[int, int]
"""By event, a number that is equal for subtrees that differ only in the numbers of layers."""
_Overlaid = tuple[OutlineNode, ...]
"""Nodes at one place of several equal layers, one of each layer. A line stands for all of them."""


@dataclass(slots=True)
class _Run:
    """Consecutive children with one pattern, such as equal layers."""

    children: list[_Overlaid]
    key: tuple[object, ...]
    """Equal for runs that are the same to the digit."""


class _Repetition(NamedTuple):
    """Consecutive runs that come several times in a row."""

    length: int
    """How many runs are repeated; 1 if there is no repetition."""
    times: int


def _lines_of(
    tables: Tables, nodes: Sequence[OutlineNode], patterns: _Patterns, depth: int
) -> Iterator[_Line]:
    """Yield the lines inside of nodes with one pattern. Repetitions are written once."""
    rows = [[run] for run in _runs(nodes, patterns)]
    yield from _lines_of_runs(tables, rows, patterns, depth)


def _lines_of_runs(
    tables: Tables, rows: list[list[_Run]], patterns: _Patterns, depth: int
) -> Iterator[_Line]:
    """Yield the lines; each entry of ``rows`` holds the equal runs that one line stands for."""
    keys = [same[0].key for same in rows]
    index = 0
    while index < len(rows):
        length, times = _repetition(keys, index)
        if times == 1:
            yield from _lines_of_run(tables, rows[index], patterns, depth)
            index += 1
            continue
        repeated = rows[index : index + length * times]
        index += length * times
        once: list[list[_Run]] = []
        for offset in range(length):
            once.append([run for same in repeated[offset::length] for run in same])
        yield _Line(depth, f"{times} times the same {length} calls", [])
        yield from _lines_of_runs(tables, once, patterns, depth + 1)


def _runs(nodes: Sequence[OutlineNode], patterns: _Patterns) -> list[_Run]:
    """Return the children of nodes with one pattern, overlaid, as runs."""
    overlaid = zip(*(node.children for node in nodes), strict=True)
    runs: list[_Run] = []
    for _, group in groupby(overlaid, key=lambda child: patterns[child[0].event]):
        children = list(group)
        key = tuple(node.key for child in children for node in child)
        runs.append(_Run(children, key))
    return runs


def _repetition(keys: list[tuple[object, ...]], begin: int) -> _Repetition:
    """Return the shortest repetition of runs from here on."""
    longest = min(LONGEST_REPETITION, (len(keys) - begin) // 2)
    for length in range(2, longest + 1):
        repeated = keys[begin : begin + length]
        times = 1
        while keys[begin + length * times : begin + length * (times + 1)] == repeated:
            times += 1
        if times > 1:
            return _Repetition(length, times)
    return _Repetition(1, 1)


def _lines_of_run(
    tables: Tables, runs: list[_Run], patterns: _Patterns, depth: int
) -> Iterator[_Line]:
    """Yield one line for equal runs, and the lines inside of them."""
    children = runs[0].children
    text = _text(tables, children[0][0], children[-1][0])
    if len(children) > 1:
        text = _without_layer_number(text) + f" × {len(children)}"
    nodes = [node for run in runs for child in run.children for node in child]
    yield _Line(depth, text, [node.event for node in nodes])
    yield from _lines_of(tables, nodes, patterns, depth + 1)


def _patterns_of(root: OutlineNode) -> _Patterns:
    """Return the pattern of each event below a node."""
    numbers: dict[tuple[object, ...], int] = {}
    number_of_words: dict[tuple[str, str], int] = {}
    patterns: _Patterns = {}
    # Parents come before their children, so from the back the patterns of all children are known.
    for node in reversed(list(_nodes(root))):
        words = (node.label, node.detail)
        if words not in number_of_words:
            label = node.label
            if label[:1].isupper():
                label = _DIGITS.sub("#", label)
            key = (label, _without_layer_number(node.detail))
            number_of_words[words] = numbers.setdefault(key, len(numbers))
        inside = [patterns[child.event] for child in node.children]
        key = (number_of_words[words], *inside)
        patterns[node.event] = numbers.setdefault(key, len(numbers))
    return patterns


def _without_layer_number(text: str) -> str:
    """Return ``layer_idx=#`` for ``layer_idx=3``."""
    return _LAYER.sub(r"\1=#", text)


def _nodes(root: OutlineNode) -> Iterator[OutlineNode]:
    """Yield a node and all below it, parents before children."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children


def _text(tables: Tables, first: OutlineNode, last: OutlineNode) -> str:
    """Return the text of consecutive calls, given the first and the last; they may be one call."""
    callee = tables.callees[tables.callee[first.event]]
    if callee.kind != "module":
        return f"{callee.name}{first.detail}"
    module = tables.modules[tables.module[first.event]]
    last_module = tables.modules[tables.module[last.event]]
    name = module.path.rpartition(".")[2]
    if last_module.path != module.path:
        last_name = last_module.path.rpartition(".")[2]
        name = f"{name}–{last_name}"
    if name:
        return f"{name}: {module.name} {first.detail}"
    return f"{module.name} {first.detail}"


def _with_numbers(tables: Tables, line: _Line, level: str, sizes: list[int]) -> str:
    """Return the text of a line with the numbers that its level shows."""
    text = "  " * line.depth + line.text
    numbers = ""
    if level in ("stats", "values") and not (line.events and _is_in_step(tables, line.events[0])):
        values = _results(tables, line.events, sizes)
        if level == "values":
            numbers = _fingerprint(tables, values)
        else:
            numbers = _statistics(tables, values)
    if numbers:
        return f"{text}{BAR}{numbers}"
    return text


def _results(tables: Tables, events: Sequence[int], sizes: list[int]) -> list[int]:
    """Return the values that some events gave. ``sizes`` has the number of values of each form."""
    values: list[int] = []
    for event in events:
        first = tables.first_io[event] + sizes[tables.args[event]]
        outputs = tables.io[first : first + sizes[tables.result[event]]]
        if tables.callees[tables.callee[event]].kind == "step":
            values += _updated(tables, event, outputs)
        else:
            values += outputs
    return values


def _statistics(tables: Tables, values: Sequence[int]) -> str:
    """Return the ranges of the statistics of some values."""
    known: list[Stats] = []
    for value in values:
        stats = tables.stats(value)
        if stats is not None and stats.finite:
            known.append(stats)
    if not known:
        return ""
    parts: list[str] = []
    for name in ("mean", "std", "min", "max"):
        numbers = [float(getattr(stats, name)) for stats in known]
        text = f"{name}={min(numbers):.7g}"
        if len(known) > 1:
            text += f"..{max(numbers):.7g}"
        parts.append(text)
    not_finite = sum(stats.count - stats.finite for stats in known)
    if not_finite:
        parts.append(f"nonfinite={not_finite}")
    return " ".join(parts)


def _is_in_step(tables: Tables, event: int) -> bool:
    """Return whether an optimizer's step made this call, whose numbers are mostly rounding."""
    parent = tables.parent[event]
    while parent != NONE:
        if tables.callees[tables.callee[parent]].kind == "step":
            return True
        parent = tables.parent[parent]
    return False


def _updated(tables: Tables, event: int, outputs: Sequence[int]) -> list[int]:
    """Return the parameters after an optimizer step whose gradient was more than rounding.

    The gradient of a bias before a batch norm is zero and some rounding. Adam makes whole steps of the rounding, whose
    direction changes with the number of threads.
    """
    form = tables.args[event]
    roles = ()
    if form != NONE:
        roles = tables.forms[form].roles
    first_input = tables.first_io[event]
    gradients = [0.0] * len(outputs)
    # The inputs of a step are its parameters, each followed by its gradient if it has one.
    parameter = -1
    for index, role in enumerate(roles):
        if not role.endswith(".grad"):
            parameter += 1
            continue
        stats = tables.stats(tables.io[first_input + index])
        if stats is not None and stats.finite and parameter < len(gradients):
            gradients[parameter] = max(abs(stats.min), abs(stats.max))
    least = ROUNDING * max(gradients, default=0.0)
    updated: list[int] = []
    for value, gradient in zip(outputs, gradients, strict=True):
        if gradient > least:
            updated.append(value)
    return updated


def _fingerprint(tables: Tables, values: Sequence[int]) -> str:
    """Return the norm and some sums of all values of a line, summed over the layers that it stands for."""
    sketches = [Sketch.of(tables.sketches[value]) for value in values if value in tables.sketches]
    if not sketches:
        return ""
    norm = sqrt(sum(sketch.orders[1] for sketch in sketches))
    parts = [f"norm={norm:.8g}"]
    for index in range(SUMS):
        # Each layer has a weight of its own, so that two that were exchanged are not the same.
        weighted = [sketch.flat[index] * (1 + 0.1 * layer) for layer, sketch in enumerate(sketches)]
        parts.append(f"s{index}={sum(weighted):.8g}")
    not_finite = sum(sketch.odd for sketch in sketches)
    if not_finite:
        parts.append(f"nonfinite={not_finite}")
    return " ".join(parts)


# ---------------------------------------------------------------- comparing


def differences(expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return what differs between two snapshots, as lines to print; none where they agree."""
    before = [line.partition(BAR)[0] for line in expected]
    now = [line.partition(BAR)[0] for line in found]
    if before != now:
        return _line_diff(before, now)
    report: list[str] = []
    for index, (old, new) in enumerate(zip(expected, found, strict=True)):
        changes = _changed_numbers(old, new)
        if changes:
            report.append(f"  line {index + 1}: {now[index].strip()}")
            report += [f"    {change}" for change in changes]
    return report


def _line_diff(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return a diff of lines with two lines around each change."""
    report: list[str] = []
    diff = list(difflib.unified_diff(before, now, n=2, lineterm=""))
    for line in diff[2:]:
        if not line.startswith("@@"):
            report.append(f"    {line}")
            continue
        begin = re.search(r"-(\d+)", line)
        if begin:
            report.append(f"  at line {begin[1]}:")
        else:
            report.append("")
    return report


def _changed_numbers(old: str, new: str) -> list[str]:
    """Return the numbers of one line that are further apart than rounding explains."""
    expected = dict(_NUMBER.findall(old.partition(BAR)[2]))
    found = dict(_NUMBER.findall(new.partition(BAR)[2]))
    if expected.keys() != found.keys():
        old_names = " ".join(expected) or "no numbers"
        new_names = " ".join(found) or "no numbers"
        return [f"{old_names} → {new_names}"]
    dtype = "f32"
    match = _DTYPE.search(new)
    if match:
        dtype = match[1]
    if "norm" in expected:
        allowed = FINGERPRINT_TOLERANCES[dtype] * _scale(expected)
    else:
        relative, absolute = TOLERANCES[dtype]
        allowed = absolute + 10 * relative * _scale(expected)
    report: list[str] = []
    for name, text in expected.items():
        if _differ(text, found[name], allowed):
            report.append(f"{name}: {text} → {found[name]}   (allowed: ± {allowed:.1g})")
    return report


def _differ(old: str, new: str, allowed: float) -> bool:
    """Return whether two numbers, or the ends of two ranges ``low..high``, are too far apart."""
    for one, other in zip(old.split(".."), new.split(".."), strict=False):
        # A difference of NaN is not within the tolerance.
        if one != other and not abs(float(one) - float(other)) <= allowed:
            return True
    return False


def _scale(numbers: dict[str, str]) -> float:
    """Return the largest finite number of a line."""
    largest = 0.0
    for text in numbers.values():
        for end in text.split(".."):
            size = abs(float(end))
            if isfinite(size):
                largest = max(largest, size)
    return largest
