"""Layers: the names of modules, which of them are equal, and what keeps two apart."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from torchglass.events.types import Event, ModuleInfo, Value
from torchglass.views.digest import Key, shape_key
from torchglass.views.fold import TOGETHER, Item, range_label
from torchglass.views.forest import Forest
from torchglass.views.levels import count_of
from torchglass.views.nesting import relative_path, settings_of, split_index

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
