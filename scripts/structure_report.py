"""Checks the package layout: import cycles, class names used twice, private names of torch outside their home."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "torchglass"
PRIVATE_HOME = "capture/torch/private.py"
SCHEMA_HOME = "events/schema.py"
COLUMNS_FILLED = {"settle/columns.py"}
"""Where columns are filled they are named, too."""
MOST_COLUMNS = 5
"""A list of so many columns is a second home of the schema."""


def main() -> int:
    """Print what is against the rules; 1 when there is something."""
    files = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {name: ast.parse(text) for name, text in files.items()}
    found = [
        *_cycles(trees),
        *_shared_classes(trees),
        *_private_names(trees),
        *_lists_of_columns(trees),
    ]
    for each in found:
        print("structure:", each)
    print("structure: checked", len(files), "files")
    return 1 if found else 0


def _imports(name: str, tree: ast.Module, modules: set[str]) -> set[str]:
    """The modules of ours that a module imports, those for type checking too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{each.name}" for each in node.names}
            found |= full & modules or {node.module}
    return (found & modules) - {name}


def _cycles(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Modules that import each other: what nobody of the rest imports, or imports none, is taken away until none is."""
    named = {_module(name): tree for name, tree in trees.items()}
    graph = {name: _imports(name, tree, set(named)) for name, tree in named.items()}
    while True:
        used = set().union(*graph.values()) if graph else set[str]()
        left = {name: below & set(graph) for name, below in graph.items() if name in used}
        left = {name: below & set(left) for name, below in left.items()}
        left = {name: below for name, below in left.items() if below}
        if left == graph:
            break
        graph = left
    if graph:
        found = sorted(name.removeprefix("torchglass.") for name in graph)
        yield f"modules that import each other, or stand between such: {', '.join(found)}"


def _module(name: str) -> str:
    parts = Path(name).with_suffix("").parts
    return ".".join(("torchglass", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _shared_classes(trees: dict[str, ast.Module]) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body if not name.startswith("compat/") else ():  # which has other tools' words
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    shared = {name for name, found in homes.items() if len(found) > 1 and not name.startswith("_")}
    for name in sorted(shared):
        yield f"the class {name} is in {', '.join(homes[name])}: a word means one thing"


def _private_names(trees: dict[str, ast.Module]) -> Iterator[str]:
    for name, tree in trees.items():
        if name == PRIVATE_HOME:
            continue
        for node in ast.walk(tree):
            spelt, line = "", getattr(node, "lineno", 0)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
                spelt = ".".join([node.module or "", *(each.name for each in node.names)])
            elif isinstance(node, ast.Attribute):
                spelt = ast.unparse(node)
            if re.match(r"torch\b.*\._(?!_)", f"{spelt}") and re.fullmatch(r"[\w.]+", spelt):
                yield f"{name}:{line} {spelt}: private names of torch are looked up in {PRIVATE_HOME}"


def _lists_of_columns(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Lists that name many columns of the events table."""
    columns = {
        node.target.id
        for each in trees[SCHEMA_HOME].body
        if isinstance(each, ast.ClassDef) and each.name == "EventColumns"
        for node in each.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for name, tree in trees.items():
        if name == SCHEMA_HOME or name in COLUMNS_FILLED:
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                texts = {each.value for each in node.elts if isinstance(each, ast.Constant)}
                if len(texts & columns) >= MOST_COLUMNS:
                    yield f"{name}:{node.lineno} names columns of events: take them from {SCHEMA_HOME}"


if __name__ == "__main__":
    sys.exit(main())
