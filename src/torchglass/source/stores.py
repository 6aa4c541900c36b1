"""Return what is written where a variable gets or loses its value: the statement, or the head of a compound one."""

from __future__ import annotations

import ast

from torchglass.source.syntax import Located, Syntax

STORES = (
    "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST",
    "STORE_FAST_MAYBE_NULL", "DELETE_FAST", "DELETE_NAME", "DELETE_GLOBAL", "DELETE_DEREF",
)  # fmt: skip
"""Instructions that give a variable a value, or take it away."""
_FOR = (ast.For, ast.AsyncFor, ast.comprehension)


def store_text(syntax: Syntax, nodes: list[Located]) -> str:
    """Return ``y = f(x)``, ``for i in range(3)``, ``open(p) as file`` or ``n := len(x)``, as written."""
    child: ast.AST = next((node for node in nodes if isinstance(node, ast.Name)), nodes[0])
    while not isinstance(child, ast.stmt):
        parent = syntax.parent(child)
        if parent is None:
            break
        if isinstance(parent, ast.NamedExpr):
            return syntax.text(parent)
        if isinstance(parent, _FOR):
            return f"for {syntax.between(parent.target, parent.iter)}"
        if isinstance(parent, ast.withitem) and parent.optional_vars is not None:
            return syntax.between(parent.context_expr, parent.optional_vars)
        child = parent
    text = ""
    if isinstance(child, Located):
        text = syntax.text(child)
    if isinstance(child, ast.stmt) and not hasattr(child, "body"):
        return text
    # A function, a class or an except clause is shown by its first line, without its body.
    return text.partition("\n")[0].rstrip()
