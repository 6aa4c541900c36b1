"""One entry of a table is taken where the first entries were meant: a colon is missing.

`pe[:, x.size(1)]` is the entry *after* those of a sequence of that length; `pe[:, :x.size(1)]` are the entries for its
positions. The single entry is broadcast, so that all positions get the same numbers.

    x = x + self.pe[:, x.shape[1], :]                    # wrong: self.pe[:, :x.shape[1], :]

Only entries are reported that are added to, or multiplied with, a tensor of just that length.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, cast

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

COMBINES = ("add", "__add__", "__radd__", "__iadd__", "mul", "__mul__", "__rmul__", "add_")
VIEWS = frozenset("to unsqueeze expand detach clone float requires_grad_ type_as".split())


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("__getitem__"):
        location = facts.location(event)
        if location is None or not (".shape[" in location.source or ".size(" in location.source):
            continue
        taken = facts.takes[event]
        given = facts.gives[event]
        if not taken or not given or len(facts.shape(given[0])) >= len(facts.shape(taken[0])):
            continue
        if not _numbers(facts, event) or not _takes_a_size(facts.code(event)):
            continue
        for value, user in facts.uses(given[0], VIEWS):
            others = [each for each in facts.takes[user] if each != value]
            if facts.name(user) not in COMBINES or not others:
                continue
            if not _is_that_long(facts, event, others[0]):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} is a single entry: {facts.word(others[0])} gets the same numbers at "
                "all positions",
                evidence=(seen_at(facts, f"used in {facts.code(user)}", user),),
                fix="a colon is missing before the size: table[:, :x.shape[1]]",
                times=times,
            )
            break


def _takes_a_size(code: str) -> bool:
    """Return whether an index of an expression is the size of a tensor, and no slice."""
    try:
        node = ast.parse(code, mode="eval").body
    except SyntaxError:
        return False
    if not isinstance(node, ast.Subscript):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(_is_size(part) for part in parts)


def _is_size(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size"
    return False


def _is_that_long(facts: Facts, event: int, other: int) -> bool:
    """Return whether the number in the brackets is a size of another tensor."""
    return bool(_numbers(facts, event) & set(facts.shape(other)))


def _numbers(facts: Facts, event: int) -> set[int]:
    """Return the numbers in the brackets, but for 0 and negative ones."""
    key = facts.arguments(event).positional[1:]
    if len(key) == 1 and isinstance(key[0], tuple):
        key = list(cast("tuple[Any, ...]", key[0]))
    return {part for part in key if type(part) is int and part > 0}
