"""Reads the table ``[tool.torchglass]`` of the nearest pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, cast

from torchglass.errors import UsageError


def ignored_names() -> frozenset[str]:
    """Return the findings that the project ignores."""
    given = _table().get("ignore", [])
    if not isinstance(given, list):
        raise UsageError('pyproject.toml: [tool.torchglass] takes ignore = ["NAME", …]')
    return frozenset(map(str, cast("list[object]", given)))


def _table() -> dict[str, Any]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return {}


def _read(file: Path) -> dict[str, Any]:
    """Return the table, empty if the file cannot be read. The tools that own the file report that."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}
    table: object = found.get("tool", {}).get("torchglass", {})
    if isinstance(table, dict):
        return cast("dict[str, Any]", table)
    return {}
