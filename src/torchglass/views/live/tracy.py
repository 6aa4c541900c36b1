"""Tracy NN's live format: a block for each step, with its input and output shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.types import Event, Value
from torchglass.views.digest import called_by_torch, is_inner, relative_path
from torchglass.views.text.cells import BINARY, split_arguments
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut

RULE = "  " + "─" * 80
LONGEST_LINE = 400
DEEPEST = 8
_TENSOR = re.compile(r"[A-Za-z]\w*\[(?:[\d?, ]*|[\d, ]*… [\d,]+ dimensions)\](?: \w+)?")
_NESTED = re.compile(r"([A-Za-z_][\w.]*)?([(\[{])(.*)[)\]}]", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(?!=)(.*)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"): (.*)", re.DOTALL)
_SETTINGS = ("in_features", "out_features", "in_channels", "out_channels", "kernel_size", "num_features", "p")


NOT_SHOWN = "Tensor.contiguous"
"""In the documented sample a view follows a transpose: the copy between them is no step there."""


MOST_BLOCKS = 4096
_BLOCKS: dict[Page, dict[tuple[object, ...], tuple[str, ...]]] = {}
"""The lines of a step by all that they say: a model's layers print the same ones over and over."""
_PRINTED = frozenset(["module", "function", "unseen"])
"""The kinds of events that are steps."""


class TracyLines:
    """A line renderer: feed it both edges of each event, print what it gives.

    The root (the outermost module) prints no block. A module with steps inside prints its head and input when
    the first of them opens, its output at the end, and what is in it two columns further in.
    """

    def __init__(self, name: str, page: Page | None = None) -> None:
        self._name = clean(name)
        self._page = page or Page()
        self._blocks = _BLOCKS.setdefault(self._page, {})
        self._steps = LiveSteps()
        self.is_silent = self._steps.is_silent
        self._wholes: dict[tuple[int, Place], tuple[Event, list[str]]] = {}
        """By the id of an event, kept with it so that its id stays its own, and where it was called."""
        self._root: int | None = None
        self._told = ""
        """The last error that was printed: the root, which it leaves too, need not tell it again."""

    def start(self) -> list[str]:
        """The opening lines."""
        return [self._rule(), self._title("STARTED"), "  │"]

    def finish(self) -> list[str]:
        """The closing lines."""
        return [self._title("COMPLETE"), self._rule()]

    def feed(self, event: Event, edge: str) -> list[str]:
        """The lines that can be printed now."""
        if self._root is None and event.kind == "module":
            self._root = event.id
        steps = self._steps.feed(event, edge)
        return [line for step in steps for line in self._block(step)] if steps else []

    def whole(self, event: Event, parent: int) -> list[str]:
        """The same for a call of which neither edge was fed: nothing happened in it, and it opened in silence.

        An event before that was alike may stand for it, wherever that was called; so its parent is told apart.
        """
        key = (id(event), self._steps.place(parent, event.kind == "module"))
        known = self._wholes.get(key)
        if known is not None:
            return known[1]
        lines = [line for step in self._steps.whole(event, parent) for line in self._block(step)]
        if lines and event.error is None:
            if len(self._wholes) >= MOST_BLOCKS:
                self._wholes.clear()
            self._wholes[key] = (event, lines)
        return lines

    def _rule(self) -> str:
        return self._page.paint("dim", RULE)

    def _title(self, word: str) -> str:
        return "  ● " + self._page.paint("heading", f"TRACING {self._name} {word}")

    # ------------------------------------------------------------ blocks

    def _block(self, step: LiveStep) -> Iterable[str]:
        event = step.event
        if event.kind not in _PRINTED or event.name == NOT_SHOWN:
            return ()
        if event.id == self._root or event.error is not None:
            return self._written(step)
        values = event.inputs + event.outputs
        key = (
            step.part, step.depth, step.name, event.kind, event.name, event.operator, event.owner, event.args,
            event.result, event.detail, len(event.inputs), *[each.shape for each in values],
            *[each.device for each in values],
        )  # fmt: skip
        known = self._blocks.get(key)
        if known is None:
            if len(self._blocks) >= MOST_BLOCKS:
                self._blocks.clear()
            known = self._blocks[key] = tuple(self._written(step))
        return known

    def _written(self, step: LiveStep) -> Iterator[str]:
        event, margin = step.event, "  " * max(step.depth, 1)
        items: list[tuple[str, str]] = []
        if event.id == self._root:
            if step.part == "head" or not event.error or event.error == self._told:
                return
        elif step.part != "tail":
            items += _inputs(event)
        if step.part != "tail" or event.id == self._root:
            yield f"{margin}● {self._page.paint('name', cut(_head(event, step.name), LONGEST_LINE))}"
        if step.part != "head":
            items += self._results(event)
        for number, (label, text) in enumerate(items):
            branch = "└─" if step.part != "head" and number == len(items) - 1 else "├─"
            yield f"{margin}{branch} {label}: {cut(text, LONGEST_LINE)}"
        yield f"{margin}│"

    def _results(self, event: Event) -> list[tuple[str, str]]:
        if event.error is not None:
            self._told = event.error
            return [("Error", self._page.paint("error", clean(event.error)))]
        return _labelled("Output", _entries(event.result, event.outputs), event.outputs)


# ---------------------------------------------------------------- heads


def _head(event: Event, name: str) -> str:
    if event.kind == "module":
        settings = ", ".join(f"{key}: {value}" for key, value in _settings(event))
        return f"{clean(name)} ({clean(event.name)})" + (f" ({settings})" if settings else "")
    where = f" @ [{clean(event.owner)}]" if event.owner else ""
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
    """The settings that Tracy NN tells, named where the class shows them by position alone."""
    names = iter(())
    if "Conv" in event.name:
        names = iter(("in_channels", "out_channels"))
    elif "BatchNorm" in event.name or "InstanceNorm" in event.name:
        names = iter(("num_features",))
    for part in split_arguments(clean(event.detail)):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = next(names, ""), part
        if key in _SETTINGS:
            yield key, value


def _plain_arguments(args: str) -> Iterator[str]:
    """All arguments that hold no tensor; torch's own switches and those left at None are not worth a word."""
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


def _labelled(word: str, entries: list[tuple[str, str]], values: tuple[Value, ...]) -> list[tuple[str, str]]:
    """One entry is ``Input``; several are ``Input[0]``, ``Input[1]``, or go by their keys."""
    if sum(text.startswith("Tensor ") for _, text in entries) != len(values):
        entries = [("", _tensor(value)) for value in values]
    if len(entries) == 1:
        return [(word, entries[0][1])]
    return [(f"{word}[{key or number}]", text) for number, (key, text) in enumerate(entries)]


def _entries(text: str, values: Iterable[Value]) -> list[tuple[str, str]]:
    """Each value in a list of arguments with its key, lists and dicts element by element."""
    left = iter(values)
    return [(key, word or _tensor(next(left, None))) for key, word in _plan(text)]


@lru_cache(maxsize=4096)
def _plan(text: str) -> tuple[tuple[str, str], ...]:
    """The key of each value in a list of arguments, and the word for it: none for a tensor."""
    return tuple(_planned(text, "", 0))


def _planned(text: str, key: str, depth: int) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(split_arguments(text)):
        named = _NAMED.fullmatch(part)
        inner, name = part, f"{key}[{number}]" if key else ""
        if named:
            inner = named[2] if named[1] else named[4]
            name = f"{key}.{named[1] or named[3][1:-1]}".lstrip(".")
        if _TENSOR.fullmatch(inner):
            yield clean(name), ""
            continue
        nested = _NESTED.fullmatch(inner)
        if nested and depth < DEEPEST:
            yield from _planned(nested[3], name, depth + 1)
        else:
            yield clean(name), _type_name(inner)


def _tensor(value: Value | None) -> str:
    return "Tensor" if value is None else _tensor_word(value.shape, value.device)


@lru_cache(maxsize=4096)
def _tensor_word(shape: tuple[int, ...] | None, device: str) -> str:
    sizes = "?" if shape is None else ", ".join(str(size) if size >= 0 else "?" for size in shape[:64])
    return f"Tensor [{sizes}] @ {clean(device)}"


def _type_name(word: str) -> str:
    """The type of an argument, from how it is written."""
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
    return clean(word.rpartition(".")[0] or word) if word.startswith("torch.") else clean(word)


# ---------------------------------------------------------------- steps

# Lines while the program runs: which steps are worth printing, and when all that they need is known.


class LiveStep(NamedTuple):
    """Something to print: the ``head`` of a call that others are in, its ``tail``, or a ``whole`` call."""

    part: str
    event: Event
    depth: int
    name: str


class _Open:
    """A call under way, and those around it that matter to it; found once, since what they are asked for stays so."""

    __slots__ = (
        "above", "around", "begun", "container", "depth", "event", "held", "name", "parent", "shown", "waiting",
    )  # fmt: skip

    def __init__(self, event: Event, parent: _Open | None) -> None:
        self.event = event
        self.parent = parent
        self.around = None if parent is None else parent.module()
        self.above = None if parent is None else parent.visible()
        self.shown = True
        self.depth = 0 if self.above is None else self.above.depth + 1
        self.name = ""
        self.begun = False
        self.container = False
        self.held: _Open | None = None
        """For a call that may turn out to be torch's own business: the module that will tell."""
        self.waiting: list[LiveStep] = []

    def module(self) -> _Open | None:
        """The innermost module that is under way here."""
        return self if self.event.kind == "module" else self.around

    def visible(self) -> _Open | None:
        """The innermost call under way here that is shown, or may be yet."""
        return self if self.shown or self.held is not None else self.above


Place = tuple[str | bool | int | None, ...]
"""All of a call that matters to what is printed of calls in it: its kind, whether it is a container and shown, how deep
they stand and, for modules, in which one they are called."""


class LiveSteps:
    """Turns the two edges of events into steps to print.

    Whether a call has others in it is not known when it opens: its head is held back until the first step
    in it opens, or until it closes. What torch calls in a module is held back until a module is called in it
    (then it is a container, and these are its own steps), and forgotten when none is: no ``F.linear`` under
    a Linear.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    def feed(self, event: Event, edge: str) -> list[LiveStep]:
        """The steps that can be printed now; ``edge`` is ``open`` or ``close``."""
        return self._opened(event) if edge == "open" else self._closed(event)

    def is_silent(self, parent: int, is_module: bool) -> bool:
        """Whether no step can be printed because a call opens inside this one."""
        around = self._open.get(parent)
        if around is None:
            return False
        above, container = around.visible(), around.module() if is_module else None
        return (above is None or above.begun) and (container is None or container.container)

    def place(self, parent: int, is_module: bool) -> Place:
        """Where a call inside this one stands."""
        around = self._open.get(parent)
        if around is None:
            return ()
        above, module = around.visible(), around.module() if is_module else None
        place = (around.event.kind, around.container, around.shown, 0 if above is None else above.depth + 1)
        return place if module is None else (*place, module.event.root, module.event.module)

    def whole(self, event: Event, parent: int) -> list[LiveStep]:
        """The steps of a call that opened in silence inside this one, and in which nothing happened."""
        return self._ended(self._entry(event, self._open.get(parent)), event)

    def _entry(self, event: Event, parent: _Open | None) -> _Open:
        entry = _Open(event, parent)
        if event.kind == "module":
            entry.name = relative_path(event, entry.around.event if entry.around else None)
        if is_inner(event, parent and parent.event, parent is not None and not parent.container):
            entry.shown = False
            if parent is not None and parent.event.kind == "module" and parent.shown and called_by_torch(event):
                entry.held = parent
        return entry

    def _opened(self, event: Event) -> list[LiveStep]:
        entry = self._entry(event, None if event.parent is None else self._open.get(event.parent))
        self._open[event.id] = entry
        if not entry.shown:
            return []
        return self._make_known(entry.around if event.kind == "module" else None) + _begin(entry.above)

    def _make_known(self, container: _Open | None) -> list[LiveStep]:
        """A module is called inside another, which so is a container: what was held back for it may go."""
        if container is None or container.container:
            return []
        container.container = True
        steps = _begin(container) + container.waiting
        container.waiting = []
        for entry in list(self._open.values()):
            if entry.held is container:
                entry.held, entry.shown = None, True
        return steps

    def _closed(self, event: Event) -> list[LiveStep]:
        entry = self._open.pop(event.id, None)
        return [] if entry is None else self._ended(entry, event)

    def _ended(self, entry: _Open, event: Event) -> list[LiveStep]:
        step = LiveStep("tail" if entry.begun else "whole", event, entry.depth, entry.name)
        if entry.held is not None:
            entry.held.waiting.append(step)
        return [step] if entry.shown else []


def _begin(entry: _Open | None) -> list[LiveStep]:
    """Heads of all calls under way that have none yet, outermost first."""
    if entry is None or entry.begun:
        return []
    steps: list[LiveStep] = []
    while entry is not None and not entry.begun:
        if entry.shown:
            entry.begun = True
            steps.append(LiveStep("head", entry.event, entry.depth, entry.name))
        entry = entry.parent
    return steps[::-1]
