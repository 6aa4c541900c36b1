"""Finds comments in the source that silence findings: ``# torchglass: ignore[broadcast]``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchglass.answers.finding import Finding

_COMMENT = re.compile(r"#\s*torchglass:\s*ignore(?:\[([^\]]*)\])?")


def is_silenced(finding: Finding, sources: Mapping[str, str]) -> bool:
    """Return whether a comment on one of the lines of a finding's expression silences it."""
    at = finding.location
    if at is None or at.file not in sources:
        return False
    lines = sources[at.file].split("\n")  # splitlines() also splits at form feeds, Python does not
    for line in lines[at.line - 1 : at.end_line]:
        told = _COMMENT.search(line)
        if told is None:
            continue
        names = [
            name.strip().replace("_", "-") for name in (told[1] or "").split(",") if name.strip()
        ]
        if not names or finding.kind in names:
            return True
    return False
