"""Compares the calls of modules as layers: their names, which of them look the same, and how two differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from torchglass.events.types import ModuleInfo, Value
from torchglass.program.dedup import Key, shape_key
from torchglass.program.fold import Item
from torchglass.program.paths import range_label, relative_path, settings_of, split_index
from torchglass.program.tree import ITERATION, LOOP
from torchglass.views.shown import ShownEvents


class _LayerKey(NamedTuple):
    """What a row shows of a module's call. Layers with equal keys may be folded into one row."""

    class_name: str
    settings: str
    inputs: tuple[Key, ...]
    """Shape, dtype and device of each input."""
    outputs: tuple[Key, ...]
    parameters: tuple[Key, ...]
    error: str | None
    note: str | None
    head: str
    """The path without the number at its end: ``blocks`` for ``blocks.3``."""
    written: tuple[object, ...] | None
    """Expression, target and line of the call; None for numbered layers.

    A loop over layers that is unrolled by hand calls them from several lines.
    """


_DIFFERENCES = {
    "class_name": "class",
    "settings": "settings",
    "inputs": "input shapes",
    "outputs": "output shapes",
    "parameters": "parameters",
    "error": "error",
    "note": "note",
}
"""For each field of a key in which numbered layers may differ, the word for it."""


class Layers:
    """Names and compares the module calls that a view shows."""

    def __init__(self, modules: Sequence[ModuleInfo], shown: ShownEvents) -> None:
        self._shown = shown
        self._events = shown.events
        self._parameters = {
            (info.root, info.path): tuple(map(_parameter_key, info.parameters)) for info in modules
        }
        """By root and path, what is compared of a module's parameters."""
        self._keys: dict[tuple[int, int], _LayerKey] = {}
        """By how the call of a module and the call around it look."""

    def name(self, node: int) -> str:
        """Return the path of a module, relative to the module around its call; "" for other events."""
        event = self._events[node]
        if event.kind != "module":
            return ""
        around = self._shown.nest.module_above[node]
        if around < 0:
            return relative_path(event, None)
        return relative_path(event, self._events[around])

    def range_of(self, item: Item) -> str:
        """Return ``blocks.0–11`` for the modules that an item stands for; "" for other events."""
        if self._events[item.nodes[0]].kind == "module":
            return range_label(map(self.name, item.nodes))
        return ""

    def common_range(self, item: Item) -> str:
        """Return ``layers.0–23`` if all modules of a repeat are numbered under one name."""
        pending = list(item.children)
        names = list[str]()
        while pending:
            each = pending.pop()
            if self._shown.scope(each.nodes[0]) >= 0:
                pending += each.children
            elif self._events[each.nodes[0]].kind == "module":
                names += map(self.name, each.nodes)
        if not names:
            return ""
        names.sort(key=lambda name: split_index(name)[1] or 0)
        heads = {split_index(name)[0] for name in names}
        _, first_number = split_index(names[0])
        if first_number is None or len(heads) > 1:
            return ""
        return range_label(names)

    # ------------------------------------------------------------ which look the same

    def appearance(self, item: Item) -> Hashable:
        """Return a key for what the row of an item shows: names, settings, expressions, shapes, parameters.

        The number of a layer is left out, so that ``blocks.0`` and ``blocks.1`` may be equal.
        """
        node = item.nodes[0]
        if not self._shown.tree.is_event(node):
            return self._scope_appearance(item)
        if len(item.nodes) == 1:
            return self._event_appearance(node)
        return tuple(dict.fromkeys(map(self._event_appearance, item.nodes)))

    def _scope_appearance(self, item: Item) -> Hashable:
        """Return the key of a call, a loop or an iteration."""
        node = item.nodes[0]
        tree = self._shown.tree
        kind = tree.kind(node)
        key = None
        if kind != ITERATION:
            key = self._shown.key(node)
        counts = None
        if kind == LOOP:
            counts = frozenset(map(tree.count, item.nodes))
        return (kind, key, counts)

    def _event_appearance(self, node: int) -> Hashable:
        if self._events[node].kind == "module":
            return self._layer_key(node)
        return self._shown.looks[node]

    def _layer_key(self, node: int) -> _LayerKey:
        # The name of a module is relative to the module around it, so the key depends on both.
        around = self._shown.nest.module_above[node]
        around_looks = -1
        if around >= 0:
            around_looks = self._shown.looks[around]
        looks = (self._shown.looks[node], around_looks)
        if looks not in self._keys:
            self._keys[looks] = self._make_layer_key(node)
        return self._keys[looks]

    def _make_layer_key(self, node: int) -> _LayerKey:
        event = self._events[node]
        head, number = split_index(self.name(node))
        written = None
        if number is None:
            written = (event.code, event.target, event.line)
        return _LayerKey(
            class_name=event.name,
            settings=settings_of(event.detail, event.module),
            inputs=tuple(map(shape_key, event.inputs)),
            outputs=tuple(map(shape_key, event.outputs)),
            parameters=self._parameters.get((event.root or "", event.module or ""), ()),
            error=event.error,
            note=event.note,
            head=head,
            written=written,
        )

    # ------------------------------------------------------------ how two differ

    def difference(self, item: Item, previous: Item) -> str:
        """Return why a numbered layer is not part of the repeat before it, such as ``≠ blocks.0: settings differ``.

        Return "" for anything but two numbered layers of one class and one name.
        """
        if item.is_repeat or previous.is_repeat:
            return ""
        node = item.nodes[0]
        previous_node = previous.nodes[-1]
        if not self._are_comparable(node, previous_node):
            return ""
        key = self._layer_key(node)
        previous_key = self._layer_key(previous_node)
        words: list[str] = []
        for field, word in _DIFFERENCES.items():
            if getattr(key, field) != getattr(previous_key, field):
                words.append(word)
        if not words:
            words = ["the steps inside it"]
        text = words[-1]
        if len(words) > 1:
            text = f"{', '.join(words[:-1])} and {words[-1]}"
        return f"≠ {self.name(previous_node)}: {text} differ"

    def _are_comparable(self, node: int, previous: int) -> bool:
        """Return whether two nodes are different numbered layers of one class under one name."""
        if not (self._shown.tree.is_event(node) and self._shown.tree.is_event(previous)):
            return False
        event = self._events[node]
        previous_event = self._events[previous]
        if event.kind != "module" or previous_event.kind != "module":
            return False
        if event.error or event.name != previous_event.name:
            return False
        name = self.name(node)
        previous_name = self.name(previous)
        head, number = split_index(name)
        previous_head, _ = split_index(previous_name)
        return number is not None and head == previous_head and name != previous_name


def _parameter_key(value: Value) -> Key:
    """Return what is compared of a parameter. Its numbers differ between layers, and are not."""
    return (value.role, value.dtype, value.shape, value.requires_grad)
