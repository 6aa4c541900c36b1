"""Tensor Tracker's lines: calls, inputs, changes and outputs as a tree, in English or in its document's Chinese.

Whatever comes from the program is made safe to print here; those who call this pass names and texts as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.spelling import size_text
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, file_name

GUIDE = "│   "
LONGEST_STRING = 80
LONGEST_ERROR = 200
MOST_ITEMS = 32
"""Of a tuple, item by item; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one language; ``value``, ``len(value)``, ``shape`` and ``dtype`` are the same in all."""

    function: str
    called_at: str
    input: str
    output: str
    yielded: str
    time: str
    error: str
    closed: str
    more: str
    in_place: str
    deleted: str
    missing: str
    near: str


ENGLISH = Words(
    "function", "called at", "input", "output", "yielded", "time", "error", "closed early", "more",
    "changed in place", "deleted", "no variable of this name has appeared:", "did you mean",
)  # fmt: skip
CHINESE = Words(
    "函数", "被调用于", "输入", "输出", "产出", "耗时", "错误", "提前关闭", "更多",
    "原地修改", "已删除", "没有出现过此名称的变量:", "您是否想要",
)  # fmt: skip


def words_for(language: str) -> Words:
    """Chinese for ``zh`` and its regions (``zh_CN``), else English."""
    return CHINESE if language.lower().startswith("zh") else ENGLISH


# ---------------------------------------------------------------- values


class Shown(NamedTuple):
    """One value as it is written: its kind, its text behind a name, and its shorter text as an output."""

    kind: str
    text: str
    brief: str


def tensor(shape: str, dtype: str, device: str = "") -> Shown:
    """A tensor or array; the device is told when it is given."""
    where = f" | device={clean(device)}" if device else ""
    return Shown("Tensor", f"→ shape={shape} | dtype={clean(dtype)}{where}", f"shape={shape}{where}")


def torch_shape(sizes: Sequence[int] | None) -> str:
    """``torch.Size([73, 3])``; ``?`` for what torch would not tell."""
    return "?" if sizes is None else f"torch.Size([{', '.join(map(size_text, sizes))}])"


def numpy_shape(sizes: Sequence[int]) -> str:
    """``(73, 3)``."""
    return str(tuple(sizes))


def variable(text: str) -> Shown:
    """Anything that is no tensor, by a text of its own."""
    return Shown("Var", text, text)


def literal(text: str) -> Shown:
    """A number, None, True: what it is in Python."""
    return variable(f"value: {clean(text)}")


def string(value: str) -> Shown:
    """A string in quotes, so that ``'113'`` is not taken for 113; a long one is cut, and its length told."""
    if len(value) <= LONGEST_STRING:
        return literal(repr(value))
    return literal(f"{value[:LONGEST_STRING]!r}… ({count(len(value))} characters)")


def length(number: int) -> Shown:
    """A container, by the number of its items."""
    return variable(f"len(value): {number}")


def type_only(name: str) -> Shown:
    """Something of which only the type may be told."""
    return variable(f"type: {clean(name)}")


# ---------------------------------------------------------------- statistics


def with_statistics(shown: Shown, figures: Iterable[tuple[str, object]]) -> Shown:
    """The value with its figures behind it: `` | sum=6 | mean=1.5``; ``—`` where there is none."""
    text = "".join(f" | {name}={_figure(figure)}" for name, figure in figures)
    return Shown(shown.kind, shown.text + text, shown.brief + text)


def _figure(figure: object) -> str:
    if figure is None:
        return "—"
    return f"{figure:.6g}" if isinstance(figure, (float, complex)) else clean(str(figure))


# ---------------------------------------------------------------- lines


@lru_cache(maxsize=8192)
def place(file: str, line: int | None) -> str:
    """``t2v_dataset.py:283``."""
    return f"{file_name(file)}:{line or '?'}"


def head(words: Words, depth: int, function: tuple[str, str], callers: Sequence[tuple[str, str, int | None]]) -> str:
    """The first line of a call: (place, name) of the function, then (function, file, line) of its callers."""
    where, name = function
    line = f"{GUIDE * depth}┌── [{where}] {words.function} [{name}]"
    if not callers:  # called straight from C, as the first function of a thread
        return line
    caller, _, number = callers[0]
    chain = " <- ".join([place(file, at) for _, file, at in callers])
    return f"{line} {words.called_at} {clean(caller)}:{number or '?'} ({chain})"


def named(indent: str, prefix: str, name: str, line: int, shown: Shown) -> str:
    """``├─ input [Var] index@0 value: 113``: a value under a name; the prefix may be empty."""
    prefix = f"{clean(prefix)} " if prefix else ""
    return f"{clean(indent)}├─ {prefix}[{shown.kind}] {clean(name)}@{line} {shown.text}"


def change(depth: int, name: str, line: int | None, shown: Shown) -> str:
    """A variable's change while so many calls are under way: one level further in than the last one's inputs."""
    return f"{GUIDE * depth}├─ [{shown.kind}] {clean(name)}@{line or '?'} {shown.text}"


def changed_in_place(words: Words, shown: Shown) -> Shown:
    """The same object as before, with other content."""
    return shown._replace(text=f"{shown.text} | {words.in_place}")


def deleted(words: Words) -> Shown:
    """What a variable shows that was deleted."""
    return variable(words.deleted)


def missing(words: Words, depth: int, name: str, near: Sequence[str]) -> str:
    """A variable was named that is nowhere in the code."""
    hint = f" ({words.near} {clean(near[0])!r}?)" if near else ""
    return f"{GUIDE * depth}├─ {words.missing} {clean(name)!r}{hint}"


def note(depth: int, text: str) -> str:
    """Something about the watching itself."""
    return f"{GUIDE * depth}├─ {clean(text)}"


def left_out(words: Words, indent: str, number: int) -> str:
    """Says how many items of a long tuple are not written."""
    return f"{indent}├─ … {count(number)} {words.more}"


def output(words: Words, depth: int, item: Shown) -> str:
    """What a call gave."""
    return f"{GUIDE * depth}└─ {words.output} {item.brief}"


def outputs(words: Words, depth: int, items: Sequence[Shown], total: int) -> Iterator[str]:
    """What a call gave as a tuple of so many: the first items of it."""
    margin = GUIDE * depth
    for number, item in enumerate(items):
        branch = "└─" if number == total - 1 else "├─"
        yield f"{margin}{branch} {words.output}[{number}] {item.brief}"
    if total > len(items):
        yield left_out(words, margin, total - len(items))


def yielded(words: Words, depth: int, item: Shown) -> str:
    """What a generator gave on its way."""
    return f"{GUIDE * depth}├─ {words.yielded} {item.brief}"


def closed(words: Words, depth: int) -> str:
    """A generator that was not run to its end."""
    return f"{GUIDE * depth}└─ {words.closed}"


def error(words: Words, depth: int, name: str, text: str) -> str:
    """The exception that left a call."""
    text = f"{text[:LONGEST_ERROR]}…" if len(text) > LONGEST_ERROR else text
    return f"{GUIDE * depth}└─ {words.error} {clean(name)}" + (f": {clean(text)}" if text else "")


def ending(words: Words, depth: int, name: str, seconds: float) -> str:
    """The last line of a call: how long it took."""
    return f"{GUIDE * depth}└─ {words.time} {name} {seconds:.4f} s"


def message(text: str) -> list[str]:
    """The user's own message: it may have several lines, everything else is made safe."""
    return [clean(line) for line in text.expandtabs().split("\n")]


def painted(line: str, style: str, page: Page) -> str:
    """The line with all but its guides in a style, on a page with colour."""
    start = len(line) - len(line.lstrip("│ "))
    return line[:start] + page.paint(style, line[start:])
