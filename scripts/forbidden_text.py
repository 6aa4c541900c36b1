"""Keeps one machine's paths out of the files that everybody gets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Spelt in pieces, so that this file does not find itself.
FOLDERS = "|".join(["root", "home", "work", "Users"])
FORBIDDEN = {"a path of one machine": rf"(?<![\w.~-])/(?:{FOLDERS})/[\w.-]"}


def main() -> int:
    """Search every file that git tracks or would track; list each find as file:line."""
    found = [entry for path in candidates() for entry in search(path)]
    print("\n".join(found) or "forbidden text: none")
    return 1 if found else 0


def candidates() -> list[Path]:
    """Tracked files and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = (ROOT / name.decode() for name in listing.split(b"\0") if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def search(path: Path) -> list[str]:
    """Every find in a text file; a file that is no UTF-8 is no text of ours."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    return [
        f"{path.relative_to(ROOT)}:{number}: {what}: {match.group(0)}"
        for number, line in enumerate(lines, 1)
        for what, pattern in FORBIDDEN.items()
        if (match := re.search(pattern, line))
    ]


if __name__ == "__main__":
    sys.exit(main())
