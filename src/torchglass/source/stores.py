"""What is written where a variable gets or loses its value: the statement, or the head of a compound one."""

from __future__ import annotations

import ast

from torchglass.source.syntax import Located, Syntax

STORES = (
    "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST",
    "STORE_FAST_MAYBE_NULL", "DELETE_FAST", "DELETE_NAME", "DELETE_GLOBAL", "DELETE_DEREF",
)  # fmt: skip
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)


def store_text(syntax: Syntax, nodes: list[Located]) -> str:
    """``y = f(x)``, ``for i in range(3)``, ``open(p) as file``, ``n := len(x)``."""
    child: ast.AST = next((node for node in nodes if isinstance(node, ast.Name)), nodes[0])
    while not isinstance(child, ast.stmt):
        parent = syntax.parent(child)
        if parent is None:
            break
        if isinstance(parent, ast.NamedExpr):
            return syntax.text(parent)
        if isinstance(parent, _LOOPS):
            return f"for {syntax.between(parent.target, parent.iter)}"
        if isinstance(parent, ast.withitem) and parent.optional_vars is not None:
            return syntax.between(parent.context_expr, parent.optional_vars)
        child = parent
    text = syntax.text(child) if isinstance(child, Located) else ""
    # Of a function, a class or an except clause the first line: the rest is what they hold.
    return text if isinstance(child, ast.stmt) and not hasattr(child, "body") else text.partition("\n")[0].rstrip()
