"""Keeps files and functions small enough to be read in one go: lists what is over the limit, and fails."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def main() -> int:
    """Measure src/, print the medians and what is too long."""
    files = sorted((ROOT / "src").rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    functions = [entry for path in files for entry in measure(path)]
    too_long = [f"{path.relative_to(ROOT)}: {n} lines" for path, n in lines.items() if n > MAX_FILE_LINES]
    too_long += [f"{place}: {n} lines" for place, n in functions if n > MAX_FUNCTION_LINES]
    print(summary("files", list(lines.values()), MAX_FILE_LINES))
    print(summary("functions", [n for _, n in functions], MAX_FUNCTION_LINES))
    for entry in too_long:
        print("too long:", entry)
    return 1 if too_long else 0


def measure(path: Path) -> list[tuple[str, int]]:
    """(place, lines) of every function of a file; decorators and docstring do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", length(node))
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring: a long contract is no fault."""
    last = node.end_lineno or node.lineno
    total = last - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        total -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return total


def summary(what: str, sizes: list[int], limit: int) -> str:
    """One line: how many, the median, nine in ten, the longest."""
    if not sizes:
        return f"{what}: none"
    ninth = sorted(sizes)[math.ceil(len(sizes) * 0.9) - 1]
    spread = f"median {median(sizes):g} lines, nine in ten ≤ {ninth}, longest {max(sizes)} of {limit}"
    return f"{what}: {len(sizes)}, {spread}"


if __name__ == "__main__":
    sys.exit(main())
