"""Writes docs/what-is-seen.md from the cases in tests/test_what_is_seen.py: it claims only what a test shows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "what-is-seen.md"
OPENING = """# What is seen of training

<!-- Written by scripts/seen_page.py from tests/test_what_is_seen.py: change that instead. -->

Each line is a test: recorded with `values="stats"` and `ops=True`, the program gives the same bits as without, and its
trace shows what the line says. [How it works](how-it-works.md) lists what else is not seen.

| what | the trace shows | it does not show |
|---|---|---|
"""


def page(cases: Sequence[Any]) -> str:
    """The whole page."""
    return OPENING + "".join(f"| {each.what} | {each.shows} | {each.hides} |\n" for each in cases)


def main() -> int:
    """Write the page; with ``--check`` only say whether it is as it would be written."""
    sys.path.insert(0, str(ROOT))
    text = page(importlib.import_module("tests.test_what_is_seen").CASES)
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/what-is-seen.md is not as the tests say: run python scripts/seen_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
