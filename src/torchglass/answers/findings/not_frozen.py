"""`requires_grad` is set where it has no effect: on a module, or under a name that is spelled wrong.

Python lets any attribute be set. Only parameters look at `requires_grad`, and only under that name: everything goes on
learning.

    for p in backbone.parameters():
        p.require_grad = False                           # wrong: p.requires_grad
    model.encoder.requires_grad = False                  # wrong: model.encoder.requires_grad_(False)

A misspelled name on a tensor that has just been made, as `pe.require_grad = False` for a table of positions, changes
nothing and is not reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion
from torchglass.answers.findings.texts import source_files, statements_run

NAME = "requires_grad"
LINE = re.compile(r"\.requ\w+\s*=[^=]", re.IGNORECASE)
MAKES = re.compile(r"\btorch\.\w+\(")
LEARNS = re.compile(r"\bnn\.|Parameter|requires_grad|self\b")
ASKS = ("parameters", "named_parameters", "train", "eval", "state_dict", "load_state_dict")
"""What only modules are asked for."""
ALIKE = 0.8
"""From this ratio on (difflib), a name is taken for a misspelled one."""


def find(facts: Facts) -> Iterator[Suspicion]:
    for source in source_files(facts, LINE):
        read = {
            node.attr
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        for node in statements_run(source):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            for target in node.targets:
                if not isinstance(target, ast.Attribute) or type(node.value.value) is not bool:
                    continue
                if target.attr == NAME:
                    if not _is_module(target.value, _modules(_scope(source.tree, node))):
                        continue
                    what = f"{ast.unparse(target.value)} is a module: its parameters do not look at that"
                    fix = f"{ast.unparse(target.value)}.requires_grad_({node.value.value})"
                elif _is_misspelled(target.attr) and target.attr not in read - {"requires_grad_"}:
                    if ast.unparse(target.value) in _plain_tensors(_scope(source.tree, node)):
                        continue  # it has no gradient either way
                    what = f"nothing knows {target.attr}"
                    fix = f"{ast.unparse(target.value)}.{NAME} = {node.value.value}"
                else:
                    continue
                yield Suspicion(
                    severity=BUG,
                    event=source.event_near(node),
                    place=source.place(node),
                    text=f"{ast.unparse(node)} has no effect: {what}",
                    fix=fix,
                )


def _is_misspelled(name: str) -> bool:
    return name != NAME and SequenceMatcher(None, name, NAME).ratio() >= ALIKE


def _scope(tree: ast.Module, statement: ast.stmt) -> ast.AST:
    """Return the innermost function around a statement, or the whole file."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= statement.lineno <= (node.end_lineno or 0)
    ]
    return max(functions, key=lambda node: node.lineno, default=tree)


def _is_module(node: ast.expr, modules: set[str]) -> bool:
    """Return whether an expression is one of the modules, or an entry of one: ``net[0]``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant | ast.UnaryOp):
        return _is_module(node.value, modules)
    return ast.unparse(node) in modules


def _plain_tensors(scope: ast.AST) -> set[str]:
    """Return the names that are given a new tensor: ``pe = torch.zeros(n, d)``."""
    found: set[str] = set()
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign):
            continue
        text = ast.unparse(node.value)
        if MAKES.search(text) and not LEARNS.search(text):
            found.update(ast.unparse(target) for target in node.targets)
    return found


def _modules(scope: ast.AST) -> set[str]:
    """Return what is called, or asked for its parameters or its mode, and is no variable of a loop."""
    found: set[str] = set()
    looped: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.For | ast.comprehension):
            looped.update(each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))
        if not isinstance(node, ast.Call):
            continue
        found.add(ast.unparse(node.func))
        if isinstance(node.func, ast.Attribute) and node.func.attr in ASKS:
            found.add(ast.unparse(node.func.value))
    return found - looped
