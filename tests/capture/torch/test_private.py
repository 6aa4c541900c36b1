"""The private names of torch: all are there, and in one file (without one: ``transparency/test_features.py``)."""

from __future__ import annotations

from torchglass.capture.torch import private


def test_nothing_is_missing_in_the_torch_that_the_tests_run_with() -> None:
    assert private.MISSING == {}
    assert private.missing_notes() == []


def test_private_names_stand_nowhere_else() -> None:
    """``torch._C`` and its like, in code, only in private.py."""
    import ast
    from pathlib import Path

    import torchglass

    root = Path(torchglass.__file__).parent
    found: list[str] = []
    for path in root.rglob("*.py"):
        if path == Path(private.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
            if named and isinstance(node.value, ast.Name) and node.value.id == "torch":
                found.append(f"{path.name}:{node.lineno} torch.{node.attr}")
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith("torch.") and "._" in module:
                found.append(f"{path.name}:{node.lineno} from {module}")
    assert found == []
