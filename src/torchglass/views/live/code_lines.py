"""Prints each op below the source lines that led to it while the program runs, in the format of
torch-code-tracing::

    y = model(x)  # train.py:9 in main:
    │ ⬇️
    │ return self.fc(x)  # model.py:7 in forward:
    │ │ # addmm(f32[16], f32[8, 4], f32[4, 16]) -> f32[8, 16];

A line that the previous op already had at the same depth is not printed again. "The original"
below is torch-code-tracing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.types import Event, Location
from torchglass.views.text.cells import op_name, split_arguments
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, path_word

DOWN = "⬇️"
BAR = "│ "
OBJECT = "<ScriptObject>"
"""How a trace writes an object of one of torch's C++ classes, such as a process group."""
_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(?!=)")
"""The name of an argument: ``dtype=``."""
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_STRING = re.compile(_QUOTED)
_STRING_OR_TENSOR = re.compile(rf"({_QUOTED})|\b[A-Za-z]\w*\[[\d?, ]*\]")
"""A string in quotes, which is group 1, or a tensor: ``f32[8, ?]``."""

MAX_STACKS_KEPT = 4096
"""How many stacks are kept with the frames that are shown, to limit memory."""
Stack = tuple[Location, ...]
LineOf = Callable[[str, int], str]
"""Returns a line of a file with its indentation, or ``""`` if it is not known."""


def _no_line(file: str, line: int) -> str:
    return ""


class Schema(NamedTuple):
    """What the original prints of an op although a trace does not hold it."""

    has_result: bool = True
    """Whether the op returns something. If not, the trace has as its result what the op changed."""
    objects: tuple[str, ...] = ()
    """The classes of the C++ objects among its arguments and results, in order."""


_PLAIN = Schema()


def _no_schema(name: str) -> Schema:
    return _PLAIN


@dataclass(frozen=True, slots=True)
class LineOptions:
    """How the lines are written, and functions that look up what is not in an event."""

    succinct: bool = True
    """Whether a line of the previous op is left out even if another expression on it runs now. (The
    original has an option of this name.)
    """
    line_of: LineOf = _no_line
    """Looks up a source line. Colouring needs it, because a stack holds lines without their
    indentation.
    """
    schema_of: Callable[[str], Schema] = _no_schema
    """Looks up a schema by the name of an op."""


class CodeLines:
    """Turns events into lines: call ``feed`` when an event begins and when it ends, and print the
    lines it returns.

    Only ops print, when they have ended. An op that raised an exception prints nothing, as in
    torch-code-tracing.
    """

    def __init__(self, page: Page, options: LineOptions | None = None) -> None:
        self._page = page
        self._options = options or LineOptions()
        self._previous: Stack = ()
        """The shown frames of the previous op."""
        self._thread = ""
        self._stacks: dict[int, tuple[Stack, Stack]] = {}
        """By the id of a stack: the stack, kept so that no other gets its id, and the frames that
        are shown. Hashing a stack of a thousand frames would be slow.
        """

    def feed(self, event: Event, edge: str) -> list[str]:
        """Return the lines of an op that ended: the part of its stack that differs from the
        previous op, then the op.
        """
        if edge != "close" or not is_traced(event):
            return []
        if event.thread != self._thread:  # threads share no lines
            self._previous = ()
            self._thread = event.thread
        schema = self._options.schema_of(event.name)
        return self.lines(self._frames(event.stack), op_text(event, schema))

    def finish(self) -> list[str]:
        """Return no lines, because this format has no closing line."""
        return []

    def lines(self, stack: Stack, op: str) -> list[str]:
        """Return the lines for an op's text under a stack that has no frames of torch."""
        shared = self._shared_frames(stack)
        self._previous = stack
        lines: list[str] = []
        for depth in range(shared, len(stack)):
            lines.append(BAR * depth + self._source(stack[depth]))
            if depth < len(stack) - 1:
                lines.append(BAR * (depth + 1) + self._page.paint("dim", DOWN))
        lines.append(BAR * len(stack) + self._page.paint("dim", f"# {clean(op)};"))
        return lines

    def _frames(self, stack: Stack) -> Stack:
        kept = self._stacks.get(id(stack))
        if kept is None:
            if len(self._stacks) >= MAX_STACKS_KEPT:
                self._stacks.clear()
            kept = self._stacks[id(stack)] = (stack, shown_frames(stack))
        _, frames = kept
        return frames

    def _shared_frames(self, stack: Stack) -> int:
        """Return how many of the outermost frames are the same as for the previous op."""
        if stack is self._previous:
            return len(stack)
        for depth, (frame, previous) in enumerate(zip(stack, self._previous, strict=False)):
            if not self._is_same_line(frame, previous):
                return depth
        return min(len(stack), len(self._previous))

    def _is_same_line(self, one: Location, other: Location) -> bool:
        # Compare the text, too: code passed to ``exec`` may have other lines at the same place.
        if (one.line, one.file, one.source) != (other.line, other.file, other.source):
            return False
        return self._options.succinct or _columns(one) == _columns(other)

    def _source(self, at: Location) -> str:
        """Return a source line and its place."""
        place = f"# {path_word(at.file)}:{at.line} in {clean(function_name(at))}:"
        return f"{self._highlighted(at)}  {self._page.paint('dim', place)}"

    def _highlighted(self, at: Location) -> str:
        """Return a source line, with the expression that ran in colour where that is certain."""
        if not self._page.color or not at.source or at.line != at.end_line or at.col >= at.end_col:
            return tidy(at.source)
        line = self._options.line_of(at.file, at.line)
        if line.strip() != at.source:
            return tidy(at.source)
        before = tidy(line[: at.col])
        expression = self._page.paint("class", tidy(line[at.col : at.end_col]))
        after = tidy(line[at.end_col :])
        return (before + expression + after).strip()


def _columns(at: Location) -> tuple[int, int, int]:
    return at.col, at.end_line, at.end_col


def is_traced(event: Event) -> bool:
    """Return whether the original prints an event: an op that returned without an error."""
    return event.kind == "op" and event.error is None


def shown_frames(stack: Stack) -> Stack:
    """Return all frames that are not torch's."""
    return tuple(at for at in stack if at.origin != "torch")


def function_name(at: Location) -> str:
    """Return the plain name of the code, as ``co_name`` has it."""
    return at.function.rpartition(".")[2]


def tidy(source: str) -> str:
    """Make source text safe for a terminal. Tabs stay."""
    if source.isprintable():
        return source
    return "\t".join(map(clean, source.split("\t")))


# ---------------------------------------------------------------- one op

# The original writes a tensor as a text such as ``f32[3]`` first, and then passes each argument to
# ``str``. So a string or a device that is an argument itself has no quotes. In a list it has, since
# ``str`` of a list writes the ``repr`` of its elements; and there a tensor, which is a text by then,
# has quotes as well. A trace holds arguments as ``repr`` writes them, and tensors without quotes:
#
#     in the trace      zeros([2, 3], device='cpu')         cat([f32[3], f32[3]])
#     printed           zeros([2, 3], device=cpu)           cat(['f32[3]', 'f32[3]'])


def op_text(event: Event, schema: Schema = _PLAIN) -> str:
    """Return ``full([3, 33], 0.0, dtype=torch.bfloat16, device=meta) -> bf16[3, 33]``, exactly as the original
    prints it.
    """
    result = "None"
    if schema.has_result:
        result = _result(event.result)
    text = f"{op_name(event.name)}({_arguments(event.args)}) -> {result}"
    if schema.objects and text.count(OBJECT) == len(schema.objects):
        for name in schema.objects:
            text = text.replace(OBJECT, f"ScriptObject <{name}>", 1)
    return text


@lru_cache(maxsize=8192)
def _arguments(args: str) -> str:
    return ", ".join(map(_argument, split_arguments(args)))


def _argument(argument: str) -> str:
    keyword = _KEYWORD.match(argument)
    if keyword is None:
        return _as_str(argument)
    return keyword[0] + _as_str(argument[keyword.end() :])


def _as_str(text: str) -> str:
    """Return a value as the original prints it, given its ``repr``."""
    if _STRING.fullmatch(text):
        return str(ast.literal_eval(text))
    if text.startswith(("[", "(", "{")):
        return _STRING_OR_TENSOR.sub(_quoted, text)
    return text


def _quoted(match: re.Match[str]) -> str:
    """Return a tensor in quotes, and a string as it is."""
    if match[1]:
        return match[0]
    return f"'{match[0]}'"


@lru_cache(maxsize=8192)
def _result(result: str) -> str:
    """Return a result as the original prints it. It prints lists and tuples element by element, in
    round brackets.
    """
    if not result.startswith(("[", "(")):
        return _as_str(result)
    return f"({', '.join(map(_as_str, split_arguments(result[1:-1])))})"
