"""Where a line was written, as one word at the right edge."""

from __future__ import annotations

from torchglass.events.types import Location
from torchglass.views.text.words import cut, file_name, width_of


class Places:
    """Where a line was written: ``model.py:31`` where the file changes at a depth, ``:33`` while it stays the same."""

    def __init__(self, width: int) -> None:
        self._longest = max(width // 4, 12)
        self._files: list[str] = []

    def place(self, depth: int, at: Location) -> str:
        """The word to show at this depth."""
        files = self._files
        del files[depth + 1 :]
        around = files[-1] if files else ""
        while len(files) <= depth:
            files.append(around)
        if files[depth] == at.file:
            return f":{at.line}"
        files[depth] = at.file
        return whole_place(at, self._longest)


def whole_place(at: Location, longest: int) -> str:
    """``model.py:31``, however long the name."""
    line = f":{at.line}"
    return cut(file_name(at.file), longest - width_of(line)) + line
