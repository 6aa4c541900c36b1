"""The random numbers start anew in each step: `torch.manual_seed` with a fixed number stands in the training loop.

Each step draws the same noise, drops the same units and makes the same choices. The model learns these by heart.

    for x, y in data:
        torch.manual_seed(0)                             # wrong: once, before the loop
        z = torch.randn(len(x), 16)
        ...
        loss.backward()

A seed is fine before each of several runs, and where it changes from step to step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion
from torchglass.answers.findings.texts import SourceFile, source_files, statements_run

LINE = re.compile(r"\.manual_seed\(")
LOOPS = (ast.For, ast.While, ast.AsyncFor)
ENOUGH_RUNS = 2


def find(facts: Facts) -> Iterator[Suspicion]:
    if len(facts.backwards) < ENOUGH_RUNS:
        return
    for source in source_files(facts, LINE):
        for loop in statements_run(source):
            if not isinstance(loop, LOOPS) or not _trains(loop, source):
                continue
            changing = _changing(loop)
            for node in loop.body:
                if _is_seed(node, changing):
                    yield Suspicion(
                        severity=LIKELY,
                        event=source.event_near(node),
                        place=source.place(node),
                        text=f"{ast.unparse(node)} is called in each step: all steps draw the same random numbers",
                        fix="set the seed once, before the loop",
                    )


def _trains(loop: ast.For | ast.While | ast.AsyncFor, source: SourceFile) -> bool:
    """Return whether a loop calls backward itself, and not only in a loop inside of it."""
    pending: list[ast.AST] = list(loop.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (*LOOPS, ast.FunctionDef)):
            continue
        if isinstance(node, ast.Call) and node.lineno in source.lines and _is_backward(node.func):
            return True
        pending.extend(ast.iter_child_nodes(node))
    return False


def _is_backward(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and called.attr == "backward"


def _changing(loop: ast.stmt) -> set[str]:
    """Return the names that a loop assigns."""
    return {
        node.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _is_seed(node: ast.stmt, changing: set[str]) -> bool:
    """Return whether a statement is ``torch.manual_seed`` of something that stays the same."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    if ast.unparse(call.func) not in ("torch.manual_seed", "torch.random.manual_seed"):
        return False
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Constant | ast.Name | ast.Attribute):
        return False
    names = {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)}
    return names.isdisjoint(changing)
