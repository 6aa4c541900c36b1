"""What tree and data flow are made of: events that are shown, and the calls, loops and rounds that they stand in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.views.digest import (
    Digest,
    Key,
    Nesting,
    is_inner_at,
    is_torch_helper,
    nesting,
    relative_path,
    settings_of,
    shape_key,
    split_index,
    texts_of,
)
from torchglass.views.fold import TOGETHER, Item, range_label
from torchglass.views.levels import CALL, LOOP, Level, Levels, count_of
from torchglass.views.options import GraphOptions
from torchglass.views.stacks import is_constructor, is_own


class EventForest:
    """Nodes are events, by their ids, and behind them spans; each is under one around it, or outermost of a thread."""

    def __init__(self, digest: Digest) -> None:
        self.digest, self.events, self.texts = digest, digest.events(), texts_of(digest)
        self.levels = Levels(digest)
        self.children: dict[int, list[int]] = {}
        self.threads: dict[str, list[int]] = {}

    def span(self, node: int) -> Level | None:
        """The span of a node; None: it is an event."""
        return self.levels.spans[node - len(self.events)] if node >= len(self.events) else None

    def siblings(self, around: int, thread: str) -> list[int]:
        """What is directly in a node (-1: in none), to be added to."""
        return self.children.setdefault(around, []) if around >= 0 else self.threads.setdefault(thread, [])

    def below(self, node: int) -> Sequence[int]:
        return self.children.get(node, ())

    def line(self, node: int) -> int:
        span = self.span(node)
        at = self.events[node].location if span is None else span.at
        return 0 if at is None else at.line

    def rounds(self, node: int) -> bool | None:
        span = self.span(node)
        return None if span is None else span.is_laid_over


class Forest(EventForest):
    """Each event that is shown, and each span that it is in, is under the nearest one around it that has a row."""

    def __init__(self, digest: Digest, options: GraphOptions, has_spans: bool = True) -> None:
        super().__init__(digest)
        self._options, self._has_spans, self._parents = options, has_spans, digest.parents
        self.nest: Nesting = nesting(self.events, self._parents)
        self.inside: dict[int, int] = {}
        """Events without a row, by the node that they are in."""
        self.helpers: dict[int, list[int]] = {}
        """Rows for expressions that are no events: the events that torch made there."""
        self.notes: dict[int, str] = {}
        """The first note of an event without a row, by the node that it is in."""
        self.left_out = 0
        self._attached: set[int] = set()
        self.anchors: list[int] = []
        """The node that stands for each event: its own, or one around it."""
        self._keys: dict[int, Hashable] = {}
        self._closed_by: dict[int, int] = {}
        self._fill(None if options.only is None else digest.matching(options.only))

    # ------------------------------------------------------------ what folding asks

    def key(self, node: int) -> Hashable:
        """What happened, and at which place of the code: equal in all rounds."""
        span = self.span(node)
        if span is not None:
            return (span.kind, span.place or span.at, span.function, span.loop)
        alike = self.digest.alike[node]
        found = self._keys.get(alike)
        if found is None:
            found = self._keys[alike] = self._event_key(self.digest.samples[alike])
        return (found, node) if self.is_gap(node) else found

    def merges(self, node: int) -> bool:
        span = self.span(node)
        return span.kind == CALL if span is not None else self.events[node].kind in ("function", "op", "step", CALL)

    def home(self, at: int) -> int:
        """The innermost node that an event is in, whether it has one itself or not; -1: none."""
        number = self.levels.span_of[at] if self._has_spans else -1
        while number >= 0 and number not in self._attached:
            number = self.levels.spans[number].parent
        return self.anchors[at] if number < 0 else len(self.events) + number

    def is_gap(self, node: int) -> bool:
        """Whether events are missing here: that is never folded away."""
        return self.events[node].kind == "unseen" and self.events[node].name == "gap"

    def without_all(self, items: list[Item]) -> list[Item]:
        """A call that holds everything says nothing: it is what ran the program."""
        while len(items) == 1 and len(items[0].nodes) == 1:
            node = items[0].nodes[0]
            span, is_empty = self.span(node), node in self.inside or not self.below(node)
            if span is None or (span.kind == CALL and self.is_closed(span) and is_empty):
                break
            if span.kind == LOOP and len(self.below(node)) > 1:
                break
            items = items[0].children
        return items

    @staticmethod
    def _event_key(event: Event) -> Key:
        """A layer that torch calls goes by its path, one that the program calls by the place of the call."""
        layer = None
        if event.kind == "module" and not event.direct:
            layer = (event.root, event.module)
        inner = event.stack[-1] if event.stack else None
        state = event.error, event.end_ns is None
        return (event.kind, event.name, event.location, inner, event.operator, layer, state)

    # ------------------------------------------------------------ what is shown

    def _fill(self, matched: bytearray | None) -> None:
        kept = None if matched is None else _with_ancestors(self._parents, matched)
        only = self._options.only
        by_name = matched if only is not None and only.names_calls else None
        # How an event is treated depends only on its text and that of the one around it: asked once for each pair.
        treated: dict[tuple[int, int, bool], tuple[bool, bool]] = {}
        texts, containers, anchors = self.texts, self.nest.containers, self.anchors
        for at, parent in enumerate(self._parents):
            anchor = anchors[parent] if parent >= 0 else -1
            pair = (texts[at], texts[parent] if parent >= 0 else -1, parent in containers)
            found = treated.get(pair)
            if found is None:
                found = treated[pair] = self._is_hidden(at, parent), self._is_helper(at, parent)
            closed = self._closed(at)
            if kept is not None and not kept[at]:
                self.left_out += 1
            elif 0 <= anchor < len(self.events) and self.is_made_in(anchor):
                self._hide(at, anchor)
            elif anchor >= len(self.events) or closed >= 0:
                anchor = anchor if anchor >= len(self.events) else self._attach(closed, anchor, at)
                self._hide(at, anchor)
            elif found[0] and not (by_name is not None and by_name[at]):
                self._hide(at, anchor)
            else:
                anchor = self._place(at, anchor, found[1])
            anchors.append(anchor)

    def _is_hidden(self, at: int, parent: int) -> bool:
        if not self._options.functions and self.events[at].kind in ("function", "op"):
            return True
        return not self._options.inner and is_inner_at(self.events, self.nest, at, parent)

    def _is_helper(self, at: int, parent: int) -> bool:
        """Whether it is part of an expression that is no event itself."""
        around = self.events[parent] if parent >= 0 else None
        return not self._options.inner and is_torch_helper(self.events[at], around)

    def _closed(self, at: int) -> int:
        """The outermost call around an event, in the one around it, of which one line is shown; -1: none.

        That is what made an object, and code of installed packages that torch called: a data set's, but not what ran
        the program, as a test runner does.
        """
        number = self.levels.span_of[at] if self._has_spans else -1
        if number < 0:
            return -1
        if number not in self._closed_by:
            spans, found, each, is_own_inside = self.levels.spans, -1, number, False
            while each >= 0:
                span = spans[each]
                if self.is_closed(span) and (not is_own_inside or is_constructor(span.function)):
                    found = each
                is_own_inside |= span.is_own
                each = span.parent
            self._closed_by[number] = found
        found = self._closed_by[number]
        if found >= 0 and not is_constructor(self.levels.spans[found].function):
            location = self.events[at].location
            return -1 if location is not None and is_own(location) else found
        return found

    def is_made_in(self, at: int) -> bool:
        """Whether an event is the call of what made an object, of which one line is shown."""
        event = self.events[at]
        return event.kind == CALL and is_constructor(event.name) and not self._options.constructors

    def is_closed(self, span: Level) -> bool:
        """Whether of a call one line is shown, whatever it did."""
        if span.kind != CALL:
            return False
        if is_constructor(span.function):
            return not self._options.constructors
        return span.is_called_back and not span.is_own and not self._options.inner

    def _place(self, at: int, anchor: int, helper: bool) -> int:
        """Put an event under its span or anchor, or into the row of the helper before it; the row that it is in."""
        number = self.levels.span_of[at] if self._has_spans else -1
        if number >= 0:
            anchor = self._attach(number, anchor, at)
        # Also what the autograd engine runs in a thread of its own belongs to the backward call.
        siblings = self.siblings(anchor, self.events[at].thread)
        if helper:
            before = siblings[-1] if siblings else -1
            if before in self.helpers and self._is_one_expression(before, at):
                self.helpers[before].append(at)
                self._hide(at, before)
                return before
            self.helpers[at] = [at]
        siblings.append(at)
        return at

    def _attach(self, number: int, anchor: int, at: int) -> int:
        """The node of a span; it and those around it are put in place when something in them is."""
        chain: list[int] = []
        while number >= 0 and number not in self._attached:
            chain.append(number)
            number = self.levels.spans[number].parent
        node = anchor if number < 0 else len(self.events) + number
        for each in reversed(chain):
            self._attached.add(each)
            self.siblings(node, self.events[at].thread).append(len(self.events) + each)
            node = len(self.events) + each
        return node if chain or number >= 0 else anchor

    def _is_one_expression(self, first: int, other: int) -> bool:
        one, two = self.events[first], self.events[other]
        return one.location == two.location and self._parents[first] == self._parents[other] and not two.error

    def _hide(self, at: int, under: int) -> None:
        if under < 0:
            self.left_out += 1
            return
        self.inside[under] = self.inside.get(under, 0) + 1
        note = self.events[at].note
        if note:
            self.notes.setdefault(under, note)


def _with_ancestors(parents: Sequence[int], matched: bytearray) -> bytearray:
    kept = bytearray(matched)
    for at in range(len(parents) - 1, -1, -1):
        if kept[at] and parents[at] >= 0:
            kept[parents[at]] = True
    return kept


# ---------------------------------------------------------------- layers

# Layers: the names of modules, which of them are equal, and what keeps two apart.

_PARTS = ("class", "settings", "input shapes", "output shapes", "parameters", "error", "note")


class Layers:
    """What is known of the modules of a trace."""

    def __init__(self, modules: Sequence[ModuleInfo], forest: Forest) -> None:
        self._forest, self._events = forest, forest.events
        self._parameters = {(info.root, info.path): tuple(map(_parameter_key, info.parameters)) for info in modules}
        self._keys: dict[tuple[int, int], Key] = {}

    def name(self, node: int) -> str:
        """Of a module's call: its path as seen from the module above; else nothing."""
        event = self._events[node]
        if event.kind != "module":
            return ""
        around = self._forest.nest.module_above[node]
        return relative_path(event, self._events[around] if around >= 0 else None)

    def range_of(self, item: Item) -> str:
        """``blocks.0–11``: the modules that an item stands for; nothing for other events."""
        return range_label(map(self.name, item.nodes)) if self._events[item.nodes[0]].kind == "module" else ""

    def common_range(self, item: Item) -> str:
        """``layers.0–23`` when all modules of a repeat are numbered under one name."""
        pending, names = list(item.children), list[str]()
        while pending:
            each = pending.pop()
            if self._forest.span(each.nodes[0]) is not None:
                pending += each.children
            elif self._events[each.nodes[0]].kind == "module":
                names += map(self.name, each.nodes)
        names.sort(key=lambda name: split_index(name)[1] or 0)
        if not names or split_index(names[0])[1] is None or len({split_index(name)[0] for name in names}) > 1:
            return ""
        return range_label(names)

    # ------------------------------------------------------------ which are equal

    def own(self, item: Item) -> Hashable:
        """All that is said of an item itself.

        Names, settings, expressions, shapes, parameters. A layer's number is left out, so that ``blocks.0`` may
        equal ``blocks.1``, and of numbered layers the place of the call, which a loop unrolled by hand has
        several of.
        """
        node = item.nodes[0]
        span = self._forest.span(node)
        if span is not None:
            counts = None
            if span.rounds is not None:
                loops = [each for each in map(self._forest.span, item.nodes) if each is not None]
                counts = frozenset(map(count_of, loops))
            return (span.kind, None if span.kind == "round" else self._forest.key(node), counts)
        if len(item.nodes) == 1:
            return self._node_key(node)
        return tuple(dict.fromkeys(map(self._node_key, item.nodes)))

    def _node_key(self, node: int) -> Hashable:
        texts = self._forest.texts
        if self._events[node].kind != "module":
            return texts[node]
        return self._module_key(node)

    def _module_key(self, node: int) -> Key:
        around = self._forest.nest.module_above[node]
        pair = (self._forest.texts[node], self._forest.texts[around] if around >= 0 else -1)
        if pair not in self._keys:
            self._keys[pair] = _module_key(self._events[node], self.name(node), self._parameters)
        return self._keys[pair]

    # ------------------------------------------------------------ what keeps two apart

    def difference(self, item: Item, before: Item) -> str:
        """In words, why a numbered layer is not in the repeat beside it; nothing where that needs no words."""
        one, other = item.nodes[0], before.nodes[-1]
        if TOGETHER in (one, other) or max(one, other) >= len(self._events):
            return ""
        event, earlier = self._events[one], self._events[other]
        if event.kind != "module" or earlier.kind != "module" or earlier.name != event.name or event.error:
            return ""
        here, there = self.name(one), self.name(other)
        (head, number), (same, _) = split_index(here), split_index(there)
        if number is None or head != same or here == there:
            return ""
        pairs = zip(_PARTS, self._module_key(other), self._module_key(one), strict=False)
        apart = [part for part, left, right in pairs if left != right] or ["the steps inside it"]
        words = apart[0] if len(apart) == 1 else f"{', '.join(apart[:-1])} and {apart[-1]}"
        return f"≠ {there}: {words} differ"


def _parameter_key(value: Value) -> Key:
    return (value.role, value.dtype, value.shape, value.requires_grad)


def _module_key(event: Event, path: str, parameters: Mapping[tuple[str, str], Key]) -> Key:
    head, number = split_index(path)
    return (
        event.name,
        settings_of(event.detail, event.module),
        tuple(map(shape_key, event.inputs)),
        tuple(map(shape_key, event.outputs)),
        parameters.get((event.root or "", event.module or ""), ()),
        event.error,
        event.note,
        head,
        None if number is not None else (event.code, event.target, event.line),
    )
