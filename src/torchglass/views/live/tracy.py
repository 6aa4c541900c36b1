"""Prints a block for each step with its input and output shapes while the program runs, in the
format of Tracy NN::

    ● fc1 (Linear) (in_features: 4, out_features: 16)
    ├─ Input: Tensor [8, 4] @ cpu
    └─ Output: Tensor [8, 16] @ cpu
    │

``live/steps.py`` says when a step can be printed. An *entry* is one value in a list of arguments or
results, with its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from torchglass.events.types import Event, Value
from torchglass.views.live.steps import LiveStep, LiveSteps, Place
from torchglass.views.text.cells import BINARY, split_arguments
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut

RULE = "  " + "─" * 80
MAX_LINE_LENGTH = 400
MAX_NESTING = 8
"""How deep lists and dicts in arguments are opened."""
MAX_BLOCKS_KEPT = 4096
"""How many blocks are kept for equal steps, to limit memory."""
_TENSOR = re.compile(r"[A-Za-z]\w*\[(?:[\d?, ]*|[\d, ]*… [\d,]+ dimensions)\](?: \w+)?")
"""A tensor, as a trace writes it: ``f32[8, 3]``."""
_NESTED = re.compile(r"([A-Za-z_][\w.]*)?([(\[{])(.*)[)\]}]", re.DOTALL)
"""A list, tuple, dict or object with something in it. Group 3 is what is in it."""
_NAMED = re.compile(
    r"([A-Za-z_]\w*)=(?!=)(.*)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"): (.*)", re.DOTALL
)
"""``key=value`` (groups 1 and 2) or ``"key": value`` (groups 3 and 4)."""
_SETTINGS = (
    "in_features",
    "out_features",
    "in_channels",
    "out_channels",
    "kernel_size",
    "num_features",
    "p",
)
"""The settings of a module that Tracy NN prints."""
NOT_SHOWN = "Tensor.contiguous"
"""Tracy NN's documented output shows a transpose and a view, but not the copy between them."""
_BLOCKS: dict[Page, dict[tuple[object, ...], tuple[str, ...]]] = {}
"""The lines of a step, keyed by everything they depend on, because the layers of a model print the
same ones repeatedly.
"""
_PRINTED = frozenset(["module", "function", "unseen"])
"""The kinds of events that are steps."""


class TracyLines:
    """Turns events into lines: call ``feed`` when an event begins and when it ends, and print the
    lines it returns.

    The root (the outermost module) prints no block. A module with steps inside prints its head and
    its input when the first of them begins, and its output at the end. Its contents are indented by
    two columns.
    """

    def __init__(self, name: str, page: Page | None = None) -> None:
        self._name = clean(name)
        self._page = page or Page()
        self._blocks = _BLOCKS.setdefault(self._page, {})
        self._steps = LiveSteps()
        self.is_silent = self._steps.is_silent
        self._whole_calls: dict[tuple[int, Place], tuple[Event, list[str]]] = {}
        """By the id of an event and where it was called: the event, kept so that no other gets its
        id, and its lines.
        """
        self._root: int | None = None
        """The id of the outermost module's call."""
        self._printed_error = ""
        """The last error that was printed. It also leaves the root, which need not print it again."""

    def start(self) -> list[str]:
        """Return the opening lines."""
        return [self._rule(), self._title("STARTED"), "  │"]

    def finish(self) -> list[str]:
        """Return the closing lines."""
        return [self._title("COMPLETE"), self._rule()]

    def feed(self, event: Event, edge: str) -> list[str]:
        """Return the lines that can be printed now."""
        if self._root is None and event.kind == "module":
            self._root = event.id
        steps = self._steps.feed(event, edge)
        if steps:
            return [line for step in steps for line in self._block(step)]
        return []

    def whole(self, event: Event, parent: int) -> list[str]:
        """Return the lines of a call for which ``feed`` was not called: it began without output,
        and nothing happened in it.

        The event may be an equal earlier one from another place, so its parent is given separately.
        """
        key = (id(event), self._steps.place(parent, event.kind == "module"))
        kept = self._whole_calls.get(key)
        if kept is not None:
            _, lines = kept
            return lines
        lines = [line for step in self._steps.whole(event, parent) for line in self._block(step)]
        if lines and event.error is None:
            if len(self._whole_calls) >= MAX_BLOCKS_KEPT:
                self._whole_calls.clear()
            self._whole_calls[key] = (event, lines)
        return lines

    def _rule(self) -> str:
        return self._page.paint("dim", RULE)

    def _title(self, word: str) -> str:
        return "  ● " + self._page.paint("heading", f"TRACING {self._name} {word}")

    # ------------------------------------------------------------ blocks

    def _block(self, step: LiveStep) -> Iterable[str]:
        """Return the lines of a step. Equal steps share them."""
        event = step.event
        if event.kind not in _PRINTED or event.name == NOT_SHOWN:
            return ()
        if event.id == self._root or event.error is not None:
            return self._make_block(step)
        values = event.inputs + event.outputs
        key = (
            step.part, step.depth, step.name, event.kind, event.name, event.operator, event.owner, event.args,
            event.result, event.detail, len(event.inputs), *[each.shape for each in values],
            *[each.device for each in values],
        )  # fmt: skip
        block = self._blocks.get(key)
        if block is None:
            if len(self._blocks) >= MAX_BLOCKS_KEPT:
                self._blocks.clear()
            block = self._blocks[key] = tuple(self._make_block(step))
        return block

    def _make_block(self, step: LiveStep) -> Iterator[str]:
        event = step.event
        margin = "  " * max(step.depth, 1)
        items: list[tuple[str, str]] = []
        if event.id == self._root:
            if step.part == "head" or not event.error or event.error == self._printed_error:
                return
        elif step.part != "tail":
            items += _inputs(event)
        if step.part != "tail" or event.id == self._root:
            yield f"{margin}● {self._page.paint('name', cut(_head(event, step.name), MAX_LINE_LENGTH))}"
        if step.part != "head":
            items += self._results(event)
        for number, (label, text) in enumerate(items):
            branch = "├─"
            if step.part != "head" and number == len(items) - 1:
                branch = "└─"
            yield f"{margin}{branch} {label}: {cut(text, MAX_LINE_LENGTH)}"
        yield f"{margin}│"

    def _results(self, event: Event) -> list[tuple[str, str]]:
        if event.error is not None:
            self._printed_error = event.error
            return [("Error", self._page.paint("error", clean(event.error)))]
        return _labelled("Output", _entries(event.result, event.outputs), event.outputs)


# ---------------------------------------------------------------- heads


def _head(event: Event, name: str) -> str:
    """Return the first line of a block: ``fc1 (Linear) (in_features: 4)`` or ``F.relu(inplace=False)``."""
    if event.kind == "module":
        settings = ", ".join(f"{key}: {value}" for key, value in _settings(event))
        head = f"{clean(name)} ({clean(event.name)})"
        if settings:
            return f"{head} ({settings})"
        return head
    where = ""
    if event.owner:
        where = f" @ [{clean(event.owner)}]"
    called = clean(event.name)
    if event.operator == "@":
        return f"Tensor.@{where}"
    if not called.startswith(("Tensor.", "F.", "torch.")):
        called = f"torch.{called}"
    if _is_operator(event):
        return called + where
    return f"{called}({', '.join(_plain_arguments(event.args))}){where}"


def _is_operator(event: Event) -> bool:
    return event.operator in BINARY and len(split_arguments(event.args)) == 2


def _settings(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the settings that Tracy NN prints, with names where the class shows them by position."""
    names = iter(())
    if "Conv" in event.name:
        names = iter(("in_channels", "out_channels"))
    elif "BatchNorm" in event.name or "InstanceNorm" in event.name:
        names = iter(("num_features",))
    for part in split_arguments(clean(event.detail)):
        key, equals, value = part.partition("=")
        if not equals:
            key = next(names, "")
            value = part
        if key in _SETTINGS:
            yield key, value


def _plain_arguments(args: str) -> Iterator[str]:
    """Yield all arguments without a tensor, except torch's own switches and those that are None."""
    for part in split_arguments(clean(args)):
        named = _NAMED.fullmatch(part)
        if named and named[1] and (named[1].startswith("_") or named[2] == "None"):
            continue
        if not _TENSOR.search(part):
            yield part


# ---------------------------------------------------------------- values


def _inputs(event: Event) -> list[tuple[str, str]]:
    entries = _entries(event.args, event.inputs)
    if event.kind == "function" and _is_operator(event):
        sides = [text for _, text in entries]
        if event.name.startswith("Tensor.__r") and event.name != "Tensor.__rshift__":
            sides.reverse()
        return list(zip(("Left", "Right"), sides, strict=False))
    if event.kind == "function":
        entries = [entry for entry in entries if entry[1].startswith("Tensor ")]
    return _labelled("Input", entries, event.inputs)


def _labelled(
    word: str, entries: list[tuple[str, str]], values: tuple[Value, ...]
) -> list[tuple[str, str]]:
    """Label one entry ``Input``, several ``Input[0]``, ``Input[1]``, or by their keys."""
    if sum(text.startswith("Tensor ") for _, text in entries) != len(values):
        entries = [("", _tensor(value)) for value in values]
    if len(entries) == 1:
        return [(word, entries[0][1])]
    return [(f"{word}[{key or number}]", text) for number, (key, text) in enumerate(entries)]


def _entries(text: str, values: Iterable[Value]) -> list[tuple[str, str]]:
    """Return each value in a list of arguments with its key, lists and dicts element by element.

    ``values`` are the tensors in it, in order.
    """
    tensors = iter(values)
    return [(key, word or _tensor(next(tensors, None))) for key, word in _keys_and_words(text)]


@lru_cache(maxsize=4096)
def _keys_and_words(text: str) -> tuple[tuple[str, str], ...]:
    """Return the key and the word of each value in a list of arguments. The word of a tensor is empty.

    For ``f32[3], {"mask": f32[3], "p": 0.5}`` that is ``("", ""), ("mask", ""), ("p", "float")``.
    """
    return tuple(_nested_keys_and_words(text, "", 0))


def _nested_keys_and_words(text: str, key: str, depth: int) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(split_arguments(text)):
        named = _NAMED.fullmatch(part)
        inner = part
        name = ""
        if key:
            name = f"{key}[{number}]"
        if named:
            if named[1]:
                inner = named[2]
            else:
                inner = named[4]
            name = f"{key}.{named[1] or named[3][1:-1]}".lstrip(".")
        if _TENSOR.fullmatch(inner):
            yield clean(name), ""
            continue
        nested = _NESTED.fullmatch(inner)
        if nested and depth < MAX_NESTING:
            yield from _nested_keys_and_words(nested[3], name, depth + 1)
        else:
            yield clean(name), _type_name(inner)


def _tensor(value: Value | None) -> str:
    if value is None:
        return "Tensor"
    return _tensor_word(value.shape, value.device)


@lru_cache(maxsize=4096)
def _tensor_word(shape: tuple[int, ...] | None, device: str) -> str:
    sizes = "?"
    if shape is not None:
        sizes = ", ".join(str(size) if size >= 0 else "?" for size in shape[:64])
    return f"Tensor [{sizes}] @ {clean(device)}"


def _type_name(word: str) -> str:
    """Return the type of an argument, from how it is written."""
    if word == "None":
        return word
    if word.startswith("<"):
        return clean(word.strip("<>").partition(" ")[0])
    if word in ("True", "False"):
        return "bool"
    if word[:1] in "'\"":
        return "str"
    if re.fullmatch(r"-?\d+", word):
        return "int"
    if re.fullmatch(r"-?(?:[\d.]+(?:e[+-]?\d+)?|inf|nan)", word):
        return "float"
    if word.startswith("torch."):
        return clean(word.rpartition(".")[0] or word)
    return clean(word)
