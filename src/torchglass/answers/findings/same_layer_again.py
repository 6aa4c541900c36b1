"""A list of layers holds one layer many times: `[nn.Linear(8, 8)] * 4`.

Multiplying a list repeats what is in it; it makes no copies. All four layers are one, with one set of weights.

    self.layers = nn.ModuleList([nn.Linear(8, 8)] * 4)   # wrong: [nn.Linear(8, 8) for _ in range(4)]

Layers that share their weights on purpose are made first and given a name: `[layer] * 4` is not reported.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

MAKES = ("kaiming_uniform_", "uniform_", "normal_", "ones_", "zeros_", "empty", "xavier_uniform_")
"""Calls by which layers make their parameters."""
LEAST = 2


def find(facts: Facts) -> Iterator[Suspicion]:
    judged: set[tuple[str, int]] = set()
    for name in MAKES:
        for event, _ in facts.calls(name):
            at = facts.location(event)
            if at is None or (at.file, at.line) in judged:
                continue
            judged.add((at.file, at.line))
            layer = _repeated(facts, event, at.line)
            if layer is None:
                continue
            again = _called_again(facts)
            if again is None:
                continue
            called, times = again
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"[{layer}(…)] * n is one {layer} n times: it is called {times} times in one pass, "
                "with the same weights",
                evidence=(seen_at(facts, facts.code(called), called),),
                fix=f"make each one: [{layer}(…) for _ in range(n)]",
            )


def _repeated(facts: Facts, event: int, line: int) -> str | None:
    """Return the class in ``[Class(…)] * n`` of the statement, if the call is made for it."""
    statement = facts.program.statement(event)
    if statement is None:
        return None
    for node in ast.walk(statement.node):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        for side in (node.left, node.right):
            if not isinstance(side, ast.List) or len(side.elts) != 1:
                continue
            made = side.elts[0]
            if isinstance(made, ast.Call) and made.lineno <= line <= (made.end_lineno or 0):
                return ast.unparse(made.func).rpartition(".")[2]
    return None


def _called_again(facts: Facts) -> tuple[int, int] | None:
    """Return the first call of a module that runs most often in one call of a model, and how often."""
    counts = Counter[tuple[int, int]]()
    first: dict[tuple[int, int], int] = {}
    for event in facts.module_calls:
        own = facts.tables.modules[facts.tables.module[event]].parameters
        around = [each for each in facts.around(event) if facts.kind(each) == "module"]
        if not own or not around:
            continue
        key = (around[-1], own[0][1])
        first.setdefault(key, event)
        counts[key] += 1
    if not counts:
        return None
    key, times = counts.most_common(1)[0]
    if times < LEAST:
        return None
    return first[key], times
