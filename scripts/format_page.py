"""Writes docs/format.md from the comments in schema.sql, so that the page cannot say anything else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCHEMA = ROOT / "src" / "torchglass" / "events" / "schema.sql"
PAGE = ROOT / "docs" / "format.md"
OPENING = """# The tables of a trace

<!-- Written by scripts/format_page.py from src/torchglass/events/schema.sql: change that file instead. -->

`trace.sql("SELECT …")` asks these tables, `trace.columns("events")` gives one of them as lists.
A trace holds source code and the text of errors; treat it like the program it came from.
"""
TABLE = re.compile(r"((?:^-- [^\n]*\n)+)CREATE TABLE (\w+) \(\n(.*?)^\);", re.MULTILINE | re.DOTALL)
COLUMN = re.compile(r"^\s+(\w+)\s+([A-Z ]+?),?\s+-- (.*)$", re.MULTILINE)


def page(schema: str) -> str:
    """The whole page."""
    version = re.search(r"^-- FORMAT (\d+)$", schema, re.MULTILINE)
    parts = [OPENING, f"Format {version.group(1) if version else '?'}.\n"]
    for comment, name, body in TABLE.findall(schema):
        parts.append(f"## {name}\n{' '.join(line[3:] for line in comment.splitlines())}\n")
        rows = [
            f"| `{column}` | {' '.join(kind.lower().split())} | {text} |" for column, kind, text in COLUMN.findall(body)
        ]
        parts.append("\n".join(["| column | type | meaning |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _row(column: str, kind: str, text: str) -> str:
    return f"| `{column}` | {' '.join(kind.lower().split())} | {text} |"


def main() -> int:
    """Write the page; with ``--check`` only say whether it is as it should be."""
    text = page(SCHEMA.read_text(encoding="utf-8"))
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/format.md is not what schema.sql says: run `python scripts/format_page.py`")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
