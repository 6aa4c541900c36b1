"""A running sum or a list of losses keeps the graph of every iteration: memory grows from step to step.

    total += loss                                        # wrong: loss.item(), or loss.detach()
    history.append(loss)                                 # the same

The sum itself is never used for backward. Summing losses of several parts and calling backward on the sum is fine.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

ADDS = ("add", "add_", "__add__", "__iadd__", "__radd__")
SCALES = ("mul", "__mul__", "__rmul__", "div", "__truediv__")
GATHERS = ("stack", "cat")
ENOUGH = 2


def find(facts: Facts) -> Iterator[Suspicion]:
    found = list(_sums(facts))
    yield from found or _lists(facts)


def _sums(facts: Facts) -> Iterator[Suspicion]:
    roots = facts.roots
    for name in ADDS:
        for events in facts.by_name.get(name, {}).values():
            sums = {value for event in events for value in facts.gives[event]}
            kept = [
                event
                for event in events
                if _keeps(facts, event, roots) and not sums.isdisjoint(facts.takes[event])
            ]
            if len(kept) < ENOUGH:
                continue
            yield _said(facts, kept[0], len(kept))
    for name in GATHERS:
        for events in facts.by_name.get(name, {}).values():
            event = events[-1]
            lost = [
                value
                for value in facts.takes[event]
                if value in roots and facts.requires_grad(value)
            ]
            if len(lost) > ENOUGH and not any(
                value in facts.in_loss for value in facts.gives[event]
            ):
                yield _said(facts, event, len(lost))


def _lists(facts: Facts) -> Iterator[Suspicion]:
    """Find losses that are appended to a list after backward, by reading the program's text."""
    kept: dict[tuple[str, str], list[int]] = defaultdict(list)
    for value, runs in facts.roots.items():
        maker = facts.maker(value)
        location = facts.location(runs[0])
        if maker is None or location is None or not facts.requires_grad(value):
            continue
        for name in facts.event(maker).target:
            append = _append_after(facts, location.file, location.line, name)
            if append:
                kept[location.file, append].append(runs[0])
    for (_, append), runs in kept.items():
        if len(runs) > ENOUGH:
            yield Suspicion(
                severity=LIKELY,
                event=runs[0],
                text=f"{append} keeps the graphs of {len(runs)} losses on which backward was called: memory grows",
                fix="append loss.item() or loss.detach()",
                times=len(runs),
            )


def _append_after(facts: Facts, file: str, line: int, name: str) -> str:
    """Return the statement that appends a name to a list, in the innermost loop around a line and below it."""
    key = ("appends", file)
    loops = facts.memory.get(str(key))
    if loops is None:
        loops = facts.memory[str(key)] = _appends_by_loop(facts.program.text(file))
    around = [(first, last, found) for first, last, found in loops if first <= line <= last]
    if not around:
        return ""
    _, _, appends = max(around, key=lambda each: each[0])
    return next((text for at, what, text in appends if what == name and at > line), "")


def _appends_by_loop(text: str) -> list[tuple[int, int, list[tuple[int, str, str]]]]:
    """Return for each loop its lines and what is appended in it: the line, the name, and the expression."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found: list[tuple[int, int, list[tuple[int, str, str]]]] = []
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.While):
            appends = [each for node in ast.walk(loop) if (each := _append(node)) is not None]
            found.append((loop.lineno, loop.end_lineno or loop.lineno, appends))
    return found


def _append(node: ast.AST) -> tuple[int, str, str] | None:
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or node.func.attr != "append"
    ):
        return None
    if len(node.args) != 1 or not isinstance(node.args[0], ast.Name):
        return None
    return node.lineno, node.args[0].id, ast.unparse(node)


def _keeps(facts: Facts, event: int, roots: dict[int, list[int]]) -> bool:
    taken = facts.takes[event]
    given = facts.gives[event]
    if (
        not given
        or not facts.requires_grad(given[0])
        or facts.numel(given[0]) != 1
        or given[0] in facts.in_loss
    ):
        return False
    for value in taken:
        maker = facts.maker(value)
        scaled = ()
        if maker is not None and facts.name(maker) in SCALES:
            scaled = facts.takes[maker]
        if value in roots or any(each in roots for each in scaled):
            return True
    return False


def _said(facts: Facts, event: int, times: int) -> Suspicion:
    return Suspicion(
        severity=LIKELY,
        event=event,
        text=f"{facts.code(event)} keeps the graphs of {times} losses on which backward was called: memory grows",
        evidence=(seen_at(facts, "nothing calls backward on the sum", None),),
        fix="add loss.item() or loss.detach()",
        times=times,
    )
