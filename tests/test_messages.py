"""The page of messages quotes what is really said."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "messages.md"


def quoted() -> list[str]:
    cells = re.findall(r"^\| (\".*?\") \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [each for cell in cells for each in re.findall(r'"(.*?)"', cell)]


def test_each_message_is_in_the_source() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)  # texts that go on in the next line
    assert len(quoted()) > 20
    assert [each for each in quoted() if each not in joined] == []
