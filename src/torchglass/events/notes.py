"""Notes that are read again when the parts of a bundle become one trace: how each is written, and how it is found."""

from __future__ import annotations

import re

NO_END = "the recording in {part} has no end"
"""Begins the note for a process that was stopped, as the workers of a DataLoader are when the program fails."""
NO_END_PATTERN = re.compile(NO_END.format(part=r"(?P<part>\S+)"))

NEVER_APPEARED = "the variable {name} never appeared in the block"
"""The note for a followed variable that did not appear; ``name`` is its ``repr``, and may be a glob."""
NEVER_APPEARED_PATTERN = re.compile(NEVER_APPEARED.format(name=r"(['\"])(?P<name>.+)\1"))
