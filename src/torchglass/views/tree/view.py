"""The tree: which events have a row of their own, at which depth, and which repeats share one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchglass.events.types import Event
from torchglass.views.digest import Recorded, digest_of, texts_of
from torchglass.views.fold import groups, merge_alike, range_label
from torchglass.views.nesting import Nesting, is_inner_at, is_torch_helper, nesting, relative_path, split_index
from torchglass.views.row import (
    COUNT,
    EVENT,
    FOLD,
    NAME,
    NOTE,
    REMARK,
    REPEAT,
    TAKES,
    THREAD,
    TIME,
    Cell,
    Row,
    Sheet,
)  # fmt: skip
from torchglass.views.text.cells import Cells, event_cells, helper_cells
from torchglass.views.text.statistics import is_measured, with_stats
from torchglass.views.text.words import clean, count, cut, duration, plural, share
from torchglass.views.tree import Options
from torchglass.views.tree.patterns import Patterns, difference, patterns_of

LONGEST_VALUE = 40
"""Characters of a marked value that is no tensor."""


@dataclass(slots=True)
class _Forest:
    """The events that have rows, each under the nearest one around it that has one, by thread."""

    children: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    threads: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    inside: dict[int, int] = field(default_factory=dict[int, int])
    """Events without a row, by the row that they are in."""
    helpers: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Rows for expressions that are no events: the events that torch made there."""
    notes: dict[int, str] = field(default_factory=dict[int, str])
    """The first note of an event without a row, by the row that it is in."""
    left_out: int = 0

    def hide(self, event: Event, under: int) -> None:
        if under < 0:
            self.left_out += 1
            return
        self.inside[under] = self.inside.get(under, 0) + 1
        if event.note:
            self.notes.setdefault(under, event.note)


@dataclass(slots=True)
class _Entry:
    """What is shown as one row: an event, or several that are alike; or a heading, which belongs to no event."""

    depth: int
    level: int
    """How many calls around it have rows: the heading of a repeat takes it one further in."""
    id: int = -1
    name: str = ""
    """Module events: the path as seen from the module above."""
    span: str = ""
    """Where it stands for several calls of modules: ``blocks.0–11``."""
    times: int = 1
    each: int = 1
    inside: int = 0
    deeper: int = 0
    """Events in all of them that lie below the depth asked for."""
    unlike: str = ""
    """What keeps it out of the repeat above it."""
    same_code: bool = True
    rows: int = 0
    """Of a heading: how many rows repeat together."""


def sheet(trace: Recorded, options: Options) -> Sheet:
    """Rows for a trace: pure, one pass forward to see what is shown, one back to see what is alike."""
    return _Tree(trace, options).sheet()


class _Tree:
    """One trace while its tree is made."""

    def __init__(self, trace: Recorded, options: Options) -> None:
        self._trace, self._options = trace, options
        digest = digest_of(trace)
        self._events, self._parents = digest.events(), digest.parents
        self._matched = None if options.only is None else digest.matching(options.only)
        self._texts = texts_of(digest)
        self._nest: Nesting = nesting(self._events, self._parents)
        self._forest = _Forest()
        self._fill_forest()
        self._patterns: Patterns | None = None
        if options.fold:
            children = self._forest.children
            self._patterns = patterns_of(trace.modules(), self._events, self._texts, self._nest, children)
        self._sizes = [] if options.depth is None else self._count_below()
        self._spent: list[int] = []
        if options.times:
            self._spent = digest.spent_ns
            for row, helpers in self._forest.helpers.items():
                self._spent[row] = sum(self._spent[at] for at in helpers)
        self._known: dict[tuple[object, ...], Cells] = {}
        self._is_measured = is_measured(trace)
        self._others: dict[int, list[int]] = {}
        """Events that share the row of the first of them; only where something was measured in them."""

    def sheet(self) -> Sheet:
        """All rows; the sum of ``each + hidden`` over them, and what is left out, is the number of events."""
        entries: list[_Entry] = []
        made = Sheet()
        for number, (thread, roots) in enumerate(self._forest.threads.items()):
            if number:
                entries.append(_Entry(0, 0, name=thread))
            self._emit(roots, entries)
        failed_inside = self._failed_further_in(entries)
        made.rows = [self._row(entry, entry.id in failed_inside) for entry in entries]
        made.below = [Cell(COUNT, " · ".join(self._summary(entries)))]
        return made

    # ------------------------------------------------------------ what is shown

    def _fill_forest(self) -> None:
        kept = None if self._matched is None else _with_ancestors(self._parents, self._matched)
        only = self._options.only
        by_name = self._matched if only is not None and only.names_calls else None
        anchors: list[int] = []
        # How an event is treated depends only on its text and that of the one around it: asked once for each pair.
        treated: dict[tuple[int, int, bool], tuple[bool, bool]] = {}
        texts, containers, forest = self._texts, self._nest.containers, self._forest
        for at, parent in enumerate(self._parents):
            anchor = anchors[parent] if parent >= 0 else -1
            pair = (texts[at], texts[parent] if parent >= 0 else -1, parent in containers)
            found = treated.get(pair)
            if found is None:
                found = treated[pair] = self._is_hidden(at, parent), self._is_helper(at, parent)
            if kept is not None and not kept[at]:
                forest.left_out += 1
            elif found[0] and not (by_name is not None and by_name[at]):
                forest.hide(self._events[at], anchor)
            else:
                anchor = self._place(at, anchor, found[1])
            anchors.append(anchor)

    def _is_hidden(self, at: int, parent: int) -> bool:
        if not self._options.functions and self._events[at].kind in ("function", "op"):
            return True
        return not self._options.inner and is_inner_at(self._events, self._nest, at, parent)

    def _is_helper(self, at: int, parent: int) -> bool:
        """Whether it is part of an expression that is no event itself."""
        around = self._events[parent] if parent >= 0 else None
        return not self._options.inner and is_torch_helper(self._events[at], around)

    def _place(self, at: int, anchor: int, helper: bool) -> int:
        """Put an event under its anchor, or into the row of the helper before it; the row that it is in."""
        event, forest = self._events[at], self._forest
        if anchor >= 0:  # also what the autograd engine runs in a thread of its own: it belongs to the backward call
            siblings = forest.children.setdefault(anchor, [])
        else:
            siblings = forest.threads.setdefault(event.thread, [])
        if helper:
            before = siblings[-1] if siblings else -1
            if before in forest.helpers and self._is_one_expression(before, at):
                forest.helpers[before].append(at)
                forest.hide(event, before)
                return before
            forest.helpers[at] = [at]
        siblings.append(at)
        return at

    def _is_one_expression(self, first: int, other: int) -> bool:
        one, two = self._events[first], self._events[other]
        return one.location == two.location and self._parents[first] == self._parents[other] and not two.error

    def _count_below(self) -> list[int]:
        """For each row the number of events at and below it."""
        forest, total = self._forest, len(self._events)
        sizes = [1] * total
        for at in range(total - 1, -1, -1):
            sizes[at] += forest.inside.get(at, 0) + sum(sizes[child] for child in forest.children.get(at, ()))
        return sizes

    # ------------------------------------------------------------ rows in order

    def _emit(self, roots: list[int], entries: list[_Entry]) -> None:
        """Depth first, with a stack of our own: traces nest deeper than Python may."""
        pending = self._siblings(roots, 0, 0, 1)[::-1]
        while pending:
            entry = pending.pop()
            entries.append(entry)
            children = self._forest.children.get(entry.id)
            if not children:
                continue
            if self._options.depth is not None and entry.level >= self._options.depth:
                entry.deeper = sum(self._sizes[child] for child in children)
            else:
                pending += self._siblings(children, entry.depth + 1, entry.level + 1, entry.each)[::-1]

    def _siblings(self, ids: list[int], depth: int, level: int, each: int) -> list[_Entry]:
        if self._patterns is None or len(ids) == 1:
            return [self._entry([at], depth, level, each) for at in ids]
        pattern, height = self._patterns.pattern, self._patterns.height
        found: list[_Entry] = []
        before = -1
        for start, unit, times in groups([pattern[at] for at in ids], [height[at] for at in ids]):
            members = ids[start : start + unit * times]
            if unit == 1:
                entry = self._entry(members, depth, level, each)
                if before >= 0:
                    self._say_difference(entry, ids[before], found)
                found.append(entry)
            else:
                found += self._repeat(members, unit, depth, level, each)
            before = start + unit * times - 1
        return found

    def _entry(self, members: Sequence[int], depth: int, level: int, each: int) -> _Entry:
        """One row for a call, or for several in a row that are alike."""
        at = members[0]
        if len(members) > 1:
            merge_alike(members, self._forest.children, self._add)
        entry = _Entry(depth, level, at, times=len(members), each=each * len(members))
        entry.inside = self._forest.inside.get(at, 0)
        is_module = self._events[at].kind == "module"
        if is_module:
            entry.name = self._names([at])[0]
        if len(members) > 1:
            written = {(event.code, event.target) for event in map(self._events.__getitem__, members)}
            entry.same_code = len(written) == 1
            entry.span = range_label(self._names(members)) if is_module else ""
        return entry

    def _repeat(self, members: Sequence[int], unit: int, depth: int, level: int, each: int) -> list[_Entry]:
        """A heading and one row for each of the siblings that repeat together."""
        times = len(members) // unit
        found = [_Entry(depth, level, span=self._common_range(members), times=times, rows=unit)]
        for offset in range(unit):
            entry = self._entry(members[offset::unit], depth + 1, level, each)
            entry.times = 1
            found.append(entry)
        return found

    def _common_range(self, members: Sequence[int]) -> str:
        """``layers.0–23`` when all modules of a repeat are numbered under one name."""
        names = self._names([at for at in members if self._events[at].kind == "module"])
        if not names or split_index(names[0])[1] is None or len({split_index(name)[0] for name in names}) > 1:
            return ""
        return range_label(names)

    def _names(self, members: Sequence[int]) -> list[str]:
        around = [self._nest.module_above[at] for at in members]
        return [
            relative_path(self._events[at], self._events[outer] if outer >= 0 else None)
            for at, outer in zip(members, around, strict=True)
        ]

    def _say_difference(self, entry: _Entry, before: int, found: list[_Entry]) -> None:
        """Say why a numbered layer is not in the repeat beside it."""
        last = found[-1] if found else None
        if self._patterns is None or last is None or last.rows or (last.times == 1 and entry.times == 1):
            return
        earlier, event = self._events[before], self._events[entry.id]
        if event.kind != "module" or earlier.kind != "module" or earlier.name != event.name or event.error:
            return
        here, there = self._names((entry.id, before))
        (head, number), (other, _) = split_index(here), split_index(there)
        if number is not None and head == other and here != there:
            entry.unlike = f"{there}: {difference(self._patterns, before, entry.id)}"

    def _add(self, first: int, others: Sequence[int]) -> None:
        """Count what is in several events to the one that stands for them."""
        if self._is_measured:
            self._others.setdefault(first, []).extend(others)
        inside = self._forest.inside
        more = sum([inside[at] for at in others if at in inside])
        if more:
            inside[first] = inside.get(first, 0) + more
        if self._sizes:
            self._sizes[first] += sum([self._sizes[at] for at in others])
        if self._spent:
            self._spent[first] += sum([self._spent[at] for at in others])

    def _failed_further_in(self, entries: Sequence[_Entry]) -> set[int]:
        """Events whose error came out of a call that has a row of its own: its text is said there."""
        outer: set[int] = set()
        depth: int | None = None
        for entry in reversed(entries):
            if entry.id < 0:
                continue
            inside = depth is not None and entry.depth < depth
            if self._events[entry.id].error is not None:
                if inside:
                    outer.add(entry.id)
                depth = entry.depth
            elif inside:
                depth = None
        return outer

    # ------------------------------------------------------------ what is said

    def _row(self, entry: _Entry, failed_inside: bool) -> Row:
        if entry.rows:
            often = f"{clean(entry.span)} × {count(entry.times)}".lstrip()
            cells = Cell(FOLD, often), Cell(COUNT, f", {entry.rows} steps each:")
            return Row(entry.depth, REPEAT, cells, times=entry.times)
        if entry.id < 0:
            return Row(0, THREAD, (Cell(NAME, entry.name),))
        return Row(
            entry.depth, EVENT, self._cells(entry, failed_inside), entry.id, entry.times, entry.each,
            entry.inside + entry.deeper, self._remarks(entry),
        )  # fmt: skip

    def _cells(self, entry: _Entry, failed_inside: bool) -> Cells:
        key = (
            self._texts[entry.id], entry.name, entry.span, entry.times, entry.each, entry.inside, entry.deeper,
            failed_inside,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make_cells(entry, failed_inside)
        if self._events[entry.id].kind == "mark":
            found = self._with_value(found, entry)
        if self._is_measured:
            same = [entry.id, *self._others.get(entry.id, ())]
            found = with_stats(found, map(self._trace.event, same))
        if self._spent:
            spent = self._spent[entry.id] if self._events[entry.id].end_ns is not None else None
            found = (*found, Cell(TIME, f"{duration(spent):>8} {share(spent, self._trace.duration_ns):>6}"))
        return found

    def _make_cells(self, entry: _Entry, failed_inside: bool) -> Cells:
        """How often it happened stands before everything else."""
        event, fold = self._events[entry.id], ""
        if entry.times > 1:
            fold = f"{clean(entry.span)} × {count(entry.times)}".lstrip()
        elif entry.span and entry.span != entry.name:
            fold = clean(entry.span)
        if entry.id in self._forest.helpers:
            return helper_cells(event, fold, entry.inside + entry.each)
        more = entry.deeper or (entry.inside if event.kind == "step" else 0)
        return event_cells(
            event, entry.name, fold=fold, same_code=entry.same_code, more=more, brief=failed_inside
        )  # fmt: skip

    def _with_value(self, cells: Cells, entry: _Entry) -> Cells:
        """A mark of something that holds no tensor says what it was, and of several what the first was."""
        if any(cell.kind == TAKES for cell in cells):
            return cells
        # Asked of the trace: the events are samples, from the same place, with another value.
        value = cut(clean(self._trace.event(entry.id).args), LONGEST_VALUE)
        return (*cells, Cell(TAKES, f"{value} …" if entry.each > 1 else value))

    def _remarks(self, entry: _Entry) -> Cells:
        note = self._events[entry.id].note or self._forest.notes.get(entry.id)
        unlike = (Cell(REMARK, f"≠ {entry.unlike} differ"),) if entry.unlike else ()
        return (*unlike, Cell(NOTE, note)) if note else unlike

    def _summary(self, entries: Sequence[_Entry]) -> list[str]:
        """How many events there were, and why some have no row."""
        rows, options = [entry for entry in entries if entry.id >= 0], self._options
        inner, deeper = sum(row.inside for row in rows), sum(row.deeper for row in rows)
        folded, left_out = sum(row.each - 1 for row in rows), self._forest.left_out
        took = f" in {duration(self._trace.duration_ns)}" if options.times and self._trace.duration_ns else ""
        parts = [plural(len(self._events), "event") + took]
        if folded:
            parts.append(f"{count(folded)} folded")
        if inner:
            parts.append(f"{count(inner)} inside torch calls" + ("" if options.inner else " (inner=True)"))
        if deeper:
            parts.append(f"{count(deeper)} deeper than depth={options.depth}")
        if left_out:
            parts.append(f"{count(left_out)} not {'selected' if options.only else 'shown'}")
        return parts


def _with_ancestors(parents: Sequence[int], matched: bytearray) -> bytearray:
    kept = bytearray(matched)
    for at in range(len(parents) - 1, -1, -1):
        if kept[at] and parents[at] >= 0:
            kept[parents[at]] = True
    return kept
