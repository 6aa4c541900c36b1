"""A loss is computed, and nothing uses it: it was forgotten in the sum, or overwritten by the next one.

    adversarial = criterion(discriminator(fake), ones)
    pixelwise = F.l1_loss(fake, target)                  # wrong: nobody adds it to the loss
    adversarial.backward()

    loss = criterion(scores, y)
    loss = penalty(scores)                               # wrong: loss = loss + penalty(scores)

Losses that are only printed, logged or compared are fine, and so is a loss that a model returns along with other
things, or one of an evaluation at the end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion

COMBINES = frozenset(
    "mul __mul__ __rmul__ add __add__ div __truediv__ sum mean neg __neg__ norm".split()
)

SUMS = frozenset(
    "add __add__ __radd__ __iadd__ mul __mul__ __rmul__ div __truediv__ mean sum".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial or not facts.backwards:
        return
    for name in sorted(LOSSES):
        for events in facts.by_name.get(name, {}).values():
            unused = [event for event in events if _is_unused(facts, event)]
            if len(unused) < len(events) or unused[-1] > facts.backwards[-1]:
                continue  # an evaluation at the end may leave its loss alone
            yield Suspicion(
                severity=LIKELY,
                event=unused[0],
                text=f"the result of {facts.code(unused[0])} is used nowhere: no gradient comes from it",
                fix="add it to the loss on which backward is called, or leave it out",
                times=len(unused),
            )
    yield from _never_read(facts)
    yield from _overwritten(facts)


def _never_read(facts: Facts) -> Iterator[Suspicion]:
    """Find numbers with a gradient that are assigned to a name which the function never reads."""
    for name in sorted(COMBINES & set(facts.by_name)):
        for events in facts.by_name[name].values():
            event = events[0]
            given = facts.gives[event]
            if not facts.is_written(event) or len(given) != 1 or not facts.requires_grad(given[0]):
                continue
            if any(facts.users.get(facts.gives[each][0]) for each in events if facts.gives[each]):
                continue
            target = facts.event(event).target
            if len(target) != 1 or not target[0].isidentifier() or target[0].startswith("_"):
                continue
            if not _is_read(facts, event, target[0]):
                yield Suspicion(
                    severity=LIKELY,
                    event=event,
                    text=f"{target[0]} = {facts.code(event)} is used nowhere: no gradient comes from it",
                    fix="add it to the loss on which backward is called, or leave it out",
                    times=len(events),
                )


def _overwritten(facts: Facts) -> Iterator[Suspicion]:
    """Losses that are assigned to a name, and the name is assigned once more before anything has used it."""
    for name in sorted(LOSSES):
        for events in facts.by_name.get(name, {}).values():
            ends = [_end(facts, event) for event in events]
            lost = [end for end in ends if end is not None]
            if not lost or len(lost) < len(events):
                continue
            target = facts.event(lost[0]).target
            if len(target) != 1 or not _is_assigned_again(facts, lost[0], target[0]):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=events[0],
                text=f"{facts.code(events[0])} is lost: {target[0]} is assigned once more before anything uses it",
                fix=f"add the other loss to it: {target[0]} = {target[0]} + …",
                times=len(events),
            )


def _end(facts: Facts, event: int) -> int | None:
    """Return the call that gives what a loss became, if it has a gradient and nothing uses it."""
    if not facts.gives[event] or not facts.requires_grad(facts.gives[event][0]):
        return None
    for _ in range(8):
        given = facts.gives[event]
        users = facts.users.get(given[0], []) if given else []
        if not users:
            if given and not facts.statement_is_expression(event):
                return event
            return None
        if len(users) > 1 or facts.name(users[0]) not in SUMS:
            return None
        event = users[0]
    return None


def _is_assigned_again(facts: Facts, event: int, name: str) -> bool:
    """Return whether the function around a call assigns a name below it, without reading it."""
    location = facts.location(event)
    text = ""
    if location is not None:
        text = facts.program.text(location.file)
    if location is None or not text:
        return False
    key = f"assignments of {location.file}"
    known = facts.memory.get(key)
    if known is None:
        known = facts.memory[key] = _assignments_by_function(text)
    around = [found for first, last, found in known if first <= location.line <= last]
    return bool(around) and any(
        line > location.line and target == name for line, target in around[-1]
    )


def _assignments_by_function(text: str) -> list[tuple[int, int, list[tuple[int, str]]]]:
    """Return for each function, outer ones first, its lines and the assignments that do not read their own name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found: list[tuple[int, int, list[tuple[int, str]]]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assigned: list[tuple[int, str]] = []
        for each in ast.walk(node):
            if not isinstance(each, ast.Assign) or not isinstance(each.targets[0], ast.Name):
                continue
            name = each.targets[0].id
            reads = {part.id for part in ast.walk(each.value) if isinstance(part, ast.Name)}
            if name not in reads:
                assigned.append((each.lineno, name))
        first = 1
        last = len(text)
        if not isinstance(node, ast.Module):
            first = node.lineno
            last = node.end_lineno or node.lineno
        found.append((first, last, assigned))
    return sorted(found, key=lambda each: (each[0], -each[1]))


def _is_read(facts: Facts, event: int, name: str) -> bool:
    """Return whether the text of the file ever reads a name; True where the text is not known."""
    location = facts.location(event)
    text = ""
    if location is not None:
        text = facts.program.text(location.file)
    if location is None or not text:
        return True
    key = f"reads of {location.file}"
    reads = facts.memory.get(key)
    if reads is None:
        reads = facts.memory[key] = _reads_by_function(text)
    around = [names for first, last, names in reads if first <= location.line <= last]
    return not around or name in around[-1]


def _reads_by_function(text: str) -> list[tuple[int, int, set[str]]]:
    """Return for the module and each function in it, outer ones first, its lines and the names that are read in it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found: list[tuple[int, int, set[str]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = list(ast.walk(node))
            names = {
                each.id
                for each in inside
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
            }
            names |= {
                name
                for each in inside
                if isinstance(each, ast.Global | ast.Nonlocal)
                for name in each.names
            }
            sums = [each.target for each in inside if isinstance(each, ast.AugAssign)]
            names |= {each.id for each in sums if isinstance(each, ast.Name)}
            first = 1
            last = len(text)
            if not isinstance(node, ast.Module):
                first = node.lineno
                last = node.end_lineno or node.lineno
            found.append((first, last, names))
    return sorted(found, key=lambda each: (each[0], -each[1]))


def _is_unused(facts: Facts, event: int) -> bool:
    if not facts.gives[event] or not facts.requires_grad(facts.gives[event][0]):
        return False
    value = facts.gives[event][0]
    if facts.users.get(value):
        return False
    for around in facts.around(event):
        if facts.kind(around) != "module":
            return False
        if facts.gives[around] != facts.gives[event]:
            return False  # a model, which computes a loss among other things
    return not facts.statement_is_expression(event)
