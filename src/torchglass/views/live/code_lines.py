"""torch-code-tracing's format: each op under the source lines that led to it, written while the program runs."""

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
"""How a trace has an object of torch's own C++ classes, as a process group."""
_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(?!=)")
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_TEXT = re.compile(f"{_QUOTED}")
_TENSOR = re.compile(rf"({_QUOTED})|\b[A-Za-z]\w*\[[\d?, ]*\]")

MOST_KNOWN = 4096
Stack = tuple[Location, ...]
LineOf = Callable[[str, int], str]
"""(file, line) → that line of the source with its indentation; ``""`` when it is not known."""


def _no_line(file: str, line: int) -> str:
    return ""


class Schema(NamedTuple):
    """What a trace does not tell of an op, and the original does."""

    gives: bool = True
    """False: it gives None; a trace has what it changed as its result."""
    objects: tuple[str, ...] = ()
    """The classes of the C++ objects among its arguments and results, in order."""


_PLAIN = Schema()


def _no_schema(name: str) -> Schema:
    return _PLAIN


@dataclass(frozen=True, slots=True)
class LineOptions:
    """How the lines are written, and what only the front door can look up."""

    succinct: bool = True
    """Share lines with the op before by file and line; False: by columns too."""
    line_of: LineOf = _no_line
    """Needed to colour the expression: a stack holds lines without their indentation."""
    schema_of: Callable[[str], Schema] = _no_schema
    """By the name of an op."""


class CodeLines:
    """A line renderer: feed it both edges of each event, print what it gives.

    Only ops print, when they have ended; an op that an exception left prints nothing, as in the original.
    """

    def __init__(self, page: Page, options: LineOptions | None = None) -> None:
        self._page = page
        self._options = options or LineOptions()
        self._before: Stack = ()
        self._thread = ""
        self._shown: dict[int, tuple[Stack, Stack]] = {}
        """By id of a stack, kept with it so that its id stays its own: to hash a thousand frames takes a while."""

    def feed(self, event: Event, edge: str) -> list[str]:
        """The lines of an op that ended: its stack as far as it differs from that of the op before, then itself."""
        if edge != "close" or not is_traced(event):
            return []
        if event.thread != self._thread:  # what another one does on the same line is not part of it
            self._before, self._thread = (), event.thread
        return self.lines(self._frames(event.stack), op_text(event, self._options.schema_of(event.name)))

    def finish(self) -> list[str]:
        """Nothing is left to say."""
        return []

    def lines(self, stack: Stack, op: str) -> list[str]:
        """The same for a stack without torch's own frames and the text of an op."""
        shared = self._shared(stack)
        self._before = stack
        lines: list[str] = []
        for depth in range(shared, len(stack)):
            lines.append(BAR * depth + self._source(stack[depth]))
            if depth < len(stack) - 1:
                lines.append(BAR * (depth + 1) + self._page.paint("dim", DOWN))
        lines.append(BAR * len(stack) + self._page.paint("dim", f"# {clean(op)};"))
        return lines

    def _frames(self, stack: Stack) -> Stack:
        found = self._shown.get(id(stack))
        if found is None:
            if len(self._shown) >= MOST_KNOWN:
                self._shown.clear()
            found = self._shown[id(stack)] = (stack, shown_frames(stack))
        return found[1]

    def _shared(self, stack: Stack) -> int:
        """How many of the outermost frames are those of the op before."""
        before = self._before
        if stack is before:
            return len(stack)
        for depth, (one, other) in enumerate(zip(stack, before, strict=False)):
            # With its text: what is given to ``exec`` has other lines at the same place.
            same_line = one.line == other.line and one.file == other.file and one.source == other.source
            if not same_line or not (self._options.succinct or _columns(one) == _columns(other)):
                return depth
        return min(len(stack), len(before))

    def _source(self, at: Location) -> str:
        place = f"# {path_word(at.file)}:{at.line} in {clean(function_name(at))}:"
        return f"{self._highlighted(at)}  {self._page.paint('dim', place)}"

    def _highlighted(self, at: Location) -> str:
        if not self._page.color or not at.source or at.line != at.end_line or at.col >= at.end_col:
            return tidy(at.source)
        line = self._options.line_of(at.file, at.line)
        if line.strip() != at.source:
            return tidy(at.source)
        parts = line[: at.col], line[at.col : at.end_col], line[at.end_col :]
        before, expression, after = map(tidy, parts)
        return (before + self._page.paint("class", expression) + after).strip()


def _columns(at: Location) -> tuple[int, int, int]:
    return at.col, at.end_line, at.end_col


def is_traced(event: Event) -> bool:
    """Whether the original has a trace of it: an op that gave something back."""
    return event.kind == "op" and event.error is None


def shown_frames(stack: Stack) -> Stack:
    """All frames but torch's own."""
    return tuple(at for at in stack if at.origin != "torch")


def function_name(at: Location) -> str:
    """The plain name of the code, as ``co_name`` has it."""
    return at.function.rpartition(".")[2]


def tidy(source: str) -> str:
    """Source text made safe; a tab is no danger and stays."""
    return source if source.isprintable() else "\t".join(map(clean, source.split("\t")))


# ---------------------------------------------------------------- one op


def op_text(event: Event, schema: Schema = _PLAIN) -> str:
    """``full([3, 33], 0.0, dtype=torch.bfloat16, device=meta) -> bf16[3, 33]``, letter for letter as the original.

    It writes each argument as ``str`` has it: strings and devices without quotes, but in lists with them, and
    there tensors too, which are words by then.
    """
    result = _result(event.result) if schema.gives else "None"
    text = f"{op_name(event.name)}({_arguments(event.args)}) -> {result}"
    if schema.objects and text.count(OBJECT) == len(schema.objects):
        for name in schema.objects:
            text = text.replace(OBJECT, f"ScriptObject <{name}>", 1)
    return text


@lru_cache(maxsize=8192)
def _arguments(args: str) -> str:
    return ", ".join(map(_argument, split_arguments(args)))


def _argument(part: str) -> str:
    named = _KEYWORD.match(part)
    if named is None:
        return _as_str(part)
    return named[0] + _as_str(part[named.end() :])


def _as_str(word: str) -> str:
    """The text of one value as ``str`` would give it, from how ``repr`` gives it."""
    if _TEXT.fullmatch(word):
        return str(ast.literal_eval(word))
    return _TENSOR.sub(_quoted, word) if word[:1] in ("[", "(", "{") else word


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found[1] else f"'{found[0]}'"


@lru_cache(maxsize=8192)
def _result(result: str) -> str:
    """Lists and tuples are written element by element, in round brackets."""
    if result[:1] not in ("[", "("):
        return _as_str(result)
    return f"({', '.join(map(_as_str, split_arguments(result[1:-1])))})"
