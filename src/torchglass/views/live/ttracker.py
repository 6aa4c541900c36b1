"""Writes the lines of Tensor Tracker: calls, inputs, changes and outputs as a tree, in English or
in Chinese.

Everything that comes from the program is made safe to print here, so callers pass names and texts
unchanged.
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
# Characters of a string and of an error that are shown.
LONGEST_STRING = 80
LONGEST_ERROR = 200
MOST_ITEMS = 32
"""How many items of a tuple are listed. The rest is only counted."""


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
    """Return the Chinese words for ``zh`` and its regions (``zh_CN``), otherwise the English ones."""
    if language.lower().startswith("zh"):
        return CHINESE
    return ENGLISH


# ---------------------------------------------------------------- values


class Shown(NamedTuple):
    """One value as text: its kind, its text after a name, and its shorter text as an output."""

    kind: str
    text: str
    brief: str


def tensor(shape: str, dtype: str, device: str = "") -> Shown:
    """Show a tensor or array, with its device if one is given."""
    where = ""
    if device:
        where = f" | device={clean(device)}"
    return Shown(
        "Tensor", f"→ shape={shape} | dtype={clean(dtype)}{where}", f"shape={shape}{where}"
    )


def torch_shape(sizes: Sequence[int] | None) -> str:
    """Return a shape as ``torch.Size([73, 3])``, or ``?`` if torch does not know it."""
    if sizes is None:
        return "?"
    return f"torch.Size([{', '.join(map(size_text, sizes))}])"


def numpy_shape(sizes: Sequence[int]) -> str:
    """Return a shape as ``(73, 3)``."""
    return str(tuple(sizes))


def variable(text: str) -> Shown:
    """Show something that is not a tensor, by its text."""
    return Shown("Var", text, text)


def literal(text: str) -> Shown:
    """Show a number, None or True as Python writes it."""
    return variable(f"value: {clean(text)}")


def string(value: str) -> Shown:
    """Show a string in quotes, so that ``'113'`` is not taken for 113. A long one is cut and its
    length is added.
    """
    if len(value) <= LONGEST_STRING:
        return literal(repr(value))
    return literal(f"{value[:LONGEST_STRING]!r}… ({count(len(value))} characters)")


def length(number: int) -> Shown:
    """Show a container by the number of its items."""
    return variable(f"len(value): {number}")


def type_only(name: str) -> Shown:
    """Show only the type."""
    return variable(f"type: {clean(name)}")


# ---------------------------------------------------------------- statistics


def with_statistics(shown: Shown, figures: Iterable[tuple[str, object]]) -> Shown:
    """Append statistics to a value, as in `` | sum=6 | mean=1.5``. A missing one is ``—``."""
    text = "".join(f" | {name}={_figure(figure)}" for name, figure in figures)
    return Shown(shown.kind, shown.text + text, shown.brief + text)


def _figure(figure: object) -> str:
    if figure is None:
        return "—"
    if isinstance(figure, (float, complex)):
        return f"{figure:.6g}"
    return clean(str(figure))


# ---------------------------------------------------------------- lines


@lru_cache(maxsize=8192)
def place(file: str, line: int | None) -> str:
    """Return a place as ``t2v_dataset.py:283``."""
    return f"{file_name(file)}:{line or '?'}"


def head(
    words: Words,
    depth: int,
    function: tuple[str, str],
    callers: Sequence[tuple[str, str, int | None]],
) -> str:
    """Return the first line of a call: (place, name) of the function, then (function, file, line) of its callers."""
    where, name = function
    line = f"{GUIDE * depth}┌── [{where}] {words.function} [{name}]"
    if not callers:  # C called it directly, as the first function of a thread
        return line
    caller, _, number = callers[0]
    chain = " <- ".join([place(file, at) for _, file, at in callers])
    return f"{line} {words.called_at} {clean(caller)}:{number or '?'} ({chain})"


def named(indent: str, prefix: str, name: str, line: int, shown: Shown) -> str:
    """Return a value under a name, as in ``├─ input [Var] index@0 value: 113``. The prefix may be
    empty.
    """
    if prefix:
        prefix = f"{clean(prefix)} "
    else:
        prefix = ""
    return f"{clean(indent)}├─ {prefix}[{shown.kind}] {clean(name)}@{line} {shown.text}"


def change(depth: int, name: str, line: int | None, shown: Shown) -> str:
    """Return the line for a variable's change, one level deeper than the inputs of the innermost running call."""
    return f"{GUIDE * depth}├─ [{shown.kind}] {clean(name)}@{line or '?'} {shown.text}"


def changed_in_place(words: Words, shown: Shown) -> Shown:
    """Mark a value as the same object with different contents."""
    return shown._replace(text=f"{shown.text} | {words.in_place}")


def deleted(words: Words) -> Shown:
    """Show a deleted variable."""
    return variable(words.deleted)


def missing(words: Words, depth: int, name: str, near: Sequence[str]) -> str:
    """Return the line about a requested variable that does not occur in the code."""
    hint = ""
    if near:
        hint = f" ({words.near} {clean(near[0])!r}?)"
    return f"{GUIDE * depth}├─ {words.missing} {clean(name)!r}{hint}"


def note(depth: int, text: str) -> str:
    """Return the line of a note about the tracking itself."""
    return f"{GUIDE * depth}├─ {clean(text)}"


def left_out(words: Words, indent: str, number: int) -> str:
    """Return the line that counts the items of a long tuple that are not listed."""
    return f"{indent}├─ … {count(number)} {words.more}"


def output(words: Words, depth: int, item: Shown) -> str:
    """Return the line for the result of a call."""
    return f"{GUIDE * depth}└─ {words.output} {item.brief}"


def outputs(words: Words, depth: int, items: Sequence[Shown], total: int) -> Iterator[str]:
    """Yield the lines for the first items of a tuple that a call returned."""
    margin = GUIDE * depth
    for number, item in enumerate(items):
        branch = "├─"
        if number == total - 1:
            branch = "└─"
        yield f"{margin}{branch} {words.output}[{number}] {item.brief}"
    if total > len(items):
        yield left_out(words, margin, total - len(items))


def yielded(words: Words, depth: int, item: Shown) -> str:
    """Return the line for what a generator yielded."""
    return f"{GUIDE * depth}├─ {words.yielded} {item.brief}"


def closed(words: Words, depth: int) -> str:
    """Return the line for a generator that was not run to its end."""
    return f"{GUIDE * depth}└─ {words.closed}"


def error(words: Words, depth: int, name: str, text: str) -> str:
    """Return the line for an exception that left a call."""
    if len(text) > LONGEST_ERROR:
        text = f"{text[:LONGEST_ERROR]}…"
    return f"{GUIDE * depth}└─ {words.error} {clean(name)}" + (f": {clean(text)}" if text else "")


def ending(words: Words, depth: int, name: str, seconds: float) -> str:
    """Return the last line of a call: how long it took."""
    return f"{GUIDE * depth}└─ {words.time} {name} {seconds:.4f} s"


def message(text: str) -> list[str]:
    """Return the lines of a message of the user. Everything but its line breaks is made safe to
    print.
    """
    return [clean(line) for line in text.expandtabs().split("\n")]


def painted(line: str, style: str, page: Page) -> str:
    """Paint all of a line except its guides, on a page with colour."""
    start = len(line) - len(line.lstrip("│ "))
    return line[:start] + page.paint(style, line[start:])
