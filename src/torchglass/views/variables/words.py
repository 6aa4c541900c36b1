"""Writes the text of the variables view: a variable's value before and after, what made it, and
whose memory it shares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from torchglass.events.types import Event, Value
from torchglass.program.paths import paths_label
from torchglass.program.variables.changes import NOTHING, Change, Side
from torchglass.program.variables.origins import Origin, Relation, Story
from torchglass.views.row import CLASS, EXPRESSION, FOLD, GIVES, PLACE, ROUNDS, TAKES, Cell, Cells
from torchglass.views.text.cells import split_arguments
from torchglass.views.text.scopes import in_scope
from torchglass.views.text.tensors import append_stats, values_words
from torchglass.views.text.words import clean, cut, one_line, place_word, plural, tensor_word
from torchglass.views.variables.rows import Changes

# Characters of a value, and from how many on a list or dict is summarised.
LONGEST_TEXT = 48
LONG_CONTAINER = 24
# How many values, and how many remarks, a row lists.
MOST_VALUES = 4
MOST_REMARKS = 3
SAME_SHAPE = "same shape, "

# ---------------------------------------------------------------- one row


def change_cells(row: Changes, function: str = "", named: bool = False) -> Cells:
    """Return all cells of a row.

    ``function`` is shown after the statement, if the rows around this one are in another function. ``named`` says that
    a heading above has the variable's name.
    """
    change = row.first
    statement = statement_word(change, named)
    if function:
        statement += f"  {in_scope(function)}"
    old, new = change_words(row)
    by, op = by_word(row.stories)
    place = None
    if change.at.file:
        place = change.at
    cells = [
        Cell(FOLD, row.text(FOLD)),
        Cell(EXPRESSION, statement),
        Cell(CLASS, by + op, by),
        Cell(ROUNDS, row.text(ROUNDS)),
        Cell(TAKES, old),
        _with_contents(Cell(GIVES, new), row.changes),
        Cell(PLACE, at=place),
    ]
    return tuple([cell for cell in cells if cell.text or cell.at])


def _with_contents(cell: Cell, changes: Sequence[Change]) -> Cell:
    """Append the statistics of the tensors assigned to the variable, if they were measured."""
    values = [change.new.value for change in changes if change.new.value is not None]
    stats = [value.stats for value in values if value.stats is not None]
    if not stats:
        return cell
    if cell.text.startswith(SAME_SHAPE):
        cell = cell._replace(text=f"{cell.text}:")
    return append_stats(cell, [(stats, values[0].dtype)])


def statement_word(change: Change, named: bool = False) -> str:
    """Return the statement, with the variable's name before it if neither the statement nor a
    heading shows the name.
    """
    name = clean(change.event.name)
    code = one_line(change.event.code)
    if change.how == "argument":
        if named:
            return "argument"
        return f"{name}: argument"
    if not code:
        return name
    if named or _shows_name(code, name):
        return code
    return f"{name}: {code}"


@lru_cache(maxsize=8192)
def _shows_name(code: str, name: str) -> bool:
    """Return whether a statement begins with this variable, or ends with it (``with … as f:``), and with no other."""
    own = re.escape(name)
    begins = rf"(?:(?:async )?(?:for|def) |class |del |(?:from \S+ )?import )?{own}(?!\w|\s*,)"
    return re.match(begins, code) is not None or re.search(rf" as {own}(?::|$)", code) is not None


def change_words(row: Changes) -> tuple[str, str]:
    """Return the values before and after a change. The one before is empty for a first value."""
    change = row.first
    old = change.old
    new = change.new
    if len(row.changes) > 1 and any(not _is_like(each, change) for each in row.changes):
        return _of_several(row.changes)
    if new.kind == NOTHING:
        return _side(old), "deleted"
    if old.value is not None and new.value is not None:
        return _both(old.value, new.value, change.how)
    if new.value is not None:
        return _side(old), _with_device(new.value)
    grown = _grown(old.text, new.text)
    return grown or (_side(old), _side(new))


def _is_like(one: Change, other: Change) -> bool:
    return _is_same_side(one.old, other.old) and _is_same_side(one.new, other.new)


def _is_same_side(one: Side, other: Side) -> bool:
    return one.text == other.text and one.form == other.form


def _of_several(changes: Sequence[Change]) -> tuple[str, str]:
    """Return the values before and after several changes, as ranges. The value before is that of the first change if it
    was no tensor.
    """
    first = changes[0]
    news = [change.new for change in changes if change.new.kind != NOTHING]
    olds = [change.old for change in changes if change.old.kind != NOTHING]
    if first.old.value is not None:
        before = _sides(olds)
    else:
        before = _side(first.old)
    if not news:
        return before, "deleted"
    if all(new.value is None for new in news):
        return _spread(changes)
    after = _sides(news)
    if before != after or first.new.value is None:
        return before, after
    known = [each for each in changes if each.old.kind != NOTHING]
    pairs = list(dict.fromkeys((_side(each.old), _side(each.new)) for each in known))
    if any(old != new for old, new in pairs):
        return _each_of_several(pairs) or (before, after)
    if first.how == "changed":
        after = f"{SAME_SHAPE}changed in place"
    else:
        after = f"{SAME_SHAPE}another {kind_word(first.new.value)}"
    return before, after


def _each_of_several(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the values before and after for each change, in order, or None if there are too many.

    Merged into ranges it would not be clear which value became which.
    """
    if len(pairs) > MOST_VALUES:
        return None
    return " | ".join(old for old, _ in pairs), " | ".join(new for _, new in pairs)


def _sides(sides: Sequence[Side]) -> str:
    """Merge tensors and arrays into ranges, and write everything else in a few words."""
    by_kind: dict[str, list[tuple[Value, ...]]] = {}
    for side in sides:
        if side.value is not None:
            by_kind.setdefault(side.value.kind, []).append((side.value,))
    words: list[str] = []
    for kind, alike in by_kind.items():
        devices = {value.device for (value,) in alike}
        word = values_words(alike, device=len(devices) > 1)[0]
        if kind == "array":
            word += " numpy"
        words.append(word)
    texts = list(dict.fromkeys(side.text for side in sides if side.value is None))
    if texts:
        words.append(values_word(texts))
    return " | ".join(words)


def _side(side: Side) -> str:
    if side.value is not None:
        return _with_device(side.value)
    return cut(clean(side.text), LONGEST_TEXT)


def _with_device(value: Value) -> str:
    """Return a tensor with its device, unless that is the CPU."""
    return tensor_word(value, device=value.device not in ("cpu", ""))


def _both(old: Value, new: Value, how: str) -> tuple[str, str]:
    moved = old.device != new.device
    before = tensor_word(old, device=moved)
    after = tensor_word(new, device=moved)
    if old.kind != new.kind:
        return _of_kind(before, old), _of_kind(after, new)
    if before != after:
        return before, after
    if how == "changed":
        return before, SAME_SHAPE + "changed in place"
    return before, f"{SAME_SHAPE}another {kind_word(new)}"


def _of_kind(word: str, value: Value) -> str:
    if value.kind == "array":
        return word
    return f"{word} torch"


def kind_word(value: Value) -> str:
    """Return ``tensor`` or ``array``."""
    if value.kind == "array":
        return "array"
    return "tensor"


# ---------------------------------------------------------------- several values


def _spread(changes: Sequence[Change]) -> tuple[str, str]:
    """Return the values of several changes in one row, such as ``0 … 11``, after the value before
    the first.
    """
    first = changes[0]
    last = changes[-1]
    texts = list(dict.fromkeys(change.new.text for change in changes))
    if texts[0][:1] in ("[", "(", "{") and len(texts) > 1:
        lengths = dict.fromkeys((_length(first.new.text), _length(last.new.text)))
        return _side(first.old), " … ".join(lengths)
    return _side(first.old), values_word([change.new.text for change in changes])


def values_word(texts: Sequence[str]) -> str:
    """Return a few values unchanged, and many as a range.

    Of many numbers it has the first and the last, or the extremes if they neither rise nor fall.
    """
    distinct = list(dict.fromkeys(texts))
    if len(distinct) <= MOST_VALUES:
        return cut(clean(", ".join(distinct)), LONGEST_TEXT)
    numbers = [_number(text) for text in distinct]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return f"{cut(clean(distinct[0]), 20)} … {cut(clean(distinct[-1]), 20)}"
    pairs = list(pairwise(known))
    rises = all(a < b for a, b in pairs)
    falls = all(a > b for a, b in pairs)
    if rises or falls:
        return f"{clean(distinct[0])} … {clean(distinct[-1])}"
    least = distinct[known.index(min(known))]
    most = distinct[known.index(max(known))]
    return f"from {clean(least)} to {clean(most)}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _length(text: str) -> str:
    items = _items(text)
    if items is None or len(items) < 2:
        return cut(clean(text), LONG_CONTAINER)
    return plural(len(items), "item")


def _items(text: str) -> tuple[str, ...] | None:
    """Return the items of a list, tuple, set or dict as written, or None if not all of its text was
    kept.
    """
    if text[:1] not in ("[", "(", "{") or "…" in text or text[-1:] not in ("]", ")", "}"):
        return None
    return split_arguments(text[1:-1])


def _grown(old: str, new: str) -> tuple[str, str] | None:
    """Return how a long list or dict changed in length, as in ``3 items → + 3: f32[6, 3]``, or
    None.
    """
    if len(old) + len(new) <= 2 * LONG_CONTAINER or old[:1] != new[:1]:
        return None
    before = _items(old)
    after = _items(new)
    if not before or not after or before == after:
        return None
    if after[: len(before)] == before:
        more = cut(clean(", ".join(after[len(before) :])), LONGEST_TEXT)
        return plural(len(before), "item"), f"+ {more}"
    if before[: len(after)] == after or before[-len(after) :] == after:
        return plural(len(before), "item"), plural(len(after), "item")
    return None


# ---------------------------------------------------------------- where it comes from


def by_word(stories: Sequence[Story]) -> tuple[str, str]:
    """Return the call in the statement that made the value, such as ``permute``, and the op inside
    it.
    """
    by_id: dict[int, Origin] = {}
    for story in stories:
        if story.origin is not None and story.origin.here:
            by_id[id(story.origin)] = story.origin
    origins = list(by_id.values())
    if not origins:
        return "", ""
    op = ""
    if origins[0].op:
        op = f" › {clean(origins[0].op)}"
    return origin_word(origins), op


def origin_word(origins: Sequence[Origin]) -> str:
    """Return the name of what made one value, or several."""
    if origins[0].event.kind == "module":
        return clean(paths_label([_path(origin.event) for origin in origins]))
    words = dict.fromkeys(map(_function_word, origins))
    return "|".join([*words][:MOST_VALUES])


def _function_word(origin: Origin) -> str:
    event = origin.event
    name = event.name.removeprefix("Tensor.")
    if name.startswith("__") and event.operator:
        name = event.operator
    return clean(name)


def _path(event: Event) -> str:
    return event.module or event.root or event.name


def remarks_of(row: Changes) -> list[str]:
    """Return what the statement does not say: another name of the same tensor, who made it elsewhere, shared memory."""
    by_story: dict[int, list[tuple[Change, Story]]] = {}
    for change, story in zip(row.changes, row.stories, strict=True):
        by_story.setdefault(story.number, []).append((change, story))
    remarks: list[str] = []
    for alike in by_story.values():
        change, _ = alike[0]
        remarks += _remarks(change, [story for _, story in alike])
    return list(dict.fromkeys(remarks))[:MOST_REMARKS]


def _remarks(change: Change, stories: Sequence[Story]) -> list[str]:
    """Return the remarks about changes whose values come from one place."""
    story = stories[0]
    value = change.new.value
    if value is None:
        return []
    origins = [each.origin for each in stories if each.origin is not None]
    if story.same_as is None or not story.same_as.scope:
        scope = change.at.function
    else:
        scope = story.same_as.scope
    made = ""
    if origins and not origins[0].here:
        made = f"made by {_made(origins, change.at.file, scope)}"
    remarks: list[str] = []
    if story.same_as is not None:
        same = f"same {kind_word(value)} as {_relation(story.same_as)}"
        remarks.append(f"{same}, {made}" if made else same)
    elif made:
        remarks.append(made)
    if story.shares_before:
        remarks.append(
            "shares memory with the " + ("tensor" if value.kind == "array" else "array") + " before"
        )
    if story.shares is not None:
        remarks.append(f"shares memory with {_relation(story.shares)}")
    return remarks


def _made(origins: Sequence[Origin], file: str, function: str) -> str:
    """Return what made a value elsewhere, and where. File and function are left out if they are the
    current ones.
    """
    made = origins[0].event.location
    word = origin_word(origins)
    if made is None:
        return word
    if made.file == file:
        place = f":{made.line}"
    else:
        place = place_word(made)
    word = f"{word} at {place}"
    if made.function != function:
        word += f" {in_scope(made.function)}"
    return word


def _relation(relation: Relation) -> str:
    word = clean(relation.name)
    if relation.scope:
        word += f" {in_scope(relation.scope)}"
    return word
